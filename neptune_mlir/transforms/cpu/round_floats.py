# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `round-floats`: what scalar code computes in f64 is rounded to fewer digits.

For the program as written in f64 (`widen-floats`): with `digits=24` its errors are those of an f32
program, and its range is that of f64. It runs on loops, where the sums of reductions are
operations as any other, in the order that `reorder-sums` gave them. Rounding to nearest is two
products and two differences (Veltkamp): with c = (2^29 + 1) x, c - (c - x).

With `numbered=true` the function takes one more argument, the number of a way to round: up where
a result is further up between two neighbours than a mark of theirs (a hash of them and of the
number), and down where it is not. That is a rounding as any other: a number that has no more
digits stays, equal numbers stay equal, and order stays. What a program makes with one rounding and
not with another is luck (numerics.md). Neighbours of what is denormal in f32 are as far apart as
they are there: its digits are few, and which of them a product keeps is luck most of all.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra.numerics.floats import SMALLEST
from neptune_mlir.dialects.program import functions
from neptune_mlir.ir.bindings import arith, ir, math
from neptune_mlir.transforms.registry import register

_EXACT = ("arith.negf", "arith.select", "arith.constant", "math.absf", "math.copysign")
# factors of a hash: odd, with bits of both kinds anywhere
MIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9


@register("round-floats", "round what is computed in f64 to fewer digits")
def round_floats(module: Any, *, digits: int = 0, numbered: bool = False) -> None:
    if not digits:
        return
    for function in functions(module):
        found: list[Any] = []

        def visit(op: Any, found: list[Any] = found) -> Any:
            if op.name.split(".")[0] in ("arith", "math") and op.name not in _EXACT:
                found.extend(r for r in op.results if isinstance(r.type, ir.F64Type))
            return ir.WalkResult.ADVANCE

        function.operation.walk(visit)
        number = _number_of(function) if numbered else None
        for value in found:
            with ir.InsertionPoint.after(value.owner), value.owner.location:
                if numbered:
                    rounded, ours = _otherwise(value, digits, number)
                else:
                    rounded, ours = _nearest(value, digits)
            value.replace_all_uses_except(rounded, [*{v.owner.operation for v in ours}])
    module.operation.verify()


def _number_of(function: Any) -> Any:
    """A new last argument."""
    kind, block = function.type, function.regions[0].blocks[0]
    whole = ir.IntegerType.get_signless(64)
    number = block.add_argument(whole, function.location)
    longer = ir.FunctionType.get([*kind.inputs, whole], [*kind.results])
    function.operation.attributes["function_type"] = ir.TypeAttr.get(longer)
    if "arg_attrs" in function.operation.attributes:
        of_arguments = [*function.arg_attrs, ir.DictAttr.get({})]
        function.arg_attrs = ir.ArrayAttr.get(of_arguments)
    return number


def _nearest(value: Any, digits: int) -> tuple[Any, list[Any]]:
    """The nearest number, and what is made of the value itself."""
    factor = arith.constant(value.type, float(2 ** (53 - digits) + 1))
    high = arith.mulf(value, factor)
    rest = arith.subf(high, value)
    rounded = arith.subf(high, rest)
    # what overflows on the way stays as it is
    number = arith.cmpf(arith.CmpFPredicate.ORD, rounded, rounded)
    kept = arith.select(number, rounded, value)
    return kept, [high, rest, kept]


def _otherwise(value: Any, digits: int, number: Any) -> tuple[Any, list[Any]]:
    """One of the two neighbours, and what is made of the value itself."""
    whole, more = ir.IntegerType.get_signless(64), 53 - digits
    least = SMALLEST["f32"]
    units = 2.0 ** (digits - 1) / least  # a number in units of the least one

    def constant(bits: int) -> Any:
        return arith.constant(whole, bits - (bits >> 63 << 64))

    def real(number: float) -> Any:
        return arith.constant(value.type, number)

    bits = arith.bitcast(whole, value)
    further = arith.andi(bits, constant(2**more - 1))
    down = arith.xori(bits, further)
    size = math.absf(value)
    is_small = arith.cmpf(arith.CmpFPredicate.OLT, size, real(least))
    small = arith.select(is_small, value, real(0.0))
    in_units = arith.mulf(small, real(units))
    lower = math.floor(in_units)
    rest = arith.mulf(arith.subf(in_units, lower), real(2.0**more))
    further = arith.select(is_small, arith.fptoui(whole, rest), further)
    mark = arith.select(is_small, arith.bitcast(whole, lower), down)
    mark = arith.xori(mark, arith.muli(number, constant(MIX[0])))
    for factor in MIX:
        mark = arith.muli(mark, constant(factor))
        mark = arith.xori(mark, arith.shrui(mark, constant(32)))
    mark = arith.shrui(arith.muli(mark, constant(MIX[0])), constant(64 - more))
    is_up = arith.cmpi(arith.CmpIPredicate.ugt, further, mark)
    up = arith.extui(whole, is_up)
    found = arith.addi(down, arith.shli(up, constant(more)))  # (also into the exponent)
    of_small = arith.addf(lower, arith.uitofp(value.type, up))
    of_small = arith.mulf(of_small, real(1 / units))
    found = arith.select(is_small, of_small, arith.bitcast(value.type, found))
    return found, [bits, size, small]
