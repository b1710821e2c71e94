# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `float8-bits`: in tile IR, numbers of 8 bits are bytes, and arithmetic on bits widens them.

    %w = arith.extf %x : f8E4M3FN to f16      ->      %w = widened(%x) : i8 to f16

An f16 number has the same layout with more digits: shifted left by 7 bits, a byte of e4m3 is its
value times 2^-8, for numbers under the normal range too. So the value is that times 256, exactly;
the one pattern that is no number (all bits but the sign) is chosen apart.

The other way, `arith.truncf` rounds to the nearest, ties to even: by an addition to the bits of an
f32 number where e4m3 is normal, and by one to the number itself (of 2^14, whose last digit is worth
what the last one of e4m3 is) where it is not. What is too large, infinities too, becomes NaN, as in
PyTorch and XLA; where the rounding is `loose`, the largest number, as chips have it.

Where `widen-factors` left products of two factors of e4m3 (`products`), their bodies take the bytes
as what they are, by `arith.bitcast`: nothing but an instruction that multiplies such is made of
them.

No other part of a back end has to know the type. What an argument was is on the function
(`stored`), for the plan.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.analysis.tiles import element_of, read_contraction, read_generic
from neptune_mlir.dialects.attributes import LOOSE, STORED
from neptune_mlir.dialects.program import functions
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import arith, ir, location_text
from neptune_mlir.ir.types import type_text
from neptune_mlir.transforms.registry import register

_SCALE = 256.0  # 2 to the difference of the exponents' biases of f16 and e4m3
_NO_SIGN, _NO_CARRY = 0x7F, ~0x4000  # a byte without its sign; the copy of the sign goes
_LARGEST, _NORMAL, _LAST = 448.0, 2.0**-6, 2.0**14  # of e4m3; an f32 whose last digit is its last
_DROPPED, _BIASES = 20, 120 << 3  # digits of f32 that e4m3 lacks; how far its exponents are off


@register("float8-bits", "store 8-bit floats as bytes and widen them by arithmetic on bits")
def float8_bits(module: Any, *, products: bool = False) -> None:
    """
    Args:
        products: whether products of two factors of e4m3 take these as they are.
    """
    for function in functions(module):
        arguments = function.regions[0].blocks[0].arguments
        kinds = [_element(a.type) for a in arguments]
        found: list[Any] = []

        def visit(op: Any, found: list[Any] = found) -> Any:
            if any(_element(v.type) == FLOAT8 for v in _values(op)):
                found.append(op)
            return ir.WalkResult.ADVANCE

        function.operation.walk(visit)
        for op in found:
            _check(op)
        casts = [(op, _CASTS[op.name]) for op in found if op.name in _CASTS]
        for op in found:
            if op.name == "arith.constant":
                _constant(op)
                continue
            for value in _own(op):
                if _element(value.type) == FLOAT8:
                    value.set_type(_bytes(value.type))
        for op, make in casts:
            if products and make is _widen and _multiplies(op):
                _as_float(op)
            else:
                make(op)
        kinds += [_element(kind) for kind in function.type.results]
        if FLOAT8 in kinds:
            STORED.set(function.operation, [k if k == FLOAT8 else "" for k in kinds])
            inputs = [a.type for a in arguments]
            results = [_bytes(k) if _element(k) == FLOAT8 else k for k in function.type.results]
            with function.context:
                kind = ir.FunctionType.get(inputs, results)
            function.attributes["function_type"] = ir.TypeAttr.get(kind)


def _own(op: Any) -> list[Any]:
    """The results of an op, and the arguments of its blocks."""
    blocks = [block for region in op.regions for block in region.blocks]
    return [*op.results, *(a for block in blocks for a in block.arguments)]


def _values(op: Any) -> list[Any]:
    return [*op.operands, *_own(op)]


def _element(kind: Any) -> str:
    return type_text(getattr(kind, "element_type", kind))


def _check(op: Any) -> None:
    """Raises LoweringError for arithmetic in 8 bits."""
    moves = ("arith.extf", "arith.truncf", "arith.select", "arith.constant")
    if op.name.startswith(("arith.", "math.")) and op.name not in moves:
        raise LoweringError(
            f"'{op.name}' computes with {FLOAT8}, which is for what a program reads",
            loc=location_text(op.location), hint="cast it to f16 or f32 first",
        )  # fmt: skip
    if op.name == "arith.truncf" and str(op.operands[0].type) == "f64":
        raise LoweringError(
            f"a number of f64 is rounded to {FLOAT8}, which is made of f32", hint="cast it to f32",
            loc=location_text(op.location),
        )  # fmt: skip


def _bytes(kind: Any) -> Any:
    return ir.Type.parse(str(kind).replace(FLOAT8, "i8"), kind.context)


def _constant(op: Any) -> None:
    """A constant becomes its bits (0 and what pads tiles: numbers that no arithmetic made)."""
    value = op.attributes["value"]
    number = value.value if isinstance(value, ir.FloatAttr) else None
    if number != 0.0:
        raise LoweringError(
            f"a constant of {FLOAT8} other than 0", loc=location_text(op.location),
            hint="write it as f16 or f32",
        )  # fmt: skip
    with ir.InsertionPoint(op), op.location:
        zero = arith.ConstantOp(ir.IntegerType.get_signless(8), 0).result
    op.results[0].replace_all_uses_with(zero)
    op.erase()


def _widen(op: Any) -> None:
    """The number that a byte is, at an `arith.extf`."""
    byte, wanted = op.operands[0], op.results[0].type
    i8, i16 = (ir.IntegerType.get_signless(n) for n in (8, 16))
    f16 = ir.F16Type.get()
    with ir.InsertionPoint(op), op.location:
        wide = arith.ExtSIOp(i16, byte).result
        moved = arith.ShLIOp(wide, arith.ConstantOp(i16, 7).result).result
        bits = arith.AndIOp(moved, arith.ConstantOp(i16, _NO_CARRY).result).result
        small = arith.BitcastOp(f16, bits).result
        size = arith.AndIOp(byte, arith.ConstantOp(i8, _NO_SIGN).result).result
        ends = arith.CmpIOp(
            arith.CmpIPredicate.eq, size, arith.ConstantOp(i8, _NO_SIGN).result
        ).result
        if wanted != f16 and str(wanted) != "bf16":
            small = arith.ExtFOp(wanted, small).result
        kind = small.type
        value = arith.MulFOp(small, arith.ConstantOp(kind, _SCALE).result).result
        nan = arith.ConstantOp(kind, float("nan")).result
        value = arith.SelectOp(ends, nan, value).result
        if str(wanted) == "bf16":
            value = arith.ExtFOp(ir.F32Type.get(), value).result
            value = arith.TruncFOp(wanted, value).result
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _round(op: Any) -> None:
    """The byte of the nearest number, at an `arith.truncf`."""
    number = op.operands[0]
    i8, i32, f32 = *(ir.IntegerType.get_signless(n) for n in (8, 32)), ir.F32Type.get()

    def word(value: int) -> Any:
        return arith.ConstantOp(i32, value).result

    with ir.InsertionPoint(op), op.location:
        if number.type != f32:
            number = arith.ExtFOp(f32, number).result
        whole = arith.BitcastOp(i32, number).result
        bits = arith.AndIOp(whole, word(0x7FFFFFFF)).result
        most = arith.BitcastOp(i32, arith.ConstantOp(f32, _LARGEST).result).result
        kept = arith.MinUIOp(bits, most).result
        odd = arith.AndIOp(arith.ShRUIOp(kept, word(_DROPPED)).result, word(1)).result
        up = arith.AddIOp(kept, word((1 << _DROPPED - 1) - 1)).result
        up = arith.ShRUIOp(arith.AddIOp(up, odd).result, word(_DROPPED)).result
        normal = arith.SubIOp(up, word(_BIASES)).result
        last = arith.ConstantOp(f32, _LAST).result
        moved = arith.AddFOp(arith.BitcastOp(f32, kept).result, last).result
        small = arith.BitcastOp(i32, moved).result
        small = arith.SubIOp(small, arith.BitcastOp(i32, last).result).result
        least = arith.BitcastOp(i32, arith.ConstantOp(f32, _NORMAL).result).result
        tiny = arith.CmpIOp(arith.CmpIPredicate.ult, kept, least).result
        byte = arith.SelectOp(tiny, small, normal).result
        known = arith.CmpIOp(arith.CmpIPredicate.ule, bits, word(_known(op))).result
        byte = arith.SelectOp(known, byte, word(_NO_SIGN)).result
        sign = arith.AndIOp(arith.ShRUIOp(whole, word(_DROPPED + 4)).result, word(0x80)).result
        byte = arith.TruncIOp(i8, arith.OrIOp(byte, sign).result).result
    op.results[0].replace_all_uses_with(byte)
    op.erase()


def _known(op: Any) -> int:
    """The largest bits of an f32 that become a number: of a loose rounding those of infinity, else
    of what rounds to the largest (464 is a tie, and that is even)."""
    return 0x7F800000 if LOOSE.on(op) else 0x43E80000


def _multiplies(op: Any) -> bool:
    """Whether an `arith.extf` stands in a product of two factors of e4m3 (bytes by now)."""
    parent = op.block.owner.operation
    if parent.name != "linalg.generic":
        return False
    g = read_generic(parent)
    return read_contraction(g) is not None and all(element_of(v) == "i8" for v in g.inputs)


def _as_float(op: Any) -> None:
    with ir.InsertionPoint(op), op.location:
        kind = ir.Type.parse(FLOAT8, op.context)
        op.operands[0] = arith.BitcastOp(kind, op.operands[0]).result


_CASTS = {"arith.extf": _widen, "arith.truncf": _round}
