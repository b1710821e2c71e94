# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quotients of many numbers by one: a reciprocal, and a correction of each product by it.

A division of vectors takes as long as twenty multiplications. With the reciprocal r of d,

    q = x * r     e = x - q * d  (exact, by a fused multiply-add)     x / d = q + e * r

is the nearest number wherever nothing underflows, and one unit in the last place from it where
`e` does. Tiny divisors, whose reciprocals overflow, are scaled, and x with them. A sum that is no
number comes of infinities, zeros and NaNs: there the product alone is the quotient. So it is where
the sum is equal to it, as a zero of the product has the sign of the quotient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.codegen.cpu.emit import VectorEmitter
from neptune_mlir.ir.bindings import arith, ir, math, vector

_TINY, _SCALE = 1e-30, 2.0**63


@dataclass(frozen=True)
class Divisor:
    """A scalar, and what quotients by it are made of."""

    scale: Any
    scaled: Any
    reciprocal: Any


def divisor(em: VectorEmitter, d: Any) -> Divisor:
    """What is made once of a scalar f32."""
    kind = d.type
    tiny = arith.cmpf(arith.CmpFPredicate.OLT, math.absf(d), em.constant(_TINY, kind))
    one = em.constant(1.0, kind)
    scale = arith.select(tiny, em.constant(_SCALE, kind), one)
    scaled = arith.mulf(d, scale)
    return Divisor(scale, scaled, arith.divf(one, scaled))


def quotient(em: VectorEmitter, x: Any, by: Divisor) -> Any:
    """A vector, divided."""
    x = arith.mulf(x, em.splat(by.scale))
    reciprocal = em.splat(by.reciprocal)
    near = arith.mulf(x, reciprocal)
    error = vector.fma(arith.negf(near), em.splat(by.scaled), x)
    found = vector.fma(error, reciprocal, near)
    moved = arith.cmpf(arith.CmpFPredicate.ONE, found, near)
    return arith.select(moved, found, near)


def divides_by_scalar(op: Any, operands: list[Any]) -> bool:
    """Whether an op divides a vector of f32 by a scalar."""
    if op.name != "arith.divf" or not isinstance(operands[1].type, ir.F32Type):
        return False
    return isinstance(operands[0].type, ir.VectorType)
