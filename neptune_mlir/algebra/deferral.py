# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Deferral: a factor that does not vary along the stream leaves the reduction.

    o = Σ_j (p_j / l) · v_j     becomes     o' = Σ_j p_j · v_j,   o = o' / l

The body keeps its shape otherwise, so sub-terms that several reductions share stay shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.terms import Term, axes_of, const, is_float, make, ref

Invariant = Callable[[Term], bool]


@dataclass(frozen=True)
class Split:
    """`rest * over / under`; None stands for 1."""

    rest: Term
    over: Term | None = None
    under: Term | None = None

    @property
    def trivial(self) -> bool:
        return self.over is None and self.under is None

    def finish(self, value: Term) -> Term:
        if self.over is not None:
            value = make("mul", value, _as(self.over, value.dtype))
        return make("div", value, _as(self.under, value.dtype)) if self.under else value


def split(t: Term, invariant: Invariant) -> Split:
    """Pull the invariant factors out of a product, through the operators that let them pass."""
    if not is_float(t.dtype):
        return Split(t)
    if invariant(t):
        if t.op == "div" and not invariant(t.args[0]):
            return Split(t.args[0], None, t.args[1])
        if t.op == "div" and t.args[0].is_const:
            return Split(t.args[0], None, t.args[1])
        return Split(const(1.0, t.dtype), t)
    match t.op:
        case "mul":
            a, b = (split(x, invariant) for x in t.args)
            return Split(
                make("mul", a.rest, b.rest), _times(a.over, b.over), _times(a.under, b.under)
            )
        case "div":
            a, b = (split(x, invariant) for x in t.args)
            return Split(
                make("div", a.rest, b.rest), _times(a.over, b.under), _times(a.under, b.over)
            )
        case "neg" | "cast" if is_float(t.args[0].dtype):
            a = split(t.args[0], invariant)
            return Split(make(t.op, a.rest, dtype=t.dtype), a.over, a.under)
        case "add" | "sub":
            a, b = (split(x, invariant) for x in t.args)
            if (a.over, a.under) == (b.over, b.under):
                return Split(make(t.op, a.rest, b.rest), a.over, a.under)
        case "select":
            a, b = (split(x, invariant) for x in t.args[1:])
            same = (a.over, a.under) == (b.over, b.under)
            if same or _is_zero(b.rest) or _is_zero(a.rest):
                kept = a if not _is_zero(a.rest) else b
                return Split(make("select", t.args[0], a.rest, b.rest), kept.over, kept.under)
        case "exp":
            return _exponent(t, invariant)
    return Split(t)


def defer(
    reduction: Reduction, axis: int, is_invariant: Invariant
) -> tuple[Reduction, Term] | None:
    """A sum without its invariant factors, and its final value over `ref(reduction.name)`.

    Args:
        axis: the axis that is summed over.
        is_invariant: which sub-terms to pull out; none of them may vary along the axis.

    Returns:
        None when nothing can be pulled out.
    """
    if reduction.combiner != "add":
        return None
    found = split(reduction.body, lambda t: is_invariant(t) and axis not in axes_of(t))
    if found.trivial:
        return None
    value = ref(reduction.name, dtype=reduction.dtype)
    return replace(reduction, body=found.rest), found.finish(value)


def _exponent(t: Term, invariant: Invariant) -> Split:
    """exp(a - log(l)) = exp(a) / l; other invariant addends stay: they keep exp in range."""
    rest: list[tuple[Term, bool]] = []
    found: dict[bool, Term | None] = {True: None, False: None}
    for addend, positive in _addends(t.args[0], True):
        if addend.op == "log" and invariant(addend):
            found[positive] = _times(found[positive], addend.args[0])
        else:
            rest.append((addend, positive))
    if not any(found.values()):
        return Split(t)
    rest.sort(key=lambda r: not r[1])
    total: Term | None = None
    for addend, positive in rest:
        if total is None:
            total = addend if positive else make("neg", addend)
        else:
            total = make("add" if positive else "sub", total, addend)
    body = const(1.0, t.dtype) if total is None else make("exp", total)
    return Split(body, found[True], found[False])


def _addends(t: Term, positive: bool) -> list[tuple[Term, bool]]:
    if t.op in ("add", "sub"):
        right = positive if t.op == "add" else not positive
        return _addends(t.args[0], positive) + _addends(t.args[1], right)
    if t.op == "neg":
        return _addends(t.args[0], not positive)
    return [(t, positive)]


def _times(a: Term | None, b: Term | None) -> Term | None:
    if a is None or b is None:
        return a if b is None else b
    return make("mul", a, _as(b, a.dtype))


def _as(t: Term, dtype: str) -> Term:
    return t if t.dtype == dtype else make("cast", t, dtype=dtype)


def _is_zero(t: Term) -> bool:
    return t.is_const and t.value == 0
