# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts that are written to a new tensor, one after the other, as the concatenation that they are.

    %n = tensor.empty() : tensor<4x16xf32>
    %s = tensor.insert_slice %a into %n[0, 0] [4, 8] [1, 1]
    %r = tensor.insert_slice %b into %s[0, 8] [4, 8] [1, 1]

is `tensor.concat dim(1) %a, %b`: programs write so to a buffer that they made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.ir.bindings import ir, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.linalg.concat_parts import shape_of, static_slice

_WRITES = "tensor.insert_slice"


def join_written(block: Any) -> None:
    """Joins what such chains write, in the order of their parts; what they wrote is unused then."""
    for op in list(block.operations):
        if op.operation.name != _WRITES or _is_overwritten(op.operation):
            continue
        found = _parts(op.operation)
        if found is not None:
            with ir.InsertionPoint(op), op.location:
                made = tensor.ConcatOp(op.operation.results[0].type, *found).result
            op.operation.results[0].replace_all_uses_with(made)


def _is_overwritten(op: Any) -> bool:
    """Whether its only use is to write more to it: the chain goes on."""
    uses = list(op.results[0].uses)
    more = uses[0].owner.operation if len(uses) == 1 else None
    return more is not None and more.name == _WRITES and more.operands[1] == op.results[0]


def _parts(op: Any) -> tuple[int, list[Any]] | None:
    """The dimension along which a chain writes, and its parts; None where they are not side by
    side from the first element to the last one."""
    shape, places = shape_of(op.results[0]), list[tuple[int, int, Any]]()
    dims = set[int]()
    for source, static in _written(op):
        if static is None or DYNAMIC in shape or len(shape_of(source)) != len(shape):
            return None
        offsets, sizes = static
        cut = [k for k, size in enumerate(sizes) if size != shape[k]]
        if len(cut) != 1:
            return None
        dims.update(cut)
        places.append((offsets[cut[0]], offsets[cut[0]] + sizes[cut[0]], source))
    if len(dims) != 1:
        return None
    (dim,) = dims
    places.sort(key=lambda place: place[0])
    ends = [0, *(end for _, end, _ in places)]
    meet = all(end == start for end, (start, _, _) in zip(ends, places, strict=False))
    return (dim, [source for _, _, source in places]) if meet and ends[-1] == shape[dim] else None


def _written(op: Any) -> Iterator[tuple[Any, list[list[int]] | None]]:
    """What a chain writes to a new tensor, and where; None for that of another tensor, and for what
    is read before it is whole."""
    while True:
        source, target = list(op.operands)[:2]
        yield source, static_slice(op)
        made = defining_op(target)
        if made is not None and made.name == "tensor.empty":
            return
        if made is None or made.name != _WRITES or len(list(target.uses)) != 1:
            yield source, None
            return
        op = made
