# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `widen-floats`: a program whose every float is f64, the reference that errors count from.

Constants keep the values that they have in the program's types: the smallest f32 stays that
number and 0.1 stays the f32 next to it, so both programs compute the same formula. (Those that are
arguments keep their types too, and are converted inside.) Conversions between floats vanish.
Integers and conditions stay as they are.

With `digits=24` every result is rounded to so many bits, and only the range is that of f64: the
errors of an f32 program where an f32 program overflows. Rounding is two products and two
differences (Veltkamp): with c = (2^29 + 1) x, c - (c - x).
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.constants import constants_of
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir import bindings
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.transforms.registry import register

_CONVERSIONS = ("arith.extf", "arith.truncf")
_EXACT = ("arith.negf", "arith.select", "arith.constant", "math.absf", "math.copysign")
_BITS = ("arith.bitcast", "tensor.bitcast")


@register("widen-floats", "compute in f64 whatever a program computes in narrower floats")
def widen_floats(module: Any, *, digits: int = 0) -> None:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        _widen(op)
    if digits:
        _round_all(module, digits)
    module.operation.verify()


def _round_all(module: Any, digits: int) -> None:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.split(".")[0] in ("arith", "math") and op.name not in _EXACT:
            found.extend(r for r in op.results if isinstance(r.type, ir.F64Type))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for value in found:
        with ir.InsertionPoint.after(value.owner), value.owner.location:
            factor = arith.constant(value.type, float(2 ** (53 - digits) + 1))
            high = arith.mulf(value, factor)
            rest = arith.subf(high, value)
            rounded = arith.subf(high, rest)
            # what overflows on the way stays as it is
            number = arith.cmpf(arith.CmpFPredicate.ORD, rounded, rounded)
            kept = arith.select(number, rounded, value)
        ours = {v.owner.operation for v in (high, rest, kept)}
        value.replace_all_uses_except(kept, [op for op in ours])


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
