# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of a ring that several matmuls of a loop read: a get for each of them, or one for all.

    t = get ring; a = start t; wait a; b = start t; wait b; release t
->  t = get ring; a = start t; wait a; release t
    u = get ring {reader = 1}; b = start u; wait b; release u

Readers of a ring go through its tiles independently, each in order, and a slot is free once all
have released it. So one matmul may run an iteration later than another that reads the same tile.
Part of the pass `schedule-loops`: it has gets apart while it looks for a schedule, and where both
ended up in one stage they are one get again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.dialects.gpu_attributes import ORDER, READER, STAGE
from neptune_mlir.dialects.op_names import GET, RELEASE, START
from neptune_mlir.dialects.verify_aref import ring_type
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets.resources import LATE_SLOTS


def split_gets(chain: Sequence[Any]) -> None:
    """A get of its own for each matmul that reads a tile, in the bodies of loops that use a ring
    alone, where the ring has a slot for the tile that is loaded meanwhile, or more slots than other
    rings of the loop: it was given them for that (`partition-warps`)."""
    for loop in chain:
        found = _gets(loop)
        least = min((_slots(get) for get in found), default=0)
        for get in found:
            gets = [use.owner.operation for use in get.operands[0].uses]
            alone = all(_is_in(op, chain) for op in gets if op.name == GET)
            if alone and (_slots(get) >= LATE_SLOTS or _slots(get) > least):
                for number, start in enumerate(_matmuls(get)[1:], 1):
                    _read_apart(get, start, number)


def join_gets(chain: Sequence[Any]) -> None:
    """One get for the readers of a tile in one stage; where there are none, for all."""
    for loop in chain:
        by_ring: dict[Any, list[Any]] = {}
        for get in _gets(loop):
            by_ring.setdefault(get.operands[0], []).append(get)
        for gets in by_ring.values():
            stages: dict[int, list[Any]] = {}
            for get in gets:
                stages.setdefault(STAGE.find(get, 0), []).append(get)
            for number, stage in enumerate(sorted(stages)):
                first, *rest = stages[stage]
                for get in rest:
                    _join(first, get)
                if READER.on(first):
                    READER.drop(first)
                if number:
                    READER.set(first, number)


def _gets(loop: Any) -> list[Any]:
    operations = [op.operation for op in loop.regions[0].blocks[0].operations]
    return [op for op in operations if op.name == GET]


def _slots(get: Any) -> int:
    return int(ring_type(get.operands[0].type)[1])


def _is_in(op: Any, chain: Sequence[Any]) -> bool:
    return any(op.parent == loop for loop in chain)


def _matmuls(get: Any) -> list[Any]:
    """The matmuls of a get's block that read its tile, in order."""
    readers = {use.owner.operation for use in get.results[0].uses}
    operations = [op.operation for op in get.block.operations]
    return [op for op in operations if op.name == START and op in readers]


def _release_of(get: Any) -> Any:
    users = (use.owner.operation for use in get.results[0].uses)
    return next(op for op in users if op.name == RELEASE)


def _read_apart(get: Any, start: Any, number: int) -> None:
    with ir.InsertionPoint(start), start.location:
        own = get.clone().operation
    READER.set(own, number)
    tile = get.results[0]
    for k, operand in enumerate(start.operands):
        if operand == tile:
            start.operands[k] = own.results[0]
    (wait,) = [use.owner.operation for use in start.results[0].uses]
    operations = [op.operation for op in wait.block.operations]
    with ir.InsertionPoint(operations[operations.index(wait) + 1]), start.location:
        ir.Operation.create(RELEASE, operands=[own.results[0]])


def _join(first: Any, get: Any) -> None:
    """Two gets of a tile in one, which comes as early as the first and stays as long as both."""
    kept, gone = _release_of(first), _release_of(get)
    if ORDER.on(kept):
        ORDER.set(kept, max(ORDER.of(kept), ORDER.of(gone)))
        ORDER.set(first, min(ORDER.of(first), ORDER.of(get)))
    operations = [op.operation for op in kept.block.operations]
    if operations.index(kept) < operations.index(gone):
        kept.move_after(gone)
    if operations.index(get) < operations.index(first):
        first.move_before(get)
    gone.erase()
    get.results[0].replace_all_uses_with(first.results[0])
    get.erase()
