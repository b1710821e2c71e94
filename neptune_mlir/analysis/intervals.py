# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a condition may hold anywhere in a box of points, as a term over the box.

Each leaf of the condition has a least and a greatest value over the box. Interval arithmetic takes
these to the condition, so what comes out is false only where no point of the box satisfies it:

    doc_q[i] == doc_kv[j]     ->     low(doc_q) <= high(doc_kv) and low(doc_kv) <= high(doc_q)

Integers are computed as `index`, which holds what narrower types do. An operator that has no rule
here, or a sum of 32 bits that might wrap around, is said to be anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term

TRUE, FALSE = T.const(True, "i1"), T.const(False, "i1")

Leaf = Callable[[Term], "tuple[Term, Term] | None"]  # least and greatest, of type index


@dataclass(frozen=True)
class Interval:
    """The least and the greatest value of an integer over a box, where `sure` holds."""

    low: Term
    high: Term
    sure: Term = TRUE


@dataclass(frozen=True)
class Truth:
    """Where a box may hold a point of which a condition is true (`may`), and where it is true of
    all of them (`must`)."""

    may: Term
    must: Term

    def negated(self) -> Truth:
        return Truth(_not(self.must), _not(self.may))


_ANY = Truth(TRUE, FALSE)


def may_hold(condition: Term, leaf: Leaf) -> Term:
    """A term that is true for every box with a point where `condition` holds.

    Args:
        leaf: the range of an axis, a scalar or a read over the box; of a read of type i1 from 0 to
            1. None where that is not known.
    """
    return _Intervals(leaf).truth(condition).may


class _Intervals:
    """Ranges of the nodes of a term, each worked out once."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        self._numbers: dict[Term, Interval | None] = {}
        self._truths: dict[Term, Truth] = {}

    def truth(self, t: Term) -> Truth:
        if t not in self._truths:
            self._truths[t] = self._truth(t)
        return self._truths[t]

    def number(self, t: Term) -> Interval | None:
        if t not in self._numbers:
            self._numbers[t] = None if T.is_float(t.dtype) else self._number(t)
        return self._numbers[t]

    # ---- conditions

    def _truth(self, t: Term) -> Truth:
        if t.is_const:
            return Truth(t, t)
        if t.op in ("read", "sym"):
            return self._flag(t)
        if t.op == "not":
            return self.truth(t.args[0]).negated()
        if t.op in T.COMPARISONS:
            return self._comparison(t)
        if t.op in ("and", "or", "xor"):
            return _joined(t.op, self.truth(t.args[0]), self.truth(t.args[1]))
        if t.op == "select":
            condition, yes, no = map(self.truth, t.args)
            other = condition.negated()
            return Truth(
                _or(_and(condition.may, yes.may), _and(other.may, no.may)),
                _and(_or(other.must, yes.must), _or(condition.must, no.must)),
            )
        return _ANY

    def _flag(self, t: Term) -> Truth:
        found = self._leaf(t)
        if found is None:
            return _ANY
        zero = T.const(0, "index")
        return Truth(T.make("ne", found[1], zero), T.make("ne", found[0], zero))

    def _comparison(self, t: Term) -> Truth:
        a, b = t.args
        if a.dtype == "i1":
            apart = _joined("xor", self.truth(a), self.truth(b))
            return {"ne": apart, "eq": apart.negated()}.get(t.op, _ANY)
        x, y = self.number(a), self.number(b)
        if x is None or y is None:
            return _ANY
        truth = self._ordered(t.op, x, y)
        sure = _and(x.sure, y.sure)
        return Truth(_or(_not(sure), truth.may), _and(sure, truth.must))

    def _ordered(self, op: str, x: Interval, y: Interval) -> Truth:
        match op:
            case "gt" | "ge":
                return self._ordered({"gt": "lt", "ge": "le"}[op], y, x)
            case "lt" | "le":
                return Truth(T.make(op, x.low, y.high), T.make(op, x.high, y.low))
            case "eq":
                may = _and(T.make("le", x.low, y.high), T.make("le", y.low, x.high))
                must = _and(T.make("eq", x.low, y.high), T.make("eq", y.low, x.high))
                return Truth(may, must)
        return self._ordered("eq", x, y).negated()

    # ---- numbers

    def _number(self, t: Term) -> Interval | None:
        if t.is_const:
            value = T.const(int(t.value), "index")
            return Interval(value, value)
        if t.op in ("index", "read", "sym"):
            found = self._leaf(t)
            return None if found is None else Interval(*found)
        if t.op == "select":
            yes, no = self.number(t.args[1]), self.number(t.args[2])
            return None if yes is None or no is None else _union(self.truth(t.args[0]), yes, no)
        if t.op == "cast" and t.args[0].dtype == "i1":
            held = self.truth(t.args[0])  # true is 1
            one, zero = T.const(1, "index"), T.const(0, "index")
            low, high = (T.make("select", c, one, zero) for c in (held.must, held.may))
            return Interval(low, high)
        operands = [self.number(a) for a in t.args]
        if any(o is None for o in operands):
            return None
        found = _arithmetic(t, [o for o in operands if o is not None])
        return None if found is None else _fitting(t, found)


def _arithmetic(t: Term, operands: list[Interval]) -> Interval | None:
    """The interval of an operator on integers, were they of any size."""
    sure = TRUE
    for operand in operands:
        sure = _and(sure, operand.sure)
    x, y = operands[0], operands[-1]
    match t.op:
        case "cast":
            return x
        case "add" | "min" | "max":
            return Interval(T.make(t.op, x.low, y.low), T.make(t.op, x.high, y.high), sure)
        case "sub":
            return Interval(T.make("sub", x.low, y.high), T.make("sub", x.high, y.low), sure)
        case "neg":
            return _scaled(x, -1, sure)
        case "mul":
            for a, b in ((t.args[0], y), (t.args[1], x)):
                if a.is_const:
                    return _scaled(b, int(a.value), sure)
        case "floordiv" if t.args[1].is_const and t.args[1].value > 0:
            by = T.const(int(t.args[1].value), "index")
            return Interval(T.make("floordiv", x.low, by), T.make("floordiv", x.high, by), sure)
    return None


def _scaled(x: Interval, factor: int, sure: Term) -> Interval:
    low, high = (T.make("mul", end, T.const(factor, "index")) for end in (x.low, x.high))
    return Interval(low, high, sure) if factor >= 0 else Interval(high, low, sure)


_BITS = {"i8": 8, "i16": 16, "i32": 32}


def _fitting(t: Term, found: Interval) -> Interval:
    """An interval that holds only where no value leaves the type. Positions fit every type, and
    nothing is said of 64 bits (as in `analysis/masks.py`)."""
    bits = _BITS.get(t.dtype)
    widens = t.op == "cast" and _BITS.get(t.args[0].dtype, 64) <= (bits or 64)
    if bits is None or widens or t.op in ("min", "max") or not T.reads(t):
        return found
    half = 1 << (bits - 1)
    fits = _and(
        T.make("ge", found.low, T.const(-half, "index")),
        T.make("lt", found.high, T.const(half, "index")),
    )
    return Interval(found.low, found.high, _and(found.sure, fits))


def _union(condition: Truth, yes: Interval, no: Interval) -> Interval:
    """One of two intervals, whichever a condition takes."""

    def end(op: str, a: Term, b: Term) -> Term:
        either = T.make(op, a, b)
        return T.make("select", condition.must, a, T.make("select", condition.may, either, b))

    sure = _and(yes.sure, no.sure)
    return Interval(end("min", yes.low, no.low), end("max", yes.high, no.high), sure)


def _joined(op: str, a: Truth, b: Truth) -> Truth:
    if op == "xor":
        return _joined("or", _joined("and", a, b.negated()), _joined("and", a.negated(), b))
    return Truth(T.make(op, a.may, b.may), T.make(op, a.must, b.must))


def _and(a: Term, b: Term) -> Term:
    return T.make("and", a, b)


def _or(a: Term, b: Term) -> Term:
    return T.make("or", a, b)


_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def _not(t: Term) -> Term:
    """The negation, pushed down to comparisons of integers."""
    if t.is_const:
        return FALSE if t.value else TRUE
    if t.op in _OPPOSITE:
        return T.make(_OPPOSITE[t.op], *t.args)
    if t.op in ("and", "or"):
        return T.make("or" if t.op == "and" else "and", *map(_not, t.args))
    return T.make("not", t)
