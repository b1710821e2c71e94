# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images for some calls: what they carry of their own."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.dialects.attributes import TILE
from neptune_mlir.dialects.program import streams
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from neptune_mlir.pipelines import cases, cpu, grids, nvvm, streamed_factors
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.pipelines.program_lengths import ProgramLengths
from neptune_mlir.pipelines.short_calls import VISIT_ALL
from neptune_mlir.pipelines.ways import Way
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.cpu import CpuExecutable
from neptune_mlir.runtime.plan import Argument, Launch, Plan, evaluate
from neptune_mlir.targets.product_tiles import ProductTile
from neptune_mlir.targets.tuned import Choice, Shape

PLAN = Plan("f", (Argument("tensor", "f16", (None,), "x"),), (), (), (Launch("f_0", (8,), ()),), ())
OTHER = replace(PLAN, launches=(Launch("f_0", (16,), ()),))
LONG = ["le", 100, ["dim", 0, 0]]


def bundle(code, plan=PLAN, unit=16):
    image = {"target": "sm_90a", "offset": 0, "size": len(code), "kernels": {}}
    return Bundle("sm_90a", plan, code, {"images": [image], "alignment": [["argument", 0, unit]]})


@pytest.mark.parametrize(
    ("plan", "unit", "own"),
    [
        (PLAN, 16, set()),
        (OTHER, 16, {"plan"}),
        (PLAN, 8, {"alignment"}),
        (OTHER, 8, {"plan", "alignment"}),
    ],
)
def test_an_image_has_what_differs(plan, unit, own):
    base = bundle(b"base")
    joined = Bundle.from_bytes(base.adding(bundle(b"variant", plan, unit), LONG).to_bytes())
    first, second = joined.facts["images"]
    assert first == base.facts["images"][0]
    assert set(second) == {*first, "when", *own}
    assert (second["when"], joined.plan_of(second)) == (LONG, plan)
    assert second.get("alignment", joined.facts["alignment"]) == [["argument", 0, unit]]
    start = second["offset"]
    assert joined.code[start : start + second["size"]] == b"variant"


# ---- calls with few rows


HEADS = ["mul", ["dim", 0, 0], ["dim", 0, 1]]


@pytest.mark.parametrize(
    ("batch", "heads", "queries", "large", "small", "folded"),
    [
        (1, 64, 1, False, True, True),  # one query: the heads of a group are rows of one product
        (16, 64, 7, False, True, True),
        (16, 64, 8, False, True, False),  # as many tiles with the queries of a head alone
        (16, 64, 16, False, True, False),
        (16, 64, 17, False, False, False),  # two tiles of 16 rows where one of 128 does
        (1, 32, 64, True, False, False),
        (1, 64, 64, False, False, False),
        (1, 1, 2048, True, True, False),  # 16 programs on 132 multiprocessors
        (1, 1, 2128, False, False, False),
        (1, 32, 8192, False, False, False),
    ],
)
def test_which_calls_cut_their_stream(batch, heads, queries, large, small, folded):
    rows = (HEADS, ["ceildiv", ["dim", 0, 2], 128])
    ahead = Launch("f_0_positions", (["ceildiv", ["dim", 0, 2], 128],), ())  # no variant has it
    whole = replace(PLAN, launches=(ahead, Launch("f_0", rows, ())))
    fold = ["mul", ["dim", 0, 0], ["ceildiv", ["dim", 0, 1], 8]]
    shapes = [(batch, heads, queries, 128)]
    for knob, grid, wanted in (
        ("rows:64", (8, HEADS, ["ceildiv", ["dim", 0, 2], 64]), large),
        ("rows:16", (8, HEADS, ["ceildiv", ["dim", 0, 2], 16]), small),
        ("rows:1", (8, fold, ["dim", 0, 2]), folded),
    ):
        variant = replace(PLAN, launches=(Launch("f_0", grid, ()), Launch("f_1", (HEADS,), ())))
        when = Conditions(whole).of(cases.Case(knob, schedule="private"), variant)
        assert bool(evaluate(when, shapes, (), 132)) == wanted, knob


@pytest.mark.parametrize(("queries", "wanted"), [(1, True), (2, False), (7, False)])
def test_one_row_beside_merged_rows_is_for_calls_with_one(queries, wanted):
    """With more, each row would load the stream by itself: 10 times for 10 queries."""
    whole = replace(PLAN, launches=(Launch("f_0", (HEADS, ["ceildiv", ["dim", 0, 2], 128]), ()),))
    fold = ["mul", ["dim", 0, 0], ["ceildiv", ["dim", 0, 1], 8]]
    one = Launch("f_0", (8, fold, ["dim", 0, 2]), ())
    variant = replace(PLAN, launches=(one, Launch("f_1", (HEADS,), ())))
    case = cases.Case("rows:1", ["le", ["dim", 0, 2], 1], schedule="private")
    when = Conditions(whole).of(case, variant)
    assert bool(evaluate(when, [(16, 64, queries, 128)], (), 132)) == wanted


def test_a_call_with_few_rows_has_code_of_its_own():
    rng = np.random.default_rng(0)
    program = ops.attention(head_dim=8)
    made = compiler.compile_text(program.to_mlir(), "attention", "cpu", None, None)
    (variant,) = made.facts["variants"]
    assert variant["when"] == ["le", ["dim", 0, 2], 2]
    assert made.plan_of(variant).launches[0].grid != made.plan.launches[0].grid
    kernel = CpuExecutable(made.to_bytes())
    for queries in (1, 2, 3, 130):
        q, k, v = (rng.standard_normal((2, 1, n, 8)).astype(np.float32) for n in (queries, 70, 70))
        np.testing.assert_allclose(kernel(q, k, v), program.reference(q, k, v), atol=1e-6)
    half = replace(made, code=made.code[: -variant["size"]], facts={})
    small = CpuExecutable(half)  # without: the same numbers
    np.testing.assert_allclose(small(q[:, :, :2], k, v), kernel(q[:, :, :2], k, v), atol=1e-6)


def test_a_call_with_short_rows_has_code_of_its_own():
    """Vectors of rows, where one along a row would be mostly empty."""
    rng = np.random.default_rng(0)
    made = compiler.compile_text(ops.softmax().to_mlir(), "softmax", "cpu", None, None)
    held, short = made.facts["variants"]  # the last one that takes a call has it
    assert held["when"] == ["le", ["dim", 0, 1], cpu.HELD_ROW]
    assert short["when"] == ["le", ["dim", 0, 1], 8]
    kernel = CpuExecutable(made.to_bytes())
    most = cpu.HELD_ROW
    for shape in ((1, 1), (300, 1), (129, 3), (7, 8), (128, 9), (3, 0), (35, most), (3, most + 1)):
        x = rng.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(kernel(x), ops.softmax().reference(x), atol=1e-6)


@pytest.mark.parametrize("program", [ops.softmax(), ops.layer_norm()], ids=["softmax", "norm"])
def test_rows_that_fit_a_tile_are_right_wherever_strips_end(program):
    """All lengths of strips, in arrays that are contiguous along rows or not; NaN where the program
    as written has NaN."""
    rng = np.random.default_rng(1)
    bundle = compiler.compile_text(program.to_mlir(), "rows", "cpu", None, None)
    kernel = CpuExecutable(bundle.to_bytes())
    for rows, length in ((35, 100), (16, 300), (17, 777), (5, 1024), (33, 2048), (18, 2500)):
        x = rng.standard_normal((rows, length)).astype(np.float32)
        others = [rng.standard_normal(length).astype(np.float32) for _ in list(program.inputs)[1:]]
        for given in (x, np.asfortranarray(x)):
            want = program.reference(x.astype(np.float64), *others)
            np.testing.assert_allclose(kernel(given, *others), want, atol=5e-6)
        x[1], x[2, 3], x[3, 5], x[4, : length // 2] = -np.inf, np.nan, np.inf, -np.inf
        with np.errstate(invalid="ignore"):
            want = program.reference(x, *others)
        np.testing.assert_array_equal(np.isnan(kernel(x, *others)), np.isnan(want))


def test_rows_that_are_always_short_have_one_size():
    def fused(length, **knobs):
        program = N.Program("softmax")
        i, j = program.axis("i"), program.axis("j", length)
        x = program.input("x", i, j)[i, j]
        p = N.exp(x - N.max(x, j))
        program.output(p / N.sum(p, j), i, j)
        bound = ";".join(f"{name}:{value}" for name, value in knobs.items())
        module, _ = compiler.lower_text(program.to_mlir(), "s", "cpu", None, "fused", bound)
        (stream,) = streams(module)
        return tuple(TILE.of(stream.operation))

    assert fused(3) == (16, 1)
    assert fused(9) == fused(3, stream=16) == (16, 0)  # one step
    # shorter rows have kernels of their own: one row, whose sums are folded and corrected seldom
    assert fused(None) == fused(5000) == (1, 1024)
    assert fused(None, stream=256) == (16, 256)


def test_lone_nests_and_known_rows_have_no_variants():
    lone = N.Program("lone")
    i, j = lone.axis("i"), lone.axis("j")
    lone.output(N.sum(lone.input("x", i, j)[i, j], j), i)
    for program in (lone, ops.attention(head_dim=8, q_len=64)):
        made = compiler.compile_text(program.to_mlir(), "test", "cpu", None, None)
        assert "variants" not in made.facts


def test_a_lone_product_with_two_axes_of_rows_has_nothing_to_cut():
    """Rows of both could be merged, and a stream be cut: it has none."""
    program = N.Program("products")
    b, i, j, k = program.axis("b"), program.axis("i"), program.axis("j", 16), program.axis("k", 16)
    x, y = program.input("x", b, i, k), program.input("y", k, j)
    program.output(N.sum(x[b, i, k] * y[k, j], k), b, i, j)
    made = compiler.compile_text(program.to_mlir(), "products", "sm_80", None, None)
    assert [len(made.plan_of(image).launches) for image in made.facts["images"]] == [1]


def test_a_product_that_another_kernel_reads_has_its_tile():
    """128x256 would leave half of the multiprocessors idle. Where only a call knows the rows, there
    are no images for them. Pairs are of the product's programs, not of others."""

    def lowered(rows, size=16384):
        p = N.Program("softmax_of_product")
        i, j, k = p.axis("i", rows), p.axis("j", size), p.axis("k", size)
        x, w = p.input("x", i, k, dtype="bf16"), p.input("w", j, k, dtype="bf16")
        s = N.sum(x[i, k] * w[j, k], k)
        e = N.exp(s - N.max(s, j))
        p.output(e / N.sum(e, j), i, j, dtype="bf16")
        raised = RaisedProgram(p.to_mlir(), "x", target="sm_90a")
        base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")[1:2]))
        return raised, base, [case for case in base.cases if case.product is not None]

    assert [case.tile for case in lowered(128)[-1]] == [ProductTile(128, 192)]
    assert not lowered(None)[-1]
    raised, base, (case,) = lowered(1024, 8192)
    assert case.tile == ProductTile(128, 256, pairs=2)
    (variant,) = raised.variant(base, "sm_90a", case)
    assert str(variant.module).count("pairs = 2") == 1


@pytest.mark.parametrize(
    ("queries", "merged", "taller"),
    [
        (16, True, True), (128, False, False), (139, True, False), (170, True, False),
        (190, False, False),
    ],
)  # fmt: skip
def test_rows_are_merged_where_that_leaves_fewer_tiles(queries, merged, taller):
    """33 heads on 3: the last tile of each head alone would be nearly empty. `taller`: beside an
    image with tiles of 192 rows, of which a head has one."""
    whole = replace(PLAN, launches=(Launch("f_0", (HEADS, ["ceildiv", ["dim", 0, 2], 128]), ()),))
    fold = ["ceildiv", ["mul", 11, ["dim", 0, 2]], 128]
    grid = (8, ["mul", ["dim", 0, 0], 3], fold)
    variant = replace(PLAN, launches=(Launch("f_0", grid, ()), Launch("f_1", (HEADS,), ())))
    case = cases.Case("rows:128", schedule="private", merged=True)
    tall = replace(PLAN, launches=(Launch("f_0", (HEADS, ["ceildiv", ["dim", 0, 2], 192]), ()),))
    for others, wanted in (((), merged), ((tall,), taller)):
        conditions = Conditions(whole)
        for other in others:
            conditions.of(cases.Case("length:1", ["le", 1, ["dim", 0, 2]]), other)
        when = conditions.of(case, variant)
        assert bool(evaluate(when, [(14, 33, queries, 216)], (), 132)) == wanted


@pytest.mark.parametrize(("queries", "taken"), [(10, False), (12, True), (16, True), (37, False)])
def test_three_groups_for_merged_rows(queries, taken):
    """12 heads of a group: one tile for two, but not three for four."""
    whole = replace(PLAN, launches=(Launch("f_0", (["dim", 0, 0], 12, 1), ()),))
    conditions, when = Conditions(whole), None
    for n in (128, 192):
        grid = 2, ["dim", 0, 0], ["ceildiv", ["mul", 12, ["dim", 0, 2]], n]
        parts = Launch("f_0", grid, ()), Launch("f_1", (HEADS,), ())
        case = cases.Case(f"rows:{n}", schedule="private", merged=True)
        when = conditions.of(case, replace(PLAN, launches=parts))
    assert bool(evaluate(when, [(40, 12, queries, 120)], (), 132)) == taken


@pytest.mark.parametrize(
    ("heads", "length", "causal", "taken"),
    [
        (12, 2658, False, False),  # 168 programs and 252: two rounds, of three groups and of two
        (11, 2304, False, True),  # 132 are one round
        (40, 2304, False, True),
        (12, 2047, False, False),
        (8, 2304, True, False),  # 96 and 144 causal ones: none ends before the longest does
        (12, 2658, True, False),
        (40, 2304, True, True),
    ],
)
def test_taller_tiles_where_their_rounds_are_not_over_later(heads, length, causal, taken):
    shape = Shape(112, 112, causal, True)
    plans = [
        replace(PLAN, launches=(Launch("f_0", (HEADS, ["ceildiv", ["dim", 0, 2], n]), ()),))
        for n in (128, 192)
    ]
    tiles = (shape, Choice(192, 96)), (shape, Choice(128, 128))
    case = cases.Case("length:2048", ["le", 2048, ["dim", 1, 2]], tiles=tiles)
    when = Conditions(plans[0]).of(case, plans[1])
    shapes = [(1, heads, length, 112), (1, heads, length, 112)]
    assert bool(evaluate(when, shapes, (), 132)) == taken


@pytest.mark.parametrize(
    ("knob", "rows", "heads", "taken"),
    [
        ("rows:128", (192, 128), 12, False),  # 132 programs are one round, 192 two
        ("rows:128", (192, 128), 13, True),  # 143 are two, of a half more rows
        ("few:1", (128, 64), 4, True),  # 64 programs leave half of the multiprocessors idle
        ("few:1", (128, 64), 6, False),  # 96 are one round, 192 two of half as many rows
        ("few:1", (128, 64), 9, False),  # 144 are two rounds, 288 three: a group alone is slow
        ("few:1", (192, 64), 5, False),  # 55 leave half idle, but of 64 rows there are 160
    ],
)
def test_smaller_tiles_where_their_rounds_are_over_sooner(knob, rows, heads, taken):
    shape, length = Shape(64, 64, False, True), ["dim", 1, 2]
    plans = [
        replace(PLAN, launches=(Launch("f_0", (HEADS, ["ceildiv", ["dim", 0, 2], n]), ()),))
        for n in rows
    ]
    tiles = tuple((shape, Choice(n, 128)) for n in reversed(rows))
    condition = None if knob == "few:1" else ["lt", 64, length]
    case = cases.Case(knob, condition, length=length, tiles=tiles)
    when = Conditions(plans[0]).of(case, plans[1])
    shapes = [(1, heads, 2048, 64), (1, heads, 2048, 64)]
    assert bool(evaluate(when, shapes, (), 132)) == taken


@pytest.mark.parametrize(
    ("batch", "queries", "keys", "taken"),
    [
        (49, 19, 19, True),  # 98 programs either way: a tile of 64 rows has all of a head
        (49, 65, 65, False),  # twice as many
        (49, 19, 2000, False),
        (16, 100, 100, True),  # 32 leave half of the multiprocessors idle
    ],
)
def test_small_tiles_where_they_hold_all_rows(batch, queries, keys, taken):
    grid = (["dim", 0, 0], 2)
    plans = [
        replace(PLAN, launches=(Launch("f_0", (*grid, ["ceildiv", ["dim", 0, 2], n]), ()),))
        for n in (128, 64)
    ]
    case = cases.Case("few:1", length=["dim", 1, 2])
    when = Conditions(plans[0]).of(case, plans[1])
    shapes = [(batch, 2, queries, 216), (batch, 1, keys, 216)]
    assert bool(evaluate(when, shapes, (), 132)) == taken


@pytest.mark.parametrize(
    ("rows", "batch", "queries", "keys", "taken"),
    [
        (64, 5, 89, 89, True),  # 230 programs for 120 of 128 rows: each is short
        (64, 5, 89, 200, False),
        (64, 6, 89, 89, False),  # 276 are three rounds
        (16, 3, 11, 11, True),
        (16, 3, 89, 89, False),  # more than multiprocessors
    ],
)
def test_small_tiles_of_merged_rows_where_the_stream_is_one_tile(rows, batch, queries, keys, taken):
    """16 heads on each of two."""
    whole = replace(
        PLAN, launches=(Launch("f_0", (["dim", 0, 0], 32, ["ceildiv", ["dim", 0, 2], 128]), ()),)
    )
    conditions, when = Conditions(whole), None
    for n in (128, rows):
        for schedule in ("private", "streamed"):
            case = cases.Case(f"rows:{n}", schedule=schedule, merged=True, length=["dim", 1, 2])
            tiles = ["dim", 0, 0], 2, ["ceildiv", ["mul", 16, ["dim", 0, 2]], n]
            parts = Launch("f_0", (1, *tiles), ()), Launch("f_1", (HEADS,), ())
            one = (Launch("f_0", tiles, ()),)
            launches = one if schedule == "streamed" else parts
            when = conditions.of(case, replace(PLAN, launches=launches))
    shapes = [(batch, 32, queries, 120), (batch, 2, keys, 120)]
    assert bool(evaluate(when, shapes, (), 132)) == taken


# ---- how many chunks


@pytest.mark.parametrize(
    ("batch", "keys", "chunks"),
    [
        (8, 64, 1),  # a tile: none is cut, though five chunks would leave no multiprocessor idle
        (8, 1024, 1),
        (8, 8192, 4),  # 9 rounds of a quarter for 3 of the whole
    ],
)
def test_chunks_of_programs_that_have_a_multiprocessor_each(batch, keys, chunks):
    program = ops.attention(
        head_dim=64, batch=batch, heads=12, q_len=384, kv_len=keys, dtype="f16"
    )  # 36 tiles of 128 rows a sequence
    knobs = "warp_groups:1;rows:128;chunks:0;programs:132;each:1;columns:32"
    module, _ = compiler.lower_text(program.to_mlir(), "x", "sm_90a", "private", "fused", knobs)
    assert re.findall(r"chunks = (\d+)", str(module)) == [str(chunks)]


@pytest.mark.parametrize(
    ("batch", "keys", "head_dim", "chunks"),
    [
        (7, 9137, 88, 2),  # 196 programs leave a multiprocessor one or two of its four places
        (7, 512, 88, 1),  # not worth a join
        (9, 9137, 88, 1),  # 252 keep memory busy
        (7, 9137, 192, 1),  # a multiprocessor has room for two
        (11, 9137, 40, 2),  # of so narrow rows 308 programs do not keep memory busy
        (11, 9137, 64, 1),  # 616 have no place
    ],
)
def test_one_chunk_more_where_places_are_empty(batch, keys, head_dim, chunks):
    program = ops.attention(
        head_dim=head_dim, batch=batch, heads=28, q_len=1, kv_len=keys, dtype="f16"
    )
    knobs = "product_stream:32;least:16;chunks:0;programs:264;each:2;columns:32"
    module, _ = compiler.lower_text(program.to_mlir(), "x", "sm_90a", "private", "fused", knobs)
    assert re.findall(r"chunks = (\d+)", str(module)) == [str(chunks)]


@pytest.mark.parametrize(("window", "chunks"), [(None, 5), (2048, 5), (256, 1)])
def test_chunks_of_what_a_window_leaves(window, chunks):
    """24 programs see 64 tiles each, or few: these are not worth the launch of a join."""
    masks = {"causal": True, "window": window} if window else {}
    program = ops.attention(
        head_dim=64, batch=2, heads=12, q_len=128, kv_len=8192, dtype="f16", **masks
    )
    knobs = "warp_groups:1;rows:128;chunks:0;programs:132;each:1;columns:32"
    module, _ = compiler.lower_text(program.to_mlir(), "x", "sm_90a", "private", "fused", knobs)
    assert re.findall(r"chunks = (\d+)", str(module)) == [str(chunks)]


def test_a_stream_in_chunks_is_found_behind_a_reduction_in_chunks():
    """The scores' sum is cut and joined first (`f_2`); the condition of an image asks for the
    programs of the stream (`f_3`), or it takes calls that are not its own."""
    names = ("f_0", "f_1", "f_2_few", "f_2_some", "f_2", "f_3", "f_4_few", "f_4_some", "f_4")
    plan = replace(PLAN, launches=tuple(Launch(name, (4, 9), ()) for name in names))
    assert grids.in_parts(plan).kernel == "f_3"
    assert grids.in_parts(replace(plan, launches=plan.launches[:5])).kernel == "f_1"


@pytest.mark.parametrize(("batch", "small"), [(1, True), (16, True), (17, False), (300, False)])
@pytest.mark.parametrize("merged", [False, True])
def test_small_tiles_are_left_to_warp_groups(merged, batch, small):
    """Where these have a tile for a quarter of the multiprocessors. Two heads of a row, or two that
    four heads share."""
    whole = replace(PLAN, launches=(Launch("f_0", (["dim", 0, 0], 8 if merged else 2, 1), ()),))
    made = [cases.Case(f"rows:{n}", schedule="private", merged=merged) for n in (64, 32, 16)]
    large, few = cases.yielding(made if merged else (made[0], made[2]), {208})  # no 32 rows
    conditions = Conditions(whole)
    shapes = [(batch, 8 if merged else 2, 1, 64), (batch, 2, 4000, 64)]
    for case, wanted in ((large, True), (few, small)):
        parts = Launch("f_0", (3, ["dim", 0, 0], 2, 1), ()), Launch("f_1", (HEADS,), ())
        when = conditions.of(case, replace(PLAN, launches=parts))
        assert bool(evaluate(when, shapes, (), 132)) == wanted


@pytest.mark.parametrize(
    ("batch", "keys", "small"),
    [(100, 128, True), (100, 129, False), (133, 128, False)],  # 200 tiles are two rounds
)
def test_a_stream_of_one_tile_is_left_to_a_warp(batch, keys, small):
    whole = replace(PLAN, launches=(Launch("f_0", (["dim", 0, 0], 8, 1), ()),))
    parts = Launch("f_0", (3, ["dim", 0, 0], 2, 1), ()), Launch("f_1", (HEADS,), ())
    variant, length = replace(PLAN, launches=parts), ["dim", 1, 2]
    made = [cases.Case(f"rows:{n}", schedule="private", merged=True) for n in (64, 16)]
    conditions, when = Conditions(whole), None
    for case in cases.yielding(made, {208}):
        when = conditions.of(replace(case, length=length), variant)
    assert bool(evaluate(when, [(batch, 8, 1, 104), (batch, 2, keys, 104)], (), 132)) == small


@pytest.mark.parametrize(("queries", "whole"), [(1, False), (2, True)])
def test_one_row_has_kernels_in_front(queries, whole):
    """Few tiles are visited without them, but by more programs than share an operand."""
    plan = replace(PLAN, launches=(Launch("f_0", (HEADS, 1), ()),))
    fold = Launch("f_0", (1, ["dim", 0, 0], 5, ["dim", 0, 2]), ()), Launch("f_1", (HEADS,), ())
    conditions = Conditions(plan)
    one = cases.Case("rows:1", ["le", ["dim", 0, 2], 1], schedule="private")
    conditions.of(one, replace(PLAN, launches=fold))
    when = conditions.of(cases.Case(VISIT_ALL, visited=1), plan)
    assert bool(evaluate(when, [(8, 35, queries, 80)], (), 132)) == whole


@pytest.mark.parametrize(("keys", "cut"), [(67, False), (2000, True)])
def test_one_chunk_is_not_joined(keys, cut):
    plan = replace(PLAN, launches=(Launch("f_0", (HEADS, ["ceildiv", ["dim", 0, 2], 128]), ()),))
    grid = ["ceildiv", ["dim", 1, 2], 256], HEADS, ["ceildiv", ["dim", 0, 2], 64]
    parts = replace(PLAN, launches=(Launch("f_0", grid, ()), Launch("f_1", (HEADS,), ())))
    when = Conditions(plan).of(cases.Case("rows:64", schedule="private"), parts)
    assert bool(evaluate(when, [(2, 1, 67, 64), (2, 1, keys, 64)], (), 132)) == cut


@pytest.mark.parametrize(
    ("window", "keys", "taken"), [(None, 2000, True), (None, 100, False), (91, 2000, False)]
)
def test_merged_rows_stream_all_that_a_window_leaves_others(window, keys, taken):
    """12 heads of 200 rows on 1: 19 tiles of merged rows a batch entry for 24."""
    shape, length = Shape(32, 32, bool(window), True, bool(window)), ["dim", 1, 2]
    grid = HEADS, ["ceildiv", ["dim", 0, 2], 128]
    whole = replace(PLAN, launches=(Launch("f_0", grid, ()),))
    fold = 4, ["dim", 0, 0], ["ceildiv", ["mul", 12, ["dim", 0, 2]], 128]
    parts = replace(PLAN, launches=(Launch("f_0", fold, ()), Launch("f_1", (HEADS,), ())))
    each = ProgramLengths(length, window, ["le", 1, 1] if window else None)
    tiles = ((shape, Choice(128, 128)),) * 2
    conditions = Conditions(whole)
    first = cases.Case("length:1", ["le", 1, length], tiles=tiles, each=each)
    conditions.of(first, whole)
    case = cases.Case("rows:128", schedule="private", merged=True, length=length)
    when = conditions.of(replace(case, tiles=tiles, each=each), parts)
    assert bool(evaluate(when, [(6, 12, 200, 32), (6, 1, keys, 32)], (), 132)) == taken


@pytest.mark.parametrize(("keys", "cut"), [(557, False), (8000, True)])
def test_chunks_pay_for_their_join(keys, cut):
    """16 heads on 4, 128 queries: 32 tiles of 128 rows, merged or not, leave most of the chip
    idle; 64 plain ones of 64 rows are done sooner than chunks of few keys are joined."""
    shape, length = Shape(248, 192, True, True), ["dim", 1, 2]
    whole, small = (
        replace(PLAN, launches=(Launch("f_0", (HEADS, ["ceildiv", ["dim", 0, 2], n]), ()),))
        for n in (128, 64)
    )
    grid = 3, ["dim", 0, 0], 4, ["ceildiv", ["mul", 4, ["dim", 0, 2]], 128]
    parts = replace(PLAN, launches=(Launch("f_0", grid, ()), Launch("f_1", (HEADS,), ())))
    tiles, each = ((shape, Choice(64, 64)), (shape, Choice(128, 64))), ProgramLengths(length)
    conditions = Conditions(whole)
    conditions.of(cases.Case("few:1", length=length, tiles=tiles, each=each), small)
    merged = cases.Case("rows:128", None, length=length, schedule="private", merged=True)
    when = conditions.of(replace(merged, tiles=tiles, each=each), parts)
    assert bool(evaluate(when, [(2, 16, 128, 248), (2, 4, keys, 248)], (), 132)) == cut


@pytest.mark.parametrize(
    ("batch", "queries", "keys", "cut"),
    [
        (3, 816, 10112, True), (4, 2048, 2048, True),  # 21 and 64 tiles on 132 multiprocessors
        (3, 816, 320, False), (8, 2048, 2048, False),  # a join takes longer; all are busy
    ],
)  # fmt: skip
def test_many_rows_of_few_programs_are_cut_where_joined_sooner(batch, queries, keys, cut):
    rows = ["ceildiv", ["dim", 0, 2], 128]
    plan = replace(PLAN, launches=(Launch("f_0", (HEADS, rows), ()),))
    shape, length = Shape(200, 200, True, True), ["dim", 1, 2]
    first = ["add", ["add", length, 1], ["mul", -1, ["dim", 0, 2]]]
    each = ProgramLengths(length, even=["le", length, ["mul", 2, first]], first=first)
    tiles = ((shape, Choice(64, 64)), (shape, Choice(128, 64)))
    conditions = Conditions(plan)
    conditions.of(cases.Case("few:1", length=length, tiles=tiles, each=each), plan)
    chunks = ["max", 1, ["floordiv", ["multiprocessors"], ["mul", HEADS, rows]]]
    parts = replace(
        PLAN, launches=(Launch("f_0", (chunks, HEADS, rows), ()), Launch("f_1", (HEADS,), ()))
    )
    large = cases.Case("rows:128", schedule="private", tiles=tiles, each=each, by_model=True)
    when = conditions.of(large, parts)
    assert bool(evaluate(when, [(batch, 1, queries, 200), (batch, 1, keys, 200)], (), 132)) == cut


@pytest.mark.parametrize(("heads", "causal", "window", "made"), [
    (4, True, None, True), (4, False, None, True), (67, True, None, False), (4, True, 64, False),
])  # fmt: skip
def test_programs_that_may_be_few_have_chunks_of_many_rows(heads, causal, window, made):
    options = {"causal": causal, "dtype": "f16", **({"window": window} if window else {})}
    text = Source.of(ops.attention(heads=heads, kv_heads=heads, head_dim=64, **options)).text
    program, ways = RaisedProgram(text, "attention"), nvvm.ways("sm_90a")
    base = next(program.lowerings("sm_90a", ways))
    assert any(case.by_model for case in program.cases(base)) == made


@pytest.mark.parametrize(
    ("row_bytes", "wide", "wanted"),
    [
        ({128}, False, [0, 1, 0]), ({256, 128}, False, [0, 1, 0]), ({1152}, True, [0, 1, 0]),
        ({96}, False, [1, 1]),  # where warp groups cut the stream
        ({384}, False, [2, 2]), ({112, 240}, False, [2, 2]),
    ],
)  # fmt: skip
def test_tiles_of_which_rows_are_left(row_bytes, wide, wanted):
    one = cases.Case("rows:64", schedule="private", merged=True)
    made = [replace(one, knob=f"rows:{n}", wide=wide) for n in (64, 32, 16)]
    assert [case.yields for case in cases.yielding(made, row_bytes)] == wanted


def test_bytes_of_streamed_rows():
    program = ops.attention(heads=2, kv_heads=2, head_dim=112, v_dim=48, dtype="bf16")
    text = Source.of(program).text
    way = Way({"streamed": ""})
    module = RaisedProgram(text, "attention").by("sm_80", way, "fused").module
    assert streamed_factors.streamed_row_bytes(module) == {224, 96}


@pytest.mark.parametrize("target", ["cpu", "sm_80", "gfx942"])
def test_a_program_without_kernels(target):
    """What it gives is what it takes."""
    text = "func.func @same(%x: tensor<4x?xf32>) -> tensor<4x?xf32> { return %x : tensor<4x?xf32> }"
    plan = compiler.compile_text(text, "same", target, None, None).plan
    assert not plan.launches and [tuple(r) for r in plan.results] == [("argument", 0)]
