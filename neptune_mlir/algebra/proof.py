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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from neptune_mlir.algebra import rules
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.terms import Term, const, leaves, make, ref, rewrite, show, substitute

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
    """How corrections' leaves are written: a, m_old, m_new."""
    if t.op == "ref" and isinstance(t.attr, tuple) and t.attr[0] in ("acc", "old", "new"):
        side, name = t.attr[0], t.attr[1]
        return f"acc({name})" if side == "acc" else f"{name}_{side}"
    return None


def discharge(obligation: Obligation, normal: Normaliser) -> Obligation:
    """Compare normal forms; equal ones are a proof, different ones only a failed attempt."""
    if normal.equal(obligation.left, obligation.right):
        return replace(obligation, status=PROVED, by="normal form")
    return obligation


def obligations(
    normal: Normaliser,
    name: str,
    combiner: str,
    bodies: dict[str, Term],
    hs: dict[str, Term],
    vanishing: Sequence[tuple[str, Term]] = (),
) -> Proof:
    """What h of `name` must satisfy, given its companions' bodies and corrections.

    `vanishing` lists companions that are identically zero, with the reason as a term over
    references; h may then leave them out.
    """
    h = hs[name]
    one = {acc(n): at_time(_bare(b), old) for n, b in bodies.items()}
    found = [Obligation("re-basing", name, at_time(_bare(bodies[name]), new), substitute(h, one))]
    join = {"add": "add", "max": "max", "min": "min", "mul": "mul"}[combiner]
    mine = [n for n in hs if any(leaf is acc(n) for leaf in leaves(h, "ref"))]
    other = {acc(n): ref(("acc", n + "*")) for n in mine}
    joined = {a: make(join, a, b) for a, b in other.items()}
    found.append(
        Obligation(
            "homomorphism", name, substitute(h, joined), make(join, h, substitute(h, other))
        )
    )
    identity = const(rules.IDENTITY[combiner])
    found.append(
        Obligation("identity", name, substitute(h, {acc(n): identity for n in mine}), identity)
    )
    first = {acc(n): _rename(hs[n], new="mid") for n in mine}
    found.append(
        Obligation(
            "composition", name, substitute(_rename(h, old="mid"), first), h
        )
    )
    found.append(Obligation("composition", name, _rename(h, new="old"), acc(name)))
    for n, zero in vanishing:
        found.append(Obligation(f"{n} vanishes", name, _bare(zero), const(0.0)))
    return Proof(tuple(discharge(o, normal) for o in found))


def _bare(t: Term) -> Term:
    """References without their indices: obligations speak about one element."""
    return rewrite(t, lambda n: ref(n.attr, dtype=n.dtype) if n.op == "ref" and n.args else None)


def _rename(t: Term, **sides: str) -> Term:
    def rule(n: Term) -> Term | None:
        if n.op == "ref" and isinstance(n.attr, tuple) and n.attr[0] in sides:
            return ref((sides[n.attr[0]], n.attr[1]), dtype=n.dtype)
        return None

    return rewrite(t, rule)
