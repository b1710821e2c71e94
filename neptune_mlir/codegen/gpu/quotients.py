# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quotients of f32: a reciprocal for each divisor; for each quotient a product and a correction.

A product `a * (1 / b)` alone is not `a / b`. The reciprocal of a denormal `b` is infinite, so that
0 / b would be NaN. That of a large `b` is denormal. And x / x would not always be 1. So a divisor
is first scaled by a power of two, d = b k, to a size near 1; its reciprocal r is never out of range
then, and the chip's approximation will do. With t = a k,

    q = t r     e = q d - t  (exact, by a fused multiply-add)     a / b = q - e r

The correction gives the nearest number but for one quotient in millions, and 1 for x / x. It leaves
what is right already: where q is exact, which keeps the sign of a zero, and where the sum is NaN
because q is an infinity or a divisor is 0 or infinite. A divisor under 1 becomes one from 1/2 to 1,
so that t, at most the quotient, overflows only where that does. A larger divisor becomes one from
1 to 2, so that t, at least the quotient, loses bits only where that is denormal.

Where few digits will do, q is the quotient: two units in the last place. Divisors that several
elements share, those of rows, are then scaled in a branch that only threads take whose divisors
are no normal numbers, or 2^126 and more: a product is left of each quotient. Counts need neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from neptune_mlir.codegen.gpu.exponentials import AT_LEAST, LESS, within
from neptune_mlir.ir.bindings import ir, scf

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.scalars import Scalars

LEAST_NORMAL = 2.0**-126
_EXPONENT = 0x7F800000  # the bits of an f32's exponent
_ONE = 0x3F800000  # the bits of 1.0
_BIAS = 0x7F000000  # less the exponent of b: the bits of the power of two that brings b to [1, 2)
_STEP = 0x00800000  # a power of two more; 2^-126 as well
_SIGNED_AT_LEAST, _ORDERED_AND_UNEQUAL = 5, 6  # of `arith.cmpi`, `arith.cmpf`


def quotient(s: Scalars, a: Any, b: Any) -> Any:
    """a / b (f32); a denormal result may be off by 2^-149."""
    scaled, divisor = _scaled(s, a, b, rough=s.constant_of(a) is not None)
    reciprocal = s.chip.reciprocal(s, divisor)
    near = s.op("arith.mulf", [scaled, reciprocal], s.f32)
    error = s.fma(near, divisor, s.negate(scaled))
    better = s.fma(s.negate(error), reciprocal, near)
    predicate = ir.IntegerAttr.get(s.i64, _ORDERED_AND_UNEQUAL)
    moved = s.op("arith.cmpf", [better, near], s.i1, predicate=predicate)
    return s.select(moved, better, near)


def rough_quotient(s: Scalars, a: Any, b: Any) -> Any:
    """a / b (f32) to two units in the last place, or 2^-148 where it is denormal: what
    `share_divisors` made, or made now."""

    def make() -> Any:
        scaled, divisor = (a, b) if _is_count(s, b) else _scaled(s, a, b, rough=True)
        return s.op("arith.mulf", [scaled, s.chip.reciprocal(s, divisor)], s.f32)

    return s.remember(("quotient", a, b), make)


def share_divisors(s: Scalars, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Make rough quotients of pairs (a, b) for `rough_quotient`, where they have few divisors."""
    pairs = [p for p in dict.fromkeys(pairs) if None is s.constant_of(p[0]) is s.constant_of(p[1])]
    divisors = list(dict.fromkeys(b for _, b in pairs))
    if 2 * len(divisors) > len(pairs) or any(v.type != s.f32 for p in pairs for v in p):
        return
    for b in divisors:  # one after the other: what is divided need not be there at once
        _divide_all(s, [a for a, divisor in pairs if divisor == b], b)


def _divide_all(s: Scalars, dividends: Sequence[Any], b: Any) -> None:
    if _is_count(s, b):
        inverse = s.chip.reciprocal(s, b)
        for a in dividends:
            s.remember(("quotient", a, b), partial(s.op, "arith.mulf", [a, inverse], s.f32))
        return
    size = [s.op("math.absf", [b], s.f32)]
    usual = s.both(within(s, size, AT_LEAST, LEAST_NORMAL), within(s, size, LESS, 1 / LEAST_NORMAL))
    branch = scf.IfOp(usual, [s.f32] * (len(dividends) + 1), has_else=True)
    with s.scope(branch.then_block):
        scf.YieldOp([*dividends, b])
    with s.scope(branch.else_block):
        scaled = [_scaled(s, a, b) for a in dividends]
        scf.YieldOp([*(a for a, _ in scaled), scaled[0][1]])
    *scaled, divisor = branch.results
    inverse = s.chip.reciprocal(s, divisor)
    for a, dividend in zip(dividends, scaled, strict=True):
        s.remember(("quotient", a, b), partial(s.op, "arith.mulf", [dividend, inverse], s.f32))


def _scaled(s: Scalars, a: Any, b: Any, *, rough: bool = False) -> tuple[Any, Any]:
    """Both times the power of two that brings b near 1. Of a b that is 1 or more a quarter has a
    normal reciprocal; a quarter of a denormal a loses bits (`rough`: it may)."""
    scale = s.constant(0.25, s.f32) if rough and s.is_at_least_one(b) else _scale(s, b)
    return s.multiply(a, scale), s.op("arith.mulf", [b, scale], s.f32)


def _is_count(s: Scalars, b: Any) -> bool:
    """Whether a number was an integer, perhaps more than 0 by as much, or 1 in place of 0: such as
    are not 0 have a normal inverse."""
    made = s.parts(b, "arith.select") or (None, *(s.parts(b, "arith.addf") or ()))
    if made[1:]:
        return all(s.constant_of(v) in (0.0, 1.0) or _is_count(s, v) for v in made[1:])
    return s.parts(b, "arith.sitofp") is not None


def _scale(s: Scalars, b: Any) -> Any:
    """The power of two that brings b to a size from 1/2 to 2; 2^-126 for infinities and NaN."""
    bits = s.op("llvm.bitcast", [b], s.i32)
    exponent = s.op("arith.andi", [bits, s.constant(_EXPONENT, s.i32)], s.i32)
    large = s.op(
        "arith.cmpi", [exponent, s.constant(_ONE, s.i32)], s.i1,
        predicate=ir.IntegerAttr.get(s.i64, _SIGNED_AT_LEAST),
    )  # fmt: skip
    start = s.select(large, s.constant(_BIAS, s.i32), s.constant(_BIAS - _STEP, s.i32))
    inverse = s.op("arith.subi", [start, exponent], s.i32)
    inverse = s.op("arith.maxsi", [inverse, s.constant(_STEP, s.i32)], s.i32)
    return s.op("llvm.bitcast", [inverse], s.f32)
