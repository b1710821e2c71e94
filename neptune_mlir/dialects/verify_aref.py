# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifiers of asynchronous references (`neptune_mlir/dialects/aref.py`); see `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neptune_mlir.dialects.op_names import CREATE, GET, PAGED, PRODUCER, PUT, RELEASE
from neptune_mlir.dialects.verify import Rejected, check_counts, checked
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

LOADS = ("tensor.extract_slice", "tensor.pad")
_LOOPS = ("scf.for", "scf.yield")


def ring_type(kind: Any) -> tuple[Any, int]:
    """The type of a ring's tiles and the number of its slots, of a verified !neptune.aref."""
    tile, slots = (p.maybe_downcast() for p in ir.DynamicType(kind).params)
    return tile.value, int(slots.value)


def _ring(op: Any, value: Any) -> Any:
    """The type of a ring's tiles."""
    kind = value.type
    if not isinstance(kind, ir.DynamicType) or not str(kind).startswith("!neptune.aref<"):
        raise Rejected(op, f"takes a ring (!neptune.aref), got {kind}")
    tile, slots = (p.maybe_downcast() for p in ir.DynamicType(kind).params)
    if not isinstance(slots, ir.IntegerAttr) or slots.value < 1:
        raise Rejected(op, f"needs a ring of 1 slot or more, got {slots}")
    found = tile.value if isinstance(tile, ir.TypeAttr) else None
    if not isinstance(found, ir.RankedTensorType) or not found.has_static_shape:
        raise Rejected(op, f"needs a ring of tiles of static shape, got {tile}")
    return found


def _in_forall(op: Any) -> None:
    if op.parent is None or op.parent.name != "scf.forall":
        raise Rejected(op, "stands outside the body of an scf.forall")


def _in_producer(op: Any) -> bool:
    while op is not None and op.name != PRODUCER:
        op = op.parent
    return op is not None


def _users(value: Any, name: str) -> list[Any]:
    return [u.owner.operation for u in value.uses if u.owner.operation.name == name]


@checked
def create(op: Any) -> None:
    check_counts(op, operands=0)
    _in_forall(op)
    _ring(op, op.results[0])
    puts, gets = (len(_users(op.results[0], name)) for name in (PUT, GET))
    if (puts == 0) != (gets == 0):
        raise Rejected(op, f"is put in {puts} places and got in {gets}")


@checked
def producer(op: Any) -> None:
    check_counts(op, operands=0, results=0)
    _in_forall(op)
    beside = [o.operation for o in op.parent.regions[0].blocks[0].operations]
    if next(o for o in beside if o.name == PRODUCER) != op:
        raise Rejected(op, "is a second producer of its program")


@checked
def producer_region(op: Any) -> None:
    blocks = list(op.regions[0].blocks)
    if len(blocks) != 1 or len(blocks[0].arguments):
        raise Rejected(op, "must have one block without arguments")
    for inner in _inside(blocks[0]):
        if inner.name == "scf.for" and len(inner.results):
            raise Rejected(inner, "carries a value in a neptune.producer; its loops only load")
        scalar = inner.name.startswith(("arith.", "affine.")) or inner.name == "tensor.dim"
        scalar = scalar or (inner.name == "tensor.extract" and _is_above(inner.operands[0], op))
        scalar = scalar or (inner.name == "scf.if" and len(inner.results) > 0)  # chooses numbers
        if not scalar and inner.name not in (*LOADS, *_LOOPS, PAGED, PUT):
            raise Rejected(
                inner, "stands in a neptune.producer, which holds loops, loads, puts and index "
                "computations",
            )  # fmt: skip
        for value in inner.operands:
            made = defining_op(value)
            if made is not None and made.parent == op.parent and made.name != CREATE:
                raise Rejected(inner, f"needs a value of the consumers, of '{made.name}'")


def _is_above(value: Any, op: Any) -> bool:
    """Whether a value is made outside of the region of an op, and of what is beside the op."""
    block = value.owner if isinstance(value, ir.BlockArgument) else value.owner.operation.block
    while block.owner is not None and block.owner.operation.name != "func.func":
        if block.owner.operation == op.parent:
            return False
        block = block.owner.operation.block
    return True


def _inside(block: Any) -> Iterator[Any]:
    for op in block.operations:
        yield op.operation
        if op.operation.name in _LOOPS:
            for region in op.operation.regions:
                for inner in region.blocks:
                    yield from _inside(inner)


@checked
def put(op: Any) -> None:
    check_counts(op, operands=2, results=0)
    tile = _ring(op, op.operands[0])
    if not _in_producer(op):
        raise Rejected(op, f"stands outside a {PRODUCER}")
    value = op.operands[1]
    if value.type != tile:
        raise Rejected(op, f"puts a {value.type} into a ring of {tile}")
    made = defining_op(value)
    if made is None or made.name not in LOADS:
        raise Rejected(op, "puts what is no load; it takes a tensor.extract_slice or tensor.pad")


@checked
def get(op: Any) -> None:
    check_counts(op, operands=1)
    tile = _ring(op, op.operands[0])
    if _in_producer(op):
        raise Rejected(op, f"stands in a {PRODUCER}; the consumers get tiles")
    value = op.results[0]
    if value.type != tile:
        raise Rejected(op, f"gets a {value.type} from a ring of {tile}")
    releases = _users(value, RELEASE)
    if len(releases) != 1:
        raise Rejected(op, f"gets a tile that is released {len(releases)} times, not once")
    (done,) = releases
    if done.block != op.block:
        raise Rejected(done, f"releases a tile in another block than its {GET}")
    for use in value.uses:
        reader = use.owner.operation
        while reader.block != op.block:
            reader = reader.parent
        if reader != done and not reader.is_before_in_block(done):
            raise Rejected(done, f"releases a tile that '{reader.name}' reads later")


@checked
def release(op: Any) -> None:
    check_counts(op, operands=1, results=0)
    value = op.operands[0]
    if isinstance(value, ir.BlockArgument) or value.owner.operation.name != GET:
        raise Rejected(op, f"releases what no {GET} gave")
