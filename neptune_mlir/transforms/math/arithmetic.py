# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Single-precision arithmetic on scalars or vectors, as the elementary functions use it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neptune_mlir.ir.bindings import arith, ir, llvm, scf
from neptune_mlir.ir.bindings import module as binding
from neptune_mlir.transforms.math import polynomials as P


class Arithmetic:
    """Builds arithmetic for one type, `f32` or a vector of it."""

    def __init__(self, kind: Any, *, fma: bool, scalef: bool):
        self.kind, self.fused, self.scalef = kind, fma, scalef
        lanes = list(kind.shape) if isinstance(kind, ir.VectorType) else None
        i32 = ir.IntegerType.get_signless(32)
        self.bits = ir.VectorType.get(lanes, i32) if lanes else i32

    # --- arithmetic

    def c(self, value: float) -> Any:
        element = ir.FloatAttr.get(ir.F32Type.get(), float(np.float32(value)))
        return self.constant(self.kind, element)

    def i(self, value: int) -> Any:
        signed = value - (1 << 32) if value >= 1 << 31 else value
        element = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), signed)
        return self.constant(self.bits, element)

    @staticmethod
    def constant(kind: Any, element: Any) -> Any:
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

    def root(self, x: Any) -> Any:
        return binding("dialects.math").sqrt(x)

    def nearest(self, x: Any) -> Any:
        """The integer nearest to x, as a float; ties to even."""
        return binding("dialects.math").roundeven(x)

    def lt(self, a: Any, b: Any) -> Any:
        return arith.cmpf(arith.CmpFPredicate.OLT, a, b)

    def equal(self, a: Any, b: Any) -> Any:
        return arith.cmpf(arith.CmpFPredicate.OEQ, a, b)

    def differs(self, a: Any, b: Any) -> Any:
        return arith.cmpf(arith.CmpFPredicate.UNE, a, b)

    # --- pieces

    def round(self, x: Any, factor: float) -> tuple[Any, Any]:
        """The integer nearest to x * factor, as a float and in bits that hold n + constant."""
        shifted = self.fma(x, self.c(factor), self.c(P.ROUND))
        return arith.subf(shifted, self.c(P.ROUND)), self.to_bits(shifted)

    @property
    def has_scalef(self) -> bool:
        return self.scalef and isinstance(self.kind, ir.VectorType) and self.kind.shape[0] == 16

    @property
    def has_branches(self) -> bool:
        """Whether a vector with a rare lane is worth a branch: AVX2's have eight, and no
        instruction that scales."""
        return isinstance(self.kind, ir.VectorType) and list(self.kind.shape) == [8]

    def scale_normal(self, x: Any, n_bits: Any, rare: Callable[[], Any]) -> Any:
        """x * 2^n for x in [1/2, 2): n is added to the exponent of x where n is from -125 to 125 in
        all lanes. If it is not in one of them (of a NaN, bits hold no such n), `rare` gives all."""
        least = int(np.float32(P.ROUND).view(np.uint32)) - 125
        lanes = arith.cmpi(
            arith.CmpIPredicate.ule, arith.subi(n_bits, self.i(least)), self.i(250)
        )  # fmt: skip
        sums = arith.addi(self.to_bits(x), arith.shli(n_bits, self.i(23)))
        return self._where(self._mask_is_not(lanes, -1), rare, self.from_bits(sums))

    def scale(
        self, x: Any, n: Any, n_bits: Any, normal: Any = None,
        between: Callable[[], Any] = lambda: None,
    ) -> Any:  # fmt: skip
        """x * 2^n, right also where the result is infinite, denormal or zero. If `has_scalef`,
        `normal` has the lanes whose result is normal, and `between` gives, of x in [1/2, 2), those
        where it may be denormal; the others are 0. Few vectors have a lane that is not normal, so
        the rest is asked of these alone."""
        if self.has_scalef:
            if normal is None:
                return self.scaled(x, n, None)
            found = self.scaled(x, n, normal)

            def rare() -> Any:
                small = between()
                return self._where(
                    self._mask_is_not(small, 0),
                    lambda: arith.select(small, self.denormal(x, n), found), found,
                )  # fmt: skip

            return self._where(self._mask_is_not(normal, -1), rare, found)
        # two factors, so that neither leaves the range of normal numbers
        whole = arith.subi(n_bits, self.i(int(np.float32(P.ROUND).view(np.uint32))))
        half = arith.shrsi(whole, self.i(1))
        rest = arith.subi(whole, half)
        for part in (half, rest):
            x = arith.mulf(x, self.power_of_two(part))
        return x

    def _mask_is_not(self, lanes: Any, bits: int) -> Any:
        word = ir.IntegerType.get_signless(self.kind.shape[0])
        other = arith.ConstantOp(word, ir.IntegerAttr.get(word, bits)).result
        return arith.cmpi(arith.CmpIPredicate.ne, llvm.bitcast(word, lanes), other)

    def _where(self, condition: Any, then: Callable[[], Any], otherwise: Any) -> Any:
        """One value by a branch, or the other."""
        made = scf.IfOp(condition, [self.kind], has_else=True)
        with ir.InsertionPoint(made.then_block):
            scf.YieldOp([then()])
        with ir.InsertionPoint(made.else_block):
            scf.YieldOp([otherwise])
        return made.results_[0]

    def branch(
        self, condition: Any, kinds: list[Any], yes: Callable[[], list[Any]],
        no: Callable[[], list[Any]],
    ) -> list[Any]:  # fmt: skip
        """Several values, computed in one branch or the other."""
        made = scf.IfOp(condition, kinds, has_else=True)
        for block, work in ((made.then_block, yes), (made.else_block, no)):
            with ir.InsertionPoint(block):
                scf.YieldOp(work())
        return list(made.results)

    def less_quarters(self, x: Any, parts: Sequence[float]) -> list[Any]:
        """r and an integer k, x = r + k pi/2: Cody and Waite subtract k pi/2 part by part."""
        k = self.nearest(arith.mulf(x, self.c(2 / math.pi)))
        r = x
        for part in parts:
            r = self.fma(k, self.c(-part), r)
        return [r, arith.fptosi(self.bits, k)]

    def scaled(self, x: Any, n: Any, live: Any) -> Any:
        """x * 2^n by one instruction, 0 in lanes that are not `live` (None: all are)."""
        i16, i32 = ir.IntegerType.get_signless(16), ir.IntegerType.get_signless(32)
        lanes = arith.ConstantOp(i16, ir.IntegerAttr.get(i16, -1)).result
        rest = x
        if live is not None:
            lanes, rest = llvm.bitcast(i16, live), self.c(0.0)
        rounding = arith.ConstantOp(i32, ir.IntegerAttr.get(i32, 4)).result
        return llvm.call_intrinsic(
            self.kind, "llvm.x86.avx512.mask.scalef.ps.512", [x, n, rest, lanes, rounding]
        )

    def denormal(self, x: Any, n: Any) -> Any:
        """x * 2^n below 2^-125, where the bits of a number count 2^-149: so many, rounded to an
        integer. (No instruction makes a denormal number, which takes 150 cycles.)"""
        many = self.nearest(self.scaled(x, arith.addf(n, self.c(149.0)), None))
        return self.from_bits(arith.fptosi(self.bits, many))

    def power_of_two(self, n: Any) -> Any:
        return self.from_bits(arith.shli(arith.addi(n, self.i(127)), self.i(23)))

    def reduce(self, x: Any) -> tuple[Any, Any, Any]:
        """x = n ln 2 + r: r, n as a float, n in bits."""
        n, bits = self.round(x, P.LOG2E)
        r = self.fma(n, self.c(-P.LN2_HIGH), x)
        return self.fma(n, self.c(-P.LN2_LOW), r), n, bits

    def split(self, x: Any) -> tuple[Any, Any]:
        """x = (1 + m) 2^e for positive finite x, 1 + m in [sqrt(1/2), sqrt(2)): m, e."""
        small = arith.cmpf(arith.CmpFPredicate.OLT, x, self.c(2.0**-126))
        x = arith.select(small, arith.mulf(x, self.c(2.0**23)), x)
        offset = arith.select(small, self.c(-23.0), self.c(0.0))
        one_plus_m, place = self.mantissa(x)
        return arith.subf(one_plus_m, self.c(1.0)), self.exponent(place, offset)

    def mantissa(self, x: Any) -> tuple[Any, Any]:
        """x = y 2^e for positive finite normal x, y in [sqrt(1/2), sqrt(2)): y, and e in its place
        among the bits of a float."""
        low = int(np.float32(math.sqrt(0.5)).view(np.uint32))
        bits = self.to_bits(x)
        place = arith.andi(arith.subi(bits, self.i(low)), self.i(0xFF800000))
        return self.from_bits(arith.subi(bits, place)), place

    def exponent(self, place: Any, offset: Any) -> Any:
        """An exponent in its place, and what is added to it, as a float."""
        return self.fma(arith.sitofp(self.kind, place), self.c(2.0**-23), offset)

    def log_of_mantissa(self, m: Any) -> Any:
        """log(1 + m) - m."""
        return arith.mulf(arith.mulf(m, m), self.horner(m, (-0.5, *P.LOG)))

    def log_special(self, x: Any, value: Any) -> Any:
        """The results of a logarithm at 0, infinity, negative numbers and NaN. By its bits, what is
        neither positive and finite nor 0 is as large as infinity; inf x + inf is its logarithm."""
        infinity = self.c(math.inf)
        large = self.i(int(np.float32(math.inf).view(np.uint32)))
        special = arith.cmpi(arith.CmpIPredicate.uge, self.to_bits(x), large)
        value = arith.select(special, self.fma(x, infinity, infinity), value)
        zero = arith.cmpf(arith.CmpFPredicate.OEQ, x, self.c(0.0))
        return arith.select(zero, self.c(-math.inf), value)

    def nan_through(self, x: Any, value: Any) -> Any:
        return arith.select(arith.cmpf(arith.CmpFPredicate.UNO, x, x), x, value)
