# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of `neptune_mlir.ops` through the whole NVIDIA lowering, against float64."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver.compiler import compile_text, emit_text, lower_text
from neptune_mlir.driver.kernel import Source
from neptune_mlir.pipelines import nvvm
from neptune_mlir.runtime.plan import evaluate
from support.chips.run_kernels import Simulated
from support.often import nightly_if

RNG = np.random.default_rng(1)


def array(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def qkv(head, n, *, heads=1, kv_heads=None, q_len=None, dtype=np.float16):
    kv = (1, kv_heads or heads, n, head)
    return [array(1, heads, q_len or n, head, dtype=dtype), array(*kv, dtype=dtype),
            array(*kv, dtype=dtype)]  # fmt: skip


CASES = {
    "causal": lambda: (ops.attention(head_dim=64, dtype="f16", causal=True), qkv(64, 100)),
    "softcap": lambda: (
        ops.attention(head_dim=64, dtype="f16", causal=True, softcap=50.0), qkv(64, 70)),
    "alibi": lambda: (
        ops.attention(head_dim=64, dtype="f16", causal=True, alibi=True),
        [*qkv(64, 70, heads=2), array(2)]),
    "window": lambda: (
        ops.attention(head_dim=64, dtype="f16", causal=True, window=40), qkv(64, 130)),
    "gqa": lambda: (
        ops.attention(head_dim=64, dtype="f16", causal=True, group=2),
        qkv(64, 70, heads=4, kv_heads=2)),
    "decode": lambda: (
        ops.decode_attention(head_dim=64, dtype="f16"), qkv(64, 200, q_len=1)),
    "decode in chunks": lambda: (
        ops.decode_attention(head_dim=64, dtype="f16"), qkv(64, 3000, q_len=1)),
    "decode softcap": lambda: (
        ops.decode_attention(head_dim=64, dtype="f16", softcap=50.0), qkv(64, 70, q_len=1)),
    "decode of one head": lambda: (
        ops.decode_attention(head_dim=64, dtype="f16", heads=1, batch=1), qkv(64, 200, q_len=1)),
    "decode gqa": lambda: (
        ops.decode_attention(head_dim=64, dtype="f16", group=8),
        qkv(64, 130, heads=8, kv_heads=1, q_len=1)),
    "decode gqa of many chunks": lambda: (
        ops.decode_attention(head_dim=64, dtype="f16", group=2, return_lse=True),
        qkv(64, 600, heads=4, kv_heads=2, q_len=1)),
    "decode of groups of 3": lambda: (
        ops.decode_attention(head_dim=64, dtype="f16", heads=6, kv_heads=2, alibi=True),
        [*qkv(64, 70, heads=6, kv_heads=2, q_len=1), array(6)]),
    "decode gqa of 20": lambda: (
        ops.decode_attention(head_dim=64, dtype="f16", heads=20, kv_heads=1),
        qkv(64, 70, heads=20, kv_heads=1, q_len=1)),
    "other v dim": lambda: (
        ops.attention(head_dim=64, v_dim=32, dtype="f16"),
        [array(1, 1, 70, 64, dtype=np.float16), array(1, 1, 70, 64, dtype=np.float16),
         array(1, 1, 70, 32, dtype=np.float16)]),
    "performer": lambda: (
        ops.performer(features=32, head_dim=16, v_dim=16),
        [array(40, 16), array(40, 16), array(40, 16), array(32, 16)]),
    "f32 attention": lambda: (ops.attention(head_dim=32), qkv(32, 70, dtype=np.float32)),
    "softmax": lambda: (ops.softmax(), [array(5, 300)]),
    "logsumexp": lambda: (ops.logsumexp(), [array(7, 130)]),
    "layer norm": lambda: (ops.layer_norm(), [array(5, 200), array(200), array(200)]),
    "rms norm": lambda: (ops.rms_norm(), [array(5, 200), array(200)]),
    "variance": lambda: (ops.variance(), [array(5, 200)]),
    "cross entropy": lambda: (
        ops.cross_entropy(), [array(5, 100), RNG.integers(0, 100, 5)]),
    "linear cross entropy": lambda: (
        ops.linear_cross_entropy(width=64, dtype="f16"),
        [array(20, 64, dtype=np.float16), array(100, 64, dtype=np.float16),
         RNG.integers(0, 100, 20)]),
    "a loss of deep products": lambda: (
        ops.linear_cross_entropy(width=576, dtype="f16"),
        [array(20, 576, dtype=np.float16), array(70, 576, dtype=np.float16),
         RNG.integers(0, 70, 20)]),
    "columns in tiles": lambda: (
        ops.rms_norm_matmul(cols=64, out=576, dtype="f16"),
        [array(20, 64, dtype=np.float16), array(64, dtype=np.float16),
         array(64, 576, dtype=np.float16)]),
    "rms norm matmul": lambda: (
        ops.rms_norm_matmul(), [array(20, 70), array(70), array(70, 40)]),
    "whole weights, padded": lambda: (
        ops.rms_norm_matmul(cols=48, out=20, dtype="f16"),
        [array(20, 48, dtype=np.float16), array(48, dtype=np.float16),
         array(48, 20, dtype=np.float16)]),
    "scaled rows are the left factor": lambda: (
        ops.rms_norm_matmul(cols=600, out=72, dtype="f16"),
        [array(70, 600, dtype=np.float16), array(600, dtype=np.float16),
         array(600, 72, dtype=np.float16)]),
    "absmax matmul": lambda: (ops.absmax_matmul(), [array(20, 70), array(70, 40)]),
}  # fmt: skip


def run(program, arguments, target="sm_80", **options):
    source = Source.of(program)
    module, _ = lower_text(source.text, "test", target, None, "tile")
    return Simulated(module, target=target, **options)(*arguments)


def exact(program, arguments):
    """What a program says, in float64."""
    return program.reference(*(a.astype(np.float64) if a.dtype.kind == "f" else a
                               for a in arguments))  # fmt: skip


LIKE_OTHERS = (
    "causal", "gqa", "softcap", "alibi", "decode", "decode softcap", "decode gqa",
    "decode of one head", "decode gqa of 20", "softmax", "rms norm", "variance",
)  # fmt: skip


@pytest.mark.parametrize("name", nightly_if(lambda name: name in LIKE_OTHERS, CASES))
def test_operator(name):
    program, arguments = CASES[name]()
    want = exact(program, arguments)
    got = run(program, arguments)
    several = isinstance(want, tuple)
    for g, w in zip(got if several else [got], want if several else [want], strict=True):
        error = np.linalg.norm(g.astype(np.float64) - w)
        assert error <= 2e-3 * np.linalg.norm(w) + 1e-6, error


def test_rows_of_a_product_that_a_reduction_reads_too():
    """Where tiles come by TMA, it reads them as the instruction takes the left factor."""
    program = ops.absmax_matmul(cols=600, out=72, dtype="f16")
    arguments = [array(70, 600, dtype=np.float16), array(600, 72, dtype=np.float16)]
    module, _ = lower_text(Source.of(program).text, "test", "sm_80", None, "tile")
    simulated = Simulated(module, target="sm_90a")
    assert "linalg.copy" not in simulated.assigned
    for got, want in zip(simulated(*arguments), exact(program, arguments), strict=True):
        assert np.linalg.norm(got.astype(np.float64) - want) <= 2e-3 * np.linalg.norm(want)


def test_tiles_of_deep_products_are_copied_whole():
    """Where a loop's steps are whole vectors, so are its positions."""
    program, _ = CASES["a loss of deep products"]()
    source = Source.of(program)
    text, _ = emit_text(source.text, "test", "sm_80", None, None, "ptx")
    assert "cp.async.cg.shared.global" in text
    assert "ld.global.b16" not in text


def test_levels_above_code_need_none(monkeypatch):
    """Which calls have kernels of their own is known by the grids of these."""
    monkeypatch.delattr(nvvm, "emit_tiles")
    source = Source.of(ops.operator("decode_gqa"))
    text, _ = emit_text(source.text, "test", "sm_80", None, None, "tile")
    assert text.startswith("// other calls\n") and text.count("// calls where ") == 1


@pytest.mark.first_of_each("target")
@pytest.mark.parametrize(
    ("target", "options"), [("sm_80", {"warps": 2}), ("sm_80", {"warps": 4}), ("sm_90a", {})]
)
def test_few_rows_on_several_warps(target, options):
    """Rows of padding are no rows: not where warps join theirs, not in shared memory."""
    program, arguments = CASES["decode gqa"]()
    want = exact(program, arguments)
    got = run(program, arguments, target, **options).astype(np.float64)
    assert np.linalg.norm(got - want) <= 2e-3 * np.linalg.norm(want)


@functools.cache
def decoding():
    """The plan of calls with one query and any lengths."""
    source = Source.of(ops.operator("decode_gqa", batch=None))
    module, _ = lower_text(source.text, "test", "sm_90a", None, "tile")
    return Simulated(module, target="sm_90a").plan


@pytest.mark.parametrize(
    ("batch", "length", "programs", "join"),
    [
        (1, 4224, 33 * 8, "many"),  # 2 a multiprocessor
        (1, 4096, 32 * 8, "some"),  # as long as 33 would be, and a smaller join
        (2, 4096, 16 * 16, "some"),
        (1, 256, 8 * 8, "few"),  # a tile each
        (4, 4096, 8 * 32, "few"),
        (50, 4096, 400, "few"),  # all at once without a cut
        (100, 4096, 2 * 800, "few"),  # in waves: in small pieces
        (100, 1000, 800, "few"),  # too short for pieces
        (0, 4096, 0, "few"),
    ],
)
def test_programs_of_a_decode_step(batch, length, programs, join):
    """One of three joins has programs: that for 8 chunks, for 32, or for all there can be."""
    plan = decoding()
    shapes = [(batch, heads, n, 128) for heads, n in ((64, 1), (8, length), (8, length))]
    grids = [math.prod(int(evaluate(e, shapes, [], 132)) for e in x.grid) for x in plan.launches]
    wanted = {"few": batch * 64, "some": batch * 64, "many": batch * 64 * 4}
    assert grids == [programs, *(n * (kind == join) for kind, n in wanted.items())]


def test_programs_of_a_decode_step_on_a_smaller_chip():
    """The plan asks the device; at a launch, 2 programs for each of its multiprocessors."""
    launch = decoding().launches[0]
    shapes = [(1, 64, 1, 128), (1, 8, 4096, 128), (1, 8, 4096, 128)]
    programs = [math.prod(int(evaluate(e, shapes, [], n)) for e in launch.grid) for n in (132, 66)]
    assert programs == [32 * 8, 16 * 8]


@pytest.mark.first_of_each()
@pytest.mark.parametrize(("head", "stages"), [(64, 5), (128, 3), (256, 2)])
def test_tiles_under_way_where_rows_are_few(head, stages):
    """32 KiB of 32 keys and values, beside those that are computed with."""
    program = ops.decode_attention(head_dim=head, dtype="f16")
    module, _ = lower_text(Source.of(program).text, "test", "sm_90a", None, "tile")
    assigned = Simulated(module, target="sm_90a").assigned
    assert f"neptune.stages = {stages} " in assigned
    assert f"neptune.stages = {stages + 1} " not in assigned


def test_columns_that_one_warp_does_not_hold():
    """Of one row: 160 registers of accumulators leave no room for addresses and fragments."""
    source = Source.of(ops.decode_attention(head_dim=320, dtype="f16"))
    bundle = compile_text(source.text, "test", "sm_80", None, None)
    kernels = [k for image in bundle.facts["images"] for k in image["kernels"].values()]
    assert all(kernel["spills"] == 0 for kernel in kernels)
