# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `widen-floats`: a program whose every float is f64, the reference that errors count from.

Constants keep the values that they have in the program's types: the smallest f32 stays that
number and 0.1 stays the f32 next to it, so both programs compute the same formula. (Those that are
arguments keep their types too, and are converted inside.) Conversions between floats vanish.
Integers and conditions stay as they are.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.constants import constants_of
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
        _convert(op.results[0], ir.InsertionPoint.after(op))
        return
    kept: dict[Any, str] = {}
    if op.name == "func.func" and len(op.regions[0].blocks):
        kept = constants_of(op.opview)
    for name in list(op.attributes):
        if isinstance(op.attributes[name], ir.FloatAttr):  # the identity of a reduction
            value = ir.FloatAttr(op.attributes[name])
            op.attributes[name] = ir.FloatAttr.get(wide(value.type), value.value)
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                if argument in kept:
                    _convert(argument, ir.InsertionPoint.at_block_begin(block))
                else:
                    argument.set_type(wide(argument.type))
    if op.name == "func.func":
        _declare(op.opview)
    for result in op.results:
        result.set_type(wide(result.type))
    if op.name in _CONVERSIONS:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def _declare(function: Any) -> None:
    """Let the type of a function say what its block takes."""
    kind = function.type
    inputs = [*map(wide, kind.inputs)]
    if len(function.regions[0].blocks):
        inputs = [argument.type for argument in function.regions[0].blocks[0].arguments]
    widened = ir.FunctionType.get(inputs, [*map(wide, kind.results)])
    function.operation.attributes["function_type"] = ir.TypeAttr.get(widened)


def _convert(constant: Any, place: Any) -> None:
    """A constant, converted where it begins: it was rounded to the program's type."""
    kind = wide(constant.type)
    if kind == constant.type:
        return
    with place, constant.location:
        converted = arith.extf(kind, constant)
    constant.replace_all_uses_except(converted, converted.owner.operation)
