# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Strips of a run-time number of rows, of tiles that are one strip by their size.

A row that fits a tile may have 9 elements or 2000, and only a call knows. All ops of a group then
go over as many rows as half of the nearest cache holds, before they go over the next ones. The last
op that reads a row where an array lies fetches the row that has its place in the next strip, and
who reads a row before another op writes one in an array fetches the memory that is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, VectorEmitter
from neptune_mlir.codegen.cpu.scratch import Slot
from neptune_mlir.codegen.cpu.tile_generic import TileLowering
from neptune_mlir.codegen.cpu.tile_groups import StripGroup
from neptune_mlir.codegen.cpu.tile_ops import TileGeneric, TileOperand, copied_places
from neptune_mlir.ir.bindings import arith
from neptune_mlir.targets.cpu import NEAR_BYTES


def may_cut(em: VectorEmitter, group: StripGroup, local: set[Slot]) -> bool:
    """Whether the ops of a group, none a product, may end at any row.

    Vectors of rows go on behind the last row of a strip. So what they touch is memory of the group
    alone (`local`), which each strip makes anew.
    """
    for member, strip in zip(group.members, group.strip, strict=True):
        if copied_places(member) is not None or not member.live:
            return False
        v = TileLowering(em, member).v
        across = [o for o in member.outputs if v in (None, strip) or not o.uses(v)]
        if any(o.view is not None and o.view.slot not in local for o in across):
            return False
        if v not in (None, strip):
            continue
        views = [o.view for o in member.operands if o.view is not None]
        views += member.loaded.values()
        if any(view.within or not isinstance(view.slot, Slot) for view in views):
            return False
    return True


def rows_near(em: VectorEmitter, group: StripGroup) -> Index:
    """How many rows half of the nearest cache holds, with all that the ops of a group read.

    One where they are fewer than half of the lanes: those gain little by being folded together, and
    what is stored of one row still fits the buffer of a core's stores, so that the next row is read
    meanwhile.
    """
    words: dict[Any, Index] = {}
    read = {o.view.slot for member in group.members for o in member.inputs if o.view is not None}
    for member, strip in zip(group.members, group.strip, strict=True):
        for o in member.operands:
            if o.view is None or not o.uses(strip) or o.view.slot not in read:
                continue
            row: Index = 1
            for d, extent in enumerate(member.extents):
                if d != strip and o.uses(d):
                    bound = member.live[d]
                    row = em.mul(row, extent if bound is None else em.minimum(bound, extent))
            words.setdefault(o.view.slot, row)
    total: Index = 0
    for row in words.values():
        total = em.add(total, row)
    room, few = NEAR_BYTES // 4 // 2, max(1, em.lanes // 2)
    if isinstance(total, int):
        rows = room // max(total, 1)
        return min(group.extent, rows) if rows >= few else 1
    found = arith.divui(em.constant(room), arith.maxui(total, em.constant(1)))
    enough = arith.cmpi(arith.CmpIPredicate.uge, found, em.constant(few))
    return em.minimum(group.extent, em.select(enough, found, 1))


def end_early(
    em: VectorEmitter, group: StripGroup, parts: dict[int, TileGeneric], stop: Index, end: Index,
    rows: Index,
) -> None:  # fmt: skip
    """Let the ops of a strip of so many rows end there.

    Args:
        parts: what the members do in the strip, by their `id`.
        stop: where the strip ends, if not at the `end` of the tile.
    """
    last: dict[Any, int] = {}  # who reads a tile last
    for member, strip in zip(group.members, group.strip, strict=True):
        for o in member.inputs:
            if _is_row_of_array(o, strip):
                assert o.view is not None
                last[o.view.slot] = id(member)
    stop = em.minimum(stop, end)
    _fetch_written(group, parts)
    for member, strip in zip(group.members, group.strip, strict=True):
        part = parts[id(member)]
        part.live = [stop if d == strip else n for d, n in enumerate(part.live)]
        for k, o in enumerate(part.inputs):
            if _is_row_of_array(o, strip) and o.view and last[o.view.slot] == id(member):
                stride = o.view.strides[o.position_of(strip) or 0]
                away = em.value(em.mul(rows, stride))
                part.inputs[k] = replace(o, view=replace(o.view, ahead=away))


def _fetch_written(group: StripGroup, parts: dict[int, TileGeneric]) -> None:
    """Let the last op that reads rows before another writes such rows fetch their memory: a store
    holds its place in the core's buffer until its line is there, and a full buffer stops all."""
    members = list(zip(group.members, group.strip, strict=True))
    for k, (writer, across) in enumerate(members):
        for o in writer.outputs:
            if not _is_row_of_array(o, across):
                continue
            part, n = next((
                (parts[id(member)], n)
                for member, strip in reversed(members[:k]) for n, i in enumerate(member.inputs)
                if _is_row_of_array(i, strip) and _alike(i, strip, o, across)
            ), (None, 0))  # fmt: skip
            if part is not None and (view := part.inputs[n].view) is not None:
                part.inputs[n] = replace(part.inputs[n], view=replace(view, soon=o.view))


def _alike(a: TileOperand, strip: int, b: TileOperand, across: int) -> bool:
    """Whether two rows have as many elements, at the same places."""
    assert a.view is not None and b.view is not None
    same = a.position_of(strip) == b.position_of(across) and a.view.slot is not b.view.slot
    return same and a.view.within == b.view.within


def _is_row_of_array(o: TileOperand, strip: int) -> bool:
    return bool(o.view and o.view.within and len(o.index) > 1 and o.position_of(strip) is not None)
