# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order of programs: each of them once; of different lengths, the last ones longest first; of a
matrix product, those that run at once in a square."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from neptune_mlir.codegen.nvidia.program_order import PANEL, SORTED, LongestFirst, Panels


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


@given(
    st.integers(1, 4), st.integers(1, 9), st.integers(1, 12), st.integers(1, 20), st.integers(0, 9)
)
def test_every_program_once_and_the_last_ones_longest_first(batch, heads, rows, blocks, told):
    """How many the last ones are, the kernel finds, or its caller says (`told`)."""
    in_two = {1: SimpleNamespace(last=told), 2: SimpleNamespace(last=told)} if told else {}
    kernel = SimpleNamespace(s=Numbers(blocks), bounds=[batch, heads, rows], in_two=in_two)
    order = Triangle(kernel)
    places = [order.place(number) for number in range(batch * heads * rows)]
    points = batch * heads
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
