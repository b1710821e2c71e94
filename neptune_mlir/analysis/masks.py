# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Affine conditions on positions: masks as conjunctions of `linear form >= 0`.

Causal (`j <= i`), windows (`i - j < w`), a prefix offset (`j <= i + (Nk - Nq)`) and run-time
lengths (`j < length`, `j < length[b]`) are of this kind. A form is linear in the axes; what it adds
to them may be any scalar that no axis changes, an integer that is read from a tensor, or the
remainder of an axis and such a scalar (the position in a row of two axes, see `merge-rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term


@dataclass(frozen=True)
class Linear:
    """`sum of coefficient * atom, plus constant`; atoms are axes (`index`), scalars, elements of
    tensors (`read`), or remainders of axes (`rem`)."""

    atoms: frozenset[tuple[Term, int]]
    constant: int

    @classmethod
    def of(cls, coefficients: dict[Term, int], constant: int) -> Linear:
        return cls(frozenset((a, c) for a, c in coefficients.items() if c), constant)

    def coefficient(self, axis: int) -> int:
        return next((c for a, c in self.atoms if a is T.index(axis)), 0)

    def without(self, axis: int) -> Linear:
        return Linear(
            frozenset((a, c) for a, c in self.atoms if a is not T.index(axis)), self.constant
        )

    @property
    def axes(self) -> frozenset[int]:
        return frozenset[int]().union(*(a.axes for a, _ in self.atoms if a.op != "read"))

    @property
    def remainders(self) -> tuple[Term, ...]:
        """The atoms that are remainders of axes: from 0 to below the divisor."""
        return tuple(a for a, _ in self.ordered() if is_remainder(a))

    @property
    def reads(self) -> tuple[Term, ...]:
        """The atoms that are elements of tensors."""
        return tuple(a for a, _ in self.ordered() if a.op == "read")

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        sums = dict(self.atoms)
        for atom, c in other.atoms:
            sums[atom] = sums.get(atom, 0) + factor * c
        return Linear.of(sums, self.constant + factor * other.constant)

    def shifted(self, by: int) -> Linear:
        return Linear(self.atoms, self.constant + by)

    def negated(self) -> Linear:
        """The form that is >= 0 exactly where this one is not: `-self - 1`."""
        return Linear(frozenset(), -1).plus(self, -1)

    def ordered(self) -> list[tuple[Term, int]]:
        """The atoms in an order that does not depend on memory addresses: axes first."""
        return sorted(self.atoms, key=lambda e: (e[0].op != "index", str(e[0].attr), str(e[0])))


def is_remainder(t: Term) -> bool:
    """Whether a term is the remainder of an axis and a number that no axis changes."""
    return t.op == "rem" and t.args[0].op == "index" and not _varies(t.args[1])


def _varies(t: Term) -> bool:
    return any(n.op in ("index", "read", "ref") for n in T.walk(t))


def linear(t: Term) -> Linear | None:
    """The linear form of an integer term; None if it is not linear in the axes."""
    if T.is_float(t.dtype) or t.dtype == "i1":
        return None
    if t.is_const:
        return Linear(frozenset(), int(t.value))
    if t.op in ("index", "read") or is_remainder(t):
        return Linear(frozenset([(t, 1)]), 0)
    if t.op == "cast":
        inner = linear(t.args[0])
        if inner is not None:
            return inner  # positions and lengths fit every integer type that programs use
    if t.op in ("add", "sub"):
        a, b = linear(t.args[0]), linear(t.args[1])
        return None if a is None or b is None else a.plus(b, 1 if t.op == "add" else -1)
    if t.op == "neg":
        a = linear(t.args[0])
        return None if a is None else Linear(frozenset(), 0).plus(a, -1)
    if t.op == "mul":
        for x, y in (t.args, t.args[::-1]):
            a, b = linear(x), linear(y)
            if a is not None and b is not None and not b.atoms:
                return Linear(frozenset(), 0).plus(a, b.constant)
    if not _varies(t):
        return Linear(frozenset([(t, 1)]), 0)
    return None


def conjuncts(condition: Term) -> list[Term]:
    """The operands of a conjunction (possibly nested); the condition itself otherwise."""
    if condition.op == "and" and condition.dtype == "i1":
        return [c for part in condition.args for c in conjuncts(part)]
    return [condition]


_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


def constraints(comparison: Term) -> list[Linear] | None:
    """Forms that are all >= 0 exactly where the comparison holds; None if it is not affine."""
    op = comparison.op
    if op == "not" and comparison.args[0].op in _OPPOSITE:
        inner = comparison.args[0]
        return constraints(T.make(_OPPOSITE[inner.op], *inner.args))
    if op not in T.COMPARISONS or op == "ne":
        return None
    a, b = linear(comparison.args[0]), linear(comparison.args[1])
    if a is None or b is None:
        return None
    above, below = a.plus(b, -1), b.plus(a, -1)  # a - b, b - a
    return {
        "lt": [below.shifted(-1)], "le": [below],
        "gt": [above.shifted(-1)], "ge": [above], "eq": [above, below],
    }[op]  # fmt: skip


def begins_known(forms: Iterable[Linear], axis: int) -> bool:
    """Whether forms read nothing along an axis, and have no remainder of it: what bounds it is
    known before it begins."""
    return not any(
        axis in atom.axes for form in forms for atom in (*form.reads, *form.remainders)
    )


def affine_part(condition: Term) -> list[Linear]:
    """The affine conjuncts of a condition: all of them are >= 0 wherever it holds."""
    found: dict[Linear, None] = {}
    for part in conjuncts(condition):
        found.update(dict.fromkeys(constraints(part) or ()))
    return list(found)


def masked_load(term: Term) -> tuple[Term, list[Linear]] | None:
    """The read that a term is where an affine condition holds, 0 elsewhere; and the condition.

    `where(j < length[b], v[b, j], 0)`, or a read alone.
    """
    if term.op == "read":
        return term, []
    if term.op != "select" or term.args[1].op != "read":
        return None
    condition, found, other = term.args
    parts = [constraints(c) for c in conjuncts(condition)]
    if not (other.is_const and other.value == 0) or any(forms is None for forms in parts):
        return None
    return found, [form for forms in parts for form in forms or ()]


def implied(form: Linear, known: Iterable[Linear]) -> bool:
    """Whether `form >= 0` follows from one of the forms known to be >= 0."""
    if not form.atoms:
        return form.constant >= 0
    return any(k.atoms == form.atoms and form.constant >= k.constant for k in known)


def fold_conditions(
    body: Term, known: Sequence[Linear], made: dict[Term, Term] | None = None
) -> Term:
    """`body` with the comparisons decided that the known forms (all >= 0) decide; `made`: what
    reads of integers in it stand for."""

    def rule(node: Term) -> Term | None:
        meant = T.substitute(node, made) if made and node.op in T.COMPARISONS else node
        forms = constraints(meant) if node.op in T.COMPARISONS else None
        if forms is None:
            return None
        if all(implied(f, known) for f in forms):
            return T.const(True, "i1")
        if any(implied(f.negated(), known) for f in forms):
            return T.const(False, "i1")
        return None

    return T.rewrite(body, rule)


def condition_of(forms: Sequence[Linear]) -> Term:
    """The conjunction of `form >= 0` as a term over index values."""
    result = T.const(True, "i1")
    for form in forms:
        total = T.const(form.constant, "index")
        for atom, c in reversed(form.ordered()):
            atom = T.make("cast", atom, dtype="index")
            scaled = atom if c == 1 else T.make("mul", atom, T.const(c, "index"))
            total = T.make("add", scaled, total)
        result = T.make("and", result, T.make("ge", total, T.const(0, "index")))
    return result
