# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of which one position counts (`analysis/body_forms.py`).

A comparison, a choice and an addition for each element would be the sum, as the body says (the
logit of a row's class cost a third of a loss's instructions). A thread that knows at which of its
elements the position is takes that one: a tree of choices by the bits of the position, one for each
element (half of one where two are in a word), and the body once. The comparison stays in the body,
so whatever else it asks for holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.body_forms import Pick
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Generic
from neptune_mlir.codegen.gpu.scalars import Index
from neptune_mlir.codegen.gpu.tile_forms import Point
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.compute import Compute


class Picker:
    """The elements of a thread among which a `Pick` chooses."""

    def __init__(self, pick: Pick, compute: Compute, g: Generic, iteration: Layout):
        self._pick, self._g, self._compute, self._s = pick, g, compute, compute.s
        offsets = iteration.offsets(iteration.reg)[:, pick.loop]
        self._offsets = [int(n) for n in offsets]  # of each register, from the thread's first
        self._mask, self._end = reduce(or_, self._offsets, 0), iteration.shape[pick.loop]
        here = set(self._offsets)
        self._gaps = [o for o in _with_bits(self._mask) if o not in here]
        self._ends = bool(self._gaps) or iteration.beyond[pick.loop]

    @property
    def suits(self) -> bool:
        """Whether the bits of an offset say which register it is, but for those behind the end."""
        return all(o >= self._end for o in self._gaps)

    def write(
        self, inner: Any, operands: Sequence[Any], positions: Sequence[Sequence[Index]],
        members: Sequence[int],
    ) -> Any:  # fmt: skip
        """The sum of `inner` over the registers `members`; `operands`: those of each input."""
        s, loop, first = self._s, self._pick.loop, members[0]
        elements = [*(o and o[first] for o in operands), None]
        at = list(positions[first])
        start, at[loop] = s.sub(at[loop], self._offsets[first]), 0
        place, value = (
            s.value(self._at((elements, at), v)) for v in (self._pick.place, self._pick.value)
        )
        at[loop] = s.sub(value, place)
        behind = s.value(s.sub(at[loop], start), s.i32)
        for k, loops in enumerate(self._g.maps[:-1]):
            if loop in loops and operands[k]:
                table = {self._offsets[r]: operands[k][r] for r in members}
                elements[k] = self._chosen(table, behind)
        found = self._is_zero(s.op("arith.andi", [behind, s.constant(~self._mask, s.i32)], s.i32))
        if self._ends:
            found = s.both(found, s.less(at[loop], self._end))
        picked = self._at((elements, at), inner)
        return s.select(found, picked, s.constant(0, picked.type))

    def _at(self, point: Point, wanted: Any) -> Any:
        """A value of the body at a point."""
        return next(self._compute.evaluate(self._g, [point], wanted))

    def _is_zero(self, word: Any) -> Any:
        s = self._s
        predicate = ir.IntegerAttr.get(s.i64, 0)
        return s.op("arith.cmpi", [word, s.constant(0, s.i32)], s.i1, predicate=predicate)

    def _chosen(self, table: Mapping[int, Any], behind: Any) -> Any:
        """The entry of a table that the bits of a number say."""
        s, kind = self._s, next(iter(table.values())).type
        pairs = isinstance(kind, (ir.F16Type, ir.BF16Type))
        if not (pairs and self._mask & 1 and all(o ^ 1 in table for o in table)):
            return self._by_bits(table, self._mask, behind)
        some = {o: self._compute.words([table[o], table[o | 1]])[0] for o in table if not o & 1}
        word = self._by_bits(some, self._mask & ~1, behind)
        bit = s.op("arith.andi", [behind, s.constant(1, s.i32)], s.i32)
        distance = s.op("arith.shli", [bit, s.constant(4, s.i32)], s.i32)
        i16 = ir.IntegerType.get_signless(16)
        half = s.op("arith.trunci", [s.op("arith.shrui", [word, distance], s.i32)], i16)
        return s.op("llvm.bitcast", [half], kind)

    def _by_bits(self, table: Mapping[int, Any], mask: int, behind: Any) -> Any:
        s, table = self._s, dict(table)
        while mask:
            bit = mask & -mask
            mask ^= bit
            low = self._is_zero(s.op("arith.andi", [behind, s.constant(bit, s.i32)], s.i32))
            left = {o & ~bit: (table.get(o & ~bit), table.get(o | bit)) for o in table}
            table = {}
            for o, (a, b) in left.items():
                one = b if a is None else a
                table[o] = one if a is None or b is None else s.select(low, a, b)
        (found,) = table.values()
        return found


def _with_bits(mask: int) -> Iterator[int]:
    """The numbers that have no other bits than these."""
    found = 0
    while True:
        yield found
        found = (found - mask) & mask
        if not found:
            return
