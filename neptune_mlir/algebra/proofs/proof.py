# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Proof obligations and their discharge by normal forms.

For a running value a ← h(a, t, t') ⊕ (⊕ f(x, t')) four things make the fused loop right:

    re-basing     f(x, t') = h(f(x, t), t, t')
    homomorphism  h(a ⊕ b, t, t') = h(a, t, t') ⊕ h(b, t, t')
    identity      h(e, t, t') = e
    composition   h(h(a, t, t'), t', t'') = h(a, t, t'')  and  h(a, t, t) = a

and for a final value F(a) that is not the accumulator itself, that F re-bases the body to the
definition and is a homomorphism too. Each becomes an `Obligation`: an equation over the reals.

Leaves of a correction h (all without indices: h is elementwise over the accumulator's axes):

    acc(name)   an accumulator as it was carried in (this one's own, or a companion's)
    old(name)   a reference before this tile (in `global`: the chunk's own)
    new(name)   the reference after this tile  (in `global`: the joined one)
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from neptune_mlir.algebra.facts import Facts, evaluate_scalar
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.proofs.order import preserves
from neptune_mlir.algebra.terms import (
    Term,
    const,
    is_float,
    leaves,
    make,
    ref,
    rewrite,
    show,
    substitute,
    walk,
)

# Constants that were multiplied at compile time are rounded to double precision.
ROUNDING = Fraction(1, 1 << 44)
ROUNDED = "normal form, up to the rounding of folded constants"

PROVED, UNPROVED, REFUTED = "proved", "unproved", "refuted"


def acc(name: str, dtype: str = "f32") -> Term:
    return ref(("acc", name), dtype=dtype)


def old(name: str, dtype: str = "f32") -> Term:
    return ref(("old", name), dtype=dtype)


def new(name: str, dtype: str = "f32") -> Term:
    return ref(("new", name), dtype=dtype)


def at_time(t: Term, side: Callable[..., Term]) -> Term:
    """References become their values before (`old`) or after (`new`) the tile."""

    def rule(n: Term) -> Term | None:
        if n.op == "ref" and not isinstance(n.attr, tuple):
            return side(n.attr, n.dtype)
        return None

    return rewrite(t, rule)


def references(t: Term) -> tuple[str, ...]:
    """Names of the references in a term, in order of appearance."""
    return tuple(dict.fromkeys(n.attr for n in leaves(t, "ref")))


@dataclass(frozen=True)
class Obligation:
    """`left == right` for all real values of the leaves (where both are defined)."""

    kind: str  # re-basing, homomorphism, identity, composition, finish
    subject: str  # the running or final value it is about
    left: Term
    right: Term
    status: str = UNPROVED
    by: str = ""

    def __str__(self) -> str:
        how = f" ({self.by})" if self.by else ""
        left, right = show(self.left, leaf_text), show(self.right, leaf_text)
        return f"{self.subject}: {self.kind}: {left} == {right}: {self.status}{how}"


@dataclass(frozen=True)
class Proof:
    """The obligations of one correction or final value, with their status."""

    obligations: tuple[Obligation, ...] = ()

    @property
    def proved(self) -> bool:
        return all(o.status == PROVED for o in self.obligations)

    @property
    def status(self) -> str:
        if any(o.status == REFUTED for o in self.obligations):
            return REFUTED
        return PROVED if self.proved else UNPROVED


def leaf_text(t: Term) -> str | None:
    """How corrections' leaves are written: acc(a), m_old, m_new (m_mid between two repairs)."""
    if t.op == "ref" and isinstance(t.attr, tuple) and t.attr[0] in ("acc", "old", "new", "mid"):
        side, name = t.attr[0], t.attr[1]
        return f"acc({name})" if side == "acc" else f"{name}_{side}"
    return None


def discharge(obligation: Obligation, normal: Normaliser, ordered: bool = False) -> Obligation:
    """Compare normal forms; equal ones are a proof, different ones only a failed attempt.

    `ordered`: the correction was shown to preserve the order that max, min, and, or are about.
    """
    if ordered and obligation.kind == "homomorphism":
        return replace(obligation, status=PROVED, by="order")
    by = "normal form"
    for left, right in cases(obligation.left, obligation.right, normal):
        if normal.equal(left, right):
            continue
        found = counterexample(left, right, normal.facts)
        if found is not None:
            return replace(obligation, status=REFUTED, by=f"counterexample: {found}")
        if not normal.equal(left, right, ROUNDING):
            return obligation
        by = ROUNDED
    return replace(obligation, status=PROVED, by=by)


def counterexample(left: Term, right: Term, facts: Facts) -> str | None:
    """Values under which both sides are defined and differ, found by trying some."""
    points = [n for n in dict.fromkeys((*walk(left), *walk(right))) if n.is_leaf and not n.is_const]
    rng = random.Random(0)
    for _ in range(24):
        values: dict[Term, float] = {}
        for n in points:
            value = rng.randint(0, 3) if not is_float(n.dtype) else rng.uniform(-2.0, 2.0)
            known = n.op == "ref" and facts.name(n) in facts.nonneg
            values[n] = abs(value) + 0.1 if known else value
        a, b = evaluate_scalar(left, values), evaluate_scalar(right, values)
        if math.isfinite(a) and math.isfinite(b) and abs(a - b) > 1e-9 * (1 + abs(a) + abs(b)):
            named = (f"{leaf_text(n) or show(n)} = {values[n]:.4g}" for n in points)
            return f"{', '.join(named)} give {a:.6g} and {b:.6g}"
    return None


def cases(left: Term, right: Term, normal: Normaliser) -> list[tuple[Term, Term]]:
    """Both sides under each outcome of the masks that put ±inf where nothing is live."""
    for n in (*walk(left), *walk(right)):
        if n.op == "select" and any(a.is_const and math.isinf(a.value) for a in n.args[1:]):
            cond = n.args[0]
            if cond.is_const or any(x.op == "ref" for x in walk(cond)):
                continue
            found = []
            decided = normal.indicator(cond)  # `x == -inf` never holds over the reals
            outcomes = (False,) if not decided else (True,) if decided == {(): 1} else (True, False)
            for outcome in outcomes:
                table = {cond: const(outcome, "i1")}
                found += cases(substitute(left, table), substitute(right, table), normal)
            return found
    return [(left, right)]


def outcomes(left: Term, right: Term) -> Iterator[tuple[Term, Term]]:
    """Both sides under each outcome of the conditions of selects that they share."""
    for n in walk(left):
        if n.op == "select" and not n.args[0].is_const:
            for outcome in (False, True):
                table = {n.args[0]: const(outcome, "i1")}
                yield from outcomes(*(_decided(substitute(t, table)) for t in (left, right)))
            return
    yield left, right


def _decided(t: Term) -> Term:
    """Without selects whose condition is known."""

    def rule(n: Term) -> Term | None:
        if n.op == "select" and n.args[0].is_const:
            return n.args[1] if n.args[0].value else n.args[2]
        return None

    return rewrite(t, rule)


def obligations(
    normal: Normaliser,
    name: str,
    combiner: str,
    bodies: dict[str, Term],
    hs: dict[str, Term],
) -> Proof:
    """What h of `name` must satisfy, given its companions' bodies and corrections."""
    h = hs[name]
    one = _per_accumulator(h, lambda n: at_time(_bare(bodies[n.attr[1]]), old))
    found = [Obligation("re-basing", name, at_time(_bare(bodies[name]), new), one)]
    left = _per_accumulator(h, lambda n: make(combiner, n, _other(n)))
    right = make(combiner, h, _per_accumulator(h, _other))
    found.append(Obligation("homomorphism", name, left, right))
    if combiner == "add":  # max and min have no identity over the reals; order implies it
        zero = _per_accumulator(h, lambda n: const(0.0, n.dtype))
        found.append(Obligation("identity", name, zero, const(0.0)))
    first = _per_accumulator(_rename(h, old="mid"), lambda n: _rename(hs[n.attr[1]], new="mid"))
    found.append(Obligation("composition", name, first, h))
    same = next((n for n in leaves(h, "ref") if n.attr == ("acc", name)), acc(name))
    found.append(Obligation("composition", name, _rename(h, new="old"), same))
    order = preserves(h, combiner, lambda n: combiner, normal.facts)
    return Proof(tuple(discharge(o, normal, order) for o in found))


def finish_obligations(
    normal: Normaliser,
    name: str,
    combiner: str,
    body: Term,
    final: Term,
    accumulators: dict[str, tuple[str, Term]],
    relations: dict[str, Term],
) -> Proof:
    """What a final value over `acc` leaves must satisfy to be the reduction of `body`.

    Args:
        accumulators: each one's combiner and body.
        relations: references that equal a combination of others (proved on their own).
    """
    known = {
        ref(n, dtype=t.dtype): _per_accumulator(_bare(t), lambda a: ref(a.attr[1], dtype=a.dtype))
        for n, t in relations.items()
    }
    final, body = _bare(final), _bare(body)
    one = _per_accumulator(final, lambda n: _bare(accumulators[n.attr[1]][1]))
    found = [Obligation("finish", name, one, body)]
    left = _per_accumulator(final, lambda n: make(accumulators[n.attr[1]][0], n, _other(n)))
    right = make(combiner, final, _per_accumulator(final, _other))
    found.append(Obligation("homomorphism", name, left, right))
    order = preserves(final, combiner, lambda n: accumulators[n.attr[1]][0], normal.facts)
    if known:
        found = [
            replace(o, left=substitute(o.left, known), right=substitute(o.right, known))
            for o in found
        ]
    return Proof(tuple(discharge(o, normal, order) for o in found))


def relation(normal: Normaliser, name: str, bodies: dict[str, Term], value: Term) -> Obligation:
    """Σ f = value, a linear combination of sums, because f is that combination of bodies."""
    right = _per_accumulator(_bare(value), lambda n: _bare(bodies[n.attr[1]]))
    kind = f"equals {show(value, leaf_text)}"
    return discharge(Obligation(kind, name, _bare(bodies[name]), right), normal)


def _bare(t: Term) -> Term:
    """References without their indices: obligations speak about one element."""
    return rewrite(t, lambda n: ref(n.attr, dtype=n.dtype) if n.op == "ref" and n.args else None)


def is_acc(t: Term) -> bool:
    return t.op == "ref" and isinstance(t.attr, tuple) and t.attr[0] == "acc"


def _per_accumulator(t: Term, value: Callable[[Term], Term]) -> Term:
    return rewrite(t, lambda n: value(n) if is_acc(n) else None)


def _other(n: Term) -> Term:
    """A second, independent value of the accumulator: written acc(name*)."""
    return ref(("acc", f"{n.attr[1]}*"), dtype=n.dtype)


def _rename(t: Term, **sides: str) -> Term:
    def rule(n: Term) -> Term | None:
        if n.op == "ref" and isinstance(n.attr, tuple) and n.attr[0] in sides:
            return ref((sides[n.attr[0]], n.attr[1]), dtype=n.dtype)
        return None

    return rewrite(t, rule)
