# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `merge-programs`: two kernels become one where a program needs its own part alone.

A reduction that is not fused with the one before it (LayerNorm's variance, whose mean would be
subtracted too late) has a kernel of its own, which reads what a program of the kernel before it
made: the mean of its rows.

    %mean = scf.forall (%i) in (%rows) ... { ... parallel_insert_slice %m into %o[%i] [1] }
    %norm = scf.forall (%i) in (%rows) ... { %x = tensor.extract_slice %mean[%i] [1] ... }

Where both have the same grid, and each program of the second takes of the first's results only
what the program of the same number made, the first body goes in front of the second one, and the
slice is the tile that was made. Nothing is computed otherwise than before. A tile that both load
whole is loaded once and stays in registers; of longer rows later reads find a near cache. Kernels
with matrix products stay apart: their warps and tiles are those that products want.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis.tiles import (
    is_tensor,
    nested,
    read_contraction,
    read_generic,
    shape_of,
    slice_parts,
)
from neptune_mlir.dialects.attributes import OF_MASK
from neptune_mlir.dialects.program import functions
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.host_plan import grid_bounds

Pairs = list[tuple[Any, Any]]  # a slice (or its padding) that the second takes, and what it is


@register("merge-programs", "make one kernel of two where programs need their own part alone")
def merge_programs(module: Any) -> None:
    for function in functions(module):
        while _merge_one(function.regions[0].blocks[0]):
            pass


def _merge_one(block: Any) -> bool:
    foralls = [op.operation for op in block.operations if op.operation.name == "scf.forall"]
    for k, second in enumerate(foralls):
        for first in foralls[:k]:
            found = _parts(first, second) if _is_pair(first, second) else None
            if found:
                pairs, seen = found
                _merge(first, _with_results(first, second, seen) if seen else second, pairs)
                return True
    return False


def _is_pair(first: Any, second: Any) -> bool:
    """Whether two kernels have the same grid, and no products."""
    same = grid_bounds(first) == grid_bounds(second)
    return same and not any(map(OF_MASK.on, (first, second))) and not any(
        map(_multiplies, (first, second))
    )  # fmt: skip


def _multiplies(forall: Any) -> bool:
    generics = [op for op in nested(forall.regions[0].blocks[0]) if op.name == "linalg.generic"]
    return any(read_contraction(read_generic(op)) is not None for op in generics)


def _parts(first: Any, second: Any) -> tuple[Pairs, list[int]] | None:
    """What the second kernel takes of the first, all of it made by the program of the same number,
    and which results something behind it takes as well; None where that is not so."""
    body, end = first.regions[0].blocks[0], _end(first)
    rank = len(grid_bounds(first)[1])
    numbers = dict(zip(list(body.arguments)[:rank], _numbers(second, rank), strict=True))
    found: Pairs = []
    seen: list[int] = []
    arguments = list(body.arguments)[rank:]
    for k, (argument, result) in enumerate(zip(arguments, first.results, strict=True)):
        uses = [use.owner.operation for use in argument.uses]
        if len(uses) != 1 or uses[0].block != end:  # written in pieces
            return None
        for use in result.uses:
            taken = use.owner.operation
            if not _is_in(taken, second):
                if not _is_behind(taken, second):
                    return None
                seen += [] if k in seen else [k]
                continue
            if taken.name != "tensor.extract_slice":
                return None
            value = _tile(uses[0], taken, numbers)
            if value is None:
                return None
            found.append(value)
    return (found, seen) if found else None


def _tile(insert: Any, taken: Any, numbers: dict[Any, Any]) -> tuple[Any, Any] | None:
    """The tile of the first kernel that a slice is, by what it inserts, and what it replaces."""
    there, here = slice_parts(insert), slice_parts(taken)
    for mine, theirs in zip((*there[0], *there[1]), (*here[0], *here[1]), strict=True):
        if not _equal(mine, theirs, numbers):
            return None
    source = insert.operands[0]
    if there[2] != here[2]:
        return None
    result = taken.results[0]
    if ir.RankedTensorType(result.type).has_static_shape:
        return (result, source) if result.type == source.type else None
    users = [use.owner.operation for use in result.uses]
    cut = defining_op(source)
    if cut is None or cut.name != "tensor.extract_slice" or len(users) != 1:
        return None
    pad, whole = users[0], cut.operands[0]
    # behind the end a tile holds what was computed of padding, and the second looks at none of it
    if pad.name != "tensor.pad" or pad.results[0].type != whole.type:
        return None
    if any(offset != 0 for offset in slice_parts(cut)[0]) or _low(pad):
        return None
    return (pad.results[0], whole) if shape_of(pad.results[0]) == shape_of(whole) else None


def _low(pad: Any) -> bool:
    """Whether something is added in front."""
    return any(n != 0 for n in ir.DenseI64ArrayAttr(pad.attributes["static_low"]))


def _equal(mine: Any, theirs: Any, numbers: dict[Any, Any]) -> bool:
    """Whether an index of the first kernel is that of the second, in programs of one number."""
    if isinstance(mine, int) or isinstance(theirs, int):
        return bool(mine == theirs) if type(mine) is type(theirs) else False
    if numbers.get(mine, mine) == theirs:
        return True
    a, b = defining_op(mine), defining_op(theirs)
    if a is None or b is None or a.name != b.name or is_tensor(a.results[0]):
        return False
    if len(a.operands) != len(b.operands) or _attributes(a) != _attributes(b):
        return False
    return all(map(lambda x, y: _equal(x, y, numbers), a.operands, b.operands))


def _attributes(op: Any) -> dict[str, Any]:
    return {name: op.attributes[name] for name in op.attributes}


def _merge(first: Any, second: Any, found: Pairs) -> None:
    """Move the first body in front of the second one."""
    body, target = first.regions[0].blocks[0], second.regions[0].blocks[0]
    rank = len(grid_bounds(first)[1])
    for old, new in zip(list(body.arguments)[:rank], _numbers(second, rank), strict=True):
        old.replace_all_uses_with(new)
    start = target.operations[0].operation
    end = _end(first).owner
    for op in list(body.operations):
        if op.operation != end:
            op.operation.move_before(start)
    for taken, tile in found:
        taken.replace_all_uses_with(tile)
        made = taken.owner.operation
        if made.name == "tensor.pad":
            padded = made.operands[0].owner.operation
            made.erase()
            padded.erase()
        else:
            made.erase()
    first.erase()


def _with_results(first: Any, second: Any, seen: Sequence[int]) -> Any:
    """The second kernel, which also writes these results of the first."""
    rank, given = len(grid_bounds(first)[1]), len(second.results)
    bounds = list(second.operands)[: len(second.operands) - given]
    outs = [*list(second.operands)[len(bounds) :], *(_outs(first)[k] for k in seen)]
    attributes = {name: second.attributes[name] for name in second.attributes}
    sizes = [*attributes["operandSegmentSizes"]][:-1]
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([*sizes, len(outs)])
    types = [v.type for v in outs]
    with ir.InsertionPoint(second), second.location:
        made = ir.Operation.create(
            "scf.forall", results=types, operands=[*bounds, *outs], attributes=attributes, regions=1
        )
        kinds = [a.type for a in _numbers(second, rank)]
        block = made.regions[0].blocks.append(*kinds, *types)
    old = second.regions[0].blocks[0]
    for before, after in zip(old.arguments, block.arguments, strict=False):
        before.replace_all_uses_with(after)
    for op in list(old.operations):
        block.append(op)
    for k, result in enumerate(second.results):
        result.replace_all_uses_with(made.results[k])
    second.erase()
    body, end = first.regions[0].blocks[0], _end(made)
    for n, k in enumerate(seen, start=given):
        argument = body.arguments[rank + k]
        (insert,) = [use.owner.operation for use in argument.uses]
        end.append(insert)
        argument.replace_all_uses_with(block.arguments[rank + n])
        first.results[k].replace_all_uses_with(made.results[n])
    return made


def _outs(forall: Any) -> list[Any]:
    return list(forall.operands)[len(forall.operands) - len(forall.results) :]


def _is_behind(op: Any, forall: Any) -> bool:
    """Whether an op, or what it is in, stands behind a kernel."""
    while op.block != forall.block:
        op = op.parent.operation
    return bool(forall.is_before_in_block(op))


def _end(forall: Any) -> Any:
    """The block that says what a program writes."""
    body = forall.regions[0].blocks[0]
    return body.operations[len(body.operations) - 1].regions[0].blocks[0]


def _numbers(forall: Any, rank: int) -> list[Any]:
    return list(forall.regions[0].blocks[0].arguments)[:rank]


def _is_in(op: Any, forall: Any) -> bool:
    block = op.block
    while block.owner.operation.name not in ("func.func", "builtin.module"):
        if block.owner.operation == forall:
            return True
        block = block.owner.operation.block
    return False
