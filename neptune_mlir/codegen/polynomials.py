# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementary functions in single precision as straight-line arithmetic on scalars or vectors.

Each is within 2 units in the last place over its whole range (tested against double precision),
with the IEEE results at infinities, NaN and denormal numbers. Polynomials are least-squares fits
of the relative error on Chebyshev nodes. Nothing here branches, so lanes never diverge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neptune_mlir.bindings import arith, ir, llvm
from neptune_mlir.bindings import module as binding

_LOG2E = math.log2(math.e)
# ln 2 in two parts: the first has few bits, so its product with an exponent is exact
_LN2_HIGH = 0.693359375
_LN2_LOW = math.log(2) - _LN2_HIGH
# adding this rounds to an integer, which then is in the low bits
_ROUND = 1.5 * 2.0**23

# (exp(r) - 1 - r) / r^2 on [-ln2/2, ln2/2]
_EXP = (0.4999999403953552, 0.16666515171527863, 0.04166845604777336, 0.008369418792426586,
        0.0013813144760206342)  # fmt: skip
# (2^r - 1) / r on [-1/2, 1/2]
_EXP2 = (0.6931471824645996, 0.24022647738456726, 0.05550329387187958, 0.009618449956178665,
         0.0013400170719251037, 0.0001535231713205576)  # fmt: skip
# (log(1 + m) - m + m^2/2) / m^3 on [sqrt(1/2) - 1, sqrt(2) - 1]
_LOG = (0.3333331346511841, -0.25000008940696716, 0.2000211924314499, -0.1666799634695053,
        0.14219552278518677, -0.1240558922290802, 0.11888163536787033, -0.11675649881362915,
        0.0674663558602333)  # fmt: skip
# erf(x)/x - 1 in x^2 on [0, 1]
_ERF = (0.12837916612625122, -0.3761262595653534, 0.1128358542919159, -0.026853810995817184,
        0.005188327748328447, -0.0008010193705558777, 7.853860734030604e-05)  # fmt: skip
# log(erfc(x)) on [1, 4]
_LOG_ERFC = (0.0001884686789708212, -1.1295802593231201, -0.633216381072998, -0.10842210799455643,
             0.025210343301296234, -0.0042052860371768475, 0.0004414728900883347,
             -2.169763138226699e-05)  # fmt: skip
# (tanh(x)/x - 1)/x^2 in x^2 on [0, 0.625^2]
_TANH = (-0.33333277702331543, 0.13331328332424164, -0.05372922868537545, 0.02060200646519661,
         -0.005660788156092167)  # fmt: skip


class Functions:
    """Builds the functions for one type, `f32` or a vector of it."""

    def __init__(self, kind: Any, *, fma: bool, scalef: bool):
        self.kind, self.fused, self.scalef = kind, fma, scalef
        lanes = list(kind.shape) if isinstance(kind, ir.VectorType) else None
        i32 = ir.IntegerType.get_signless(32)
        self.bits = ir.VectorType.get(lanes, i32) if lanes else i32
        self.table: dict[str, Callable[..., Any]] = {
            "math.exp": self.exp, "math.exp2": self.exp2, "math.expm1": self.expm1,
            "math.log": self.log, "math.log2": self.log2, "math.log10": self.log10,
            "math.log1p": self.log1p, "math.tanh": self.tanh, "math.erf": self.erf,
            "math.rsqrt": self.rsqrt, "arith.maximumf": self.maximum,
            "arith.minimumf": self.minimum,
        }  # fmt: skip

    # --- arithmetic

    def c(self, value: float) -> Any:
        element = ir.FloatAttr.get(ir.F32Type.get(), float(np.float32(value)))
        return self._constant(self.kind, element)

    def i(self, value: int) -> Any:
        signed = value - (1 << 32) if value >= 1 << 31 else value
        element = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), signed)
        return self._constant(self.bits, element)

    @staticmethod
    def _constant(kind: Any, element: Any) -> Any:
        if isinstance(kind, ir.VectorType):
            element = ir.DenseElementsAttr.get_splat(kind, element)
        return arith.ConstantOp(kind, element).result

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        if self.fused:
            return binding("dialects.math").fma(a, b, c)
        return arith.addf(arith.mulf(a, b), c)

    def horner(self, x: Any, coefficients: Sequence[float]) -> Any:
        value = self.c(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = self.fma(value, x, self.c(coefficient))
        return value

    def to_bits(self, x: Any) -> Any:
        return arith.bitcast(self.bits, x)

    def from_bits(self, x: Any) -> Any:
        return arith.bitcast(self.kind, x)

    def greater(self, a: Any, b: Any) -> Any:
        """max(a, b) as x86 computes it: b where either is NaN."""
        return arith.select(arith.cmpf(arith.CmpFPredicate.OGT, a, b), a, b)

    def less(self, a: Any, b: Any) -> Any:
        return arith.select(arith.cmpf(arith.CmpFPredicate.OLT, a, b), a, b)

    def absolute(self, x: Any) -> Any:
        return binding("dialects.math").absf(x)

    def signed_like(self, x: Any, sign: Any) -> Any:
        return binding("dialects.math").copysign(x, sign)

    # --- pieces

    def round(self, x: Any, factor: float) -> tuple[Any, Any]:
        """The integer nearest to x * factor, as a float and in bits that hold n + constant."""
        shifted = self.fma(x, self.c(factor), self.c(_ROUND))
        return arith.subf(shifted, self.c(_ROUND)), self.to_bits(shifted)

    def scale(self, x: Any, n: Any, n_bits: Any) -> Any:
        """x * 2^n, right also where the result is infinite, denormal or zero."""
        if self.scalef and isinstance(self.kind, ir.VectorType) and self.kind.shape[0] == 16:
            i16, i32 = ir.IntegerType.get_signless(16), ir.IntegerType.get_signless(32)
            every = arith.ConstantOp(i16, ir.IntegerAttr.get(i16, -1)).result
            rounding = arith.ConstantOp(i32, ir.IntegerAttr.get(i32, 4)).result
            return llvm.call_intrinsic(
                self.kind, "llvm.x86.avx512.mask.scalef.ps.512", [x, n, x, every, rounding], [], []
            )
        # two factors, so that neither leaves the range of normal numbers
        whole = arith.subi(n_bits, self.i(int(np.float32(_ROUND).view(np.uint32))))
        half = arith.shrsi(whole, self.i(1))
        rest = arith.subi(whole, half)
        for part in (half, rest):
            x = arith.mulf(x, self.power_of_two(part))
        return x

    def power_of_two(self, n: Any) -> Any:
        return self.from_bits(arith.shli(arith.addi(n, self.i(127)), self.i(23)))

    def reduce(self, x: Any) -> tuple[Any, Any, Any]:
        """x = n ln 2 + r: r, n as a float, n in bits."""
        n, bits = self.round(x, _LOG2E)
        r = self.fma(n, self.c(-_LN2_HIGH), x)
        return self.fma(n, self.c(-_LN2_LOW), r), n, bits

    def split(self, x: Any) -> tuple[Any, Any]:
        """x = (1 + m) 2^e for positive finite x, 1 + m in [sqrt(1/2), sqrt(2)): m, e."""
        small = arith.cmpf(arith.CmpFPredicate.OLT, x, self.c(2.0**-126))
        x = arith.select(small, arith.mulf(x, self.c(2.0**23)), x)
        offset = arith.select(small, self.c(-23.0), self.c(0.0))
        low = int(np.float32(math.sqrt(0.5)).view(np.uint32))
        shifted = arith.subi(self.to_bits(x), self.i(low))
        exponent = arith.sitofp(self.kind, arith.shrsi(shifted, self.i(23)))
        mantissa = arith.addi(arith.andi(shifted, self.i(0x7FFFFF)), self.i(low))
        one_plus_m = self.from_bits(mantissa)
        return arith.subf(one_plus_m, self.c(1.0)), arith.addf(exponent, offset)

    def log_of_mantissa(self, m: Any) -> Any:
        """log(1 + m) - m."""
        square = arith.mulf(m, m)
        rest = arith.mulf(arith.mulf(square, m), self.horner(m, _LOG))
        return self.fma(square, self.c(-0.5), rest)

    def log_special(self, x: Any, value: Any) -> Any:
        """The results of a logarithm at 0, infinity, negative numbers and NaN."""
        infinity = self.c(math.inf)
        positive = arith.cmpf(arith.CmpFPredicate.OGT, x, self.c(0.0))
        finite = arith.cmpf(arith.CmpFPredicate.OLT, x, infinity)
        zero = arith.cmpf(arith.CmpFPredicate.OEQ, x, self.c(0.0))
        other = arith.select(zero, self.c(-math.inf), self.c(math.nan))
        value = arith.select(positive, value, other)
        unordered_or_infinite = arith.select(positive, x, value)
        return arith.select(finite, value, self._nan_through(x, unordered_or_infinite))

    def _nan_through(self, x: Any, value: Any) -> Any:
        return arith.select(arith.cmpf(arith.CmpFPredicate.UNO, x, x), x, value)

    # --- functions

    def exp(self, x: Any) -> Any:
        # e^-104 rounds to 0 and e^89 to infinity; the order keeps a NaN in x
        x = self.less(self.c(89.0), self.greater(self.c(-104.0), x))
        r, n, bits = self.reduce(x)
        return self.scale(self.horner(r, (1.0, 1.0, *_EXP)), n, bits)

    def exp2(self, x: Any) -> Any:
        x = self.less(self.c(129.0), self.greater(self.c(-151.0), x))
        n, bits = self.round(x, 1.0)
        r = arith.subf(x, n)
        return self.scale(self.horner(r, (1.0, *_EXP2)), n, bits)

    def expm1(self, x: Any) -> Any:
        x = self.less(self.c(89.0), self.greater(self.c(-20.0), x))
        r, _, bits = self.reduce(x)
        part = self.fma(arith.mulf(r, r), self.horner(r, _EXP), r)  # e^r - 1
        whole = arith.subi(bits, self.i(int(np.float32(_ROUND).view(np.uint32)) + 1))
        half = self.power_of_two(whole)  # 2^(n-1): 2^n may be out of range
        value = self.fma(half, part, arith.subf(half, self.c(0.5)))
        doubled = arith.addf(value, value)
        # near 0 the sum above is exact only without the scaling
        near = arith.cmpf(arith.CmpFPredicate.OLT, self.absolute(x), self.c(0.34))
        value = self.fma(arith.mulf(x, x), self.horner(x, _EXP), x)
        return self.signed_like(arith.select(near, value, doubled), x)

    def log(self, x: Any) -> Any:
        return self.log_special(x, self._log_positive(x))

    def _log_positive(self, x: Any) -> Any:
        m, e = self.split(x)
        tail = self.fma(e, self.c(_LN2_LOW), self.log_of_mantissa(m))
        return self.fma(e, self.c(_LN2_HIGH), arith.addf(m, tail))

    def log2(self, x: Any) -> Any:
        m, e = self.split(x)
        tail = self.log_of_mantissa(m)
        # log2(e) = 1 + rest, so the leading term is exact
        rest = arith.mulf(arith.addf(m, tail), self.c(_LOG2E - 1.0))
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
        value = arith.addf(self.log(u), arith.divf(lost, u))
        # at -1 and infinity the quotient is no number; a tiny x is its own logarithm
        plain = arith.cmpf(arith.CmpFPredicate.OEQ, u, self.c(1.0))
        edge = arith.cmpf(arith.CmpFPredicate.OEQ, self.absolute(lost), self.c(0.0))
        value = arith.select(edge, self.log(u), value)
        infinite = arith.cmpf(arith.CmpFPredicate.OEQ, x, self.c(math.inf))
        return arith.select(infinite, x, arith.select(plain, x, value))

    def tanh(self, x: Any) -> Any:
        size = self.absolute(x)
        square = arith.mulf(x, x)
        near = self.fma(arith.mulf(square, x), self.horner(square, _TANH), x)
        e = self.exp(arith.addf(size, size))
        far = arith.subf(self.c(1.0), arith.divf(self.c(2.0), arith.addf(e, self.c(1.0))))
        small = arith.cmpf(arith.CmpFPredicate.OLT, size, self.c(0.625))
        return self.signed_like(arith.select(small, near, far), x)

    def erf(self, x: Any) -> Any:
        size = self.absolute(x)
        square = arith.mulf(x, x)
        near = self.fma(x, self.horner(square, _ERF), x)
        capped = self.less(self.c(4.0), size)
        far = arith.subf(self.c(1.0), self.exp(self.horner(capped, _LOG_ERFC)))
        small = arith.cmpf(arith.CmpFPredicate.OLT, size, self.c(1.0))
        return self.signed_like(arith.select(small, near, far), x)

    def rsqrt(self, x: Any) -> Any:
        return arith.divf(self.c(1.0), binding("dialects.math").sqrt(x))

    def maximum(self, a: Any, b: Any) -> Any:
        """NaN if either is; zeros of both signs count as equal."""
        return self._nan_through(a, self.greater(a, b))

    def minimum(self, a: Any, b: Any) -> Any:
        return self._nan_through(a, self.less(a, b))
