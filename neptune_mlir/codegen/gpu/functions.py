# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of f32 that are few instructions: tangents, the error function, rough logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from neptune_mlir.codegen.gpu.exponentials import FAR, LESS, LOG2_E
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.math.polynomials import ERF, LOG2_ERFC, TANH, TANH_NEAR

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.scalars import Scalars

TOGETHER = 4  # tangents that share a reciprocal
LARGEST_POWER = 124.0  # of 2, of a product of as many exponentials
ONE_FROM = 9.1  # tanh of what is over it is 1, rounded to f32
ORDERED_GREATER = 2  # of `arith.cmpf`
FEW = 2.0**-5  # up to which a few terms of log(1 + x) are right to 2^-17


def tanh(s: Scalars, x: Any) -> Any:
    if x.type != s.f32 or (found := _tanh_of_logarithm(s, x)):
        return found if x.type == s.f32 else None
    square = s.op("arith.mulf", [x, x], s.f32)
    near = s.op("arith.mulf", [x, _horner(s, square, (1.0, *TANH))], s.f32)
    predicate = ir.IntegerAttr.get(s.i64, 4)
    limit = s.constant(TANH_NEAR * TANH_NEAR, s.f32)
    is_near = s.op("arith.cmpf", [square, limit], s.i1, predicate=predicate)
    return s.select(is_near, near, rough_tanh(s, x))


def rough_tanh(s: Scalars, x: Any) -> Any:
    """1 - 2 / (exp(2x) + 1): right at both ends, absolute error of a rounding or two. What
    `share_reciprocal` made, or made now."""
    if x.type != s.f32 or (found := _tanh_of_logarithm(s, x)):
        return found if x.type == s.f32 else None

    def make() -> Any:
        exponent = s.multiply(x, s.constant(2 * LOG2_E, s.f32))
        return _of_inverse(s, s.chip.reciprocal(s, _one_more(s, exponent)))

    return s.remember(("tanh", x), make)


def share_reciprocal(s: Scalars, numbers: Sequence[Any]) -> None:
    """Make the tangents of numbers for `rough_tanh` by one reciprocal, that of the product of their
    exp(2x) + 1: each inverse is the product of the others and it. Chips do a reciprocal in the time
    of four or eight products. exp(2x) ends where the tangent has been 1 for long and the product is
    finite. **If one of the numbers is NaN, all tangents are.**"""
    if any(x.type != s.f32 for x in numbers):
        return
    limit, scale = s.constant(LARGEST_POWER / TOGETHER, s.f32), s.constant(2 * LOG2_E, s.f32)
    numbers = list(dict.fromkeys(numbers))
    exponents = [s.op("arith.minimumf", [s.multiply(x, scale), limit], s.f32) for x in numbers]
    divisors = [_one_more(s, exponent) for exponent in exponents]
    inverses = _inverses(s, divisors, s.chip.reciprocal(s, _product(s, divisors)))
    for x, inverse in zip(numbers, inverses, strict=True):
        s.remember(("tanh", x), partial(_of_inverse, s, inverse))


def _one_more(s: Scalars, exponent: Any) -> Any:
    return s.op("arith.addf", [s.ex2(exponent), s.constant(1.0, s.f32)], s.f32)


def _of_inverse(s: Scalars, inverse: Any) -> Any:
    return s.fma(s.constant(-2.0, s.f32), inverse, s.constant(1.0, s.f32))


def _product(s: Scalars, factors: Sequence[Any]) -> Any:
    if len(factors) == 1:
        return factors[0]
    half = len(factors) // 2
    parts = [_product(s, factors[:half]), _product(s, factors[half:])]
    return s.op("arith.mulf", parts, s.f32)


def _inverses(s: Scalars, factors: Sequence[Any], inverse: Any) -> list[Any]:
    """The inverses of factors, by that of their product."""
    if len(factors) == 1:
        return [inverse]
    half = len(factors) // 2
    left, right = factors[:half], factors[half:]
    of_left = s.op("arith.mulf", [inverse, _product(s, right)], s.f32)
    of_right = s.op("arith.mulf", [inverse, _product(s, left)], s.f32)
    return [*_inverses(s, left, of_left), *_inverses(s, right, of_right)]


def _tanh_of_logarithm(s: Scalars, x: Any) -> Any:
    """tanh(log(1 + p)) of a power p is p (p + 2) / (p (p + 2) + 2), and no function; where x is
    another number if that is large, as programs write softplus, 1 then. None for other x."""
    large = None
    chosen = s.parts(x, "arith.select")
    if chosen and _is_over(s, chosen[0], chosen[1], ONE_FROM):
        large, x = chosen[0], chosen[2]
    of = s.parts(x, "math.log1p")
    if not of or of[0] not in s.powers:
        return None
    p = s.op("arith.minimumf", [of[0], s.constant(FAR, s.f32)], s.f32)
    square = s.fma(p, p, s.op("arith.addf", [p, p], s.f32))
    divisor = s.op("arith.addf", [square, s.constant(2.0, s.f32)], s.f32)  # 2 to 2^121
    found = s.op("arith.mulf", [square, s.chip.reciprocal(s, divisor)], s.f32)
    return found if large is None else s.select(large, s.constant(1.0, s.f32), found)


def _is_over(s: Scalars, condition: Any, value: Any, bound: float) -> bool:
    """Whether a condition says that a value is over a number that is not under `bound`."""
    compared = s.parts(condition, "arith.cmpf")
    if not compared or s.widened(compared[0]) != value:
        return False
    number = s.constant_of(compared[1])
    predicate = ir.IntegerAttr(condition.owner.attributes["predicate"]).value
    return number is not None and number >= bound and predicate == ORDERED_GREATER


def erf(s: Scalars, x: Any) -> Any:
    """A polynomial under 1, and 1 less a power of 2 from there on: none of both branches."""
    if x.type != s.f32:
        return None
    size, square = s.op("math.absf", [x], s.f32), s.op("arith.mulf", [x, x], s.f32)
    near = s.fma(size, _horner(s, square, ERF), size)
    far = s.op(
        "arith.subf", [s.constant(1.0, s.f32), s.ex2(_horner(s, size, LOG2_ERFC))], s.f32
    )
    predicate = ir.IntegerAttr.get(s.i64, LESS)
    small = s.op("arith.cmpf", [size, s.constant(1.0, s.f32)], s.i1, predicate=predicate)
    return s.op("math.copysign", [s.select(small, near, far), x], s.f32)


def rough_log(s: Scalars, x: Any) -> Any:
    """Off by 2^-22 near 1, and by as much of its value elsewhere; None where no instruction is."""
    found = s.chip.log2(s, x) if x.type == s.f32 else None
    return found and s.op("arith.mulf", [found, s.constant(1 / LOG2_E, s.f32)], s.f32)


def rough_inverse_root(s: Scalars, x: Any) -> Any:
    """1 / sqrt(x) to two units in the last place, without a branch; None where no instruction is.
    (A root and its reciprocal are two, with a branch each for numbers that are not normal: rows of
    a thread would wait for each other.)"""
    return s.chip.inverse_root(s, x) if x.type == s.f32 else None


def rough_log1p(s: Scalars, x: Any) -> Any:
    """log(1 + x), right to 2^-17."""
    if x.type != s.f32:
        return None
    far = rough_log(s, s.op("arith.addf", [x, s.constant(1.0, s.f32)], s.f32))
    if far is None:
        return None
    near = s.op("arith.mulf", [x, _horner(s, x, (1.0, -0.5, 1 / 3))], s.f32)
    predicate = ir.IntegerAttr.get(s.i64, LESS)
    size = s.op("math.absf", [x], s.f32)
    small = s.op("arith.cmpf", [size, s.constant(FEW, s.f32)], s.i1, predicate=predicate)
    return s.select(small, near, far)


def _horner(s: Scalars, x: Any, coefficients: Sequence[float]) -> Any:
    value = s.constant(coefficients[-1], s.f32)
    for coefficient in reversed(coefficients[:-1]):
        value = s.fma(value, x, s.constant(coefficient, s.f32))
    return value
