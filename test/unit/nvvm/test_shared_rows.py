# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results wider than an instruction: groups of warps share the rows, each has a part of the
columns, and what they compute of a left factor goes through shared memory."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.analysis.tiles import foralls, nested, read_contraction, read_generic
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.pipelines import common, gpu, nvvm, runner
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.targets.nvidia import nvidia
from neptune_mlir.targets.tuned import Choice
from neptune_mlir.transforms import registry
from support.chips.run_kernels import Specialised, Variant
from support.serving_cases import formula

LATENT, ROPE, PAGE = 384, 16, 16
SPARE = 16, "spare"  # tiles of few rows, for calls with many that leave multiprocessors idle


def kind_of(case):
    kind = case.rows, case.given or case.schedule
    return SPARE if case.spare else kind


@cache
def variants(queries):
    """The tile programs of latents whose warps are specialised, with their cases."""
    program = ops.latent_attention(
        latent_dim=LATENT, rope_dim=ROPE, page_size=PAGE, scale=0.1, q_len=queries, dtype="f16"
    )
    raised = RaisedProgram(program.to_mlir(), "latent")
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")))
    made = raised.variants(base, "", "sm_90a")
    kinds = ((kind_of(case), case, v) for case, v in made if case.merged)
    return base, {kind: (case, variant) for kind, case, variant in kinds}


def specialised(found):
    return {k: x for k, x in found.items() if "neptune.consumers" in str(x[1].module)}


@cache
def kernel(kind):
    return Variant(variants(None)[1][kind][1].copy().module)


def f16(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float16)


def test_groups_share_64_rows():
    base, found = variants(None)
    found = specialised(found)
    assert list(found) == [(64, "private"), (64, 16), (64, 32), (64, "streamed")]
    for module in (base.module, *(v.module for _, v in found.values())):
        text = str(module)
        assert "neptune.consumers = 2" in text
        assert f"tensor<64x{LATENT}xf32>" in text


def test_chunks_load_as_much_as_their_results_are():
    """One sequence of 64 tiles: as many chunks as multiprocessors would store more than they
    load. More than 32, whose join is slower, load twice as much."""
    launch = next(x for x in kernel((64, "private")).plan.launches if not x.of_mask)

    def chunks(columns):
        pages = (columns, PAGE, LATENT + ROPE)
        shapes = [(1, 40, 2, LATENT), (1, 40, 2, ROPE), pages, (1, columns), (1,)]
        return evaluate(launch.grid[0], shapes, [None] * 5, 132)

    assert [chunks(n) for n in (256, 512, 1024)] == [32, 32, 64]
    # each tile is read by the programs of one sequence, one for each 64 rows
    pages = [(1, PAGE, LATENT + ROPE), (1, 1), (1,)]
    few = [
        evaluate(launch.narrow, [(9, h, 2, LATENT), (9, h, 2, ROPE), *pages], [None] * 5, 132)
        for h in (1, 64, 65)
    ]
    assert few == [True, True, False]


def test_calls_of_16_or_32_chunks_have_an_image_that_knows_them():
    base, found = variants(1)
    plans = [gpu.sketch(m.module, "sm_90a", None)
             for m in (base, *(found[64, k][1] for k in ("private", 16, 32)))]  # fmt: skip
    conditions = Conditions(plans[0])
    conditions.of(found[64, "private"][0], plans[1])
    rules = {n: conditions.of(found[64, n][0], plans[k]) for k, n in ((2, 16), (3, 32))}

    def takes(batch, heads, keys):
        columns = keys // PAGE
        shapes = [(batch, heads, 1, LATENT), (batch, heads, 1, ROPE), (0, PAGE, LATENT + ROPE)]
        call = [*shapes, (batch, columns), (batch,)], [None] * 5, 132
        launch = next(x for x in plans[1].launches if not x.of_mask)
        taken = [n for n, rule in rules.items() if evaluate(rule, *call)]
        assert all(evaluate(launch.grid[0], *call) == n for n in taken)
        return sum(taken)

    calls = [(1, 128, 4096), (1, 128, 8192), (1, 128, 1024), (4, 128, 4096), (128, 128, 4096)]
    assert [takes(*call) for call in calls] == [32, 32, 0, 16, 0]


@pytest.mark.parametrize(
    ("kind", "heads"),
    [((64, "private"), 3), ((64, 32), 3), ((64, "streamed"), 3), ((64, "streamed"), 40),
     (SPARE, 40), pytest.param((64, "private"), 40, marks=pytest.mark.nightly)],
)  # fmt: skip
def test_latents(kind, heads):
    """Several tiles, of which the last is partly there; what no sequence uses is NaN."""
    rng = np.random.default_rng(0)
    lengths = np.array([20, 139, 0, 64], np.int32)
    table = rng.permutation(4 * 9).reshape(4, 9).astype(np.int32)
    q, r = f16(4, heads, 2, LATENT), f16(4, heads, 2, ROPE)
    pages = np.full((36, PAGE, LATENT + ROPE), np.nan, np.float16)
    keys = []
    for b, length in enumerate(lengths):
        keys.append(f16(length, LATENT + ROPE))
        for at in range(length):
            pages[table[b, at // PAGE], at % PAGE] = keys[b][at]
        table[b, -(-length // PAGE) :] = -7
    found = kernel(kind)(q, r, pages, table, lengths)
    assert any(block.products for block in kernel(kind).blocks) == (kind != SPARE)
    for b, rows in enumerate(keys):
        both = np.concatenate([q[b], r[b]], -1)
        wanted = formula(both, rows[None], rows[None, :, :LATENT], scale=0.1)[0]
        np.testing.assert_allclose(found[b], wanted, atol=4e-3)


def test_one_group_makes_the_scores():
    """All columns of them, both products on one accumulator; the other group multiplies."""
    base, _ = variants(None)
    text = nvvm.emit_tiles(base.module.operation.clone(), "target", target="sm_90a")
    products = re.findall(r"wgmma.mma_async.sync.aligned.m64n(\d+)", text)
    scores, results = products.count("64"), products.count(str(LATENT // 2))
    loops = 2  # of whole tiles, and with a mask
    assert scores == loops * (LATENT + ROPE) // 16
    assert results == 2 * loops * 64 // 16


def test_keys_and_values_of_their_own():
    """Wide heads: a causal mask, a reference that both groups move together."""
    program = ops.attention(head_dim=512, causal=True, dtype="f16")
    kernel = Specialised(program)
    q, k, v = f16(1, 1, 100, 512), 4 * f16(2, 1, 100, 512)[:1], f16(3, 1, 100, 512)[:1]
    found = kernel(q, k, v)
    assert kernel.blocks[-1].products
    np.testing.assert_allclose(found[0], formula(q[0], k[0], v[0])[0], atol=4e-3)


def test_products_that_are_added_share_an_accumulator():
    """The scores of the rotary part begin with the others."""
    module = variants(None)[0].module.operation.clone()
    with module.context, registry.collect_remarks():
        common.run(module, runner.until(nvvm.to_kernels(nvidia("sm_90a"), ""), "assign-layouts"))
    ops_of = [op for forall in foralls(module) for op in nested(forall.regions[0].blocks[0])]
    generics = [read_generic(op) for op in ops_of if op.name == "linalg.generic"]
    latents, rope, results, *_ = [g for g in generics if read_contraction(g) is not None]
    assert rope.init == latents.result != results.init


def test_products_see_what_threads_wrote(monkeypatch):
    """The simulator sees a factor that is not published."""
    monkeypatch.setattr(hopper, "publish_tile", lambda: None)
    made = Variant(variants(None)[1][64, "streamed"][1].copy().module)
    q, r, pages = f16(1, 1, 1, LATENT), f16(1, 1, 1, ROPE), f16(2, PAGE, LATENT + ROPE)
    with pytest.raises(AssertionError, match="may not see yet"):
        made(q, r, pages, np.array([[0, 1]], np.int32), np.array([20], np.int32))


def test_streams_are_cut_where_whole_ones_leave_multiprocessors_idle():
    """A program whose heads are rows already has the tiles of merged rows for any call."""
    base, found = variants(1)
    module = found[64, "private"][1]
    assert module is not None
    plans = [nvvm.begin_tiles(m.copy().module, target="sm_90a", entry=None, facts=None).plan
             for m in (base, module)]  # fmt: skip
    rule = Conditions(plans[0]).of(found[64, "private"][0], plans[1])
    assert rule[0] == "and" and rule[2][:2] == ["lt", 1]  # chunks: one has nothing to join
    assert rule[1][0] == "lt" and rule[1][1][:2] == ["mul", 20]


def test_few_rows_of_wide_results_take_large_tiles_that_keep_the_chip_busy():
    """A tile of 64 rows is padding for 16 heads, and loads keys as fast as memory gives them."""
    base, found = variants(1)
    plans = [gpu.sketch(m.module, "sm_90a", None)
             for m in (base, found[64, "private"][1], found[16, "private"][1])]  # fmt: skip
    conditions = Conditions(plans[0])
    conditions.of(found[64, "private"][0], plans[1])
    rule = conditions.of(found[16, "private"][0], plans[2])

    def takes_few(batch, heads=16, columns=256):
        shapes = [(batch, heads, 1, LATENT), (batch, heads, 1, ROPE), (0, PAGE, LATENT + ROPE)]
        return bool(evaluate(rule, [*shapes, (batch, columns), (batch,)], [None] * 5, 132))

    assert [takes_few(n) for n in (1, 32, 128, 150, 256)] == [True, True, False, True, False]


def test_small_tiles_take_the_multiprocessors_that_large_ones_leave_idle():
    """Chunks of 64 rows store so much that they are few: of 128 heads and 1024 keys 16 programs,
    where 128 of 16 rows run at once and are done sooner."""
    base, found = variants(1)
    large, small = found[64, "private"], found[SPARE]
    plans = [gpu.sketch(m.module, "sm_90a", None) for m in (base, large[1], small[1])]
    conditions = Conditions(plans[0])
    assert conditions.of(small[0], plans[2]) is None  # the large ones were refused
    conditions.of(large[0], plans[1])
    rule = conditions.of(small[0], plans[2])

    def programs(batch, heads, keys, own=2):
        """Those that a call has with such tiles, 0 where it has others."""
        columns = keys // PAGE
        shapes = [(batch, heads, 1, LATENT), (batch, heads, 1, ROPE), (0, PAGE, LATENT + ROPE)]
        given = [*shapes, (batch, columns), (batch,)], [None] * 5, 132
        launch = next(x for x in plans[own].launches if not x.of_mask)
        return evaluate(rule, *given) and [evaluate(n, *given) for n in launch.grid]

    assert programs(1, 128, 1024, own=1) == [8, 1, 2]
    assert programs(1, 128, 1024) == [16, 1, 8]
    assert programs(2, 128, 1024) == [8, 2, 8]
    assert programs(1, 64, 4096) == [32, 1, 4]  # a join of 33 takes longer, and no chunk is shorter
    for call in [(1, 128, 4096), (4, 128, 1024), (128, 128, 4096)]:
        assert not programs(*call)  # 64 programs of large tiles have as little to do
    assert not programs(1, 64, 64)  # one chunk, and nothing to join
    assert not programs(1, 16, 1024)  # all rows fit one tile


def test_parts_of_columns_begin_with_a_panel():
    """Two groups have 160 columns each: panels of 64 would have the second begin within one."""
    program = ops.attention(head_dim=320, dtype="f16")
    kernel = Specialised(program, Choice(64, 64, resident=False), 1)
    q, k, v = (f16(1, 1, n, 320) for n in (20, 20, 20))
    found, wanted = kernel(q, k, v), program.reference(*(x.astype(float) for x in (q, k, v)))
    assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < 1e-3


@pytest.mark.parametrize(("width", "shared"), [(288, False), (320, True), (384, True)])
def test_columns_that_no_panels_divide_are_not_shared(width, shared):
    raised = RaisedProgram(ops.attention(head_dim=width, dtype="f16").to_mlir(), "attention")
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")))
    assert ("neptune.consumers = 2" in str(base.module)) == shared
    said = any("2 groups share 288 columns" in text for text in base.facts["remarks"])
    assert said == (not shared)
