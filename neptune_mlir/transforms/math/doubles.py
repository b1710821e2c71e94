# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementary functions of an f64 scalar as arithmetic with fused multiply-adds: what GPUs run,
where no device library is. Right to a few units in the last place (docs/numerics.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from neptune_mlir.ir.bindings import arith, ir, scf
from neptune_mlir.transforms.math.powers import Powers

_ROUND = 1.5 * 2.0**52  # adding this rounds to an integer, which then is in the low bits
_ROUND_BITS = 0x4338000000000000
_ONE, _INFINITY, _ROOT_HALF = 0x3FF0000000000000, 0x7FF0000000000000, 0x3FE6A09E667F3BCD
# ln 2 in two parts: the first has 32 bits, so its product with an exponent is exact
_LN2 = 0.6931471803691238, 1.9082149292705877e-10
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33,
            5.562271104316826e-50)  # fmt: skip
_MODERATE = 2.0**30  # of an angle that four parts of pi/2 reduce
_STEP, _STEPS = 11, 191  # bits at a time; exponents of f64 differ by 2098 at most
# 1/(2 pi) behind the point, 64 bits a word, with a word of zeros before
_TURN = (0x28BE60DB9391054A, 0x7F09D5F47D4D3770, 0x36D8A5664F10E410, 0x7F9458EAF7AEF158,
         0x6DC91B8E909374B8, 0x01924BBA82746487, 0x3F877AC72C4A69CF, 0xBA208D7D4BAED121,
         0x3A671C09AD17DF90, 0x4E64758E60D4CE7D, 0x272117E2EF7E4A0E, 0xC7FE25FFF7816603,
         0xFBCBC462D6829B47, 0xDB4D9FB3C9F2C26D, 0xD3D18FD9A797FA8B, 0x5D49EEB1FAF97C5E,
         0xCF41CE7DE294A4BA, 0x9AFED7EC47E35742, 0x1580CC11BF1EDAEA,
         0xFC33EF0826BD0D87)  # fmt: skip
# (exp(r) - 1 - r) / r^2
_EXP = tuple(1 / math.factorial(k) for k in range(2, 15))
# erf(x)/x - 1 in x^2 on [0, 1]
_ERF = (0.1283791670955126, -0.37612638903183754, 0.1128379167095512, -0.02686617064512984,
        0.0052239776254232985, -0.000854832702193483, 0.00012055332902888736,
        -1.4925647567519332e-05, 1.6462045441468418e-06, -1.6364642158167616e-07,
        1.4792401209404813e-08, -1.216456005728345e-09, 8.709045129053106e-11,
        -4.230945824295338e-12)  # fmt: skip
# erfc(x) exp(x^2) (1 + 2x) in (x - 2)/(x + 2) on [1, 28]
_ERFC = (1.2769783815525286, -0.09276382658574601, -0.1660303976152894, 0.16405128003344277,
         -0.05422000099203194, -0.008034015082404138, 0.008722653875259076, 0.0012713389628744023,
         -0.0014568139258815077, -0.00045434073879365924, 0.00020636664004145826,
         0.000151038155016998, -1.5010532176299805e-06, -3.642380891316733e-05,
         -1.3564339820144738e-05, 3.8134472826753393e-06, 5.449492114702488e-06,
         7.388943088712132e-07, -2.9122829133582955e-07, 5.502304645441583e-07,
         -3.2124410145081853e-06, 2.6572871030368534e-06, -7.770621965747335e-07,
         6.339825612922193e-08)  # fmt: skip
# (sin(x)/x - 1)/x^2 and (cos(x) - 1 + x^2/2)/x^4 in x^2, x a bit over pi/4
_SIN = (-0.16666666666666666, 0.008333333333333331, -0.00019841269841263702, 2.75573192183055e-06,
        -2.505210588256116e-08, 1.6058477566369284e-10, -7.58359092308199e-13)  # fmt: skip
_COS = (0.041666666666666664, -0.0013888888888888887, 2.480158730158389e-05,
        -2.7557319220828123e-07, 2.0876755596547824e-09, -1.1470430834864356e-11,
        4.7441448801126805e-14)  # fmt: skip
# (log((1 + s)/(1 - s))/s - 2)/s^2 in s^2, (1 + s)/(1 - s) on [sqrt(1/2), sqrt(2)]
_LOG_RATIO = (0.6666666666666666, 0.4000000000000094, 0.2857142857076445, 0.2222222240054776,
              0.181817947008978, 0.15386290534658992, 0.13267418596474884, 0.1310072138350349)
# (atan(x)/x - 1)/x^2 in x^2 up to 7/16 (FreeBSD's msun)
_ATAN = (-0.3333333333333293, 0.19999999999876483, -0.14285714272503466, 0.11111110405462356,
         -0.09090887133436507, 0.0769187620504483, -0.06661073137387531, 0.058335701337905735,
         -0.049768779946159324, 0.036531572744216916, -0.016285820115365782)  # fmt: skip


class Doubles(Powers):
    """For scalars."""

    def __init__(self) -> None:
        super().__init__(ir.F64Type.get(), fma=True, scalef=False)
        self.bits = ir.IntegerType.get_signless(64)
        self.table: dict[str, Callable[..., Any]] = {
            "math.exp": self.exp, "math.exp2": self.exp2, "math.expm1": self.expm1,
            "math.log": self.log, "math.log2": self.log2, "math.log10": self.log10,
            "math.log1p": self.log1p, "math.tanh": self.tanh, "math.sinh": self.sinh,
            "math.cosh": self.cosh, "math.erf": self.erf, "math.erfc": self.erfc,
            "math.rsqrt": self.rsqrt, "math.powf": self.power,
            "math.fpowi": self.power_of_integer, "math.asinh": self.asinh,
            "math.acosh": self.acosh, "math.atanh": self.atanh, "math.cbrt": self.cbrt,
            "math.atan": self.atan, "math.atan2": self.atan2, "math.asin": self.asin,
            "math.acos": self.acos, "math.sin": self.sin, "math.cos": self.cos,
            "math.tan": self.tan, "arith.remf": self.remainder,
        }  # fmt: skip

    # --- pieces

    def c(self, value: float) -> Any:
        return self.constant(self.kind, ir.FloatAttr.get(self.kind, float(value)))

    def i(self, value: int) -> Any:
        signed = value - (1 << 64) if value >= 1 << 63 else value
        return self.constant(self.bits, ir.IntegerAttr.get(self.bits, signed))

    def round(self, x: Any, factor: float) -> tuple[Any, Any]:
        shifted = self.fma(x, self.c(factor), self.c(_ROUND))
        return arith.subf(shifted, self.c(_ROUND)), self.to_bits(shifted)

    def reduce(self, x: Any) -> tuple[Any, Any, Any]:
        n, bits = self.round(x, math.log2(math.e))
        r = self.fma(n, self.c(-_LN2[0]), x)
        return self.fma(n, self.c(-_LN2[1]), r), n, bits

    def power_of_two(self, n: Any) -> Any:
        return self.from_bits(arith.shli(arith.addi(n, self.i(1023)), self.i(52)))

    def scale(self, x: Any, n: Any, n_bits: Any, *_: Any) -> Any:
        whole = arith.subi(n_bits, self.i(_ROUND_BITS))
        half = arith.shrsi(whole, self.i(1))
        for part in (half, arith.subi(whole, half)):
            x = arith.mulf(x, self.power_of_two(part))
        return x

    def split(self, x: Any) -> tuple[Any, Any]:
        """x = (1 + m) 2^e for positive finite x, 1 + m in [sqrt(1/2), sqrt(2)): m, e."""
        small = self.lt(x, self.c(2.0**-1022))
        x = arith.select(small, arith.mulf(x, self.c(2.0**54)), x)
        bits = self.to_bits(x)
        place = arith.andi(arith.subi(bits, self.i(_ROOT_HALF)), self.i(0xFFF << 52))
        e = arith.sitofp(self.kind, arith.shrsi(place, self.i(52)))
        e = arith.addf(e, arith.select(small, self.c(-54.0), self.c(0.0)))
        return arith.subf(self.from_bits(arith.subi(bits, place)), self.c(1.0)), e

    def clamped(self, x: Any, low: float, high: float) -> Any:
        """NaN stays."""
        return self.less(self.c(high), self.greater(self.c(low), x))

    # --- exponentials

    def exp(self, x: Any) -> Any:
        r, n, bits = self.reduce(self.clamped(x, -760.0, 720.0))
        return self.scale(self.horner(r, (1.0, 1.0, *_EXP)), n, bits)

    def exp2(self, x: Any) -> Any:
        x = self.clamped(x, -1100.0, 1100.0)
        n, bits = self.round(x, 1.0)
        r = arith.mulf(arith.subf(x, n), self.c(math.log(2)))
        return self.scale(self.horner(r, (1.0, 1.0, *_EXP)), n, bits)

    def expm1(self, x: Any) -> Any:
        size = self.clamped(x, -45.0, 710.0)
        r, _, bits = self.reduce(size)
        part = self.fma(arith.mulf(r, r), self.horner(r, _EXP), r)  # e^r - 1
        # 2^(n-1): 2^n may be out of range
        half = self.power_of_two(arith.subi(bits, self.i(_ROUND_BITS + 1)))
        value = self.fma(half, part, arith.subf(half, self.c(0.5)))
        return self.signed_like(arith.addf(value, value), x)

    def sinh(self, x: Any) -> Any:
        size = self.absolute(x)
        t = self.expm1(self.less(self.c(30.0), size))
        near = arith.addf(t, arith.divf(t, arith.addf(t, self.c(1.0))))
        near = arith.mulf(near, self.c(0.5))
        return self.signed_like(self._or_half_exp(size, near), x)

    def cosh(self, x: Any) -> Any:
        size = self.absolute(x)
        half = arith.mulf(self.exp(self.less(self.c(30.0), size)), self.c(0.5))
        return self._or_half_exp(size, arith.addf(half, arith.divf(self.c(0.25), half)))

    def _or_half_exp(self, size: Any, near: Any) -> Any:
        """exp(size)/2, also where exp(size) is too large, or what it is near 0."""
        root = self.exp(arith.mulf(size, self.c(0.5)))
        far = arith.mulf(arith.mulf(root, self.c(0.5)), root)
        return arith.select(self.lt(self.c(25.0), size), far, near)

    def tanh(self, x: Any) -> Any:
        size = self.less(self.c(30.0), self.absolute(x))
        t = self.expm1(arith.addf(size, size))
        under = arith.addf(t, self.c(2.0))
        far = arith.subf(self.c(1.0), arith.divf(self.c(2.0), under))
        near = arith.divf(t, under)
        value = arith.select(self.lt(size, self.c(0.5)), near, far)
        return self.nan_through(x, self.signed_like(value, x))

    def erf(self, x: Any) -> Any:
        squared = arith.mulf(x, x)
        near = self.fma(x, self.horner(squared, _ERF), x)
        size = self.absolute(x)
        far = arith.subf(self.c(1.0), self._erfc_of_size(size))
        value = arith.select(self.lt(size, self.c(1.0)), near, self.signed_like(far, x))
        return self.nan_through(x, value)

    def erfc(self, x: Any) -> Any:
        size, one = self.absolute(x), self.c(1.0)
        far = self._erfc_of_size(size)
        far = arith.select(self.lt(x, self.c(0.0)), arith.subf(self.c(2.0), far), far)
        squared = arith.mulf(x, x)
        near = self.fma(arith.negf(x), self.horner(squared, _ERF), arith.subf(one, x))
        value = arith.select(self.lt(size, one), near, far)
        return self.nan_through(x, value)

    def _erfc_of_size(self, x: Any) -> Any:
        """erfc x for x >= 1: exp(-x^2) from both parts of the square."""
        two = self.c(2.0)
        size = self.less(self.c(28.0), self.greater(self.c(1.0), x))
        t = arith.divf(arith.subf(size, two), arith.addf(size, two))
        tail = arith.divf(self.horner(t, _ERFC), self.fma(size, two, self.c(1.0)))
        square, lost = self.product(size, size)
        r, n, bits = self.reduce(arith.negf(square))
        part = arith.mulf(self.horner(r, (1.0, 1.0, *_EXP)), tail)
        return self.scale(self.fma(arith.negf(lost), part, part), n, bits)

    # --- logarithms

    def log(self, x: Any) -> Any:
        high, low = self._log_in_parts(x)
        return self._log_edges(x, arith.addf(high, low))

    def _log_edges(self, x: Any, value: Any) -> Any:
        value = arith.select(self.equal(x, self.c(0.0)), self.c(-math.inf), value)
        value = arith.select(self.lt(x, self.c(0.0)), self.c(math.nan), value)
        value = arith.select(self.equal(x, self.c(math.inf)), x, value)
        return self.nan_through(x, value)

    def _scaled_log(self, x: Any, factor: float, low: float) -> Any:
        """By both parts of the logarithm and of the factor."""
        high, rest = self._log_in_parts(x)
        value, lost = self.product(high, self.c(factor))
        lost = self.fma(rest, self.c(factor), self.fma(high, self.c(low), lost))
        return self._log_edges(x, arith.addf(value, lost))

    def log2(self, x: Any) -> Any:
        return self._scaled_log(x, 1.4426950408889634, 2.0355273740931033e-17)

    def log10(self, x: Any) -> Any:
        return self._scaled_log(x, 0.4342944819032518, 1.098319650216765e-17)

    def log1p(self, x: Any) -> Any:
        u = arith.addf(x, self.c(1.0))
        lost = arith.subf(x, arith.subf(u, self.c(1.0)))  # what rounding took from 1 + x
        value = arith.addf(self.log(u), arith.divf(lost, u))
        usual = arith.andi(self.lt(self.c(0.0), u), self.lt(u, self.c(math.inf)))
        value = arith.select(usual, value, self.log(u))
        return arith.select(self.equal(x, self.c(0.0)), x, value)

    def _log_in_parts(self, x: Any) -> tuple[Any, Any]:
        """log x as a number and what rounding took from it: some 2^-62 relative."""
        m, e = self.split(x)
        under = arith.addf(m, self.c(2.0))
        under_low = arith.subf(m, arith.subf(under, self.c(2.0)))
        s = arith.divf(m, under)
        rest = self.fma(arith.negf(s), under_low, self.fma(arith.negf(s), under, m))
        s_low = arith.divf(rest, under)
        # 2 s + s^3 (2/3 + ...), products with what rounding took from them
        first, *others = _LOG_RATIO
        square, square_low = self.product(s, s)
        square_low = self.fma(arith.addf(s, s), s_low, square_low)
        cube, cube_low = self.product(square, s)
        cube_low = self.fma(square, s_low, self.fma(square_low, s, cube_low))
        more, more_low = self.product(cube, self.c(first))
        series = self.fma(square, self.horner(square, others), self.c(2 / 3 - first + 3.7e-17))
        more_low = self.fma(cube, series, self.fma(cube_low, self.c(first), more_low))
        low = arith.addf(more_low, self.fma(e, self.c(_LN2[1]), arith.addf(s_low, s_low)))
        high, large = arith.addf(s, s), arith.mulf(e, self.c(_LN2[0]))
        for term in (large, more):  # the sum with what is lost, whichever is larger
            total = arith.addf(high, term)
            back = arith.subf(total, high)
            lost = arith.addf(arith.subf(high, arith.subf(total, back)), arith.subf(term, back))
            high, low = total, arith.addf(low, lost)
        total = arith.addf(high, low)
        return total, arith.addf(arith.subf(high, total), low)

    def _power_of_size(self, x: Any, y: Any, rest: Any) -> Any:
        """x^(y + rest) for x >= 0."""
        high, low = self._log_in_parts(x)
        edge = self._log_edges(x, high)
        low = arith.select(self.equal(edge, high), low, self.c(0.0))
        p, lost = self.product(y, edge)
        lost = self.fma(y, low, lost)
        if rest is not None:
            lost = self.fma(rest, edge, lost)
        inside = self.lt(self.absolute(p), self.c(800.0))  # else `lost` may be NaN
        lost = arith.select(inside, lost, self.c(0.0))
        r, n, bits = self.reduce(self.clamped(p, -760.0, 720.0))
        return self.scale(self.horner(arith.addf(r, lost), (1.0, 1.0, *_EXP)), n, bits)

    def cbrt(self, x: Any) -> Any:
        size = self.absolute(x)
        small = self.lt(size, self.c(2.0**-900))
        scaled = arith.select(small, arith.mulf(size, self.c(2.0**180)), size)
        t = self.exp(arith.divf(self.log(scaled), self.c(3.0)))
        square = arith.mulf(t, t)  # a step of Newton's
        rest = self.fma(arith.negf(square), t, scaled)
        better = arith.addf(t, arith.divf(rest, arith.mulf(square, self.c(3.0))))
        better = arith.select(small, arith.mulf(better, self.c(2.0**-60)), better)
        whole = arith.andi(self.lt(self.c(0.0), size), self.lt(size, self.c(math.inf)))
        return arith.select(whole, self.signed_like(better, x), arith.addf(x, x))

    # --- inverses

    def asinh(self, x: Any) -> Any:
        size = self.absolute(x)
        root = self.root(self.fma(size, size, self.c(1.0)))
        u = arith.addf(size, arith.divf(arith.mulf(size, size), arith.addf(root, self.c(1.0))))
        return self.signed_like(self._log1p_or_log_of_double(u, size), x)

    def _log1p_or_log_of_double(self, u: Any, x: Any) -> Any:
        large = self.lt(self.c(2.0**30), x)
        double = arith.addf(self.log(x), self.c(math.log(2)))
        return arith.select(large, double, self.log1p(arith.select(large, self.c(0.0), u)))

    def atan(self, x: Any) -> Any:
        return self.atan2(x, self.c(1.0))

    def atan2(self, y: Any, x: Any) -> Any:
        a, b = self.absolute(y), self.absolute(x)
        same, one = self.equal(a, b), self.c(1.0)  # may be zeros or infinities
        a = arith.select(same, arith.select(self.equal(a, self.c(0.0)), a, one), a)
        b = arith.select(same, one, b)
        steep = self.lt(b, a)
        t = arith.divf(arith.select(steep, b, a), arith.select(steep, a, b))
        # atan t = atan(1/2) + atan((t - 1/2)/(1 + t/2)), or pi/4 + atan((t - 1)/(1 + t))
        angle, low = t, self.c(0.0)
        base, base_low = self.c(0.0), self.c(0.0)
        half = arith.divf(arith.subf(arith.addf(t, t), one), arith.addf(t, self.c(2.0)))
        whole = arith.divf(arith.subf(t, one), arith.addf(t, one))
        for least, other, at, at_low in (
            (7 / 16, half, 0.4636476090008061, 2.2698777452961687e-17),
            (11 / 16, whole, 0.7853981633974483, 3.061616997868383e-17),
        ):
            over = arith.cmpf(arith.CmpFPredicate.OGE, t, self.c(least))
            angle = arith.select(over, other, angle)
            base = arith.select(over, self.c(at), base)
            base_low = arith.select(over, self.c(at_low), base_low)
        square = arith.mulf(angle, angle)
        low = self.fma(arith.mulf(square, angle), self.horner(square, _ATAN), base_low)
        angle = arith.addf(base, arith.addf(angle, low))
        turned = arith.subf(self.c(_HALF_PI[0]), arith.subf(angle, self.c(_HALF_PI[1])))
        angle = arith.select(steep, turned, angle)
        left = arith.cmpi(arith.CmpIPredicate.slt, self.to_bits(x), self.i(0))
        other = arith.subf(self.c(math.pi), arith.subf(angle, self.c(2 * _HALF_PI[1])))
        angle = self.signed_like(arith.select(left, other, angle), y)
        unordered = arith.cmpf(arith.CmpFPredicate.UNO, x, y)
        return arith.select(unordered, arith.addf(x, y), angle)

    def asin(self, x: Any) -> Any:
        one = self.c(1.0)
        other = self.root(arith.mulf(arith.subf(one, x), arith.addf(one, x)))
        return self.atan2(x, other)

    def acos(self, x: Any) -> Any:
        one = self.c(1.0)
        roots = self.root(arith.subf(one, x)), self.root(arith.addf(one, x))
        angle = self.atan2(*roots)
        return arith.addf(angle, angle)

    # --- angles

    def sin(self, x: Any) -> Any:
        value, _ = self._both(x)
        return arith.select(self.equal(x, self.c(0.0)), x, value)  # -0 stays

    def cos(self, x: Any) -> Any:
        return self._both(x)[1]

    def tan(self, x: Any) -> Any:
        sine, cosine = self._both(x)
        return arith.select(self.equal(x, self.c(0.0)), x, arith.divf(sine, cosine))

    def _both(self, x: Any) -> tuple[Any, Any]:
        r, turn = self._reduce_angle(x)
        square = arith.mulf(r, r)
        sine = self.fma(arith.mulf(square, r), self.horner(square, _SIN), r)
        cosine = self.horner(square, (1.0, -0.5, *_COS))
        odd = arith.cmpi(arith.CmpIPredicate.ne, arith.andi(turn, self.i(1)), self.i(0))
        values = []
        for k, pair in enumerate(((cosine, sine), (sine, cosine))):
            value = self.to_bits(arith.select(odd, *pair))
            flip = arith.shli(arith.andi(arith.addi(turn, self.i(k)), self.i(2)), self.i(62))
            values.append(self.from_bits(arith.xori(value, flip)))
        return values[0], values[1]

    def _reduce_angle(self, x: Any) -> list[Any]:
        """r and an integer n, x = r + n pi/2 but for whole turns, |r| up to pi/4 (and a bit)."""
        near = self.lt(self.absolute(x), self.c(_MODERATE))
        return self.branch(
            near, [self.kind, self.bits],
            lambda: self.less_quarters(x, _HALF_PI), lambda: self._reduce_large(x),
        )  # fmt: skip

    def _reduce_large(self, x: Any) -> list[Any]:
        """Payne and Hanek: x is m 2^s with 53 bits of m, and of 1/(2 pi) only those bits matter
        that make no whole turn, and 128 behind the point."""
        bits = self.to_bits(x)
        m = arith.ori(arith.andi(bits, self.i((1 << 52) - 1)), self.i(1 << 52))
        exponent = arith.andi(arith.shrui(bits, self.i(52)), self.i(0x7FF))
        # s may be below 0: then a part of the word of zeros is one of them
        first = arith.addi(arith.subi(exponent, self.i(1023 + 52)), self.i(64))
        first = arith.minsi(first, self.i(64 * 16 + 63))  # what is larger is no number
        high, low = self._turns(m, *self._words(first))
        quarter = arith.shrui(arith.addi(high, self.i(1 << 61)), self.i(62))
        high = arith.subi(high, arith.shli(quarter, self.i(62)))
        # the rest of a turn in 128 bits with a sign, as two numbers
        part = arith.sitofp(self.kind, high)
        lost = arith.sitofp(self.kind, arith.subi(high, arith.fptosi(self.bits, part)))
        lost = self.fma(arith.uitofp(self.kind, low), self.c(2.0**-64), lost)
        part, lost = (arith.mulf(v, self.c(2.0**-62)) for v in (part, lost))
        total = arith.addf(part, lost)
        lost = arith.addf(arith.subf(part, total), lost)
        rest = self.fma(total, self.c(_HALF_PI[1]), arith.mulf(lost, self.c(_HALF_PI[0])))
        r = self.fma(total, self.c(_HALF_PI[0]), rest)
        negative = self.lt(x, self.c(0.0))
        r = arith.select(negative, arith.negf(r), r)
        turn = arith.select(negative, arith.subi(self.i(0), quarter), quarter)
        return [arith.addf(r, arith.subf(x, x)), turn]  # NaN for infinities

    def _words(self, first: Any) -> list[Any]:
        """192 bits of 1/(2 pi) from a bit on, counted from a word of zeros."""
        table = (0, *_TURN)
        which, shift = arith.shrui(first, self.i(6)), arith.andi(first, self.i(63))
        chosen = [self.i(word) for word in table[:4]]
        for k in range(1, len(table) - 3):
            here = arith.cmpi(arith.CmpIPredicate.eq, which, self.i(k))
            words = table[k : k + 4]
            chosen = [arith.select(here, self.i(w), c) for w, c in zip(words, chosen, strict=True)]
        # (a shift by 64 has no meaning)
        back = arith.subi(self.i(63), shift)
        return [
            arith.ori(arith.shli(a, shift), arith.shrui(arith.shrui(b, self.i(1)), back))
            for a, b in itertools.pairwise(chosen)
        ]

    def _turns(self, m: Any, first: Any, second: Any, third: Any) -> tuple[Any, Any]:
        """128 bits behind the point of m times a number of which 192 are known."""
        low = arith.addi(arith.muli(m, second), self._high(m, third))
        carry = arith.cmpi(arith.CmpIPredicate.ult, low, self._high(m, third))
        high = arith.addi(arith.muli(m, first), self._high(m, second))
        return arith.addi(high, arith.extui(self.bits, carry)), low

    def _high(self, a: Any, b: Any) -> Any:
        """The upper 64 bits of a product of 128."""
        mask, shift = self.i(0xFFFFFFFF), self.i(32)
        (a0, a1), (b0, b1) = ((arith.andi(v, mask), arith.shrui(v, shift)) for v in (a, b))
        middle = arith.addi(arith.muli(a1, b0), arith.shrui(arith.muli(a0, b0), shift))
        other = arith.addi(arith.muli(a0, b1), arith.andi(middle, mask))
        high = arith.addi(arith.muli(a1, b1), arith.shrui(middle, shift))
        return arith.addi(high, arith.shrui(other, shift))

    # --- remainders

    def remainder(self, x: Any, y: Any) -> Any:
        """fmod(x, y), which is exact: x less the multiple of y towards 0."""
        a, b = self.absolute(x), self.absolute(y)
        quotient = arith.divf(a, b)

        def short() -> list[Any]:
            whole = arith.sitofp(self.kind, arith.fptosi(self.bits, quotient))
            r = self.fma(arith.negf(whole), b, a)
            # the quotient may have been rounded up to a whole number
            return [arith.select(self.lt(r, self.c(0.0)), arith.addf(r, b), r)]

        few = self.lt(quotient, self.c(2.0**52))
        (r,) = self.branch(few, [self.kind], short, lambda: [self._long_division(a, b)])
        r = arith.select(self.lt(a, b), a, r)
        r = arith.select(arith.cmpf(arith.CmpFPredicate.UNO, r, b), arith.addf(a, b), r)
        none = arith.ori(self.equal(b, self.c(0.0)), self.differs(arith.subf(a, a), self.c(0.0)))
        return self.signed_like(arith.select(none, self.c(math.nan), r), x)

    def _long_division(self, a: Any, b: Any) -> Any:
        """The remainder of whole numbers m 2^d and n, some bits of 2^d at a time."""
        (m, at), (n, unit) = (self._as_integer(v) for v in (a, b))
        n = arith.maxui(n, self.i(1))  # a zero divisor must not be divided by
        left = arith.maxsi(arith.subi(at, unit), self.i(0))
        index = ir.IndexType.get()
        bounds = [arith.ConstantOp(index, ir.IntegerAttr.get(index, k)).result
                  for k in (0, _STEPS, 1)]  # fmt: skip
        loop = scf.ForOp(*bounds, [arith.remui(m, n), left])
        with ir.InsertionPoint(loop.body):
            rest, left = loop.inner_iter_args
            step = arith.minsi(left, self.i(_STEP))
            scf.YieldOp([arith.remui(arith.shli(rest, step), n), arith.subi(left, step)])
        r = arith.uitofp(self.kind, loop.results[0])
        half = arith.shrsi(unit, self.i(1))
        for part in (half, arith.subi(unit, half)):
            r = arith.mulf(r, self.power_of_two(part))
        return r

    def _as_integer(self, x: Any) -> tuple[Any, Any]:
        """x = m 2^e for x >= 0: m, e."""
        bits = self.to_bits(x)
        field = arith.shrui(bits, self.i(52))
        normal = arith.cmpi(arith.CmpIPredicate.ne, field, self.i(0))
        fraction = arith.andi(bits, self.i((1 << 52) - 1))
        m = arith.select(normal, arith.ori(fraction, self.i(1 << 52)), fraction)
        return m, arith.subi(arith.maxsi(field, self.i(1)), self.i(1075))
