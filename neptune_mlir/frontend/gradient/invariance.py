# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values that a program computes and whose value no result depends on.

Softmax subtracts the maximum of its scores to keep exponentials in range; any other number gives
the same weights. Formally: let t be a value (the maximum, or the guarded maximum that everything
reads), and move it to an independent t'. Every sum over a body that reads t has to scale,

    re-basing    f(x, t') = f(x, t) * phi(t, t')     phi constant along what is summed
    free         F(t', r_1 * phi_1, ...) = F(t, r_1, ...)     for every result F

so no result changes. Then dF/dt = 0, and t needs no adjoint. The same equation, of a stream's
accumulators and corrections, is what `free-references` proves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.poly import TooComplex, add, mono_mul, mono_pow, to_term
from neptune_mlir.algebra.proofs.proof import PROVED, Obligation, Proof, discharge, outcomes
from neptune_mlir.algebra.terms import Term

MAX_CANDIDATES = 8  # values tried for one maximum, the largest first
OLD, NEW = T.sym("old reference"), T.sym("new reference")  # in what `scales_by` is asked


def free_value(
    name: str, reductions: Sequence[Reduction], results: Sequence[Term]
) -> tuple[Term, Proof] | None:
    """The largest term through which all uses of a reduction go, and which no result depends on.

    Args:
        name: of one of the reductions; its result is `read(name, ...)` in bodies and results.
        reductions: in program order; `axes` are those that each result keeps.
        results: of the program, over its axes.

    Returns:
        None where there is no such term, or no proof.
    """
    for value in gates(name, [*(r.body for r in reductions), *results])[:MAX_CANDIDATES]:
        proof = independence(value, reductions, results)
        if proof.proved:
            return value, proof
    return None


def gates(name: str, roots: Sequence[Term]) -> list[Term]:
    """Terms that vary along nothing but what reductions are read at, and without which no root
    reads `name`; the largest first."""
    reading = [r for r in roots if _reads(r, name)]
    found = []
    for node in dict.fromkeys(n for r in reading for n in T.walk(r) if _reads(n, name)):
        axes = {a for r in T.reads(node) if r.attr == name for a in r.axes}
        if T.is_float(node.dtype) and node.axes <= axes:
            leaf = T.sym("gate", node.dtype)
            if not any(_reads(T.substitute(r, {node: leaf}), name) for r in reading):
                found.append(node)
    return sorted(found, key=lambda n: -n.size)


def _reads(t: Term, name: str) -> bool:
    return any(r.attr == name for r in T.reads(t))


def independence(
    value: Term, reductions: Sequence[Reduction], results: Sequence[Term]
) -> Proof:
    """The obligations that make every result independent of `value`, as far as they were proved:
    the last one is not where the proof ends."""
    moves = _Moves(value, reductions)
    if moves.rebase(_needed(reductions, results)):
        for k, result in enumerate(results):
            body = moves.bare(result)
            if not moves.checked("free", f"result {k}", moves.moved(body), body):
                break
    return Proof(tuple(moves.found))


def scales_by(
    value: Term, reductions: Sequence[Reduction], terms: Sequence[Term], phi: Term
) -> bool:
    """Whether each of the terms, with `value` moved from `OLD` to `NEW`, is proved to be itself
    times `phi`, a term of these two."""
    moves = _Moves(value, reductions)
    phi = T.substitute(phi, {OLD: moves.before, NEW: moves.after})
    return moves.rebase(_needed(reductions, terms)) and all(
        moves.checked("re-basing", f"term {k}", moves.moved(body), T.make("mul", body, phi))
        for k, body in enumerate(map(moves.bare, terms))
    )


def _needed(reductions: Sequence[Reduction], results: Sequence[Term]) -> list[Reduction]:
    """Those that a result reads, directly or not."""
    needed = T.reached(results, {r.name: r.body for r in reductions})
    return [r for r in reductions if r.name in needed]


class _Moves:
    """How terms move with a value: what replaces it, and by what each sum scales."""

    def __init__(self, value: Term, reductions: Sequence[Reduction]):
        place = [T.index(a) for a in sorted(value.axes)]
        self.before = T.ref(("old", "t"), *place, dtype=value.dtype)
        self.after = T.ref(("new", "t"), *place, dtype=value.dtype)
        self.value = value
        self.known = {r.name: r for r in reductions}
        self.facts = Facts(frozenset())
        self.factors: dict[str, Term] = {}  # over the axes that the reduction keeps
        self.normal = Normaliser(self.facts, reals=True)
        self.found: list[Obligation] = []

    def checked(self, kind: str, subject: str, left: Term, right: Term) -> bool:
        """Whether an obligation is proved, for each outcome of its conditions."""
        for pair in outcomes(left, right):
            obligation = discharge(Obligation(kind, subject, *pair), self.normal)
            self.found.append(obligation)
            if obligation.status != PROVED:
                return False
        return True

    def rebase(self, reductions: Sequence[Reduction]) -> bool:
        """Find and prove by what factor each reduction moves."""
        for r in reductions:
            body = self.bare(r.body)
            moved = self.moved(body)
            if moved is not body:
                phi = self.ratio(body, moved, r.axes or ()) if r.combiner == "add" else None
                if phi is None:
                    self.found.append(Obligation("re-basing", r.name, moved, body))
                    return False
                if not self.checked("re-basing", r.name, moved, T.make("mul", body, phi)):
                    return False
                self.factors[r.name] = phi
            self.facts.learn(r.name, r.combiner, body)
        return True

    def bare(self, t: Term) -> Term:
        """The value as it was before, results of reductions as references, whose signs are
        facts."""
        t = T.substitute(t, {self.value: self.before})

        def rule(n: Term) -> Term | None:
            if n.op == "read" and n.attr in self.known:
                return T.ref(n.attr, *n.args, dtype=n.dtype)
            return None

        return T.rewrite(t, rule)

    def moved(self, t: Term) -> Term:
        """`t` with the value moved, and with it what it scales."""
        done: dict[Term, Term] = {}
        for n in T.walk(t):
            args = [done[a] for a in n.args]
            if n is self.before:
                done[n] = self.after
            elif n.op == "ref" and n.attr in self.factors:
                axes = dict(zip(self.known[n.attr].axes or (), n.args, strict=True))
                done[n] = T.make("mul", n, T.rename_axes(self.factors[n.attr], axes))
            elif n.is_leaf or all(a is b for a, b in zip(args, n.args, strict=True)):
                done[n] = n
            else:
                done[n] = self._rebuilt(n, args)
        return done[t]

    def _rebuilt(self, n: Term, args: list[Term]) -> Term:
        """`n` of moved operands. A divisor, a logarithm's argument and what is compared with 0
        give up the factor that they moved by: normal forms do not look into sums there."""
        last = n.args[1] if n.op == "div" else n.args[0]
        at_zero = n.op in ("eq", "ne") and n.args[1].is_const and n.args[1].value == 0
        if n.op in ("div", "log") or at_zero:
            phi = self.ratio(last, args[1] if n.op == "div" else args[0])
            if phi is not None and n.op == "div":
                return T.make("div", T.make("div", args[0], phi), last)
            if phi is not None and self.facts.sign(phi) == 1:  # never 0 over the reals
                log = phi.args[0] if phi.op == "exp" else T.make("log", phi)
                return n if at_zero else T.make("add", n, log)
        return T.make(n.op, *args, dtype=n.dtype)

    def ratio(self, before: Term, after: Term, kept: Iterable[int] | None = None) -> Term | None:
        """phi with after = before * phi, varying along no axis but those `kept` (None: all)."""
        if not T.is_float(before.dtype):
            return None
        try:
            left, right = self.normal.poly(before), self.normal.poly(after)
            if not left:
                return None
            first, c = next(iter(left.items()))
            for mono, d in right.items():
                factor = {mono_mul(mono, mono_pow(first, Fraction(-1))): d / c}
                phi = to_term(factor, before.dtype)
                if (kept is None or phi.axes <= set(kept)) and not add(
                    self.normal.mul(left, factor), right, -1
                ):
                    return phi
        except TooComplex:
            return None
        return None
