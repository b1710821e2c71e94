# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of AMD chips: fragments against the formulas of AMD's instruction set manuals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import WarpGrid
from neptune_mlir.errors import UsageError
from neptune_mlir.targets.amd import TARGETS, amd
from neptune_mlir.targets.chips import gpu_target

ONE = WarpGrid(1, 1, 1)
INSTRUCTIONS = [(t.name, i) for t in TARGETS.values() for i in t.matrix]
IDS = [f"{name} {i.label}" for name, i in INSTRUCTIONS]


def fragments(i):
    """A [m, k], B [k, n] and C [m, n] of one instruction."""
    return (
        L.operand_a((i.m, i.k), 0, 1, ONE, i),
        L.operand_b((i.k, i.n), 1, 0, ONE, i),
        L.accumulator((i.m, i.n), 0, 1, ONE, i),
    )


def held(layout, register, lane):
    return tuple(int(x) for x in layout.positions[register, lane])


def instruction(target, label):
    return amd(target).instruction(label)


def test_accumulator_of_mfma_32x32():
    """Row 8 (r / 4) + 4 (lane / 32) + r % 4, column lane % 32."""
    for label in ("32x32x8 f16", "32x32x8 bf16"):
        *_, c = fragments(instruction("gfx90a", label))
        for r, lane in itertools.product(range(16), range(64)):
            assert held(c, r, lane) == (8 * (r // 4) + 4 * (lane // 32) + r % 4, lane % 32)


def test_accumulator_of_mfma_16x16():
    """Row 4 (lane / 16) + r, column lane % 16."""
    *_, c = fragments(instruction("gfx942", "16x16x16 f16"))
    for r, lane in itertools.product(range(4), range(64)):
        assert held(c, r, lane) == (4 * (lane // 16) + r, lane % 16)


@pytest.mark.parametrize(("m", "k"), [(32, 8), (16, 16)])
def test_operands_of_mfma(m, k):
    """A: row lane % m, k = 4 (lane / m) + r. B: k likewise, column lane % m."""
    a, b, _ = fragments(instruction("gfx942", f"{m}x{m}x{k} f16"))
    for r, lane in itertools.product(range(4), range(64)):
        assert held(a, r, lane) == (lane % m, 4 * (lane // m) + r)
        assert held(b, r, lane) == (4 * (lane // m) + r, lane % m)


@pytest.mark.parametrize(("m", "k"), [(32, 16), (16, 32)])
def test_operands_of_wide_mfma_are_the_documented_ones_but_for_the_order_of_k(m, k):
    """Documented: k = 8 (lane / m) + r. A sum over k may take them in any order that A and B
    share: every slot (lane group, register) holds the same k in both, and each k stands once."""
    a, b, c = fragments(instruction("gfx950", f"{m}x{m}x{k} f16"))
    slots = {}
    for r, lane in itertools.product(range(8), range(64)):
        row, depth = held(a, r, lane)
        assert row == lane % m and held(b, r, lane) == (depth, lane % m)
        assert slots.setdefault((lane // m, r), depth) == depth
    assert sorted(slots.values()) == list(range(k))
    narrow = fragments(instruction("gfx942", "32x32x8 f16" if m == 32 else "16x16x16 f16"))[2]
    assert (c.positions == narrow.positions).all()


def test_fragments_of_wmma_gfx11():
    """A: row lane % 16, all k, in both halves of the wave. C: row 2 r + lane / 16."""
    a, b, c = fragments(instruction("gfx1100", "16x16x16 f16"))
    for r, lane in itertools.product(range(16), range(32)):
        assert held(a, r, lane) == (lane % 16, r)
        assert held(b, r, lane) == (r, lane % 16)
    for r, lane in itertools.product(range(8), range(32)):
        assert held(c, r, lane) == (2 * r + lane // 16, lane % 16)


def test_fragments_of_wmma_gfx12():
    """A: row lane % 16, k = 8 (lane / 16) + r. C: row 8 (lane / 16) + r, column lane % 16."""
    a, b, c = fragments(instruction("gfx1201", "16x16x16 bf16"))
    for r, lane in itertools.product(range(8), range(32)):
        assert held(a, r, lane) == (lane % 16, 8 * (lane // 16) + r)
        assert held(b, r, lane) == (8 * (lane // 16) + r, lane % 16)
        assert held(c, r, lane) == (8 * (lane // 16) + r, lane % 16)


@pytest.mark.parametrize(("name", "i"), INSTRUCTIONS, ids=IDS)
def test_fragments_hold_every_element_equally_often(name, i):
    for layout in fragments(i):
        assert layout.lanes == amd(name).wave
        counts = np.zeros(layout.shape, int)
        np.add.at(counts, tuple(layout.positions.reshape(-1, 2).T), 1)
        assert (counts == layout.registers * layout.lanes // counts.size).all()
        assert counts.min() > 0


@pytest.mark.parametrize(("name", "i"), INSTRUCTIONS, ids=IDS)
def test_an_accumulator_becomes_the_next_operand(name, i):
    """Its rows are the next product's k, its columns stay columns; on gfx11 the halves of the
    wave hold every other row each, so the halves exchange values."""
    rows = max(i.m, i.k)
    c = L.accumulator((rows, i.n), 0, 1, ONE, i)
    b = L.operand_b((rows, i.n), 1, 0, ONE, i)
    if name != "gfx1100":
        assert b.sources(c, (0, 1)) is not None
        return
    assert b.sources(c, (0, 1)) is None
    crossing = L.crossing(b, c)
    assert crossing is not None and crossing.distance == 16
    lanes = np.arange(32)
    for r, halves in enumerate(crossing.sources):
        for half, (register, crossed) in enumerate(halves):
            here = lanes[lanes // 16 == half]
            there = here ^ 16 if crossed else here
            assert (c.positions[register, there] == b.positions[r, here]).all()


@pytest.mark.parametrize(
    ("name", "threads", "registers", "shared", "blocks"),
    [
        ("gfx942", 256, 128, 0, 4),  # registers: 4 waves of 128 fill a quarter of each SIMD
        ("gfx942", 256, 129, 0, 3),  # they go out in units of 8
        ("gfx942", 256, 32, 20 * 1024, 3),  # local memory
        ("gfx950", 256, 32, 20 * 1024, 8),
        ("gfx1100", 128, 256, 0, 2),
        ("gfx1100", 1024, 32, 0, 1),
    ],
)
def test_occupancy(name, threads, registers, shared, blocks):
    assert amd(name).blocks_per_sm(threads, registers, shared) == blocks


def test_unknown_target():
    with pytest.raises(UsageError, match="gfx803"):
        amd("gfx803")
    with pytest.raises(UsageError, match=r"one of: .*sm_90a.*gfx1201"):
        gpu_target("gfx803")


def test_instructions_side_by_side():
    """Row r of number p of 4 is row 4 r + p: what a lane reads of A at one k are 4 neighbours."""
    i = instruction("gfx942", "32x32x8 f16")
    wide = i.wide(4)
    assert (wide.m, wide.n, wide.k) == (128, 32, 8)
    assert instruction("gfx942", wide.label) == wide
    a, _, c = fragments(i)
    wide_a, _, wide_c = fragments(wide)
    for narrow, of_all in ((a, wide_a), (c, wide_c)):
        for p, r, lane in itertools.product(range(4), range(narrow.registers), range(64)):
            row, column = held(narrow, r, lane)
            assert held(of_all, 4 * r + p, lane) == (4 * row + p, column)
