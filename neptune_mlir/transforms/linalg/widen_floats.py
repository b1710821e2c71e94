# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `widen-floats`: a program whose every float is f64, the reference that errors count from.

Constants keep the values that they have in the program's types: the smallest f32 stays that
number and 0.1 stays the f32 next to it, so both programs compute the same formula. Conversions
between floats vanish. Integers and conditions stay as they are.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.errors import LoweringError
from neptune_mlir.ir import bindings
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.transforms.registry import register

_CONVERSIONS = ("arith.extf", "arith.truncf")
_BITS = ("arith.bitcast", "tensor.bitcast")


@register("widen-floats", "compute in f64 whatever a program computes in narrower floats")
def widen_floats(module: Any) -> None:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        _widen(op)
    module.operation.verify()


def wide(kind: Any) -> Any:
    """A type with f64 in place of every narrower float."""
    if isinstance(kind, ir.RankedTensorType):
        return ir.RankedTensorType.get(kind.shape, wide(kind.element_type), kind.encoding)
    if isinstance(kind, ir.FunctionType):
        return ir.FunctionType.get([*map(wide, kind.inputs)], [*map(wide, kind.results)])
    return ir.F64Type.get() if isinstance(kind, ir.FloatType) else kind


def _widen(op: Any) -> None:
    if op.name in _BITS:
        place = bindings.location_text(op.location)
        hint = "its bits mean something else in f64"
        raise LoweringError(f"'{op.name}' reads a float as bits", loc=place, hint=hint)
    if op.name == "arith.constant":
        _convert(op.results[0])
        return
    if op.name == "func.func":
        kind = ir.TypeAttr(op.attributes["function_type"]).value
        op.attributes["function_type"] = ir.TypeAttr.get(wide(kind))
    for name in list(op.attributes):
        if isinstance(op.attributes[name], ir.FloatAttr):  # the identity of a reduction
            value = ir.FloatAttr(op.attributes[name])
            op.attributes[name] = ir.FloatAttr.get(wide(value.type), value.value)
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                argument.set_type(wide(argument.type))
    for result in op.results:
        result.set_type(wide(result.type))
    if op.name in _CONVERSIONS:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def _convert(constant: Any) -> None:
    """A constant, converted behind itself: it was rounded to the program's type."""
    kind = wide(constant.type)
    if kind == constant.type:
        return
    with ir.InsertionPoint.after(constant.owner), constant.owner.operation.location:
        converted = arith.extf(kind, constant)
    constant.replace_all_uses_except(converted, converted.owner.operation)
