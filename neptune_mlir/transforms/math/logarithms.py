# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logarithms in f32, and the inverses of the hyperbolic functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neptune_mlir.ir.bindings import arith
from neptune_mlir.transforms.math import polynomials as P
from neptune_mlir.transforms.math.arithmetic import Arithmetic

# from here on sqrt(x^2 + 1) is x, and log(2x) is log(x) + log(2)
_LARGE = 2.0**30
_ONE = 0x3F800000  # the bits of 1.0


class Logarithms(Arithmetic):
    """log, log2, log10, log1p, asinh, acosh, atanh."""

    def log(self, x: Any) -> Any:
        return self.log_special(x, self._log_positive(x))

    def _log_positive(self, x: Any) -> Any:
        return self._log_of(*self.split(x))

    def _log_of(self, m: Any, e: Any) -> Any:
        """log((1 + m) 2^e)."""
        tail = self.fma(e, self.c(P.LN2_LOW), self.log_of_mantissa(m))
        return self.fma(e, self.c(P.LN2_HIGH), arith.addf(m, tail))

    def log2(self, x: Any) -> Any:
        m, e = self.split(x)
        tail = self.log_of_mantissa(m)
        # log2(e) = 1 + rest, so the leading term is exact
        rest = arith.mulf(arith.addf(m, tail), self.c(P.LOG2E - 1.0))
        value = arith.addf(arith.addf(e, m), arith.addf(rest, tail))
        return self.log_special(x, value)

    def log10(self, x: Any) -> Any:
        value, factor = self._log_positive(x), math.log10(math.e)
        low = factor - float(np.float32(factor))  # the factor in two parts: one is not enough
        value = self.fma(value, self.c(factor), arith.mulf(value, self.c(low)))
        return self.log_special(x, value)

    def log1p(self, x: Any) -> Any:
        u = arith.addf(x, self.c(1.0))
        lost = arith.subf(x, arith.subf(u, self.c(1.0)))  # what rounding took from 1 + x
        one_plus_m, place = self.mantissa(u)
        power = arith.subi(self.i(_ONE), place)  # the bits of 2^-e
        power = arith.maxsi(power, self.i(0))  # 0 where that is too small: nothing was lost there
        m = self.fma(lost, self.from_bits(power), arith.subf(one_plus_m, self.c(1.0)))
        value = self.log_special(u, self._log_of(m, self.exponent(place, self.c(0.0))))
        tiny = arith.cmpf(arith.CmpFPredicate.OEQ, u, self.c(1.0))  # its own logarithm
        return arith.select(tiny, x, value)

    def asinh(self, x: Any) -> Any:
        size = self.absolute(x)
        square = arith.mulf(size, size)
        root = self.root(self.fma(size, size, self.c(1.0)))
        u = arith.addf(size, arith.divf(square, arith.addf(root, self.c(1.0))))
        return self.signed_like(self._log1p_or_log_of_double(u, size), x)

    def acosh(self, x: Any) -> Any:
        t = arith.subf(x, self.c(1.0))
        u = arith.addf(t, self.root(self.fma(t, t, arith.addf(t, t))))
        value = self._log1p_or_log_of_double(u, x)
        return arith.select(self.lt(x, self.c(1.0)), self.c(math.nan), value)

    def _log1p_or_log_of_double(self, u: Any, x: Any) -> Any:
        """log(1 + u), or log(2 x) where x is large."""
        large = self.lt(self.c(_LARGE), x)
        value = self.log1p(arith.select(large, x, u))
        double = arith.addf(value, self.c(math.log(2)))
        return arith.select(large, double, value)

    def atanh(self, x: Any) -> Any:
        size = self.absolute(x)
        ratio = arith.divf(arith.addf(size, size), arith.subf(self.c(1.0), size))
        return self.signed_like(arith.mulf(self.c(0.5), self.log1p(ratio)), x)
