# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Angles in f32: sin, cos and tan of an angle within an eighth of a turn, and their inverses."""

from __future__ import annotations

import math
from typing import Any

from neptune_mlir.ir.bindings import arith
from neptune_mlir.transforms.math import polynomials as P
from neptune_mlir.transforms.math.arithmetic import Arithmetic

_HALF_PI = 1.5707963267948966
_HALF_PI_LOW = -4.371138828673793e-08  # what the f32 number nearest to pi/2 is too large by
_PI_LOW = 2 * _HALF_PI_LOW


class Angles(Arithmetic):
    """asin, acos, atan, atan2; sin, cos and tan are for who reduces the angle."""

    def sine(self, r: Any, turn: Any) -> Any:
        """sin(r + turn pi/2) for |r| up to pi/4; `turn` is an integer."""
        square = arith.mulf(r, r)
        sine = self.fma(arith.mulf(square, r), self.horner(square, P.SIN), r)
        cosine = self.horner(square, (1.0, -0.5, *P.COS))
        value = arith.select(self.is_odd(turn), cosine, sine)
        flip = arith.shli(arith.andi(turn, self.i(2)), self.i(30))
        return self.from_bits(arith.xori(self.to_bits(value), flip))

    def cosine(self, r: Any, turn: Any) -> Any:
        return self.sine(r, arith.addi(turn, self.i(1)))

    def tangent(self, r: Any, turn: Any) -> Any:
        square = arith.mulf(r, r)
        value = self.fma(arith.mulf(square, r), self.horner(square, P.TAN), r)
        other = arith.divf(self.c(-1.0), value)
        return arith.select(self.is_odd(turn), other, value)

    def is_odd(self, n: Any) -> Any:
        one = self.i(1)
        return arith.cmpi(arith.CmpIPredicate.eq, arith.andi(n, one), one)

    def atan(self, x: Any) -> Any:
        size, one = self.absolute(x), self.c(1.0)
        steep = self.lt(one, size)
        t = arith.select(steep, arith.divf(one, size), size)
        return self.signed_like(self._complement(steep, self._atan_of_ratio(t)), x)

    def _atan_of_ratio(self, t: Any) -> Any:
        """atan t for t from 0 to 1."""
        square = arith.mulf(t, t)
        return self.fma(arith.mulf(square, t), self.horner(square, P.ATAN), t)

    def _complement(self, condition: Any, angle: Any) -> Any:
        """pi/2 - angle where `condition` holds."""
        low = arith.subf(self.c(_HALF_PI_LOW), angle)
        return arith.select(condition, arith.addf(self.c(_HALF_PI), low), angle)

    def atan2(self, y: Any, x: Any) -> Any:
        a, b = self.absolute(y), self.absolute(x)
        steep = self.lt(b, a)
        under, over = arith.select(steep, a, b), arith.select(steep, b, a)
        # equal operands may be zeros or infinities
        same = self.equal(a, b)
        over = arith.select(same, arith.select(self.equal(a, self.c(0.0)), a, self.c(1.0)), over)
        under = arith.select(same, self.c(1.0), under)
        angle = self._complement(steep, self._atan_of_ratio(arith.divf(over, under)))
        other = arith.addf(self.c(math.pi), arith.subf(self.c(_PI_LOW), angle))
        left = arith.cmpi(arith.CmpIPredicate.slt, self.to_bits(x), self.i(0))
        angle = self.signed_like(arith.select(left, other, angle), y)
        unordered = arith.cmpf(arith.CmpFPredicate.UNO, x, y)
        return arith.select(unordered, arith.addf(x, y), angle)

    def asin(self, x: Any) -> Any:
        size = self.absolute(x)
        large = self.lt(self.c(0.5), size)
        t, more = self._asin_or_half_acos(size, large)
        # pi/2 - 2 (t + more), the larger terms first: their difference is nearly exact
        rest = arith.subf(self.c(_HALF_PI_LOW), arith.addf(more, more))
        far = arith.addf(arith.subf(self.c(_HALF_PI), arith.addf(t, t)), rest)
        return self.signed_like(arith.select(large, far, arith.addf(t, more)), x)

    def acos(self, x: Any) -> Any:
        size, zero = self.absolute(x), self.c(0.0)
        large, negative = self.lt(self.c(0.5), size), self.lt(x, zero)
        angle = arith.addf(*self._asin_or_half_acos(size, large))
        double = arith.addf(angle, angle)  # acos |x| where it is large
        left = arith.addf(self.c(math.pi), arith.subf(self.c(_PI_LOW), double))
        far = arith.select(negative, left, double)
        low = arith.subf(self.c(_HALF_PI_LOW), self.signed_like(angle, x))
        return arith.select(large, far, arith.addf(self.c(_HALF_PI), low))

    def _asin_or_half_acos(self, size: Any, large: Any) -> tuple[Any, Any]:
        """The two terms of asin x, or, where x is over 1/2, of asin sqrt((1 - x)/2), which is half
        of acos x."""
        half = self.fma(size, self.c(-0.5), self.c(0.5))
        square = arith.select(large, half, arith.mulf(size, size))
        t = arith.select(large, self.root(half), size)
        return t, arith.mulf(arith.mulf(square, t), self.horner(square, P.ASIN))
