# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prefixes of a tile (`analysis/body_forms.py`) in one pass.

A thread has runs of neighbours along the loop, its warp all elements between its first and its last
(`layout_work.by_prefixes`). Each thread combines its runs, lanes exchange what their runs are in
all (a butterfly: who lies behind takes what lies before), a warp's runs follow each other, and what
a warp is in all stands in shared memory for the warps behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.algebra.combiners import identity_of
from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.body_forms import Prefix
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Generic, element_bytes, element_of
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.compute import Compute


class PrefixWriter:
    """Writes the prefixes of a tile. Nothing (None) stands for what changes nothing."""

    def __init__(self, compute: Compute, g: Generic, prefix: Prefix, iteration: Layout):
        self._compute, self._s, self._memory = compute, compute.s, compute.memory
        self._threads, self._g, self._prefix = compute.threads, g, prefix
        self._iteration = iteration
        self._lanes = iteration.digits_along([prefix.other], "lane")
        self._warps = iteration.digits_along([prefix.other], "warp")
        self._kind: Any = None

    def write(self, operands: Sequence[Any]) -> list[Any]:
        """The prefix at each register; `operands`: the registers of each input."""
        values = self._elements(operands)
        self._kind = next(v for v in values if v is not None).type
        rows = self._rows()
        runs = [self._runs(row, values) for row in rows]
        behind = self._across_warps(rows, [total for _, total in runs])
        found: list[Any] = [None] * len(values)
        for row, (places, _), before in zip(rows, runs, behind, strict=True):
            for r, (first, own) in zip(row, places, strict=True):
                made = self._join(self._join(before, first), own)
                found[r] = self._identity() if made is None else made
        return found

    def _elements(self, operands: Sequence[Any]) -> list[Any]:
        """What the reduction takes in at each register, in its own place."""
        prefix, s, iteration = self._prefix, self._s, self._iteration
        positions = self._threads.positions(iteration)
        there = [r for r in range(iteration.registers) if r not in iteration.missing]
        points = []
        for r in there:
            at = list(positions[r])
            step = (1 if prefix.upwards else -1) if prefix.strict else 0
            at[prefix.own] = s.add(at[prefix.other], step)  # so that the comparison holds
            points.append(([*(o and o[r] for o in operands), None], at))
        made = self._compute.evaluate(self._g, points, prefix.inner)
        partial = iteration.partial([prefix.other])
        limits = [n if k == prefix.other else None for k, n in enumerate(iteration.shape)]
        found: list[Any] = [None] * iteration.registers
        for r, value in zip(there, made, strict=True):
            self._kind = value.type
            inside = self._memory.in_bounds(positions[r], limits) if r in partial else None
            found[r] = s.select(inside, value, self._identity()) if r in partial else value
        return found

    def _rows(self) -> list[list[int]]:
        """The registers of each row of a thread, in the order of the prefix."""
        offsets = self._iteration.offsets(self._iteration.reg)
        rows: dict[Any, list[int]] = {}
        order = sorted(range(len(offsets)), key=lambda r: int(offsets[r][self._prefix.other]))
        for r in order if self._prefix.upwards else reversed(order):
            row = tuple(n for k, n in enumerate(offsets[r]) if k != self._prefix.other)
            rows.setdefault(row, []).append(r)
        return list(rows.values())

    def _runs(self, row: list[int], values: Sequence[Any]) -> tuple[list[tuple[Any, Any]], Any]:
        """Of each register of a row what its warp has before its run, and what its run has up to
        it; and all of the row that the warp has."""
        digits = self._iteration.digits_of(self._prefix.other, "reg")
        length = next((size for stride, size in digits if stride == 1), 1)
        places: list[tuple[Any, Any]] = []
        carried = None
        for start in range(0, len(row), length):
            total, within = None, []
            for r in row[start : start + length]:
                before, total = total, self._join(total, values[r])
                within.append(before if self._prefix.strict else total)
            before, total = self._across_lanes(total)
            first = self._join(carried, before)
            places += [(first, own) for own in within]
            carried = self._join(carried, total)
        return places, carried

    def _across_lanes(self, total: Any) -> tuple[Any, Any]:
        """What the lanes before have, and all lanes of a row."""
        s, before = self._s, None
        if total is None:
            return None, None
        for distance, digit in self._lanes:
            step = 1
            while step < digit.size:
                other = self._compute.shuffle(total, distance * step)
                first = s.less(s.mod(s.div(self._threads.lane, distance * step), 2), 1)
                kept = self._identity() if before is None else before
                more = self._join(other, before)
                pair = (kept, more) if self._prefix.upwards else (more, kept)
                before, total = s.select(first, *pair), self._join(total, other)
                step *= 2
        return before, total

    def _across_warps(self, rows: Sequence[Sequence[int]], totals: Sequence[Any]) -> list[Any]:
        """What the warps before have of each row."""
        if not self._warps:
            return [None] * len(rows)
        s, memory, prefix = self._s, self._memory, self._prefix
        ((distance, digit),) = self._warps
        number = s.mod(s.div(self._threads.warp, distance), digit.size)
        others = [k for k in range(len(self._g.extents)) if k not in (prefix.own, prefix.other)]
        limits = [self._g.extents[k] for k in others]
        positions = self._threads.positions(self._iteration)
        dtype = element_of(self._g.result)
        layout = L.shared((*limits, digit.size), element_bytes(dtype))
        found = []
        with memory.scratch(layout.bytes) as offset:
            tile = SharedTile(layout, offset, dtype)
            places = [[positions[row[0]][k] for k in others] for row in rows]
            for place, total in zip(places, totals, strict=True):
                if total is None:
                    continue
                at = s.add(memory.shared_offset(layout, [*place, number]), offset)
                one = s.both(s.less(self._threads.lane, 1), memory.in_bounds(place, limits))
                with under(s, one):
                    value = memory.to_memory(total, dtype)
                    memory.store_element(value, memory.shared_pointer(at), layout.element)
            memory.barrier()
            asked = s.mod(self._threads.lane, digit.size)
            sides = (asked, number) if prefix.upwards else (number, asked)
            for place in places:
                inside = [s.minimum(p, n - 1) for p, n in zip(place, limits, strict=True)]
                (value,) = memory.load_shared(tile, [[*inside, asked]])
                value = s.select(s.less(*sides), value, self._identity())
                step = 1
                while step < digit.size:
                    value = self._join(value, self._compute.shuffle(value, step))
                    step *= 2
                found.append(value)
        return found

    def _join(self, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b if a is None else a
        return self._s.combine(self._prefix.name, a, b)

    def _identity(self) -> Any:
        width = self._kind.width if isinstance(self._kind, ir.IntegerType) else 32
        return self._s.constant(identity_of(self._prefix.name, width), self._kind)
