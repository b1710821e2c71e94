# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Powers and roots in f32. The logarithm of a power has two parts: one would lose 7 bits."""

from __future__ import annotations

import math
from typing import Any

from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.transforms.math import polynomials as P
from neptune_mlir.transforms.math.exponentials import Exponentials
from neptune_mlir.transforms.math.logarithms import Logarithms

_THIRD_BITS = 709958130  # (127 - 127/3 - 0.033) 2^23: a third of the bits of x, and this, are near


class Powers(Exponentials, Logarithms):
    """powf, fpowi, cbrt, rsqrt. The first three are right with fused multiply-adds only."""

    def power(self, x: Any, y: Any) -> Any:
        """x^y with the special values of IEEE 754."""
        zero, whole = self.c(0.0), self.equal(self.nearest(y), y)
        half = arith.mulf(y, self.c(0.5))
        odd = arith.andi(whole, self.differs(self.nearest(half), half))
        value = self._power_of_size(self.absolute(x), y, None)
        negative = arith.andi(self.lt(x, zero), self.lt(self.absolute(x), self.c(math.inf)))
        value = arith.select(arith.andi(negative, self.differs(self.nearest(y), y)),
                             self.c(math.nan), value)  # fmt: skip
        return self._power_edges(x, y, self._sign_of_odd(x, value, odd))

    def power_of_integer(self, x: Any, n: Any) -> Any:
        """x^n for integers of any width."""
        kind = n.type.element_type if isinstance(n.type, ir.VectorType) else n.type
        most = 2.0 ** (kind.width - 1)
        y = self.less(self.c(most - most / (1 << 24)), arith.sitofp(self.kind, n))
        rest = arith.sitofp(self.kind, arith.subi(n, arith.fptosi(n.type, y)))
        value = self._power_of_size(self.absolute(x), y, rest)
        one = self.constant(n.type, ir.IntegerAttr.get(kind, 1))
        odd = arith.cmpi(arith.CmpIPredicate.eq, arith.andi(n, one), one)
        return self._power_edges(x, y, self._sign_of_odd(x, value, odd))

    def _sign_of_odd(self, x: Any, value: Any, odd: Any) -> Any:
        return arith.select(odd, self.signed_like(value, x), value)

    def _power_edges(self, x: Any, y: Any, value: Any) -> Any:
        """1 where either operand alone decides that, else NaN where one is NaN."""
        unordered = arith.cmpf(arith.CmpFPredicate.UNO, x, y)
        value = arith.select(unordered, arith.addf(x, y), value)
        size, one = self.absolute(y), self.c(1.0)
        value = arith.select(self.equal(x, one), one, value)
        value = arith.select(self.equal(y, self.c(0.0)), one, value)
        endless = arith.andi(self.equal(size, self.c(math.inf)), self.equal(x, self.c(-1.0)))
        return arith.select(endless, one, value)

    def _power_of_size(self, x: Any, y: Any, rest: Any) -> Any:
        """x^(y + rest) for x >= 0."""
        high, low = self._log_in_parts(x)
        p = arith.mulf(y, high)
        lost = self.fma(y, low, self.fma(y, high, arith.negf(p)))
        if rest is not None:
            lost = self.fma(rest, high, lost)
        inside = self.lt(self.absolute(p), self.c(120.0))  # else `lost` may be NaN
        lost = arith.select(inside, lost, self.c(0.0))
        p = self.less(self.c(89.0), self.greater(self.c(-105.0), p))
        r, n, bits = self.reduce(p)
        return self.scale(self.horner(arith.addf(r, lost), (1.0, 1.0, *P.EXP)), n, bits)

    def _log_in_parts(self, x: Any) -> tuple[Any, Any]:
        """log x as a number and what rounding took from it: some 2^-33 relative."""
        m, e = self.split(x)
        under = arith.addf(m, self.c(2.0))
        under_low = arith.subf(m, arith.subf(under, self.c(2.0)))
        inverse = arith.divf(self.c(1.0), under)
        s = arith.mulf(m, inverse)
        rest = self.fma(arith.negf(s), under_low, self.fma(arith.negf(s), under, m))
        s_low = arith.mulf(rest, inverse)
        # log((1 + s)/(1 - s)) = 2 s + s^3 (2/3 + ...); products with what rounding took from them
        square, square_low = self.product(s, s)
        square_low = self.fma(arith.addf(s, s), s_low, square_low)
        cube, cube_low = self.product(square, s)
        cube_low = self.fma(square, s_low, self.fma(square_low, s, cube_low))
        first, *rest_of_series = P.LOG_RATIO
        series = arith.mulf(square, self.horner(square, rest_of_series))
        more, more_low = self.product(cube, self.c(first))
        more_low = self.fma(cube, series, self.fma(cube_low, self.c(first), more_low))
        low = arith.addf(more_low, self.fma(e, self.c(P.LN2_LOW), arith.addf(s_low, s_low)))
        large, double = arith.mulf(e, self.c(P.LN2_HIGH)), arith.addf(s, s)
        high = arith.addf(large, double)
        low = arith.addf(arith.subf(double, arith.subf(high, large)), low)
        total = arith.addf(high, more)
        low = arith.addf(arith.subf(more, arith.subf(total, high)), low)
        high = total
        total = arith.addf(high, low)
        low = arith.addf(arith.subf(high, total), low)
        zero, infinity = self.c(0.0), self.c(math.inf)
        total = arith.select(self.equal(x, zero), self.c(-math.inf), total)
        total = arith.select(self.equal(x, infinity), infinity, total)
        return total, low

    def product(self, a: Any, b: Any) -> tuple[Any, Any]:
        product = arith.mulf(a, b)
        return product, self.fma(a, b, arith.negf(product))

    def cbrt(self, x: Any) -> Any:
        size = self.absolute(x)
        small = self.lt(size, self.c(2.0**-126))
        scaled = arith.select(small, arith.mulf(size, self.c(2.0**24)), size)
        bits = self.to_bits(scaled)
        # scaled = m 8^k with m in [1/2, 4)
        third = arith.shrui(arith.muli(arith.shrui(bits, self.i(23)), self.i(21846)), self.i(16))
        k = arith.subi(third, self.i(42))
        m_bits = arith.subi(bits, arith.muli(k, self.i(3 << 23)))
        m = self.from_bits(m_bits)
        t = self.from_bits(arith.addi(arith.divui(m_bits, self.i(3)), self.i(_THIRD_BITS)))
        cube = arith.mulf(arith.mulf(t, t), t)
        both = arith.addf(m, arith.addf(cube, cube))  # Halley's step: 5 bits become 16
        t = arith.mulf(t, arith.divf(arith.addf(cube, arith.addf(m, m)), both))
        square = arith.mulf(t, t)
        lost = self.fma(t, t, arith.negf(square))
        rest = self.fma(arith.negf(t), lost, self.fma(arith.negf(square), t, m))
        t = arith.addf(t, arith.divf(rest, arith.mulf(square, self.c(3.0))))
        t = arith.mulf(t, self.power_of_two(k))
        t = arith.select(small, arith.mulf(t, self.c(2.0**-8)), t)
        whole = arith.andi(self.lt(self.c(0.0), size), self.lt(size, self.c(math.inf)))
        return arith.select(whole, self.signed_like(t, x), arith.addf(x, x))

    def rsqrt(self, x: Any) -> Any:
        return arith.divf(self.c(1.0), self.root(x))
