# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What stands around a scan and is part of it.

    flip(scan(flip(x)))                        a scan from the end
    concat(identity, scan(x[:-1]))             an exclusive scan of x

Exporters write these so. Each flip, slice and concatenation would be a kernel of its own that moves
all elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.op_names import MAP
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.bindings import tensor as tensor_dialect
from neptune_mlir.ir.values import defining_op


@dataclass(frozen=True)
class Scan:
    """A scan of `x`; `around`: the op whose result it is, if that is none of its own."""

    x: Any
    inclusive: bool
    upwards: bool = True
    around: Any = None


def whole_scan(op: Any, dim: int, inclusive: bool, identity: Any) -> Scan:
    """The scan that `op` is the middle of, or itself."""
    x, result = op.operands[0], op.results[0]
    user = _only_user(result)
    if user is None:
        return Scan(x, inclusive)
    source, again = _reversed_along(defining_op(x), dim), _reversed_along(user, dim)
    if source is not None and again == result:
        return Scan(source, inclusive, upwards=False, around=user)
    if inclusive and (source := _without_last(defining_op(x), dim)) is not None:
        if _behind_one(user, dim, result, identity):
            return Scan(source, inclusive=False, around=user)
    return Scan(x, inclusive)


def _only_user(value: Any) -> Any:
    """The one op beside the one that makes a value that uses it, if it is one."""
    block, users = defining_op(value).block, set()
    for use in value.uses:
        user = use.owner.operation
        while user.block != block:
            user = user.parent.operation
        users.add(user)
    return users.pop() if len(users) == 1 else None


def _reversed_along(op: Any, dim: int) -> Any:
    """The tensor that an op reverses along a dimension; None if it does not."""
    if op is None or op.name != "linalg.generic" or len(op.results) != 1:
        return None
    *_, last = op.regions[0].blocks[0].operations
    read = defining_op(last.operation.operands[0])
    if read is None or read.name != "tensor.extract":
        return None
    source, *at = read.operands
    shape = list(ir.RankedTensorType(op.results[0].type).shape)
    if source.type != op.results[0].type or DYNAMIC in shape:
        return None
    maps = [ir.AffineMapAttr(m).value for m in op.attributes["indexing_maps"]]
    if any(m != ir.AffineMap.get_identity(len(shape)) for m in maps):
        return None
    ends = enumerate(zip(at, shape, strict=True))
    return source if all(_is_at(v, k, n - 1 if k == dim else None) for k, (v, n) in ends) else None


def _is_at(value: Any, loop: int, last: int | None) -> bool:
    """Whether an index is the position along a loop, or `last` less that."""
    op = defining_op(value)
    if last is not None:
        known = op is not None and op.name == "arith.subi" and defining_op(op.operands[0])
        if not known or known.name != "arith.constant" or known.attributes["value"].value != last:
            return False
        op = defining_op(op.operands[1])
    return op is not None and op.name == "linalg.index" and op.attributes["dim"].value == loop


def _without_last(op: Any, dim: int) -> Any:
    """The tensor of which an op takes all but the last along a dimension."""
    if op is None or op.name != "tensor.extract_slice" or len(op.operands) != 1:
        return None
    source = op.operands[0]
    shape = list(ir.RankedTensorType(source.type).shape)
    fewer = [n - (k == dim) for k, n in enumerate(shape)]
    offsets, sizes, strides = (list(op.attributes[f"static_{part}"])
                               for part in ("offsets", "sizes", "strides"))  # fmt: skip
    whole = not any(offsets) and sizes == fewer and set(strides) == {1}
    return source if whole and DYNAMIC not in shape else None


def _behind_one(op: Any, dim: int, result: Any, identity: Any) -> bool:
    """Whether an op puts one identity in front of a tensor along a dimension."""
    view = op.opview
    if not isinstance(view, tensor_dialect.ConcatOp) or list(op.operands)[1:] != [result]:
        return False
    first = op.operands[0]
    made = defining_op(first)
    one = ir.RankedTensorType(first.type).shape[dim] == 1
    if op.attributes["dim"].value != dim or not one or made is None:
        return False
    if made.name == "arith.constant":
        value = ir.DenseElementsAttr(made.attributes["value"])
        return bool(value.is_splat and value.get_splat_value().value == identity)
    if made.name not in (MAP, "linalg.fill"):
        return False
    given = made.operands[0] if made.name == "linalg.fill" else _yielded(made)
    known = defining_op(given)
    constant = known is not None and known.name == "arith.constant"
    return bool(constant and known.attributes["value"].value == identity)


def _yielded(op: Any) -> Any:
    *_, last = op.regions[0].blocks[0].operations
    return last.operation.operands[0]
