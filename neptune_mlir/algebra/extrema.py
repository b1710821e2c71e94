# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maxima and minima (and any, all): order-preserving functions move behind the loop.

    max_j u(g_j, t) = u(max_j g_j, t)    for u non-decreasing in g

so the reduction is over the data alone and no correction is paid for it. Order-reversing steps
turn a maximum into a minimum, `max(a, b)` splits into two, `|a|` is max(a, -a), and a
scale whose sign is not known until the end keeps both extrema. What remains (a product of a
data-dependent factor and one that must stay to keep it in range) is corrected by its ratio.
"""

from __future__ import annotations

from fractions import Fraction

from neptune_mlir.algebra.chain import Chain, Correction
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.corrections.rescale import ratio
from neptune_mlir.algebra.facts import has_ref
from neptune_mlir.algebra.operators import order_of
from neptune_mlir.algebra.poly import TooComplex, mono_mul, mono_term, to_term
from neptune_mlir.algebra.proofs import proof
from neptune_mlir.algebra.proofs.proof import acc, references
from neptune_mlir.algebra.sums import move_unsafe, split_monomials
from neptune_mlir.algebra.terms import COMPARISONS, Term, const, is_float, make, show

FLIP = {"max": "min", "min": "max", "or": "and", "and": "or"}
ORDER = {"or": "max", "and": "min"}


def solve_extremum(chain: Chain, name: str, combiner: str, body: Term) -> Term:
    """The final value of a max, min, or, and, over `acc` of running values added to `chain`.

    Raises:
        Unsolvable: no form applies.
    """
    if not has_ref(body):
        return _core(chain, name, combiner, body)
    value = Peel(chain, name)(body, combiner)
    shown = show(value, proof.leaf_text)
    chain.step(f"deferral: {combiner} passes order-preserving functions; {name} = {shown}")
    return value


def _core(chain: Chain, name: str, combiner: str, body: Term) -> Term:
    return acc(chain.emit(name, combiner, body), chain.dtype(body))


class Peel:
    """Walks from the body to the data, building the final value on the way back."""

    def __init__(self, chain: Chain, name: str):
        self.chain = chain
        self.name = chain.fresh(name + "'")

    def core(self, body: Term, want: str) -> Term:
        """The extremum of the data themselves."""
        return _core(self.chain, self.name, want, body)

    def __call__(self, t: Term, want: str) -> Term:
        chain = self.chain
        if not has_ref(t):
            return self.core(t, want) if chain.varies(t) else t
        if not chain.varies(t):
            return t
        if order_of(t.op):
            return self._unary(t, want)
        handler = getattr(self, "_" + t.op, None)
        if t.op in COMPARISONS:
            handler = self._compare
        found = handler(t, want) if handler else None
        return found if found is not None else self._corrected(t, want)

    def _unary(self, t: Term, want: str) -> Term:
        inner = self(t.args[0], want if order_of(t.op) > 0 else FLIP[want])
        return make(t.op, inner, dtype=t.dtype)

    def _fixed_side(self, t: Term) -> int | None:
        """Which operand does not vary along the stream."""
        for i in (0, 1):
            if not self.chain.varies(t.args[i]):
                return i
        return None

    def _add(self, t: Term, want: str) -> Term | None:
        i = self._fixed_side(t)
        if i is None:
            return self._separated(t, want)
        a, b = t.args
        if i == 1:
            return make(t.op, self(a, want), b)
        return make(t.op, a, self(b, want if t.op == "add" else FLIP[want]))

    _sub = _add

    def _separated(self, t: Term, want: str) -> Term | None:
        """(g(x) + t) + k(x) = (g(x) + k(x)) + t."""
        try:
            flat = self.chain.linear.poly(t)
        except TooComplex:
            return None
        if not self.chain.normal.is_difference(flat):
            return None
        kind = self.chain.normal.kind
        data = to_term({m: c for m, c in flat.items() if kind(m) != "ref"}, t.dtype)
        moved = to_term({m: c for m, c in flat.items() if kind(m) == "ref"}, t.dtype)
        return make("add", self(data, want), moved)

    def _mul(self, t: Term, want: str) -> Term | None:
        a, b = t.args
        if a is b:
            if want != "max":
                return None
            inner = make("max", self(make("abs", a), want), const(0.0, t.dtype))
            return make("mul", inner, inner)
        i = self._fixed_side(t)
        if i is None:
            return None
        factor, rest = t.args[i], t.args[1 - i]
        return self._scaled(rest, factor, want, lambda v: make("mul", v, factor))

    def _div(self, t: Term, want: str) -> Term | None:
        a, b = t.args
        if self.chain.varies(b):
            return None
        return self._scaled(a, b, want, lambda v: make("div", v, b))

    def _scaled(self, rest: Term, factor: Term, want: str, apply) -> Term:
        sign = self.chain.facts.sign(factor)
        if sign is not None:
            return apply(self(rest, want if sign > 0 else FLIP[want]))
        up, down = apply(self(rest, want)), apply(self(rest, FLIP[want]))
        return make("select", make("ge", factor, const(0.0, factor.dtype)), up, down)

    def _max(self, t: Term, want: str) -> Term | None:
        if t.op == want:
            return make(t.op, *(self(a, want) for a in t.args))
        i = self._fixed_side(t)
        if i is None:
            return None
        args = [a if k == i else self(a, want) for k, a in enumerate(t.args)]
        return make(t.op, *args)

    _min = _max

    def _and(self, t: Term, want: str) -> Term | None:
        return self._max(t, want)

    _or = _and

    def _abs(self, t: Term, want: str) -> Term | None:
        if want != "max":
            return None
        return make("max", self(t.args[0], "max"), make("neg", self(t.args[0], "min")))

    def _select(self, t: Term, want: str) -> Term | None:
        cond, a, b = t.args
        if not self.chain.varies(cond):
            return make("select", cond, self(a, want), self(b, want))
        if has_ref(cond) or want not in ("max", "min"):
            return None
        arms = [
            self._where(cond, a, want, True),
            self._where(cond, b, want, False),
        ]
        found = [x for x in arms if x is not None]
        return found[0] if len(found) == 1 else make(want, *found)

    def _where(self, cond: Term, arm: Term, want: str, holds: bool) -> Term | None:
        """The extremum of one arm of a mask: the other elements become the identity."""
        identity = const(lookup(want).identity, arm.dtype)
        if arm is identity:
            return None
        args = (arm, identity) if holds else (identity, arm)
        if not has_ref(arm):
            return _core(self.chain, self.name, want, make("select", cond, *args))
        return _Masked(self.chain, self.name, cond, holds).arm(arm, want)

    def _compare(self, t: Term, want: str) -> Term | None:
        """any_j (g_j > t) = (max_j g_j) > t."""
        i = self._fixed_side(t)
        if want not in ORDER or i is None or t.op in ("eq", "ne"):
            return None
        grows = t.op in ("gt", "ge") if i == 1 else t.op in ("lt", "le")
        inner = ORDER[want] if grows else FLIP[ORDER[want]]
        args = [a if k == i else self(a, inner) for k, a in enumerate(t.args)]
        return make(t.op, *args)

    def _corrected(self, t: Term, want: str) -> Term:
        """g(x)·φ(t) with φ > 0: the ratio of φ is positive, so it keeps order."""
        chain = self.chain
        if not is_float(t.dtype):
            raise chain.fail("re-basing", t, "it is not an ordered function of the data")
        parts = [move_unsafe(chain, p) for p in split_monomials(chain, t)]
        if not parts:  # everything cancels
            return self.core(const(0.0, t.dtype), want)
        keep, behind = parts[0].keep, parts[0].behind
        same = {(p.keep, p.behind) for p in parts} == {(keep, behind)}
        factor = mono_term(behind, Fraction(1), t.dtype) if behind else None
        if not same or any(p.differences for p in parts):
            raise chain.fail(
                "homomorphism",
                t,
                f"{want} does not distribute over terms that move differently",
            )
        sign = 1 if factor is None else chain.facts.sign(factor)
        if sign is None:
            raise chain.fail("homomorphism", t, f"the sign of {show(factor)} is not known")
        body = to_term({mono_mul(p.data, p.keep): p.coefficient for p in parts}, t.dtype)
        want = want if sign > 0 else FLIP[want]
        name = chain.fresh(self.name)
        correction = None
        if keep:
            mine, empty = acc(name, t.dtype), const(lookup(want).identity, t.dtype)
            h = make("mul", mine, ratio(chain, keep, t.dtype))
            h = make("select", make("eq", mine, empty), empty, h)  # -inf * 0 is not a number
            kept = mono_term(keep, Fraction(1), t.dtype)
            found = proof.obligations(chain.proof, name, want, {name: body}, {name: h})
            correction = Correction("exponential", h, references(kept), found)
            chain.step(f"exponential: {name} <- {show(h, proof.leaf_text)}")
        value = acc(chain.emit(name, want, body, correction), t.dtype)
        return value if factor is None else make("mul", value, factor)


class _Masked(Peel):
    """Below a mask: the mask moves to the data, where it selects the identity."""

    def __init__(self, chain: Chain, name: str, cond: Term, holds: bool):
        self.chain = chain
        self.name = name
        self.cond = cond
        self.holds = holds
        self.cores: list[tuple[Term, str]] = []

    def arm(self, t: Term, want: str) -> Term:
        value = self(t, want)
        if not self.cores:  # the arm is the same for all elements: which is live, if any?
            self.live(const(0.0, t.dtype), want)
        # Where no element is live the result is the identity, not u(identity).
        core, kind = self.cores[0]
        empty = make("eq", core, const(lookup(kind).identity, core.dtype))
        return make("select", empty, const(lookup(want).identity, value.dtype), value)

    def __call__(self, t: Term, want: str) -> Term:
        return super().__call__(t, want) if has_ref(t) else self.live(t, want)

    def live(self, t: Term, want: str) -> Term:
        """The extremum of the live elements."""
        identity = const(lookup(want).identity, t.dtype)
        args = (t, identity) if self.holds else (identity, t)
        core = _core(self.chain, self.name, want, make("select", self.cond, *args))
        self.cores.append((core, want))
        return core

    def _corrected(self, t: Term, want: str) -> Term:
        raise self.chain.fail("re-basing", t, "it is masked and does not keep order")
