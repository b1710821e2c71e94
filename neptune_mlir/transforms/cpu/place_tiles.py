# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `place-tiles`: give every tile value a destination, so bufferization copies nothing.

Upstream's one-shot-bufferize writes a result where its `outs` operand lives. So:

* a static tile of an outside tensor is copied to scratch (`linalg.copy`), once, unless a
  `tensor.pad` does that anyway;
* so is a whole tensor that is a tile: who reads it needs to know how its elements lie;
* loads come before what computes, so that computations stand next to each other;
* an `outs` that is only there for its shape (`tensor.empty`, `linalg.fill`) becomes this op's
  own, so that buffers are not shared by accident;
* an elementwise op whose input dies there overwrites that input, unless its result is stored;
* what a loop yields is built in (or copied to) the buffer of the iteration argument.
"""

from __future__ import annotations

import math
from typing import Any

from neptune_mlir.ir.bindings import ir, linalg, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register

WHOLE_TILE = 1 << 16  # elements of the largest tile (the pass `tile`)


@register("place-tiles", "give every tile a destination, so that bufferization works in place")
def place_tiles(module: Any) -> None:
    for function in module.body.operations:
        # kernels, and what canonicalization may have folded out of a kernel of one program
        for body in function.regions[0].blocks if len(function.regions) else ():
            _copy_static_loads(body)
            _copy_whole_loads(body)
            _load_early(body)
            _own_destinations(body)
            _overwrite_dead_inputs(body)
            _yield_in_place(body)


def _blocks(block: Any) -> list[Any]:
    """`block` and every block nested in it through control flow, outermost first."""
    found = [block]
    for op in block.operations:
        if op.operation.name.startswith("scf."):
            for region in op.regions:
                for inner in region.blocks:
                    found += _blocks(inner)
    return found


def _is_linalg(op: Any) -> bool:
    return bool(op.operation.name.startswith("linalg.") and len(op.operation.results))


def _outputs(op: Any) -> range:
    """Positions of the `outs` operands: as many as results, at the end."""
    count = len(op.operation.operands)
    return range(count - len(op.operation.results), count)


def _fresh_empty(kind: Any) -> Any:
    return tensor.EmptyOp(list(kind.shape), kind.element_type).result


def _copy_static_loads(body: Any) -> None:
    for block in _blocks(body):
        for op in list(block.operations):
            name, results = op.operation.name, op.operation.results
            if name != "tensor.extract_slice" or not results[0].type.has_static_shape:
                continue
            source = defining_op(op.operation.operands[0])
            if source is not None and source.parent.name != "func.func":
                continue  # a part of a tile: a view
            if source is None and op.operation.operands[0].owner.owner.name == "scf.for":
                continue  # what is added to: so is it
            readers = [use.owner.operation for use in results[0].uses]
            if not any(_is_linalg(reader) or reader.name == "scf.for" for reader in readers):
                continue
            with ir.InsertionPoint(readers_start(op)), op.location:
                copy = linalg.copy(results[0], outs=[_fresh_empty(results[0].type)])
            made = copy.owner if hasattr(copy, "owner") else copy.operation
            for reader in readers:
                for position, operand in enumerate(reader.operands):
                    if operand == results[0] and reader != made:
                        reader.operands[position] = copy


def _copy_whole_loads(body: Any) -> None:
    for block in _blocks(body):
        if block.owner.name != "scf.forall":
            continue
        copies: dict[Any, Any] = {}
        readers = [op.operation for inner in _blocks(block) for op in inner.operations]
        for reader in (op for op in readers if _reads_points(op)):
            for position in range(len(reader.operands) - len(reader.results)):
                value = reader.operands[position]
                if not _is_whole_tile(value):
                    continue
                if value not in copies:
                    with ir.InsertionPoint.at_block_begin(block), reader.location:
                        copies[value] = linalg.copy(value, outs=[_fresh_empty(value.type)])
                reader.operands[position] = copies[value]


def _reads_points(op: Any) -> bool:
    """Whether an op reads points of what it is given one by one: no product, which packs them."""
    if op.name != "linalg.generic" or not len(op.results):
        return False
    reduces = "reduction" in str(op.attributes["iterator_types"])
    return not reduces or len(op.operands) - len(op.results) == 1


def _is_whole_tile(value: Any) -> bool:
    """Whether a value is a tensor from outside that a program has all of."""
    kind = value.type
    if not isinstance(value, ir.BlockArgument) or not isinstance(kind, ir.RankedTensorType):
        return False
    inside = value.owner.owner.operation.name != "func.func"
    known = kind.rank > 0 and kind.has_static_shape
    return known and not inside and math.prod(kind.shape) <= WHOLE_TILE


def readers_start(op: Any) -> Any:
    """Where to insert right behind `op`."""
    operations = list(op.operation.block.operations)
    for position, other in enumerate(operations):
        if other.operation == op.operation:
            return operations[position + 1]
    raise AssertionError("an op is in its block")


def _load_early(body: Any) -> None:
    """Move loads up, to where all that they need is there."""
    for block in _blocks(body):
        latest: Any = None  # the last op that was moved, or that a moved one needs
        moved: set[Any] = set()
        for op in list(block.operations):
            op = op.operation
            movable = op.name.startswith(("affine.", "arith.", "tensor.")) or (
                op.name == "linalg.copy" and op.operands[0] in moved
            )
            ready = all(
                defining_op(v) is None or defining_op(v).block != block or v in moved
                for v in _needed(op)
            )
            if not (movable and ready and len(op.results)) or op.name == "tensor.insert_slice":
                continue
            if latest is None:
                first = block.operations[0].operation
                if first != op:
                    op.move_before(first)
            else:
                op.move_after(latest)
            latest = op
            moved.update(op.results)


def _needed(op: Any) -> list[Any]:
    """The operands of an op and of all that is inside it."""
    found = list(op.operands)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                found += _needed(inner.operation)
    return found


def _own_destinations(body: Any) -> None:
    for block in _blocks(body):
        for op in list(block.operations):
            if _is_linalg(op):
                for position in _outputs(op):
                    _own(op.operation, position)
            elif op.operation.name == "scf.for":
                for position in range(3, len(op.operation.operands)):
                    _own(op.operation, position)
            elif op.operation.name == "scf.forall":
                for position in _outputs(op):
                    _own(op.operation, position)


def _own(op: Any, position: int) -> None:
    value = op.operands[position]
    source = defining_op(value)
    if source is None or not isinstance(value.type, ir.RankedTensorType):
        return
    if source.name == "tensor.empty":
        with ir.InsertionPoint(op), op.location:
            op.operands[position] = source.clone().results[0]
    elif source.name == "linalg.fill" and value.type.has_static_shape:
        with ir.InsertionPoint(op), op.location:
            empty = _fresh_empty(value.type)
            fill = source.clone()
            fill.operands[1] = empty
            op.operands[position] = fill.results[0]


def _overwrite_dead_inputs(body: Any) -> None:
    for block in _blocks(body):
        for op in block.operations:
            if op.operation.name == "linalg.generic" and len(op.operation.results) == 1:
                _overwrite(op.operation, block)


def _overwrite(op: Any, block: Any) -> None:
    maps = [a.value for a in op.attributes["indexing_maps"]]
    out = len(op.operands) - 1
    region = op.regions[0].blocks[0]
    identity = ir.AffineMap.get_identity(maps[out].n_dims)
    if maps[out] != identity or list(region.arguments[out].uses):
        return
    empty = defining_op(op.operands[out])
    if empty is None or empty.name != "tensor.empty" or _is_stored(op.results[0]):
        return
    for position in range(out):
        value = op.operands[position]
        if maps[position] != maps[out] or value.type != op.operands[out].type:
            continue
        if not _owned_here(value, block) or not _dies_at(value, op, block):
            continue
        # read through the output: one operand in one place is in place for any analysis
        op.operands[out] = value
        region.arguments[position].replace_all_uses_with(region.arguments[out])
        return


def _is_stored(value: Any) -> bool:
    """Whether a tile is only stored, so that it may be made where it is to lie."""
    users = [use.owner.operation for use in value.uses]
    if any(user.name == "tensor.extract_slice" for user in users):
        return all(user.name == "tensor.extract_slice" and _is_stored(user.results[0])
                   for user in users)  # fmt: skip
    stores = ("tensor.insert_slice", "tensor.parallel_insert_slice")
    return bool(users) and all(u.name in stores and u.operands[0] == value for u in users)


def _owned_here(value: Any, block: Any) -> bool:
    """Whether overwriting `value` in `block` harms nobody outside: its buffer is made here."""
    if isinstance(value, ir.BlockArgument):
        return bool(value.owner == block and block.owner.name == "scf.for")
    source = value.owner.operation
    if source.name in ("tensor.pad", "linalg.copy") and _is_outside(source.operands[0]):
        return False  # it may be read where it comes from
    makes = source.name.startswith("linalg.") or source.name in ("tensor.pad", "scf.for")
    return bool(makes and source.block == block)


def _is_outside(value: Any) -> bool:
    """Whether a value is a part of a tensor of the host."""
    op = defining_op(value)
    if op is None or op.name != "tensor.extract_slice":
        return False
    source = defining_op(op.operands[0])
    return source is None or source.parent.name == "func.func"


def _used_after(value: Any, op: Any, block: Any) -> bool:
    """Whether `value`, or a slice of it (a view of the same buffer), is used behind `op`."""
    for use in value.uses:
        user = owner = use.owner.operation
        while owner.block != block:
            owner = owner.parent.operation
        if owner != op and not owner.is_before_in_block(op):
            return True
        if user.name == "tensor.extract_slice" and _used_after(user.results[0], op, block):
            return True
    return False


def _dies_at(value: Any, op: Any, block: Any) -> bool:
    if _used_after(value, op, block):
        return False
    # an operand that the body does not read does not count: `_overwrite` leaves such
    body = op.regions[0].blocks[0] if _is_linalg(op) else None
    return 1 == sum(
        1
        for position, operand in enumerate(op.operands)
        if operand == value
        and (body is None or position in _outputs(op) or list(body.arguments[position].uses))
    )


def _yield_in_place(body: Any) -> None:
    for block in _blocks(body):
        if block.owner.name != "scf.for":
            continue
        terminator = block.operations[len(block.operations) - 1].operation
        carried = list(block.arguments)[1:]
        moves = []
        for position, argument in enumerate(carried):
            value = terminator.operands[position]
            if not isinstance(value.type, ir.RankedTensorType) or value == argument:
                continue
            if not _built_in(value, argument, block):
                moves.append((position, value, argument))
        with ir.InsertionPoint(terminator), terminator.location:
            # two arguments that swap places: read all before writing any
            values = [
                linalg.copy(value, outs=[_fresh_empty(value.type)]) if value in carried else value
                for _, value, _ in moves
            ]
            for (position, _, argument), value in zip(moves, values, strict=True):
                terminator.operands[position] = linalg.copy(value, outs=[argument])


def _built_in(value: Any, argument: Any, block: Any) -> bool:
    """Whether `value` is made in the buffer of `argument`: each step overwrites a dead value."""
    while value != argument:
        source = defining_op(value)
        if source is None or source.block != block:
            return False
        if _is_linalg(source):
            position = _outputs(source)[list(source.results).index(value)]
        elif source.name == "scf.for":
            position = 3 + list(source.results).index(value)
        elif source.name == "tensor.insert_slice":
            position = 1
        else:
            return False
        held = source.operands[position]
        if not _dies_at(held, source, block):
            # others still need it: work on a copy
            if _is_linalg(source):
                with ir.InsertionPoint(source), source.location:
                    source.operands[position] = linalg.copy(held, outs=[_fresh_empty(held.type)])
            return False
        value = held
    return True
