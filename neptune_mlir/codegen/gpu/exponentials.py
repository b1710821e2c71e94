# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exponentials as powers of 2, of differences from a reference above all.

With L = log2 e, `exp(x - g)` can be written in two ways:

* `ex2((x - g) L)` is right for all x and g: the difference of two floats that are close is exact.
* `ex2(fma(x, L, -r))` with r = round(g L), once for all elements of a row, takes one operation
  less. What it gives is relative to r in place of g L: exp(x - g) 2^c, where c = g L - r is what
  rounding lost. The factor is the same for all of a row, but c grows with g: at 1e9 it may be 64,
  and where g L overflows it is infinite.

The second way is for loops in which it pays, and whose results do not depend on the reference
(`keep-references`). It is taken where |g| is under `SMALL`, so that c is. What is measured from
the same references must know of c then, and everything here that is told of references does:

* `ex2(fma(x - g, L, c))` gives the same weights by the first way, for rows that share a warp with
  one whose reference is not small; for that one, c counts as 0.
* `ex2(fma(x, L, -r) - e)` does, too, by a g of any size: e is 0 for a small one, else g L - r.
* `exp(g - h)`, both references, is `ex2(fma(g - h, L, c(h) - c(g)))`: weights that were measured
  from g, as if they had been measured from h. Where both are small, `ex2(r(g) - r(h))`.
* 2^-c takes back what a sum has of it, for those who read the reference as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.algebra.numerics.floats import LARGEST
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.transforms.gpu.keep_references import SMALL

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.scalars import Scalars

LOG2_E = math.log2(math.e)
_LOG2_E_LOST = 1.925963033500665e-08  # by rounding log2 e to f32
_OVERFLOWS = 88.72283935546875  # of what ex2 is infinite, the least
FMA = "llvm.intr.fma"
FAR = 2.0**60  # scales between it and its inverse can be taken out again

EQUAL, AT_LEAST, LESS, UNEQUAL = 1, 3, 4, 6  # ordered comparisons of floats


def within(s: Scalars, values: Sequence[Any], predicate: int, bound: float) -> Any:
    """Whether all values compare so with a bound (an ordered comparison of `arith.cmpf`)."""
    found = None
    for value in values:
        here = s.op(
            "arith.cmpf", [value, s.constant(bound, s.f32)], s.i1,
            predicate=ir.IntegerAttr.get(s.i64, predicate),
            fastmath=ir.Attribute.parse("#arith.fastmath<none>"),
        )  # fmt: skip
        found = here if found is None else s.op("arith.andi", [found, here], s.i1)
    return found


def are_small(s: Scalars, references: Sequence[Any], bound: float = SMALL) -> Any:
    """Whether the product of each with log2 e loses little; not so for infinities and NaN."""
    return within(s, [s.op("math.absf", [g], s.f32) for g in references], LESS, bound)


def are_small_in_warp(s: Scalars, references: Sequence[Any]) -> Any:
    """Whether (i1) references are so small in all lanes of the warp that older ones, which are not
    larger, are small as well, or so far away that they count for nothing."""
    key = ("small", *references)
    return s.remember(key, lambda: s.chip.in_all_lanes(s, are_small(s, references, SMALL / 2)))


def unguarded(s: Scalars, g: Any) -> Any:
    """A reference without its guard: where(g == -inf, 0, g)."""
    guard = s.parts(g, "arith.select")
    return guard[2] if guard else g


def exponential(s: Scalars, x: Any) -> Any:
    """The rewrite of `math.exp`."""
    if x.type != s.f32:
        return None
    log2_e = s.constant(LOG2_E, s.f32)
    difference = s.parts(x, "arith.subf")
    if not difference:
        base, k = s.scaled(x)
        return s.ex2(s.multiply(base, _times_log2_e(s, k)))
    value, g = difference
    if not s.is_reference(g):
        return s.ex2(s.multiply(_difference(s, x), log2_e))
    if not s.is_reference(value):
        return _by_rounded_reference(s, value, g)
    if s.small_references:
        rounded = [s.multiply(reference, log2_e) for reference in difference]
        return s.ex2(s.op("arith.subf", rounded, s.f32))
    return s.ex2(s.fma(x, log2_e, s.op("arith.subf", [lost(s, g), lost(s, value)], s.f32)))


def _difference(s: Scalars, x: Any) -> Any:
    """A difference x, a product with a constant being part of it where that loses nothing."""
    value, g = s.parts(x, "arith.subf") or ()
    # fma(base, k, -g) of a scaled value only where the product is exact: g is made of rounded
    # ones, and an exact one may be larger by a unit in the last place of it, which is 1e30
    # where a mask was scaled.
    base, k = s.scaled(value)
    return s.fma(base, k, s.negate(g)) if k is not None and _scales_exactly(s.constant_of(k)) else x


def _scales_exactly(k: float | None) -> bool:
    """Whether a product with a constant has the digits of the other factor. (A power of 2 up to 1:
    nothing overflows. What underflows is far under a unit in the last place of any difference.)"""
    return k is not None and 0 < abs(k) <= 1 and math.frexp(abs(k))[0] == 0.5


def exact_exponential(s: Scalars, x: Any) -> Any:
    """exp x, right also where the product with log2 e loses bits, but not of a difference."""
    if x.type != s.f32 or s.parts(x, "arith.subf"):
        return exponential(s, x)
    return _corrected(s, x)


def precise_exponential(s: Scalars, x: Any) -> Any:
    """exp x, right also where the product with log2 e loses bits, of a difference too."""
    difference = s.parts(x, "arith.subf")
    if x.type != s.f32 or (difference and s.is_reference(difference[1])):
        return exponential(s, x)
    return _corrected(s, _difference(s, x) if difference else x)


def _corrected(s: Scalars, x: Any) -> Any:
    """ex2(t) (1 + ln 2 (x log2 e - t)), t being the rounded product."""
    # what is beyond gives infinity and 0 too, and infinities would give NaN
    x = s.op("arith.minimumf", [x, s.constant(_OVERFLOWS, s.f32)], s.f32)
    x = s.op("arith.maximumf", [x, s.constant(-104.0, s.f32)], s.f32)
    t = s.op("arith.mulf", [x, s.constant(LOG2_E, s.f32)], s.f32)
    rest = s.fma(x, s.constant(LOG2_E, s.f32), s.negate(t))
    ln_2, more = s.constant(math.log(2), s.f32), s.constant(_LOG2_E_LOST * math.log(2), s.f32)
    made = s.ex2(t)
    return s.fma(made, s.fma(x, more, s.op("arith.mulf", [rest, ln_2], s.f32)), made)


def _by_rounded_reference(s: Scalars, value: Any, g: Any) -> Any:
    """exp(value - g) 2^c(g) for a small g, a scale of the value being part of the factor log2 e."""
    log2_e = s.constant(LOG2_E, s.f32)
    product = s.parts(value, FMA)
    bias = s.parts(product[2], FMA) if product and s.is_uniform(product[1]) else None
    if product and bias and s.constant_of(bias[1]) and len(list(value.uses)) == 1:
        # x k + (a + slope j), which nothing but this reads: a - g is the same for a row
        a = s.multiply(s.op("arith.subf", [bias[2], g], s.f32), log2_e)
        here = s.fma(s.multiply(bias[0], log2_e), bias[1], a)
        return s.ex2(s.fma(product[0], _times_log2_e(s, product[1]), here))
    base, k = s.scaled(value)
    return s.ex2(s.fma(base, _times_log2_e(s, k), s.negate(s.multiply(g, log2_e))))


def by_differences(s: Scalars, values: Sequence[Any], references: Sequence[Any]) -> Any:
    """exp(value - g) 2^c(g) for pairs of a value and its reference g of any size, which nobody has
    to ask for: an operation more than for small ones. None where a value is a multiple that rounds,
    and not known what its reference is a multiple of."""
    exponents = []
    for value, g in zip(values, references, strict=True):
        base, k = s.scaled(value)
        rounds = k is not None and not _scales_exactly(s.constant_of(k))
        taken = _taken(s, g, k if rounds else None)
        if taken is None:
            return None
        rounded, rest = taken
        exponents.append((s.fma(base, _times_log2_e(s, k), s.negate(rounded)), rest))
    # in this order: with each exponential behind its own, head dims of 128 without a mask lose 1%
    differences = [s.op("arith.subf", pair, s.f32) for pair in exponents]
    return [s.ex2(x) for x in differences]


def _taken(s: Scalars, g: Any, k: Any) -> tuple[Any, Any] | None:
    """r = g log2 e, rounded, and what is left of the largest x's exponent where g is not small: so
    it has the weight 1 by a reference of any size. With a k that rounds, that is the X of g = X k:
    g is as far from it as rounding any x k is. None where X is not known."""
    largest, scale = (g, None) if k is None else s.factors.get(unguarded(s, g), (g, None))
    if scale != k:
        return None
    rounded = s.op("arith.mulf", [g, s.constant(LOG2_E, s.f32)], s.f32)
    for name, most in (("arith.minimumf", LARGEST["f32"]), ("arith.maximumf", -LARGEST["f32"])):
        rounded = s.op(name, [rounded, s.constant(most, s.f32)], s.f32)  # NaN stays
    rest = s.fma(largest, _times_log2_e(s, k), s.negate(rounded))
    return rounded, s.select(are_small(s, [g]), s.constant(0.0, s.f32), rest)


def by_any_references(
    s: Scalars, values: Sequence[Any], references: Sequence[Any], small: Any
) -> list[Any]:
    """exp(value - g) 2^c(g) for pairs of a value and its reference g; `small` (i1) says whether all
    references are, in all lanes.

    Where they are not, the warp makes of the values what the multiplication and addition that there
    are anyway turn into exponents: that they are there for both ways keeps code and registers few.
    So the factor is the same, and what it has of a scale of the values is taken out of differences.
    """
    log2_e, rows = s.constant(LOG2_E, s.f32), list(dict.fromkeys(references))
    scaled = [s.scaled(value) for value in values]
    bases, k = [base for base, _ in scaled], scaled[0][1]
    scale = 1.0 if k is None else s.constant_of(k)
    if any(other != k for _, other in scaled) or not scale or not 1 / FAR < abs(scale) < FAR:
        bases, k, scale = list(values), None, 1.0
    rounded = [s.negate(s.multiply(g, log2_e)) for g in rows]
    branch = scf.IfOp(small, [s.f32] * (len(bases) + len(rows)), has_else=True)
    with s.scope(branch.then_block):
        scf.YieldOp([*bases, *rounded])
    with s.scope(branch.else_block):
        inverse = s.constant(1 / scale, s.f32)
        pairs = zip(values, references, strict=True)
        made = [s.op("arith.subf", pair, s.f32) for pair in pairs]
        if k is not None:
            made = [s.op("arith.mulf", [x, inverse], s.f32) for x in made]
        scf.YieldOp([*made, *(lost(s, g) for g in rows)])
    added = dict(zip(rows, list(branch.results)[len(bases) :], strict=True))
    factor = _times_log2_e(s, k)
    return [
        s.ex2(s.fma(x, factor, added[g]))
        for x, g in zip(list(branch.results)[: len(bases)], references, strict=True)
    ]


def _times_log2_e(s: Scalars, k: Any) -> Any:
    log2_e = s.constant(LOG2_E, s.f32)
    return log2_e if k is None else s.multiply(k, log2_e)


def lost(s: Scalars, g: Any) -> Any:
    """c: what rounding the product of a reference with log2 e loses; 0 where it is not small."""
    log2_e = s.constant(LOG2_E, s.f32)
    rounded = s.op("arith.mulf", [g, log2_e], s.f32)
    rest = s.fma(g, log2_e, s.negate(rounded))
    return s.select(are_small(s, [g]), rest, s.constant(0.0, s.f32))


def taken_back(s: Scalars, g: Any) -> Any:
    """2^-c: the factor that makes a sum of what was measured from g one relative to g itself."""
    return s.ex2(s.negate(lost(s, g)))
