# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`spread-conditions`: a choice between tensors by one number becomes an elementwise one.

`arith.select` takes one condition for whole tensors; upstream's `convert-elementwise-to-linalg`
knows only conditions of the same shape.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.program import functions
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.ir.bindings import tensor as tensor_dialect
from neptune_mlir.transforms.registry import register


@register("spread-conditions", "give choices between tensors a condition for each element")
def spread_conditions(module: Any) -> None:
    for function in functions(module):
        _spread(function.regions[0].blocks[0])


def _is_elementwise(op: Any) -> bool:
    """`arith.addf %a, %b : tensor<...>` and its like."""
    return (
        op.name.partition(".")[0] in ("arith", "math")
        and op.name != "arith.constant"
        and len(op.results) == 1
        and isinstance(op.results[0].type, ir.RankedTensorType)
    )


def _spread(block: Any) -> None:
    """A choice between tensors by one number becomes an elementwise one."""
    for op in block.operations:
        operation = op.operation
        if operation.name != "arith.select" or not _is_elementwise(operation):
            continue
        condition, like, _ = operation.operands
        if not isinstance(condition.type, ir.RankedTensorType):
            with ir.InsertionPoint(operation), operation.location:
                shape = ir.RankedTensorType(like.type).shape
                sizes = [
                    tensor_dialect.dim(like, arith.constant(ir.IndexType.get(), d))
                    for d, n in enumerate(shape) if n == DYNAMIC
                ]  # fmt: skip
                spread = ir.RankedTensorType.get(shape, condition.type)
                operation.operands[0] = tensor_dialect.SplatOp(spread, condition, sizes).result
