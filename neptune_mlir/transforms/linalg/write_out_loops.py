# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`write-out-loops`: loops that carry tensors as their steps, one behind the other.

A kernel is not launched a number of times, so a loop over tensors has no place in a plan of
launches. Steps that are written out are fused, and each takes up to a second of compilation. So
loops of more than `most` steps stay: on CPUs they run as they are, elsewhere they are refused.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.program import functions
from neptune_mlir.dialects.regions import clone_scalar_code
from neptune_mlir.ir.bindings import arith, ir, tensor
from neptune_mlir.transforms.registry import register

MOST = 256  # steps of a loop, where there are no loops or none with its body
MOST_OPS = 20_000  # that a loop may become


@register("write-out-loops", "write the steps of short loops over tensors one behind the other")
def write_out_loops(module: Any, *, most: int = MOST) -> None:
    """
    Args:
        most: steps of a loop that is written out.
    """
    for function in functions(module):
        _write_out(function.operation, most)


def _write_out(op: Any, most: int) -> None:
    """Those inside of an op, from the inside out."""
    for block in (block for region in op.regions for block in region.blocks):
        for inner in list(block.operations):
            _write_out(inner.operation, most)
    if op.name == "scf.for" and any(isinstance(r.type, ir.RankedTensorType) for r in op.results):
        _steps(op, most)


def _steps(loop: Any, most: int) -> None:
    low, high, step, *carried = loop.operands
    bounds = [_number(value) for value in (low, high, step)]
    body = loop.regions[0].blocks[0]
    if None in bounds:
        return
    values = range(*bounds)  # type: ignore[arg-type]
    most = MOST if _has_nests(body) else most
    if len(values) > most or len(values) * _size(body) > MOST_OPS:
        return
    whole = [k for k, value in enumerate(_yielded(body)) if _collects(loop, k, value, values)]
    parts: dict[int, list[Any]] = {k: [] for k in whole}
    with ir.InsertionPoint(loop), loop.location:
        for value in values:
            at = arith.ConstantOp(low.type, ir.IntegerAttr.get(low.type, value)).result
            table = dict(zip(body.arguments, [at, *carried], strict=True))
            carried = clone_scalar_code(body, table)
            for k in whole:
                parts[k].append(carried[k].owner.operands[0])
        for k in whole:
            carried[k] = _concatenated(parts[k], loop.results[k].type)
    for result, value in zip(loop.results, carried, strict=True):
        result.replace_all_uses_with(value)
    loop.erase()


def _yielded(body: Any) -> list[Any]:
    return list(list(body.operations)[-1].operation.operands)


def _collects(loop: Any, k: int, value: Any, steps: range) -> bool:
    """Whether a loop puts an element of its own in each step into a tensor that it carries, along
    the first dimension, and reads none of it."""
    body, shape = loop.regions[0].blocks[0], list(ir.RankedTensorType(value.type).shape)
    put = value.owner
    if isinstance(put, ir.Block) or put.name != "tensor.insert_slice" or DYNAMIC in shape:
        return False
    one, whole, *places = put.operands
    offsets, sizes, strides = (list(put.attributes[name]) for name in _SLICE)
    return (
        whole == body.arguments[k + 1] and len(list(whole.uses)) == 1
        and places == [body.arguments[0]] and offsets == [DYNAMIC, *[0] * (len(shape) - 1)]
        and sizes == [1, *shape[1:]] and set(strides) == {1} and steps == range(shape[0])
        and len(ir.RankedTensorType(one.type).shape) == len(shape) - 1
    )  # fmt: skip


_SLICE = "static_offsets", "static_sizes", "static_strides"


def _concatenated(parts: list[Any], kind: Any) -> Any:
    """Elements along a first dimension."""
    shape = list(ir.RankedTensorType(kind).shape)
    one = ir.RankedTensorType.get([1, *shape[1:]], ir.RankedTensorType(kind).element_type)
    groups = [[0, 1], *([k] for k in range(2, len(shape)))] if len(shape) > 1 else []
    each = [tensor.expand_shape(one, part, groups, [], one.shape) for part in parts]
    return tensor.concat(kind, 0, each) if len(each) > 1 else each[0]


def _has_nests(block: Any) -> bool:
    """Whether a block has scans or sorts, which become nests: no loop holds these."""
    names = [op.operation.name for op in block.operations]
    return any(n.startswith("tm_tensor.") and n != "tm_tensor.scatter" for n in names)


def _number(value: Any) -> int | None:
    if isinstance(value.owner, ir.Block) or value.owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(value.owner.attributes["value"]).value)


def _size(block: Any) -> int:
    return sum(
        1 + sum(_size(inner) for region in op.operation.regions for inner in region.blocks)
        for op in block.operations
    )
