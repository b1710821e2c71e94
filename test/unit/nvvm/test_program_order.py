# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order of programs: each of them once; of different lengths, the last ones longest first; of a
matrix product, those that run at once in a square."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neptune_mlir.analysis.tiles import foralls
from neptune_mlir.codegen.nvidia.program_order import (
    PANEL,
    SORTED,
    LongestFirst,
    Panels,
    SideBySide,
)
from neptune_mlir.dialects.context import parse
from neptune_mlir.transforms.tiling.grid_direction import runs_upwards


class Numbers:
    """`Scalars` on integers that are known."""

    index = None

    def __init__(self, blocks):
        self.blocks = blocks

    def op(self, name, operands, kind, **attributes):
        return {
            "arith.divui": lambda a, b: (a % 2**32) // b,
            "arith.remui": lambda a, b: (a % 2**32) % b,
            "arith.ceildivui": lambda a, b: -(-a // b),
        }[name](*operands)

    value = staticmethod(lambda x: x)
    add, sub = staticmethod(lambda a, b: a + b), staticmethod(lambda a, b: a - b)
    mul, minimum = staticmethod(lambda a, b: a * b), staticmethod(min)
    less, select = staticmethod(lambda a, b: a < b), staticmethod(lambda c, a, b: a if c else b)


class Triangle(LongestFirst):
    def _blocks(self):
        return self.s.blocks


class Taken(SideBySide):
    _blocks = Triangle._blocks


@given(
    st.integers(1, 4), st.integers(1, 9), st.integers(1, 12), st.integers(1, 20), st.integers(0, 9),
    st.booleans(),
)
def test_every_program_once_and_the_last_ones_longest_first(
    batch, heads, rows, blocks, told, upwards
):
    """How many the last ones are, the kernel finds, or its caller says (`told`). The long ones are
    those of the last rows, or (`upwards`) of the first."""
    in_two = {1: SimpleNamespace(last=told), 2: SimpleNamespace(last=told)} if told else {}
    kernel = SimpleNamespace(s=Numbers(blocks), bounds=[batch, heads, rows], in_two=in_two)
    order = Triangle(kernel, upwards)
    places = [order.place(number) for number in range(batch * heads * rows)]
    points = batch * heads
    if upwards:
        places = [(rows - 1 - row, point) for row, point in places]
    assert sorted(places) == [(row, point) for row in range(rows) for point in range(points)]
    late = min(points, told or -(-SORTED * blocks // rows)) * rows
    early = places[: len(places) - late]
    assert early == [(rows - 1 - n % rows, n // rows) for n in range(len(early))]
    lengths = [row for row, _ in places[len(places) - late :]]
    assert lengths == sorted(lengths, reverse=True)


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 40))
def test_every_program_of_a_product_once_and_in_panels(batch, columns, rows):
    order = Panels(SimpleNamespace(s=Numbers(1), bounds=[batch, columns, rows]))
    places = [order.place(number) for number in range(batch * columns * rows)]
    points = batch * columns
    assert sorted(places) == [(row, point) for row in range(rows) for point in range(points)]
    panels = [(point // columns, row // PANEL) for row, point in places]
    assert panels == sorted(panels)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 12), st.integers(1, 40))
def test_programs_that_take_turns(batch, heads, rows, blocks):
    """Those of a head from the last one down, for as many heads at once as fill the chip."""
    order = Taken(SimpleNamespace(s=Numbers(blocks), bounds=[batch, heads, rows]))
    places = [order.place(number) for number in range(batch * heads * rows)]
    together, points = -(-blocks // rows), batch * heads
    assert places == [
        (row, point) for first in range(0, points, together) for row in reversed(range(rows))
        for point in range(first, min(points, first + together))
    ]  # fmt: skip


GRID = """
func.func @f(%x: tensor<?xf32>, %n: index, %e: tensor<?xf32>) -> tensor<?xf32> {{
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0 : index
  %o = scf.forall (%h, %p) in (%n, %n) shared_outs(%out = %e) -> (tensor<?xf32>) {{
    %at = affine.apply affine_map<(d0) -> (d0 * 64)>(%p)
    %end = affine.max affine_map<(d0)[s0] -> (s0, d0 * 64)>(%p)[%n]
    %mid = affine.min affine_map<(d0, d1) -> (d0 + 64, d1)>(%at, %end)
    %a = scf.for %j = {0} to {1} step %c64 iter_args(%s = %x) -> (tensor<?xf32>) {{
      scf.yield %s : tensor<?xf32>
    }}
    %b = scf.for %j = {2} to {3} step %c64 iter_args(%s = %a) -> (tensor<?xf32>) {{
      scf.yield %s : tensor<?xf32>
    }}
    scf.forall.in_parallel {{
      tensor.parallel_insert_slice %b into %out[0] [%n] [1] : tensor<?xf32> into tensor<?xf32>
    }}
  }}
  return %o : tensor<?xf32>
}}"""


@pytest.mark.parametrize(("loops", "upwards"), [
    (("%zero", "%at", "%at", "%mid"), False),  # rows that see what is before them
    (("%at", "%mid", "%mid", "%end"), True),  # keys that queries behind them see
    (("%at", "%mid", "%at", "%mid"), False),  # all as long
    (("%zero", "%n", "%zero", "%n"), False),
])  # fmt: skip
def test_the_way_on_which_long_programs_begin_first(loops, upwards):
    module = parse(GRID.format(*loops))
    with module.context:
        (forall,) = foralls(module)
        last = forall.regions[0].blocks[0].arguments[1]
        assert runs_upwards(forall, last) == upwards
