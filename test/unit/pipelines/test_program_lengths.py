# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long programs are, and which tiles are taken for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neptune_mlir import ops
from neptune_mlir.driver.compiler import pipeline_of
from neptune_mlir.driver.family import tiled
from neptune_mlir.pipelines import cases
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.pipelines.program_lengths import ProgramLengths
from neptune_mlir.runtime.plan import Argument, Launch, Plan, evaluate
from neptune_mlir.targets.tuned import Choice, Shape

PLAN = Plan("f", (Argument("tensor", "f16", (None,), "x"),), (), (), (Launch("f_0", (8,), ()),), ())
HEADS = ["mul", ["dim", 0, 0], ["dim", 0, 1]]


@pytest.mark.parametrize(
    ("mask", "calls"),
    [
        # queries, keys: the last rows of a triangle stream half of it at least
        ({}, {(211, 653): True, (211, 421): True, (211, 300): False, (653, 653): False}),
        ({"window": 71}, {(353, 353): False, (653, 653): True, (20, 300): True}),
        ({"documents": True}, None),  # data say how long programs are
    ],
)
def test_which_programs_are_about_as_long(mask, calls):
    program = ops.attention(head_dim=64, dtype="f16", causal=True, **mask)
    raised = RaisedProgram(program.to_mlir(), "x", None, "")
    family = next(tiled(raised, pipeline_of("sm_90a"), "sm_90a", None))
    even = family.lowering.each.even
    assert (even is None) == (calls is None)
    for (queries, keys), wanted in (calls or {}).items():
        shapes = [(1, 1, queries, 64), (1, 1, keys, 64)]
        assert bool(evaluate(even, shapes, (), 132)) == wanted, (queries, keys)


@pytest.mark.parametrize(("rows", "taken"), [(211, False), (500, True)])
def test_programs_that_are_as_long_take_rounds_under_a_mask(rows, taken):
    """39 heads: 78 programs are one round, 156 of half as many rows two."""
    shape, length = Shape(192, 192, True, True), ["dim", 1, 2]
    each = ProgramLengths(length, even=["le", ["dim", 0, 2], 300])
    grids = [(HEADS, ["ceildiv", ["min", ["dim", 0, 2], 211], n]) for n in (128, 64)]
    plans = [replace(PLAN, launches=(Launch("f_0", grid, ()),)) for grid in grids]
    tiles = (shape, Choice(64, 112)), (shape, Choice(128, 96))
    case = cases.Case("few:1", length=length, tiles=tiles, each=each)
    when = Conditions(plans[0]).of(case, plans[1])
    shapes = [(3, 13, rows, 192), (3, 13, 2000, 192)]
    assert bool(evaluate(when, shapes, (), 132)) == taken


@pytest.mark.parametrize(
    ("queries", "keys", "rows", "size", "mean"),
    [
        (320, 320, 128, 64, (128 + 256 + 320) / 3),
        (320, 320, 128, 128, (128 + 256 + 384) / 3),
        (43, 389, 128, 128, 512),
        (256, 256, 64, 128, 192),
        (1000, 1000, 64, 64, 544),
    ],
)
def test_what_programs_of_a_triangle_stream_in_the_mean(queries, keys, rows, size, mean):
    place, length = ["dim", 0, 2], ["dim", 1, 2]
    each = ProgramLengths(length, first=["add", 1, ["add", length, ["mul", -1, place]]])
    found = evaluate(each.mean(rows, size), [(1, 1, queries, 8), (1, 1, keys, 8)], (), 132)
    assert found == pytest.approx(mean, rel=0.06)


@pytest.mark.parametrize(
    ("width", "batch", "length", "tile", "taken"),
    [
        # what the last tile lacks is a twelfth of what three programs stream, not a sixth of each
        (32, 1416, 320, Choice(128, 64), False),
        (32, 1416, 130, Choice(128, 64), True),
        # 180 programs of 64 rows are two rounds, of which each begins anew, 90 of 128 one
        (208, 45, 256, Choice(64, 128), False),
        (208, 30, 256, Choice(64, 128), True),
    ],
)
def test_programs_of_short_triangles(width, batch, length, tile, taken):
    shape, keys = Shape(width, width, True, True), ["dim", 1, 2]
    each = ProgramLengths(keys, first=1)
    plans = [
        replace(PLAN, launches=(Launch("f_0", (["dim", 0, 0], ["ceildiv", ["dim", 0, 2], n]), ()),))
        for n in (128, tile.rows)
    ]
    case = cases.Case("x:1", ["le", 1, keys], tiles=((shape, tile), (shape, Choice(128, 128))))
    when = Conditions(plans[0]).of(replace(case, each=each), plans[1])
    shapes = [(batch, 1, length, width), (batch, 1, length, width)]
    assert bool(evaluate(when, shapes, (), 132)) == taken


@pytest.mark.parametrize(
    ("batch", "cut", "keys", "even", "taken"),
    [
        (10, 1, 389, 1, True),
        (8, 1, 389, 1, False),
        (10, 2, 389, 1, False),
        (10, 1, 389, 0, False),
        (10, 1, 64, 0, True),  # all programs stream one tile
    ],
)
def test_rounds_of_three_groups_of_merged_rows(batch, cut, keys, even, taken):
    """14 heads a group, 43 queries, 6 such groups: 300 tiles of 128 rows are three rounds, 240 of
    192 two; 240 and 192 are two. Chunks fill rounds."""
    shape, length = Shape(112, 112, True, True), ["dim", 1, 2]
    whole = replace(PLAN, launches=(Launch("f_0", (["dim", 0, 0], 84, 1), ()),))
    conditions = Conditions(whole)
    each = ProgramLengths(length, even=["le", 1, even])
    tiles = ((shape, Choice(64, 128)), (shape, Choice(128, 128)))
    when = None
    for n in (128, 192):
        grid = ["dim", 0, 0], 6, ["ceildiv", ["mul", 14, ["dim", 0, 2]], n]
        parts = Launch("f_0", (cut, *grid), ()), Launch("f_1", (HEADS,), ())
        case = cases.Case(f"rows:{n}", merged=True, length=length, tiles=tiles, each=each)
        for schedule, launches in (("private", parts), ("streamed", (Launch("f_0", grid, ()),))):
            if n == 128 and schedule == "streamed":
                continue
            when = conditions.of(
                replace(case, schedule=schedule), replace(PLAN, launches=launches)
            )
            if schedule == "private" and cut > 1:
                break
    assert bool(evaluate(when, [(batch, 84, 43, 112), (batch, 6, keys, 112)], (), 132)) == taken


def plan_of(*grids):
    return replace(PLAN, launches=tuple(Launch(f"f_{k}", g, ()) for k, g in enumerate(grids)))


def test_smaller_tiles_of_aligned_rows_are_compared_with_theirs():
    """192 queries of 3 heads: 9 programs of 64 rows are over before 6 of 128, of any rows and of
    aligned ones, which have an image for any call behind that for few programs."""
    shape, length = Shape(120, 120, False, True, loads=1), ["dim", 1, 2]
    tiles = (shape, Choice(64, 64)), (shape, Choice(128, 64))
    few = cases.Case("few:1", length=length, tiles=tiles, each=ProgramLengths(length))
    large, small = (plan_of((HEADS, ["ceildiv", ["dim", 0, 2], n])) for n in (128, 64))
    conditions, shapes = Conditions(large), [(1, 3, 192, 120), (1, 3, 192, 120)]
    images = ((few, small), (cases.Case(cases.ALIGNED, cases.ANY_CALL), large),
              (replace(few, knob="few:1;aligned:1"), small))  # fmt: skip
    for case, plan in images:
        assert evaluate(conditions.of(case, plan), shapes, (), 132), case.knob


@pytest.mark.parametrize(
    ("loads", "batch", "taken"),
    [(1, 19, True), (0, 19, False), (1, 12, False), (1, 8, False)],  # up to 12: one round
)
def test_small_tiles_where_rows_that_are_none_load_elements(loads, batch, taken):
    """13 merged rows of 11 groups: 209 tiles of 64 rows leave a fifth of two rounds empty."""
    shape, length = Shape(80, 80, False, True, loads=loads), ["dim", 1, 2]
    whole = plan_of((["dim", 0, 0], 143, 1))
    conditions = Conditions(whole)
    each = ProgramLengths(length)
    tiles = ((shape, Choice(64, 64)), (shape, Choice(128, 64)))
    grid, when = (["dim", 0, 0], 11, 1), None
    for n, cut in ((128, 3), (64, 3), (16, 1)):
        case = cases.Case(
            f"rows:{n}", schedule="private", merged=True, length=length, tiles=tiles, each=each,
            yields=cases.WHOLE_TOO * (n < 128),
        )  # fmt: skip
        when = conditions.of(case, plan_of((cut, *grid), (["dim", 0, 0], 143)))
    assert bool(evaluate(when, [(batch, 143, 1, 80), (batch, 11, 10365, 80)], (), 132)) == taken


@pytest.mark.parametrize(
    ("queries", "reach", "taken"), [(13, 17, False), (13, None, True), (200, 17, False)]
)
def test_merged_rows_beside_what_a_window_leaves_plain_ones(queries, reach, taken):
    """6 heads a group: 15 tiles of 128 merged rows are one round, as 90 of 64 plain ones, which are
    as long or shorter."""
    shape, length = Shape(32, 32, reach is not None, True, reach is not None), ["dim", 1, 2]
    tiles = ((shape, Choice(64, 64)), (shape, Choice(128, 128)))
    plain = plan_of((["dim", 0, 0], 18, 1))
    first = ["add", 1, ["add", length, ["mul", -1, ["dim", 0, 2]]]]
    conditions, each = Conditions(plain), ProgramLengths(length, reach, first=first)
    shapes = [(5, 18, queries, 32), (5, 3, 320, 32)]
    few = cases.Case("few:1", length=length, tiles=tiles, each=each)
    assert evaluate(conditions.of(few, plain), shapes, (), 132)
    case = cases.Case(
        "rows:128", schedule="private", merged=True, length=length, tiles=tiles, each=each
    )
    grid = (["dim", 0, 0], 3, 1)
    assert conditions.of(case, plan_of((1, *grid), (["dim", 0, 0], 18))) is not None
    when = conditions.of(replace(case, schedule="streamed"), plan_of(grid))
    assert bool(evaluate(when, shapes, (), 132)) == taken


@pytest.mark.parametrize(("queries", "points"), [(4, 128), (100, 256), (1000, 1024)])
def test_what_tiles_of_merged_rows_stream_under_a_window(queries, points):
    """What a window of 40 leaves any of their places, in tiles of 64."""
    length = ["dim", 1, 2]
    first = ["add", 1, ["add", length, ["mul", -1, ["dim", 0, 2]]]]
    each = ProgramLengths(length, 39, first=first).merged
    found = evaluate(each.points(128, 64), [(1, 1, queries, 8), (1, 1, 1000, 8)], (), 132)
    assert found == points
