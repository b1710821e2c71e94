# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Positions along a vectorised loop: a number and the lane, and what is compared with them.

A vector of positions has elements of 64 bits, twice the registers of what it stands beside. A
mask that comes of comparing positions with a number needs none: the number tells how many lanes,
or which, it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, VectorEmitter
from neptune_mlir.ir.bindings import arith, ir, vector


@dataclass(frozen=True)
class Positions:
    """`base + lane` in each lane."""

    base: Index


_P = arith.CmpIPredicate
_TURNED = {_P.slt: _P.sgt, _P.sgt: _P.slt, _P.sle: _P.sge, _P.sge: _P.sle,
           _P.eq: _P.eq, _P.ne: _P.ne}  # fmt: skip


def compute(em: VectorEmitter, op: Any, operands: list[Any]) -> Any:
    """The result of an op on positions: positions again, or a mask; None: it takes vectors."""
    if len(operands) != 2 or op.name not in ("arith.addi", "arith.subi", "arith.cmpi"):
        return None
    a, b = operands
    if any(isinstance(getattr(v, "type", None), ir.VectorType) for v in operands):
        return None
    if isinstance(a, Positions) and isinstance(b, Positions):
        return None
    if op.name == "arith.addi":
        first, second = (a, b) if isinstance(a, Positions) else (b, a)
        return Positions(em.add(first.base, second))
    if op.name == "arith.subi":
        return Positions(em.sub(a.base, b)) if isinstance(a, Positions) else None
    predicate = _P(ir.IntegerAttr(op.attributes["predicate"]).value)
    if predicate not in _TURNED:
        return None  # unsigned
    if isinstance(b, Positions):
        predicate, a, b = _TURNED[predicate], b, a
    return _compare(em, predicate, em.sub(b, a.base))


def _compare(em: VectorEmitter, predicate: Any, number: Index) -> Any:
    """`lane PREDICATE number` for each lane."""
    if predicate in (_P.sle, _P.sgt):
        number = em.add(number, 1)
    lowest = -1 if predicate in (_P.eq, _P.ne) else 0
    number = arith.maxsi(em.value(number), em.constant(lowest))
    number = arith.minsi(number, em.constant(em.lanes))  # 32 bits hold it
    if predicate in (_P.slt, _P.sle):
        return vector.create_mask(em.vector_type(em.i1), [number])
    if predicate in (_P.sgt, _P.sge):
        mask = vector.create_mask(em.vector_type(em.i1), [number])
        return arith.xori(mask, em.constant(True, em.vector_type(em.i1)))
    i32 = ir.IntegerType.get_signless(32)
    kind = em.vector_type(i32)
    lanes = em.row(range(em.lanes), kind)
    return arith.cmpi(predicate, lanes, em.splat(arith.index_cast(i32, number)))


def as_vector(em: VectorEmitter, value: Any) -> Any:
    """Positions as a vector of them; any other value as it is."""
    if not isinstance(value, Positions):
        return value
    return arith.addi(em.iota(), em.splat(em.value(value.base)))
