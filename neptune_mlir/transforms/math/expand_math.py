# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `expand-math`: elementary functions of f32 (scalars and vectors) become arithmetic.

f16 and bf16 are widened first. Ops that are a few plain ones on any type (`isnan`, `ipowi`) become
these, and so do divisions of integers by what may be 0, which would end the process. What has no
expansion here (f64, sin, cos, tan) is left for `convert-math-to-libm`.
`arith.maximumf` and `minimumf` are expanded too: x86 has no instruction for them, and LLVM's own
expansion also orders zeros by sign, at twice the cost. Casts between f64 and 16 bits go through
f32: LLVM calls functions for `arith.truncf` that not every C library has, and `arith-expand` knows
no `arith.extf` of bf16 but to f32.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.targets import cpu
from neptune_mlir.transforms.math import plain_math
from neptune_mlir.transforms.math.functions import Functions
from neptune_mlir.transforms.registry import register

_ARITH = {"arith.maximumf", "arith.minimumf", "arith.remf"}
_CASTS = {"arith.extf", "arith.truncf"}
_KEPT_NARROW = {"math.absf", "math.copysign"}  # only touch the sign bit


@register("expand-math", "turn exp, log, tanh, erf, ... of f32 into arithmetic")
def expand_math(module: Any, *, fma: str = "host", scalef: str = "host") -> None:
    has_fma = _chosen(fma, "fma")
    has_scalef = _chosen(scalef, "avx512f")
    for op in _casts_past_f32(module):
        wide = _like(op.operands[0].type, ir.F32Type.get(module.context))
        with ir.InsertionPoint(op), op.location:
            narrows = op.name == "arith.truncf"
            value = op.operands[0]
            op.operands[0] = _rounded_to_odd(value) if narrows else arith.extf(wide, value)
    for op in _found(module):
        _replace_plain(op)
    builders: dict[Any, Functions] = {}
    for op in _found(module):
        kind = op.results[0].type
        element = _element(kind)
        with ir.InsertionPoint(op), op.location:
            if isinstance(element, (ir.F16Type, ir.BF16Type)) and op.name not in _KEPT_NARROW:
                op = _widen(op, kind)
                kind = op.results[0].type
                element = ir.F32Type.get()
            if not isinstance(element, ir.F32Type):
                continue
            if kind not in builders:
                builders[kind] = Functions(kind, fma=has_fma, scalef=has_scalef)
        with ir.InsertionPoint(op), op.location:
            expansion = builders[kind].table.get(op.name)
            if expansion is not None:
                op.results[0].replace_all_uses_with(expansion(*op.operands))
                op.erase()


def _element(kind: Any) -> Any:
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


def _like(kind: Any, element: Any) -> Any:
    return ir.VectorType.get(kind.shape, element) if isinstance(kind, ir.VectorType) else element


def _skips_f32(op: Any) -> bool:
    """Is this a cast between f64 and f16 or bf16?"""
    ends = [_element(v.type) for v in (op.operands[0], op.results[0])]
    return any(isinstance(e, ir.F64Type) for e in ends) and any(
        isinstance(e, (ir.F16Type, ir.BF16Type)) for e in ends
    )


def _rounded_to_odd(value: Any) -> Any:
    """An f64 as the f32 that rounds to 16 bits as it does itself.

    A number between two f32 becomes the one with an odd last bit. So it is never taken for a tie
    between two 16-bit numbers, nor for the number beside one, as it could be when rounded twice.
    """
    kind = value.type
    floats, words = _like(kind, ir.F32Type.get()), _like(kind, ir.IntegerType.get_signless(32))

    def word(number: int) -> Any:
        attribute = ir.IntegerAttr.get(_element(words), number)
        if isinstance(words, ir.VectorType):
            attribute = ir.DenseElementsAttr.get_splat(words, attribute)
        return arith.ConstantOp(words, attribute).result

    near = arith.truncf(floats, value)
    back = arith.extf(kind, near)
    bits = arith.bitcast(words, near)
    inexact = arith.cmpf(arith.CmpFPredicate.ONE, value, back)  # false for NaN
    even = arith.cmpi(arith.CmpIPredicate.eq, arith.andi(bits, word(1)), word(0))
    sizes = [ir.Operation.create("math.absf", results=[kind], operands=[v]).result
             for v in (back, value)]  # fmt: skip
    too_large = arith.cmpf(arith.CmpFPredicate.OGT, *sizes)
    step = arith.select(too_large, word(-1), word(1))  # of the magnitude, whatever the sign
    odd = arith.select(arith.andi(inexact, even), arith.addi(bits, step), bits)
    return arith.bitcast(floats, odd)


def _casts_past_f32(module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name in _CASTS and _skips_f32(op):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _found(module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.startswith("math.") or op.name in _ARITH or op.name in plain_math.DIVISIONS:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _replace_plain(op: Any) -> None:
    with ir.InsertionPoint(op), op.location:
        made = plain_math.expand(op)
    if made is not None:
        for old, new in zip(op.results, made, strict=True):
            old.replace_all_uses_with(new)
        op.erase()


def _chosen(text: str, feature: str) -> bool:
    if text != "host":
        return text in ("true", "1")
    return cpu.host().fma if feature == "fma" else cpu.host().has(feature)


def _widen(op: Any, kind: Any) -> Any:
    """The same op on f32 between `extf` and `truncf`; floats only, other operands stay."""
    f32 = ir.F32Type.get()
    wide = _like(kind, f32)
    operands = [arith.extf(wide, v) if v.type == kind else v for v in op.operands]
    made = ir.Operation.create(
        op.name,
        results=[wide],
        operands=operands,
        attributes={name: op.attributes[name] for name in op.attributes},
    )
    op.results[0].replace_all_uses_with(arith.truncf(kind, made.result))
    op.erase()
    return made
