# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exponentials in f32, and what is made of them: hyperbolic functions, erf and erfc."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from neptune_mlir.ir.bindings import arith
from neptune_mlir.transforms.math import polynomials as P
from neptune_mlir.transforms.math.arithmetic import Arithmetic


class Exponentials(Arithmetic):
    """exp, exp2, expm1, tanh, sinh, cosh, erf, erfc."""

    def exp(self, x: Any) -> Any:
        def power(x: Any) -> tuple[Any, Any, Any]:
            r, n, bits = self.reduce(x)
            return self.horner(r, (1.0, 1.0, *P.EXP)), n, bits

        # e^-104 rounds to 0 and e^89 to infinity; the order keeps a NaN in x
        return self._power(x, power, (-87.0, -104.0, -176.0), 89.0)

    def exp2(self, x: Any) -> Any:
        def power(x: Any) -> tuple[Any, Any, Any]:
            n, bits = self.round(x, 1.0)
            return self.horner(arith.subf(x, n), (1.0, *P.EXP2)), n, bits

        return self._power(x, power, (-125.5, -151.0, -254.0), 129.0)

    def _power(
        self, x: Any, power: Callable[[Any], tuple[Any, Any, Any]],
        low: tuple[float, float, float], high: float,
    ) -> Any:  # fmt: skip
        """The scaled `power` of x: y, n as a float and in bits, for y * 2^n with y in [1/2, 2)."""

        def any_lane() -> Any:
            there, normal = self.in_range(x, low, high)
            return self.scale(*power(there), normal, partial(self.between, there, low))

        if not self.has_branches:
            return any_lane()
        value, _, bits = power(x)
        return self.scale_normal(value, bits, any_lane)

    def in_range(self, x: Any, low: tuple[float, float, float], high: float) -> tuple[Any, Any]:
        """An exponent that is at most `high`, and the lanes (None: all are alike) whose power is
        normal, above the first of `low`. A power that underflows takes Intel's cores 150 cycles, so
        a masked score (-inf) must not make one: its lane is not `between` the first and the second,
        where powers may be denormal, or it becomes the third of `low`, where `scale` multiplies by
        zeros."""
        if self.has_scalef:
            normal = arith.cmpf(arith.CmpFPredicate.UGT, x, self.c(low[0]))
            return self.less(self.c(high), x), normal
        return self.less(self.c(high), self.greater(self.c(low[2]), x)), None

    def between(self, x: Any, low: tuple[float, float, float]) -> Any:
        below = arith.cmpf(arith.CmpFPredicate.OLE, x, self.c(low[0]))
        return arith.andi(below, arith.cmpf(arith.CmpFPredicate.OGT, x, self.c(low[1])))

    def expm1(self, x: Any) -> Any:
        x = self.less(self.c(89.0), self.greater(self.c(-20.0), x))
        r, _, bits = self.reduce(x)
        part = self.fma(arith.mulf(r, r), self.horner(r, P.EXP), r)  # e^r - 1
        whole = arith.subi(bits, self.i(int(np.float32(P.ROUND).view(np.uint32)) + 1))
        half = self.power_of_two(whole)  # 2^(n-1): 2^n may be out of range
        value = self.fma(half, part, arith.subf(half, self.c(0.5)))
        doubled = arith.addf(value, value)
        # near 0 the sum above is exact only without the scaling
        near = arith.cmpf(arith.CmpFPredicate.OLT, self.absolute(x), self.c(0.34))
        value = self.fma(arith.mulf(x, x), self.horner(x, P.EXP), x)
        return self.signed_like(arith.select(near, value, doubled), x)

    def half_exp(self, x: Any) -> Any:
        """exp(x) / 2 for x >= 0, also where exp(x) is too large."""
        r, n, bits = self.reduce(self.less(self.c(90.0), x))
        n, bits = arith.subf(n, self.c(1.0)), arith.subi(bits, self.i(1))
        return self.scale(self.horner(r, (1.0, 1.0, *P.EXP)), n, bits)

    def cosh(self, x: Any) -> Any:
        half = self.half_exp(self.absolute(x))
        return arith.addf(half, arith.divf(self.c(0.25), half))

    def sinh(self, x: Any) -> Any:
        size, square = self.absolute(x), arith.mulf(x, x)
        near = self.fma(arith.mulf(square, x), self.horner(square, P.SINH), x)
        half = self.half_exp(size)
        far = arith.subf(half, arith.divf(self.c(0.25), half))
        return self.signed_like(arith.select(self.lt(size, self.c(1.0)), near, far), x)

    def tanh(self, x: Any) -> Any:
        size = self.absolute(x)
        square = arith.mulf(x, x)
        near = self.fma(arith.mulf(square, x), self.horner(square, P.TANH), x)
        e = self.exp(arith.addf(size, size))
        far = arith.subf(self.c(1.0), arith.divf(self.c(2.0), arith.addf(e, self.c(1.0))))
        small = arith.cmpf(arith.CmpFPredicate.OLT, size, self.c(P.TANH_NEAR))
        return self.signed_like(arith.select(small, near, far), x)

    def erf(self, x: Any) -> Any:
        size = self.absolute(x)
        square = arith.mulf(x, x)
        near = self.fma(x, self.horner(square, P.ERF), x)
        capped = self.less(self.c(4.0), size)
        far = arith.subf(self.c(1.0), self.exp(self.horner(capped, P.LOG_ERFC)))
        small = arith.cmpf(arith.CmpFPredicate.OLT, size, self.c(1.0))
        return self.signed_like(arith.select(small, near, far), x)

    def erfc(self, x: Any) -> Any:
        size = self.less(self.c(10.5), self.absolute(x))
        two = self.c(2.0)
        t = arith.divf(arith.subf(size, two), arith.addf(size, two))
        tail = arith.divf(self.horner(t, P.ERFC), self.fma(size, two, self.c(1.0)))
        # exp(-x^2) from both parts of the square; what may be denormal is rounded last
        square = arith.mulf(size, size)
        lost = self.fma(size, size, arith.negf(square))
        r, n, bits = self.reduce(arith.negf(square))
        part = arith.mulf(self.horner(r, (1.0, 1.0, *P.EXP)), tail)
        far = self.scale(self.fma(arith.negf(lost), part, part), n, bits)
        far = arith.select(self.lt(x, self.c(0.0)), arith.subf(two, far), far)
        squared = arith.mulf(x, x)  # erf x is x + x p, and 1 - x is nearly exact
        near = self.fma(arith.negf(x), self.horner(squared, P.ERF), arith.subf(self.c(1.0), x))
        return arith.select(self.lt(size, self.c(1.0)), near, far)
