# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole kernels of specialised warps, right on the simulator."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.ahead_of_wait import EarlyProducer
from neptune_mlir.codegen.nvidia.rings import Rings
from neptune_mlir.frontend import notation
from neptune_mlir.ops.softmax import log_sum_exp
from neptune_mlir.targets.tuned import Choice
from neptune_mlir.transforms.gpu import keep_references
from support.chips import simt
from support.chips.run_kernels import Specialised
from support.moving_scores import inputs
from support.often import nightly_if

HEAD, STREAM = 64, 64
CHOICE = Choice(128, STREAM, resident=False)
GET = Rings.get


@cache
def kernel_of(choice, blocks, **settings):
    """The program and its kernel, for all scores and lengths that tests give it."""
    program = ops.attention(head_dim=HEAD, dtype="f16", **settings)
    return program, Specialised(program, choice, blocks)


def check(kind, n, choice=CHOICE, heads=1, blocks=1, made=kernel_of, **settings):
    """Compare with float64; returns the blocks that ran."""
    program, kernel = made(choice, blocks, **settings)
    assert not kernel.remarks
    given = inputs(kind, n, heads, head=HEAD, stream=STREAM)
    found, want = kernel(*given), program.reference(*(x.astype(float) for x in given))
    if settings.get("return_lse"):
        found, sums = found
        want, sums_wanted = want
        assert np.abs(sums - sums_wanted).max() < 1e-4
    assert np.linalg.norm(found - want) / np.linalg.norm(want) < 1e-3
    groups = choice.rows // 64
    assert all(block.threads == 128 * (groups + 1) for block in kernel.blocks)
    assert all(block.products and block.products % groups == 0 for block in kernel.blocks)
    return kernel.blocks


@pytest.mark.first_of_each("causal")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 128, 333])
def test_attention(n, causal):
    blocks = check("plain", n, causal=causal)
    assert not any(block.products_by_warp for block in blocks)


def test_no_keys_at_all():
    """There are no tensor maps of k and v."""
    kernel = Specialised(ops.attention(head_dim=HEAD, dtype="f16", return_lse=True), CHOICE)
    q, (k, v) = f16(1, 2, 130, HEAD), f16(2, 1, 2, 0, HEAD)
    found, sums = kernel(q, k, v)
    assert (found == 0).all() and (sums == -np.inf).all()


@pytest.mark.first_of_each("kind")
@pytest.mark.parametrize("kind", ["rising", "both", "some", "jumps", "large"])
@pytest.mark.parametrize("causal", [False, True])
def test_references_that_cannot_stay(kind, causal):
    """Warps do the first product again on their own."""
    blocks = check(kind, 333, causal=causal)
    assert any(block.products_by_warp for block in blocks)


def test_warps_part():
    blocks = check("some", 333)
    product = (STREAM // 8) * (HEAD // 16)
    # rows 0 and 97, 194, 291: a warp's each (the last rows come first)
    assert [block.products_by_warp for block in blocks] == [product, product, 2 * product]


@pytest.mark.parametrize("causal", [False, True])
def test_references_that_stay(causal):
    blocks = check("falling", 333, causal=causal)
    assert not any(block.products_by_warp for block in blocks)


@pytest.mark.first_of_each("kind")
@pytest.mark.parametrize("kind", ["plain", "rising"])
@pytest.mark.parametrize("window", [40, 200])
def test_rows_without_keys_in_the_first_tile(kind, window):
    """With a wide window, tiles that are not masked follow."""
    check(kind, 450, causal=True, window=window)


def test_programs_whose_loop_has_no_iteration():
    """The rows of the first tile see no key. Their slot, of which there is one, is free when each
    warp has waited for it: no product keeps the warps of a group together."""
    choice = replace(CHOICE, resident=True, keeps=False)  # (or each warp may read the rows again)
    program = ops.attention(head_dim=HEAD, dtype="f16", causal=True)
    kernel = Specialised(program, choice)
    given = f16(1, 1, 300, HEAD), f16(1, 1, 100, HEAD), f16(1, 1, 100, HEAD)
    found, want = kernel(*given), program.reference(*(x.astype(float) for x in given))
    assert (found[:, :, :200] == 0).all() and np.linalg.norm(want[:, :, 200:]) > 0
    assert np.linalg.norm(found - want) / np.linalg.norm(want) < 1e-3


@pytest.mark.parametrize("kind", ["plain", "rising"])
def test_log_sum_exp(kind):
    check(kind, 200, return_lse=True)


@pytest.mark.parametrize(
    "changes",
    [{"turns": True}, {"skew": False}, {"rows": 64, "keeps": False, "blocks": 2},
     *(pytest.param(changes, marks=pytest.mark.nightly) for changes in (
         {"stream": 128}, {"rows": 64}, {"rows": 192}, {"boxed": False}, {"slots": 3}))],
    ids=str,
)  # fmt: skip
def test_schedules(changes):
    check("rising", 300, replace(CHOICE, **changes), causal=True)


@pytest.mark.first_of_each("blocks")
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_resident_blocks(blocks, causal):
    """Blocks that take programs from a queue; rings and turns go on from one to the next."""
    choice = replace(CHOICE, resident=True, turns=True)
    ran = check("some", 200, choice, heads=3, blocks=blocks, causal=causal)
    assert len(ran) == blocks and sum(block.stored for block in ran) == 6 * 8
    assert ran[0].launch.taken == 0  # as the next launch needs it


RNG = np.random.default_rng(0)


def f16(*shape):
    return RNG.standard_normal(shape).astype(np.float16)


def ragged_product(depth):
    p = notation.Program("product")
    i, j, k = p.axis("i"), p.axis("j", 264), p.axis("k", depth)
    x, w = p.input("x", i, k, dtype="f16"), p.input("w", k, j, dtype="f16")
    p.output(notation.sum(x[i, k] * w[k, j], k), i, j, dtype="f16")
    return p


PROGRAMS = {
    "head dim 128, bf16": (
        lambda: ops.attention(head_dim=128, dtype="bf16", causal=True),
        [*f16(3, 1, 1, 300, 128)], 8e-3,
    ),
    "head dim 80": (
        lambda: ops.attention(head_dim=80, dtype="f16", causal=True), [*f16(3, 1, 1, 200, 80)],
    ),
    "head dims 40 and 72, padded": (
        lambda: ops.attention(head_dim=40, v_dim=72, dtype="bf16"),
        [f16(1, 1, 130, 40), f16(1, 1, 100, 40), f16(1, 1, 100, 72)], 8e-3,
    ),
    "head dim 96, panels of 32 columns": (
        lambda: ops.attention(head_dim=96, dtype="f16", causal=True), [*f16(3, 1, 1, 200, 96)],
    ),
    "head dims 72 and 160, panel by panel": (
        lambda: ops.attention(head_dim=72, v_dim=160, dtype="f16", causal=True),
        [f16(1, 1, 70, 72), f16(1, 1, 140, 72), f16(1, 1, 140, 160)],
    ),
    "rows of 200 in tiles of 64": (
        lambda: ops.rms_norm_matmul(cols=200, out=328, dtype="bf16"),
        [f16(70, 200), f16(200), f16(200, 328)], 8e-3,
    ),
    "a product whose sum ends inside a panel": (
        lambda: ragged_product(328), [f16(130, 328), f16(328, 264)],
    ),
    "a loss of such a product": (
        lambda: ops.linear_cross_entropy(width=328, classes=300, dtype="f16"),
        [f16(130, 328) / 16, f16(300, 328), np.arange(130, dtype=np.int64)],
    ),
    "head dim 256": (lambda: ops.attention(head_dim=256, dtype="f16"), [*f16(3, 1, 1, 200, 256)]),
    "grouped heads, other lengths": (
        lambda: ops.attention(head_dim=128, dtype="f16", causal=True, group=2),
        [f16(1, 4, 130, 128), f16(1, 2, 300, 128), f16(1, 2, 300, 128)],
    ),
    "a moving score": (
        lambda: ops.attention(head_dim=64, dtype="f16", causal=True, alibi=True, softcap=20.0),
        [*f16(3, 1, 2, 200, 64), np.array([0.5, 0.1], np.float32)],
    ),
    "a product of scaled rows": (
        lambda: ops.rms_norm_matmul(cols=256, out=320, dtype="bf16"),
        [f16(200, 256), f16(256), f16(256, 320)], 8e-3,
    ),
    "a product of standardized rows": (
        lambda: ops.layer_norm_matmul(cols=512, out=320, dtype="f16"),
        [f16(200, 512), f16(512), f16(512), f16(512, 320)],
    ),
    "a product of standardized rows, bf16": (
        lambda: ops.layer_norm_matmul(cols=320, out=64, dtype="bf16"),
        [f16(70, 320), f16(320), f16(320), f16(320, 64)], 8e-3,
    ),
    "quantized rows": (
        lambda: ops.absmax_matmul(cols=256, out=256, dtype="f16"), [f16(200, 256), f16(256, 256)],
    ),
    "a loss of a product": (
        lambda: ops.linear_cross_entropy(width=512, classes=640, dtype="f16"),
        [f16(200, 512) / 16, f16(640, 512), np.arange(200, dtype=np.int64)],
    ),
}  # fmt: skip


# head dims and sums of which others have a part
LIKE_OTHERS = (
    "head dim 128, bf16", "head dim 80", "head dims 40 and 72, padded",
    "head dim 96, panels of 32 columns",
    "head dim 256", "a product of standardized rows", "a loss of such a product",
    "a product of scaled rows",
)  # fmt: skip


@pytest.mark.parametrize("name", nightly_if(lambda name: name in LIKE_OTHERS, PROGRAMS))
def test_programs_as_users_compile_them(name):
    make, given, tolerance = (*PROGRAMS[name], 1e-3)[:3]
    program = make()
    if "bf16" in name:
        given = [simt.bf16_round(x) for x in given]
    kernel = Specialised(program, blocks=2)
    found = kernel(*given)
    want = program.reference(*(x if x.dtype == np.int64 else x.astype(float) for x in given))
    pairs = zip(found, want, strict=True) if isinstance(found, list) else [(found, want)]
    for one, other in pairs:
        assert np.linalg.norm(one - other) / np.linalg.norm(other) < tolerance
    assert any(block.products for block in kernel.blocks)


def positive_logits(width):
    """A factor that is computed: the inner loop is pipelined."""
    p = notation.Program("positive_logits")
    i, j, d = p.axis("i"), p.axis("j"), p.axis("d", width)
    x, w = p.input("x", i, d, dtype="f16"), p.input("w", j, d, dtype="f16")
    s = notation.sum(notation.exp(x[i, d]) * w[j, d], d)
    p.output(log_sum_exp(s, j), i, dtype="f32")
    return p


@pytest.mark.parametrize(
    ("make", "rows", "classes", "programs"),
    [
        (lambda w: ops.linear_cross_entropy(width=w, dtype="f16"), 130, 700, 4),
        (lambda w: ops.linear_cross_entropy(width=w, dtype="f16"), 5, 9, 4),
        (positive_logits, 30, 513, 1),
    ],
    ids=["loss", "one tile", "pipelined"],
)
def test_matmuls_in_loops_within_loops(make, rows, classes, programs):
    """Rows and classes that only a call knows: a chunk runs over its tiles of classes, each a sum
    in a loop of its own; the rings go on from one tile to the next."""
    width = 576
    program = make(width)
    kernel = Specialised(program, blocks=2, knobs=f"programs:{programs};each:0")
    given = [f16(rows, width) / 16, f16(classes, width) / 16, np.arange(rows) % classes]
    given = given[: len(program.inputs)]
    found = kernel(*given)
    want = program.reference(*(x if x.dtype == np.int64 else x.astype(float) for x in given))
    assert np.linalg.norm(found - want) / np.linalg.norm(want) < 1e-3
    tiles = -(-rows // 128) * -(-classes // 256)
    groups, steps = 2, width // 64
    assert sum(block.products for block in kernel.blocks) == tiles * groups * steps


def test_matmuls_in_both_loops():
    """Attention with deep keys: scores are a loop within the loop that sums the values, and both
    loops have rings."""
    p = notation.Program("deep_keys")
    i, j, d, e = p.axis("i"), p.axis("j"), p.axis("d", 576), p.axis("e", 64)
    q, k = p.input("q", i, d, dtype="f16"), p.input("k", j, d, dtype="f16")
    v = p.input("v", j, e, dtype="f16")
    s = notation.sum(q[i, d] * k[j, d], d)
    w = notation.exp(s - notation.max(s, j))
    p.output(notation.sum(w * v[j, e], j) / notation.sum(w, j), i, e, dtype="f32")
    kernel = Specialised(p, blocks=2)
    given = [f16(30, 576) / 16, f16(300, 576) / 16, f16(300, 64)]
    found, want = kernel(*given), p.reference(*(x.astype(float) for x in given))
    assert np.linalg.norm(found - want) / np.linalg.norm(want) < 1e-3
    assert any(block.products for block in kernel.blocks)


def test_turns_of_one_product():
    kernel = Specialised(
        ops.rms_norm_matmul(cols=256, out=64, dtype="bf16"), replace(CHOICE, turns=True)
    )
    text = str(kernel.module)  # who gives a turn has taken one, but at the start
    assert text.count("bar.sync $0, 256") == text.count("bar.arrive $0, 256") - 1 == 1
    x, scale, w = f16(200, 256), f16(256), f16(256, 64)
    found = kernel(x, scale, w)
    want = ops.rms_norm_matmul().reference(*(a.astype(float) for a in (x, scale, w)))
    assert np.linalg.norm(found - want) / np.linalg.norm(want) < 8e-3


@pytest.mark.parametrize("cols", [320, 512])  # corrected from tile to tile; a row at once
def test_standardized_rows_with_large_means_and_without_numbers(cols):
    """What is subtracted leaves no error behind, and a row that holds a NaN is alone with it."""
    program = ops.layer_norm_matmul(cols=cols, out=64, dtype="f16")
    x, *others = f16(70, cols), f16(cols), f16(cols), f16(cols, 64)
    x[::2] += 1000  # f16 has steps of 1/2 there
    x[5, 7], x[6, 9] = np.nan, np.inf
    found = Specialised(program, blocks=2)(x, *others).astype(float)
    with np.errstate(invalid="ignore"):
        want = program.reference(*(a.astype(float) for a in (x, *others)))
    lost = np.isnan(found).all(axis=1)
    assert lost.nonzero()[0].tolist() == [5, 6] and np.isfinite(found[~lost]).all()
    errors = np.linalg.norm(found - want, axis=1) / np.linalg.norm(want, axis=1)
    assert errors[~lost].max() < 1e-3


def test_what_no_kernel_before_makes_comes_before_it_is_over(monkeypatch):
    """The weights of a product, while the norm runs; its rows do not. Tensor maps are fetched."""
    program = ops.layer_norm_matmul(cols=320, out=64, dtype="f16")
    given = f16(70, 320), f16(320), f16(320), f16(320, 64)
    kernel = Specialised(program, blocks=2)
    found = kernel(*given)
    want = program.reference(*(a.astype(float) for a in given))
    assert np.linalg.norm(found - want) / np.linalg.norm(want) < 1e-3
    code = str(kernel.functions()["layer_norm_matmul_1"])
    producer = code[code.index("setmaxnreg.dec") :]
    assert producer.index("complete_tx") < producer.index("griddepcontrol.wait")
    maps = sum(o[0] == "map" for o in kernel.plan.launches[1].operands)
    assert code.count("prefetch.tensormap") == maps > 1
    monkeypatch.setattr(EarlyProducer, "_is_early", lambda *_: True)
    with pytest.raises(AssertionError, match="before it is over"):
        Specialised(program)(*given)


def product(length):
    p = notation.Program("product")
    i, j, k = p.axis("i"), p.axis("j", 256), p.axis("k", length)
    x, w = p.input("x", i, k, dtype="f16"), p.input("w", k, j, dtype="f16")
    p.output(notation.sum(x[i, k] * 1.0 * w[k, j], k), i, j, dtype="f32")
    return Specialised(p, Choice(64, 64, 128), blocks=2)


@pytest.mark.parametrize("length", [128, 200, 832])
def test_products_that_run_on(length):
    """A few steps, and more than the rings have slots; programs one after the other."""
    kernel = product(length)
    x, w = f16(130, length), f16(length, 256)
    assert np.abs(kernel(x, w) - x.astype(float) @ w.astype(float)).max() < 1e-3
    steps = -(-length // 64)
    assert sum(block.products for block in kernel.blocks) == 6 * steps
    assert not kernel.remarks


def test_the_simulator_sees_tiles_of_products_that_run_on(monkeypatch):
    """Given back at once, or never."""
    x, w = f16(130, 832), f16(832, 256)
    with monkeypatch.context() as patch:
        patch.setattr(Rings, "release_before", lambda self, op, there: self.release(op))
        patch.setattr(Rings, "release_last", lambda *_: None)
        with pytest.raises(AssertionError, match="a product reads it"):
            product(832)(x, w)
    monkeypatch.setattr(Rings, "release_last", lambda *_: None)
    with pytest.raises(AssertionError, match="a wait that does not end"):
        product(832)(x, w)


NOW = kernel_of.__wrapped__  # with what a test has put in place


def test_the_simulator_sees_a_tile_that_is_not_released(monkeypatch):
    monkeypatch.setattr(Rings, "release", lambda *_: None)
    with pytest.raises(AssertionError, match="a wait that does not end"):
        check("plain", 333, made=NOW)


def test_the_simulator_sees_a_tile_that_is_released_too_early(monkeypatch):
    wait = hopper.wait_products
    monkeypatch.setattr(hopper, "wait_products", lambda n, values: wait(n + 1, values))
    with pytest.raises(AssertionError, match="a product reads it"):
        check("plain", 333, made=NOW)


def test_the_simulator_sees_a_tile_that_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(Rings, "get", _get_at_once)
    with pytest.raises(AssertionError):
        check("plain", 333, made=NOW)


def _get_at_once(self, op):
    wait = hopper.wait_barrier
    hopper.wait_barrier = lambda *_: None
    try:
        return GET(self, op)
    finally:
        hopper.wait_barrier = wait


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_weights_out_of_range_are_seen(monkeypatch):
    monkeypatch.setattr(keep_references, "LARGEST_SUM", 2.0**40)
    check("plain", 333, made=NOW)
    with pytest.raises(AssertionError):
        check("rising", 333, made=NOW)
