# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of an f32 scalar whose rare cases are branches: what GPUs run beside `functions`.

sin, cos and tan of any finite angle, and the exact remainder.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from neptune_mlir.ir.bindings import arith, ir, scf
from neptune_mlir.transforms.math.functions import Functions

# pi/2 in three f32 numbers: k times the first differs from x by what f32 holds exactly, and the
# three are right to 2^-73
_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_MODERATE = 105615.0  # up to here k has few enough bits
# 2/pi behind the point, 32 bits a word, with 32 zeros before
_TWO_BY_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)
_QUOTIENT = 2.0**22  # of what one division finds a remainder
_STEP, _STEPS = 40, 7  # bits at a time; exponents of f32 differ by 276 at most


class Branching(Functions):
    """For scalars, with fused multiply-adds."""

    def __init__(self, kind: Any, *, fma: bool, scalef: bool):
        super().__init__(kind, fma=fma, scalef=scalef)
        self.i64 = ir.IntegerType.get_signless(64)
        self.table |= {
            "math.sin": lambda x: self._odd(x, self.sine),
            "math.cos": lambda x: self.cosine(*self._reduce_angle(x)),
            "math.tan": lambda x: self._odd(x, self.tangent),
            "arith.remf": self.remainder,
        }

    def _odd(self, x: Any, function: Callable[[Any, Any], Any]) -> Any:
        value = function(*self._reduce_angle(x))
        return arith.select(self.equal(x, self.c(0.0)), x, value)  # -0 stays

    def _wide(self, value: int) -> Any:
        return arith.ConstantOp(self.i64, ir.IntegerAttr.get(self.i64, value)).result

    def _extended(self, x: Any) -> Any:
        return arith.extui(self.i64, x)

    # ---- angles

    def _reduce_angle(self, x: Any) -> list[Any]:
        """r and an integer n, x = r + n pi/2 but for whole turns, |r| up to pi/4 (and 1%)."""
        near = self.lt(self.absolute(x), self.c(_MODERATE))
        return self.branch(
            near, [self.kind, self.bits],
            lambda: self.less_quarters(x, _HALF_PI), lambda: self._reduce_large(x),
        )  # fmt: skip

    def _reduce_large(self, x: Any) -> list[Any]:
        """Payne and Hanek: x is m 2^s with 24 bits of m, and of 2/pi only those bits matter that
        make no multiple of 4, and 62 behind the point."""
        bits = self.to_bits(x)
        m = arith.ori(arith.andi(bits, self.i(0x7FFFFF)), self.i(0x800000))
        exponent = arith.andi(arith.shrui(bits, self.i(23)), self.i(0xFF))
        first = arith.subi(exponent, self.i(127 + 25 - 32))  # the first bit of 2/pi that matters
        words = self._words(arith.shrui(first, self.i(5)), arith.andi(first, self.i(31)))
        high, middle, low = (arith.muli(self._extended(m), w) for w in words)
        thirty_two = self._wide(32)
        turns = arith.addi(arith.shli(high, thirty_two), middle)
        turns = arith.addi(turns, arith.shrui(low, thirty_two))  # quarters, and 62 bits of one
        count = arith.shrui(arith.addi(turns, self._wide(1 << 61)), self._wide(62))
        rest = arith.subi(turns, arith.shli(count, self._wide(62)))
        part = arith.sitofp(self.kind, rest)
        lost = arith.sitofp(self.kind, arith.subi(rest, arith.fptosi(self.i64, part)))
        part, lost = (arith.mulf(v, self.c(2.0**-62)) for v in (part, lost))
        low = self.fma(part, self.c(_HALF_PI[1]), arith.mulf(lost, self.c(_HALF_PI[0])))
        r = self.fma(part, self.c(_HALF_PI[0]), low)
        n = arith.trunci(self.bits, count)
        negative = self.lt(x, self.c(0.0))
        r = arith.select(negative, arith.negf(r), r)
        n = arith.select(negative, arith.subi(self.i(0), n), n)
        return [arith.addf(r, arith.subf(x, x)), n]  # NaN for infinities

    def _words(self, which: Any, shift: Any) -> list[Any]:
        """96 bits of 2/pi in three words of 64 bits, from bit `32 which + shift` on."""
        chosen = [self.i(word) for word in _TWO_BY_PI[:4]]
        for k in range(1, len(_TWO_BY_PI) - 3):
            here = arith.cmpi(arith.CmpIPredicate.eq, which, self.i(k))
            words = _TWO_BY_PI[k : k + 4]
            chosen = [arith.select(here, self.i(w), c) for w, c in zip(words, chosen, strict=True)]
        wide = [self._extended(word) for word in chosen]
        down = arith.subi(self._wide(32), self._extended(shift))
        return [
            arith.andi(
                arith.shrui(arith.ori(arith.shli(a, self._wide(32)), b), down),
                self._wide(0xFFFFFFFF),
            )
            for a, b in itertools.pairwise(wide)
        ]

    # ---- remainders

    def remainder(self, x: Any, y: Any) -> Any:
        """fmod(x, y), which is exact: x less the multiple of y towards 0."""
        a, b = self.absolute(x), self.absolute(y)
        quotient = arith.divf(a, b)
        few = self.lt(quotient, self.c(_QUOTIENT))
        odd = arith.ori(
            self.equal(b, self.c(0.0)), self.differs(arith.subf(a, a), self.c(0.0))
        )  # no remainder at all, or a NaN

        def short() -> list[Any]:
            r = self.fma(arith.negf(self._whole(quotient)), b, a)
            # the quotient may have been rounded up to a whole number
            return [arith.select(self.lt(r, self.c(0.0)), arith.addf(r, b), r)]

        (r,) = self.branch(few, [self.kind], short, lambda: self._long_division(a, b))
        r = arith.select(self.lt(a, b), a, r)
        r = arith.select(arith.cmpf(arith.CmpFPredicate.UNO, r, b), arith.addf(a, b), r)
        return self.signed_like(arith.select(odd, self.c(math.nan), r), x)

    def _whole(self, x: Any) -> Any:
        """x towards 0, for x from 0 to 2^22."""
        return arith.sitofp(self.kind, arith.fptosi(self.bits, x))

    def _long_division(self, a: Any, b: Any) -> list[Any]:
        """The remainder of whole numbers m 2^d and n: 40 bits of 2^d at a time."""
        (m, at), (n, unit) = (self._as_integer(v) for v in (a, b))
        index = ir.IndexType.get()
        n = self._extended(n)
        # a zero divisor has no remainder, and must not be divided by
        n = arith.maxui(n, self._wide(1))
        start = arith.remui(self._extended(m), n)
        bounds = [arith.ConstantOp(index, ir.IntegerAttr.get(index, k)).result
                  for k in (0, _STEPS, 1)]  # fmt: skip
        left = arith.maxsi(arith.subi(at, unit), self.i(0))
        loop = scf.ForOp(*bounds, [start, left])
        with ir.InsertionPoint(loop.body):
            rest, left = loop.inner_iter_args
            step = arith.minsi(left, self.i(_STEP))
            rest = arith.remui(arith.shli(rest, self._extended(step)), n)
            scf.YieldOp([rest, arith.subi(left, step)])
        r = arith.uitofp(self.kind, loop.results[0])
        half = arith.shrsi(unit, self.i(1))
        for part in (half, arith.subi(unit, half)):
            r = arith.mulf(r, self.power_of_two(part))
        return [r]

    def _as_integer(self, x: Any) -> tuple[Any, Any]:
        """x = m 2^e for x >= 0: m, e."""
        bits = self.to_bits(x)
        field = arith.shrui(bits, self.i(23))
        normal = arith.cmpi(arith.CmpIPredicate.ne, field, self.i(0))
        fraction = arith.andi(bits, self.i(0x7FFFFF))
        m = arith.select(normal, arith.ori(fraction, self.i(0x800000)), fraction)
        return m, arith.subi(arith.maxsi(field, self.i(1)), self.i(150))
