# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `bf16-bits`: in LLVM's dialect, bf16 numbers become 16-bit integers.

    %a = llvm.load %p : !llvm.ptr -> vector<16xbf16>     ->   ... -> vector<16xi16>

Arithmetic is that of f32 by then (`arith-emulate-unsupported-floats`), and conversions are
arithmetic on bits (`arith-expand`). What is left moves numbers (loads, stores, shuffles,
selections), or works on the sign bit alone, which becomes logic on bits:

    %b = llvm.intr.fabs(%a) : (bf16) -> bf16             ->   %b = llvm.and %a, 0x7FFF : i16

On CPUs without bf16 instructions LLVM takes elements of such vectors apart through f32 and back,
with a call of `__truncsfbf2` for each, which the runtime library of GCC before 13 lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neptune_mlir.ir.bindings import ir, llvm
from neptune_mlir.transforms.registry import register

# What has a value of its type as an attribute: a cast behind it is simpler than new attributes.
_CONSTANT = "llvm.mlir.constant"
_MEMORY = "llvm.mlir.global"  # bytes, whatever their type
_INTRINSIC = "llvm.call_intrinsic"  # an instruction, which has bf16 numbers by name
_SIGN, _SIZE = -0x8000, 0x7FFF  # the bits of a bf16 number


@register("bf16-bits", "move bf16 numbers as 16-bit integers (LLVM's dialect)")
def bf16_bits(module: Any) -> None:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.startswith("llvm.") and op.name != _MEMORY:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    signs: list[Any] = []
    for op in found:
        if op.name == _CONSTANT:
            _cast(op)
            continue
        if op.name == _INTRINSIC or _feeds_intrinsics(op):
            continue
        if op.name in _SIGN_RULES and "bf16" in str(op.results[0].type):
            signs.append(op)
        for result in op.results:
            result.set_type(_bits(result.type))
        for block in (b for region in op.regions for b in region.blocks):
            for argument in block.arguments:
                argument.set_type(_bits(argument.type))
        for named in list(op.attributes):
            attribute = op.attributes[named]
            if isinstance(attribute, ir.TypeAttr) and "bf16" in str(attribute):
                op.attributes[named] = ir.TypeAttr.get(_bits(ir.TypeAttr(attribute).value))
    for op in signs:  # their operands are integers by now
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(_SIGN_RULES[op.name](*op.operands))
        op.erase()


def _feeds_intrinsics(op: Any) -> bool:
    """Whether an op only says that words are bf16 numbers to instructions for these."""
    users = [use.owner.operation.name for value in op.results for use in value.uses]
    return op.name == "llvm.bitcast" and bool(users) and set(users) == {_INTRINSIC}


def _logic(name: str, a: Any, b: Any) -> Any:
    """`a` and `b` bit by bit; `b` may be a number."""
    if isinstance(b, int):
        element = a.type.element_type if isinstance(a.type, ir.VectorType) else a.type
        number = ir.IntegerAttr.get(element, b)
        if isinstance(a.type, ir.VectorType):
            number = ir.DenseElementsAttr.get_splat(a.type, number)
        b = llvm.constant(number)
    return ir.Operation.create(f"llvm.{name}", results=[a.type], operands=[a, b]).result


_SIGN_RULES: dict[str, Callable[..., Any]] = {
    "llvm.intr.fabs": lambda a: _logic("and", a, _SIZE),
    "llvm.fneg": lambda a: _logic("xor", a, _SIGN),
    "llvm.intr.copysign": lambda size, sign: _logic(
        "or", _logic("and", size, _SIZE), _logic("and", sign, _SIGN)
    ),
}


def _bits(t: Any) -> Any:
    text = str(t)
    return ir.Type.parse(text.replace("bf16", "i16"), t.context) if "bf16" in text else t


def _cast(constant: Any) -> None:
    value = constant.results[0]
    if "bf16" in str(value.type):
        with ir.InsertionPoint.after(constant), constant.location:
            cast = llvm.bitcast(_bits(value.type), value)
        value.replace_all_uses_except(cast, cast.owner.operation)
