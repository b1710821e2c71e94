# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layouts against the fragment formulas of the PTX manual, and what they must keep."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import WarpGrid
from neptune_mlir.analysis.tiles import Window
from neptune_mlir.targets.nvidia import nvidia

ONE = WarpGrid(1, 1, 1)
(MMA,) = nvidia("sm_80").matrix_for("f16")


def held(layout, register, lane):
    return tuple(int(x) for x in layout.positions[register, lane])


def test_accumulator_of_m16n8():
    """c_i: row = lane / 4 (+ 8 for i >= 2), column = lane % 4 * 2 + i % 2."""
    layout = L.accumulator((16, 8), 0, 1, ONE, MMA)
    for i, lane in itertools.product(range(4), range(32)):
        assert held(layout, i, lane) == (lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2)


def test_operand_a_of_m16n8k16():
    """a_i: row = lane / 4 (+ 8 for i / 2 odd), column = lane % 4 * 2 + i % 2 (+ 8 for i >= 4)."""
    layout = L.operand_a((16, 16), 0, 1, ONE, MMA)
    for i, lane in itertools.product(range(8), range(32)):
        row = lane // 4 + 8 * (i // 2 % 2)
        assert held(layout, i, lane) == (row, lane % 4 * 2 + i % 2 + 8 * (i // 4))


def test_operand_b_of_m16n8k16():
    """b_i: k = lane % 4 * 2 + i % 2 (+ 8 for i >= 2), n = lane / 4."""
    layout = L.operand_b((16, 8), 1, 0, ONE, MMA)
    for i, lane in itertools.product(range(4), range(32)):
        assert held(layout, i, lane) == (lane % 4 * 2 + i % 2 + 8 * (i // 2), lane // 4)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_operands_in_runs(count):
    """A thread has neighbours along k, and the same ones of both operands, piece by piece."""
    i, deep = MMA.along(count), 16 * count * 2
    a, b = L.operand_a((16, deep), 0, 1, ONE, i), L.operand_b((8, deep), 0, 1, ONE, i)

    def of_pieces(layout, lane):
        columns = layout.positions[:, lane, 1].reshape(2 * count, -1)
        return [sorted({*map(int, piece)}) for piece in columns]

    for lane in range(32):
        pieces, start = of_pieces(b, lane), 4 * count * (lane % 4)
        assert of_pieces(a, lane) == pieces
        assert [*itertools.chain(*pieces[:count])] == [*range(start, start + 4 * count)]
        assert [piece[0] for piece in pieces] == [start + i.depth(p) for p in range(2 * count)]
    assert b.run_along(1) == 4 * min(count, 4)
    assert nvidia("sm_80").instruction(i.spread(8).label) == i.spread(8)


def test_registers_without_an_element():
    assert L.accumulator((8, 8), 0, 1, ONE, MMA).missing == {2, 3}
    assert not L.accumulator((9, 8), 0, 1, ONE, MMA).missing
    assert L.accumulator((8, 8), 0, 1, ONE, MMA).beyond == (True, False)


@pytest.mark.parametrize("grid", [WarpGrid(4, 1, 4), WarpGrid(2, 2, 4), WarpGrid(1, 4, 8)])
def test_accumulators_hold_every_element(grid):
    layout = L.accumulator((64, 64), 0, 1, grid, MMA)
    counts = np.zeros((64, 64), int)
    np.add.at(counts, tuple(layout.positions.reshape(-1, 2).T), 1)
    assert (counts == grid.total // (grid.m * grid.n)).all()


def test_accumulator_becomes_operand_a_without_moving():
    grid = WarpGrid(4, 1, 4)
    p, a = L.accumulator((64, 64), 0, 1, grid, MMA), L.operand_a((64, 64), 0, 1, grid, MMA)
    sources = a.sources(p, (0, 1))
    assert sources is not None
    assert (p.positions[sources] == a.positions).all()


def test_other_threads_hold_operand_b():
    grid = WarpGrid(4, 1, 4)
    p, b = L.accumulator((64, 64), 0, 1, grid, MMA), L.operand_b((64, 64), 0, 1, grid, MMA)
    assert b.sources(p, (0, 1)) is None


def test_a_transposition_is_no_exchange_across_one_bit():
    grid = WarpGrid(4, 1, 4)
    p, b = L.accumulator((64, 64), 0, 1, grid, MMA), L.operand_b((64, 64), 0, 1, grid, MMA)
    assert L.crossing(b, p) is None


def test_rows_of_an_accumulator_are_replicated_over_four_lanes():
    rows = L.accumulator((64, 64), 0, 1, WarpGrid(4, 1, 4), MMA).project([0])
    assert rows.registers == 2
    for lane in range(32):
        assert held(rows, 0, lane) == (lane // 4,)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=3), st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 8]), st.booleans(),
)  # fmt: skip
def test_blocked_covers_any_shape(shape, warps, vector, apart):
    layout = L.blocked(shape, 32, warps, vector, apart)
    assert layout.lanes == 32 and layout.warps == warps
    positions = layout.positions.reshape(-1, len(shape))
    held = positions[((positions >= 0) & (positions < shape)).all(1)]
    covered = np.zeros(shape, bool)
    covered[tuple(held.T)] = True
    assert covered.all()
    assert L.parse(str(layout), tuple(shape)) == layout


def test_warps_take_rows_of_their_own():
    """Each row of a tile is a warp's, whether or not threads hold neighbours."""
    for vector in (1, 8):
        layout = L.blocked((4, 256), 32, 4, vector, apart=True)
        rows = layout.positions[..., 0].reshape(-1, layout.warps, layout.lanes)
        assert all(len(np.unique(rows[:, warp])) == 1 for warp in range(layout.warps))


@pytest.mark.parametrize(
    ("multiple", "valid", "size", "width"),
    [(0, None, 2, 8), (0, None, 4, 4), (6, None, 2, 2), (1, None, 2, 1), (8, 20, 2, 4),
     (8, "a value", 2, 8), (1, "a value", 2, 1)],
)  # fmt: skip
def test_what_one_access_may_take(multiple, valid, size, width):
    window = Window(None, (0, 0), (0, 1), (4, 256), (None, valid), multiple)
    assert L.access_width(window, size) == width


@pytest.mark.parametrize("columns", [16, 32, 64, 80, 96, 128, 256])
def test_pieces_of_shared_tiles_meet_no_bank_conflict(columns):
    """The 8 rows of any 8x8 piece of 16-bit elements lie in different groups of 4 banks."""
    layout = L.shared((64, columns), 2)
    for row, chunk in itertools.product(range(0, 64, 8), range(columns // 8)):
        banks = set()
        for r in range(row, row + 8):
            at = r * layout.pitch + 16 * (chunk ^ (r >> layout.shift & layout.mask))
            banks.add(at // 16 % 8)
        assert len(banks) == 8
    assert L.parse(str(layout), (64, columns)) == layout
