# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Positions along a vectorised loop: a number and the lane, and what is compared with them.

A vector of positions has elements of 64 bits, twice the registers of what it stands beside. A
mask that comes of comparing positions with a number needs none: the number tells how many lanes,
or which, it holds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, VectorEmitter
from neptune_mlir.ir.bindings import arith, ir, vector


@dataclass(frozen=True)
class Positions:
    """`base + lane` in each lane; `added`: what was added to the place of the loop for that."""

    base: Index
    added: tuple[Any, ...] | None = ()


_P = arith.CmpIPredicate
_TURNED = {_P.slt: _P.sgt, _P.sgt: _P.slt, _P.sle: _P.sge, _P.sge: _P.sle,
           _P.eq: _P.eq, _P.ne: _P.ne}  # fmt: skip


def compute(em: VectorEmitter, op: Any, operands: list[Any], end: Any = None) -> Any:
    """The result of an op on positions: positions again, or a mask; None: it takes vectors. `end`:
    all lanes are known to be before it, in the loop."""
    if len(operands) != 2 or op.name not in ("arith.addi", "arith.subi", "arith.cmpi"):
        return None
    a, b = operands
    if any(isinstance(getattr(v, "type", None), ir.VectorType) for v in operands):
        return None
    if isinstance(a, Positions) and isinstance(b, Positions):
        return None
    if op.name == "arith.addi":
        first, second = (a, b) if isinstance(a, Positions) else (b, a)
        added = None if first.added is None else (*first.added, second)
        return Positions(em.add(first.base, second), added)
    if op.name == "arith.subi":
        return Positions(em.sub(a.base, b), None) if isinstance(a, Positions) else None
    predicate = _P(ir.IntegerAttr(op.attributes["predicate"]).value)
    if predicate not in _TURNED:
        return None  # unsigned
    if isinstance(b, Positions):
        predicate, a, b = _TURNED[predicate], b, a
    if predicate == _P.slt and end is not None and _is_before(end, a, b):
        return em.constant(True, em.vector_type(em.i1))
    return _compare(em, predicate, em.sub(b, a.base))


def _is_before(end: Any, positions: Positions, number: Any) -> bool:
    """Whether positions before `end` in the loop are less than a number: `end` is a minimum, and
    the number less what was added is part of it."""
    if isinstance(end, int) or isinstance(end.owner, ir.Block) or positions.added is None:
        return False
    op = end.owner.operation
    if op.name != "affine.min":
        return False
    wanted = Counter({number: 1})
    wanted.subtract(positions.added)
    wanted = Counter({v: n for v, n in wanted.items() if n})
    operands = list(op.operands)
    minimum = ir.AffineMapAttr(op.attributes["map"]).value
    return any(_form(e, operands, minimum.n_dims) == wanted for e in minimum.results)


def _form(e: Any, operands: list[Any], dims: int) -> Counter[Any] | None:
    """A sum of operands, how often each; None: something else."""
    if isinstance(e, ir.AffineDimExpr):
        return Counter({operands[e.position]: 1})
    if isinstance(e, ir.AffineSymbolExpr):
        return Counter({operands[dims + e.position]: 1})
    if isinstance(e, ir.AffineAddExpr):
        parts = [_form(side, operands, dims) for side in (e.lhs, e.rhs)]
        if None in parts:
            return None
        found: Counter[Any] = Counter()
        for part in parts:
            found.update(part)
        return found
    if isinstance(e, ir.AffineMulExpr) and isinstance(e.rhs, ir.AffineConstantExpr):
        part = _form(e.lhs, operands, dims)
        return None if part is None else Counter({v: n * e.rhs.value for v, n in part.items()})
    return None


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
