# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifiers of asynchronous matmuls (`neptune_mlir/dialects/matmul.py`); see `verify`."""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.op_names import GET, RELEASE, START, WAIT
from neptune_mlir.dialects.verify import (
    Rejected,
    check_counts,
    checked,
    integer_of,
    needed,
    tensor_of,
)
from neptune_mlir.ir.bindings import ir


def _pending(op: Any, value: Any) -> Any:
    """The type of the tile that a running matmul computes."""
    kind = value.type
    if not isinstance(kind, ir.DynamicType) or not str(kind).startswith("!neptune.pending<"):
        raise Rejected(op, f"needs a running matmul (!neptune.pending), got {kind}")
    (tile,) = (p.maybe_downcast() for p in ir.DynamicType(kind).params)
    found = tile.value if isinstance(tile, ir.TypeAttr) else None
    if not isinstance(found, ir.RankedTensorType) or not found.has_static_shape:
        raise Rejected(op, f"needs a matmul of a tile of static shape, got {tile}")
    return found


@checked
def start(op: Any) -> None:
    check_counts(op, operands=3)
    kinds = [tensor_of(op, value, "a factor or accumulator") for value in op.operands]
    _check_contraction(op, [shape for shape, _ in kinds])
    tile, kind = _pending(op, op.results[0]), op.operands[2].type
    if tile != kind:
        raise Rejected(op, f"adds to a {kind} and gives a {tile}")
    uses = [use.owner.operation for use in op.results[0].uses]
    if len(uses) != 1 or uses[0].name != WAIT or uses[0].block != op.block:
        raise Rejected(op, f"needs exactly one use, a {WAIT} in the same block")
    for value in op.operands:
        for release in _releases(value, op.block):
            if release.is_before_in_block(uses[0]):
                raise Rejected(release, "releases a tile that a running matmul reads")


def _check_contraction(op: Any, shapes: list[list[int]]) -> None:
    """Two loops of each operand, each loop in two operands, with equal extents."""
    maps = needed(op, "indexing_maps", ir.ArrayAttr, "an array of affine maps")
    if len(maps) != 3 or not all(isinstance(m, ir.AffineMapAttr) for m in maps):
        raise Rejected(op, "needs one affine map for each operand")
    extents: dict[int, list[int]] = {}
    for shape, attribute in zip(shapes, maps, strict=True):
        results = ir.AffineMapAttr(attribute).value.results
        if not all(isinstance(e, ir.AffineDimExpr) for e in results) or len(results) != len(shape):
            raise Rejected(op, f"the map {attribute} does not name a loop for each dimension")
        for e, extent in zip(results, shape, strict=True):
            extents.setdefault(ir.AffineDimExpr(e).position, []).append(extent)
    if sorted(extents) != [0, 1, 2] or any(len(found) != 2 for found in extents.values()):
        raise Rejected(op, "is no contraction: each of three loops runs along two operands")
    for loop, (one, other) in sorted(extents.items()):
        if one != other:
            raise Rejected(op, f"loop {loop} has the extents {one} and {other}")


def _releases(value: Any, block: Any) -> list[Any]:
    """The releases in `block` of a tile from a ring."""
    if isinstance(value, ir.BlockArgument) or value.owner.operation.name != GET:
        return []
    users = [use.owner.operation for use in value.uses]
    return [user for user in users if user.name == RELEASE and user.block == block]


@checked
def wait(op: Any) -> None:
    check_counts(op, operands=1)
    tile = _pending(op, op.operands[0])
    if op.results[0].type != tile:
        raise Rejected(op, f"waits for a {tile} and gives a {op.results[0].type}")
    begun = op.operands[0].owner
    if isinstance(begun, ir.Block) or begun.operation.name != START:
        raise Rejected(op, f"waits for what no {START} gave")
    pending = integer_of(op, "pending")
    if pending < 0:
        raise Rejected(op, f"lets {pending} matmuls run on")
    later = started_between(begun.operation, op)
    if pending > later:
        raise Rejected(
            op, f"lets {pending} matmuls run on, but {later} start between this one and the wait"
        )


def started_between(first: Any, last: Any) -> int:
    """How many matmuls start between two ops of a block. Those of nested regions do not count:
    these need not run."""
    operations = [op.operation for op in first.block.operations]
    between = operations[operations.index(first) + 1 : operations.index(last)]
    return sum(op.name == START for op in between)
