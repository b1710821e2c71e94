# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that read sums of several programs begin before the last of these programs has ended.

    %s = scf.forall (%b, %j) in (%m, %n) ... { neptune.add_slice ... }   (in turns)
    %r = scf.forall (%b, %i) ... {
      neptune.await_sums %s[%b, %row, 0], %last, %first    <-
      %tile = tensor.extract_slice %s[%b, %row, 0] ...

Programs that add in turns (`in_turns`) leave a number for each tile. Where program 0 adds last to
each tile, its number says that the tile is done. Those that add in any order count themselves, and
all of them together say that all tiles are. So a kernel behind need not wait for the last program:
its own fill what the last ones leave idle (`codegen.overlap`).
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import (
    is_tensor,
    multiple_of,
    nested,
    shape_of,
    slice_parts,
    strip_slice,
    turn_of,
)
from neptune_mlir.dialects.attributes import IN_ORDER
from neptune_mlir.dialects.op_names import ADD_SLICE, AWAIT_SUMS, COUNT, TURN
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.tiling.host_plan import grid_bounds


def await_sums(block: Any) -> None:
    """Say in each kernel of a block which of such sums it reads."""
    for op in list(block.operations):
        forall = op.operation
        for number in range(len(forall.results) if IN_ORDER.on(forall) else 0):
            added = [o for o in nested(forall.regions[0].blocks[0]) if _adds_to(o, forall, number)]
            if added and len(turn_of(added[0])) in (COUNT, TURN + 1):
                for use in list(forall.results[number].uses):
                    _await(use.owner.operation, forall, added[0])


def _adds_to(op: Any, forall: Any, number: int) -> bool:
    if op.name != ADD_SLICE:
        return False
    arguments = list(forall.regions[0].blocks[0].arguments)[-len(forall.results) :]
    return bool(strip_slice(op.operands[1]).operands[0] == arguments[number])


def _await(read: Any, forall: Any, added: Any) -> None:
    """Wait in front of a slice that another kernel reads: some of a tile's rows, or whole tiles."""
    if read.name != "tensor.extract_slice" or read.parent.name != "scf.forall":
        return
    counted, row = len(turn_of(added)) == COUNT, len(shape_of(read.operands[0])) - 2
    tile, size = 0 if counted else shape_of(added.operands[0])[0], _rows_of(read, row)
    offsets, _, _ = slice_parts(read)
    begins = offsets[row] if isinstance(offsets[row], int) else multiple_of(offsets[row])
    if size < 1 or (tile and size % tile and tile % size) or begins % size:
        return  # (it waits for the kernel)
    _, programs, _ = grid_bounds(forall)
    made: dict[Any, Any] = {}
    with ir.InsertionPoint(read), read.location:
        *_, first, last = turn_of(added)
        first, last = (_here(value, forall, made) for value in (first, last))
        last = ix.where_less(0, programs[0], last, 0)  # another kernel may run in its place
        ir.Operation.create(
            AWAIT_SUMS, operands=[read.operands[0], *map(ix.value, offsets), ix.value(last), first],
            attributes={"size": _number(size), "tile": _number(tile)},
        )  # fmt: skip


def _rows_of(read: Any, row: int) -> int:
    """Rows of the tile that a slice is (the valid part of)."""
    _, _, kept = slice_parts(read)
    padded = [use.owner.operation for use in read.results[0].uses]
    whole = padded[0].results[0] if [o.name for o in padded] == ["tensor.pad"] else read.results[0]
    return int(shape_of(whole)[kept.index(row)]) if row in kept else 1


def _number(value: int) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _here(value: Any, forall: Any, made: dict[Any, Any]) -> Any:
    """A scalar of a kernel's program at the insertion point: what makes it there, again."""
    op = defining_op(value)
    if op is None or op.parent != forall or is_tensor(value):
        return value
    if value not in made:
        operands = [_here(operand, forall, made) for operand in op.operands]
        copy = op.clone()
        for k, operand in enumerate(operands):
            copy.operands[k] = operand
        made.update(zip(op.results, copy.results, strict=True))
    return made[value]
