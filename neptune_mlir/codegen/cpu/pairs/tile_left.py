# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The left factor of a product of pairs (`tile_pairs`) that is computed in f32: gone over, and
packed as 16-bit numbers row by row, pairs along the summed axis side by side.

It may lie either way. Where its rows are along the summed axis (`P^T dO` of a backward pass), two
of them make a line of words, and blocks of words are transposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.pairs.tile_magnitudes import (
    bits_of,
    folded,
    integer,
    least_with,
    most_with,
)
from neptune_mlir.codegen.cpu.tile_contract import TileContraction
from neptune_mlir.codegen.cpu.tile_copy import transpose_lines
from neptune_mlir.ir.bindings import arith, ir, llvm, vector


def rounded(em: VectorEmitter, value: Any) -> Any:
    """f32 numbers as the bits of bf16 ones, by the instruction beside those of pairs: the nearest,
    and zeros for what is denormal (which goes another way)."""
    name = f"llvm.x86.avx512bf16.cvtneps2bf16.{value.type.element_type.width * em.lanes}"
    made = llvm.call_intrinsic(em.vector_type(ir.BF16Type.get()), name, [value])
    return llvm.bitcast(em.vector_type(integer(16)), made)


class Left:
    """The factor of a product; of its rows so many are `live`."""

    def __init__(self, em: VectorEmitter, c: TileContraction, live: Index):
        self.em, self.live = em, live
        g, (m,) = c.generic, c.rows
        k = g.reduced.index(True)
        self.low, self.width, self.depth = g.lows[m], g.extents[m], g.extents[k]
        self.ends = g.end(em, k, g.extents[k])
        self.turned = c.a.position_of(k) == 0
        assert c.a.view is not None
        self.view = c.a.view

    def largest(self) -> Any:
        """The largest magnitude (the bits of an f32), of as many columns as tiles have."""
        em = self.em

        def one(position: list[Index], found: Any, lanes: int | None) -> Any:
            where = [em.add(at, n) for at, n in zip(first, position, strict=True)]
            return most_with(em, bits_of(em, em.load_vector(self.view, where, 1, lanes), 32), found)

        first = [0, self.low] if self.turned else [self.low, 0]
        rows = (self.ends, self.width) if self.turned else (self.live, self.depth)
        return folded(em, [(rows[0], 1), (rows[1], em.lanes)], one, 32, True)

    def pack(self, made: MemoryView, convert: Callable[[Any], Any]) -> Any:
        """Pack what `convert` makes of vectors; the least magnitude of the factor itself."""
        em = self.em

        def one(position: list[Index], found: Any, lanes: int | None) -> Any:
            where = [em.add(self.low, position[0]), position[1]]
            value = em.load_vector(self.view, where, 1, lanes)
            em.store_vector(made, where, 1, convert(value))
            return least_with(em, bits_of(em, value, 32), found)

        def block(position: list[Index], found: Any, lanes: int | None) -> Any:
            column = em.add(self.low, position[0])
            lines = []
            for r in range(em.lanes):
                pair = [self._row(em.add(position[1], 2 * r + n), column) for n in (0, 1)]
                for value in pair:
                    found = least_with(em, bits_of(em, value, 32), found)
                lines.append(self._words([convert(value) for value in pair]))
            halves = em.vector_type(integer(16), 2 * em.lanes)
            for r, line in enumerate(transpose_lines(em, lines)):
                where = [em.add(column, r), position[1]]
                em.store_vector(made, where, 1, vector.bitcast(halves, line))
            return found

        if self.turned:
            return folded(em, [(self.live, em.lanes), (self.depth, 2 * em.lanes)], block, 32)
        return folded(em, [(self.live, 1), (self.depth, em.lanes)], one, 32)

    def _row(self, row: Index, column: Index) -> Any:
        """A vector of a row along the summed axis; zeros past its end, where it holds anything."""
        em = self.em
        value = em.load_vector(self.view, [row, column], 1)
        if isinstance(self.ends, int) and self.ends == self.depth:
            return value
        inside = arith.cmpi(arith.CmpIPredicate.slt, em.value(row), em.value(self.ends))
        return arith.select(inside, value, em.constant(0.0, value.type))

    def _words(self, pair: list[Any]) -> Any:
        """Two vectors of 16-bit numbers as one of words."""
        wide = self.em.vector_type(integer(32))
        low, high = (arith.extui(wide, half) for half in pair)
        return arith.ori(low, arith.shli(high, self.em.constant(16, wide)))
