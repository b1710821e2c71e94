# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The solver's data: reductions in, running values and corrections out, and the builder.

The leaves of a correction (`acc`, `old`, `new`) are defined in `proof.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from neptune_mlir.algebra import rules
from neptune_mlir.algebra.contractions import rounds_in_range
from neptune_mlir.algebra.facts import Facts, evaluate_scalar, has_ref, varies
from neptune_mlir.algebra.growth import Ranges
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.poly import LN2, Poly, TooComplex
from neptune_mlir.algebra.proofs.proof import Obligation, Proof, relation
from neptune_mlir.algebra.terms import (
    Term,
    const,
    index,
    is_float,
    leaves,
    make,
    ref,
    rewrite,
    show,
    substitute,
    walk,
)
from neptune_mlir.errors import FusionError


@dataclass(frozen=True)
class Reduction:
    """One reduction over the streamed axis.

    Attributes:
        name: how bodies of later reductions refer to it, `ref(name, *idx)`.
        combiner: add, mul, max, min, and, or.
        body: what is reduced, a term over the stream's axes.
        axes: the axes that the result keeps; None when unknown (then every reference is
            taken to be constant over all axes that this reduction folds).
    """

    name: str
    combiner: str
    body: Term
    dtype: str = "f32"
    axes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Correction:
    """How an accumulator is repaired after its references moved: a ← h.

    Attributes:
        form: multiplicative, exponential, additive, monotone or augmented.
        h: over the leaves `acc`, `old`, `new`.
        references: names of the running values whose movement it repairs.
        proof: its obligations and their status.
    """

    form: str
    h: Term
    references: tuple[str, ...]
    proof: Proof = field(default_factory=Proof)


@dataclass(frozen=True)
class Running:
    """One accumulator of the fused loop. References in `body` are the NEW values of earlier ones.

    Attributes:
        axes: the axes of the stream that it keeps. References to it in bodies carry
            `index(k)` for exactly these.
        folded: the axes that it folds; a body that varies along none of them (a count) is
            still added once per point.
        source: the reduction it was made for.
    """

    name: str
    combiner: str
    body: Term
    correction: Correction | None = None
    dtype: str = "f32"
    axes: tuple[int, ...] = ()
    folded: tuple[int, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Solution:
    """What the fused loop carries, in evaluation order, and the results in terms of it.

    Attributes:
        finals: original name -> value over `ref(running name)`; a reference without indices
            means "at the result's own position".
        proofs: original name -> obligations of a final value that is more than a running one.
        steps: the derivation, for people.
        facts: what is known of the running values (hypotheses of the proofs).
        empty_rows: whether it spells out rows that saw nothing (`algebra.corrections.empty`).
    """

    running: tuple[Running, ...]
    finals: dict[str, Term]
    steps: tuple[str, ...] = ()
    proofs: dict[str, Proof] = field(default_factory=dict)
    facts: Facts = field(default_factory=lambda: Facts(frozenset()))
    empty_rows: bool = False

    def mapped(self, change: Callable[[Term], Term]) -> Solution:
        """The same with `change` applied to every term that is evaluated."""
        running = []
        for r in self.running:
            correction = r.correction
            if correction is not None:
                correction = replace(correction, h=change(correction.h))
            running.append(replace(r, body=change(r.body), correction=correction))
        finals = {name: change(term) for name, term in self.finals.items()}
        return replace(self, running=tuple(running), finals=finals)

    @property
    def proved(self) -> bool:
        corrections = [r.correction.proof for r in self.running if r.correction]
        return all(p.proved for p in [*corrections, *self.proofs.values()])

    @property
    def obligations(self) -> tuple[Obligation, ...]:
        proofs = [r.correction.proof for r in self.running if r.correction]
        return tuple(o for p in [*proofs, *self.proofs.values()] for o in p.obligations)


class Unsolvable(FusionError):
    """A reduction has no correction: which one, which obligation fails, and where.

    Attributes:
        reduction, obligation, subterm: the parts of the message, as data.
    """

    def __init__(self, reduction: str, obligation: str, subterm: Term, why: str, hint: str):
        self.reduction = reduction
        self.obligation = obligation
        self.subterm = subterm
        super().__init__(
            f"reduction '{reduction}' cannot be fused: {obligation} fails on "
            f"`{show(subterm)}`: {why}",
            hint=hint,
        )


def spelled(t: Term) -> Term:
    """Write out the symbol ln 2 that normal forms use for exp2 and log2."""
    return rewrite(t, lambda n: const(math.log(2.0), n.dtype) if n is LN2 else None)


def instead(r: Term, empty: float) -> Term:
    """`r`, or a regular number as long as it is `empty`: 0 for infinities, 1 for 0."""
    regular = const(0 if math.isinf(empty) else 1, r.dtype)
    return make("select", make("eq", r, const(empty, r.dtype)), regular, r)


def stood_in_for(t: Term) -> dict[Term, float]:
    """The references that `instead` was applied to in a term, and what they were then."""
    found = {}
    for n in walk(t):
        if n.op == "select" and n.args[2].op == "ref" and n.args[0].op == "eq":
            r, empty = n.args[0].args
            if r is n.args[2] and empty.is_const and instead(r, empty.value) is n:
                found[r] = empty.value
    return found


class Chain:
    """Collects running values, final values and the derivation while reductions are solved."""

    def __init__(
        self, axis: int, dtype: str = "f32", ranges: Ranges | None = None,
        visible: frozenset[str] = frozenset(),
    ):  # fmt: skip
        self.axis = axis
        self.visible = visible  # reductions that others read as they were rounded
        self.ranges = ranges
        self.facts = Facts(frozenset({axis}))
        self.normal = Normaliser(self.facts)
        self.linear = Normaliser(self.facts, spelled=True)
        self.kept = Normaliser(self.facts, spelled=True, differences=self.linear)
        self.affine = Normaliser(self.facts, spelled=True, differences=self.linear, affine=True)
        self.proof = Normaliser(self.facts, reals=True)
        self._normalisers = (self.normal, self.linear, self.kept, self.affine, self.proof)
        for normaliser in self._normalisers:
            normaliser.dtype = dtype
        self.running: list[Running] = []
        self.finals: dict[str, Term] = {}
        self.results: dict[str, Term] = {}
        self.own_guards: dict[Term, Term] = {}  # of the current reduction, see `clean`
        self.proofs: dict[str, Proof] = {}
        self.steps: list[str] = []
        self.current: Reduction | None = None
        self.relations: dict[str, Term] = {}
        self.related: dict[str, Obligation] = {}
        self._known: dict[tuple[Any, ...], str] = {}
        self._raw: dict[str, Term] = {}  # bodies before guards, for proofs and look-ups

    def step(self, text: str) -> None:
        assert self.current is not None
        self.steps.append(f"{self.current.name}: {text}")

    def fail(self, obligation: str, subterm: Term, why: str, hint: str | None = None) -> Unsolvable:
        assert self.current is not None
        if hint is None:
            hint = rules.ADVICE.get(subterm.op, rules.DEFAULT_ADVICE)
        return Unsolvable(self.current.name, obligation, subterm, why, hint)

    def invariant(self, t: Term) -> bool:
        """Reads references and nothing that changes along the stream."""
        return has_ref(t) and not self.varies(t)

    def varies(self, t: Term) -> bool:
        return varies(t, self.facts.folded)

    def begin(self, reduction: Reduction) -> None:
        """Turn to the next reduction: which axes it folds decides what varies."""
        self.current = reduction
        folded = frozenset({self.axis})
        if reduction.axes is not None:
            used = {n.attr for n in walk(reduction.body) if n.op == "index"}
            folded |= used - set(reduction.axes)
        if folded != self.facts.folded:
            self.facts.folded = folded
            for normaliser in self._normalisers:
                normaliser.forget()

    def in_range(self, *terms: Term) -> bool:
        """Whether none of them can overflow or vanish where the program as written does not."""
        return self.ranges is None or self.ranges.all_inside(terms)

    def rounds_in_range(self, rest: Term) -> bool:
        """Whether what is rounded of the rest of the current body stays in the range of f16."""
        assert self.current is not None
        written = self.current.body
        return self.ranges is None or rounds_in_range(written, rest, self.ranges)

    def require_range(self, t: Term, powers: bool = False) -> None:
        """Raises Unsolvable where a value may leave the range of the program as written; `powers`:
        it does, by those of an exponential."""
        found = None if self.ranges is None else t if powers else self.ranges.outside(t)
        if found is not None:
            raise self.fail(
                "range", found, "it may overflow or vanish where the program as written does not",
                "keep the factor that scales the data, or allow it: numerics=fast",
            )  # fmt: skip

    def require_near(self, difference: Term) -> None:
        """Raises Unsolvable where constants bring a difference far from 1. Its square overflows
        then when it is measured from a reference a little further off than the program's, and
        what rounding leaves of equal data is large beside what the program adds to it (1e-6)."""
        if self.ranges is not None and self.ranges.is_far(difference):
            raise self.fail(
                "range", difference, "constants of the program scale this by more than 2^40",
                "scale the data less, or allow it: numerics=fast",
            )  # fmt: skip

    def conclude(self, final: Term, result: Term) -> None:
        """Record the final value of the current reduction over the reals, what its sign is, and the
        value that the fused program gives, empty rows included."""
        assert self.current is not None
        name = self.current.name
        self.finals[name], self.results[name] = spelled(final), spelled(result)
        if self.facts.sign(final) == 1:
            self.facts.nonneg.add(name)

    def fresh(self, name: str) -> str:
        taken = {r.name for r in self.running} | set(self.finals)
        while name in taken:
            name += "'"
        return name

    def signature(self, combiner: str, body: Term) -> tuple[Any, ...] | None:
        try:
            poly: Poly = self.normal.poly(body)
        except TooComplex:
            return None
        return combiner, frozenset(poly.items())

    def find(self, combiner: str, body: Term) -> str | None:
        """An existing running value that computes the same."""
        return self._known.get(self._place(combiner, body))

    def _place(self, combiner: str, body: Term) -> tuple[Any, ...]:
        assert self.current is not None
        signature = self.signature(combiner, body) or (combiner, body)
        folded = tuple(sorted(self.facts.folded))
        return signature, self.dtype(body), folded, self._axes(body)

    def _axes(self, body: Term) -> tuple[int, ...]:
        """Axes that an accumulator of this body keeps: auxiliaries need not keep them all."""
        used = {n.attr for n in walk(body) if n.op == "index"}
        return tuple(sorted(used - self.facts.folded))

    def at(self, name: str) -> Term:
        """A reference to a running value, at the position of the loop."""
        running = next(r for r in self.running if r.name == name)
        return ref(name, *map(index, running.axes), dtype=running.dtype)

    def emit(
        self,
        name: str,
        combiner: str,
        body: Term,
        correction: Correction | None = None,
        nonzero: Iterable[Term] = (),
    ) -> str:
        """Add a running value (or find the one that is equal) and return its name.

        `nonzero`: references that the body reads as 1 as long as they are 0.
        """
        assert self.current is not None
        place = self._place(combiner, body)
        own = self.current.axes if self.fresh(name) == self.current.name else None
        kept = self._axes(body) if own is None else own
        # a sum of u[j] for each row is not shared with the one for all: whoever reads it says where
        if place in self._known and self.at(self._known[place]).args == tuple(map(index, kept)):
            return self._known[place]
        name = self.fresh(name)
        self._known[place] = name
        self._raw[name] = body
        self.facts.learn(name, combiner, body)
        if self.ranges is not None:
            self.ranges.learn(name, body)
        for part in (body, correction.h) if correction else (body,):
            self.require_range(part)
        self.running.append(
            Running(
                name,
                combiner,
                spelled(self.guarded(body, nonzero)),
                correction and replace(correction, h=spelled(correction.h)),
                self.dtype(body),
                kept,
                tuple(sorted(self.facts.folded)),
                self.current.name,
            )
        )
        return name

    def dtype(self, body: Term) -> str:
        """The accumulator's type; data behind a comparison keep their own."""
        assert self.current is not None
        wanted = self.current.dtype
        return wanted if is_float(wanted) == is_float(body.dtype) else body.dtype

    def relate(self, name: str, value: Term) -> None:
        """Record that the sum `name` is a linear combination `value` of sums (`acc` leaves)."""
        if name not in self.relations:
            self.relations[name] = value
            bodies = {r.name: self.raw(r.name) for r in self.running}
            self.related[name] = relation(self.proof, name, bodies, value)

    def raw(self, name: str) -> Term:
        return self._raw[name]

    def clean(self, body: Term) -> tuple[Term, dict[Term, Term]]:
        """A body without the guards that the program wrote itself, and what it reads for each
        reference that it guards; `guarded` puts those back, and the others that are needed."""
        own: dict[Term, Term] = {}

        def rule(n: Term) -> Term | None:
            if n.op == "select" and has_ref(n.args[0]):
                poly = self.normal.indicator(n.args[0])
                decided = n.args[2] if not poly else n.args[1] if poly == {(): 1} else None
                if decided is not None and has_ref(decided) and not self.varies(decided):
                    own[decided] = n
                return decided
            return None

        return rewrite(body, rule), own

    def guarded(self, body: Term, nonzero: Iterable[Term] = ()) -> Term:
        """Protect references that have not seen an element yet.

        While a reference still is its identity, any regular value will do (nothing live was
        accumulated), so -inf becomes 0, and 0 becomes 1 where it would be divided by.
        """
        # of more than a reference (the larger of one and a number): as the program guards it
        body = substitute(body, {r: own for r, own in self.own_guards.items() if r.op != "ref"})
        table = {r: instead(r, 0) for r in nonzero}
        for piece in self._pieces(body):
            for r in leaves(piece, "ref"):
                guard = self.guard(r, piece)
                if r in self.own_guards:
                    guard = self._own_guard(r, guard)
                if guard is not r:
                    table[r] = guard
        return substitute(body, table) if table else body

    def _own_guard(self, r: Term, guard: Term) -> Term:
        """The program's guard of a reference, which may know more values than the identity."""
        own = self.own_guards[r]
        identity = self.facts.identity(r)
        covers = math.isfinite(evaluate_scalar(own, {r: identity}))
        return own if guard is r or covers else substitute(guard, {r: own})

    def guard(self, r: Term, inside: Term, *, before: bool = False) -> Term:
        """`r`, guarded when `inside` has no finite value at the identity of r.

        `before`: the value before the first tile is meant too, where bounds do not help yet.
        """
        identity = self.facts.identity(r)
        if identity is None or isinstance(identity, bool):
            return r
        if not is_float(r.dtype):
            if self.facts.combiner[self.facts.name(r)] != "add":
                return r
            identity = 0
        if not before and self.facts.name(r) in self.facts.bounded_below:
            return r
        alone = evaluate_scalar(inside, {r: identity})
        others = {n: self.facts.identity(n) for n in leaves(inside, "ref")}
        together = evaluate_scalar(inside, {n: e for n, e in others.items() if e is not None})
        if math.isfinite(alone) and (math.isfinite(together) or math.isfinite(identity)):
            return r
        return instead(r, identity)

    def _pieces(self, body: Term) -> list[Term]:
        """The largest sub-terms that read references and no data."""
        found: list[Term] = []
        stack = [body]
        while stack:
            n = stack.pop()
            if not has_ref(n):
                continue
            if self.varies(n):
                stack.extend(n.args)
            else:
                found.append(n)
        return list(dict.fromkeys(found))
