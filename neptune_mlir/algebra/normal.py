# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A normal form over the reals: terms as polynomials of atoms.

See `poly.py` for what a polynomial is. Two facts keep the normal form small:

* `exp(a*u + b*v)` is the monomial `exp(u)^a * exp(v)^b`, so products, quotients and powers
  of exponentials need no rules of their own, and asking whether an expression splits into
  a data part and a reference part is asking so of each atom.
* `select(c, a, b)` is `[c]*a + (1 - [c])*b` with the idempotent indicator atom `[c]`.

Casts are the identity, and a guard that the program wrote (`select(m == -inf, 0, m)`) is the
reference itself: over the reals there is no -inf. Equal normal forms prove equality wherever
both sides are defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import reduce

from neptune_mlir.algebra.facts import Facts, has_ref, kind
from neptune_mlir.algebra.poly import (
    LN2,
    MAX_MONOMIALS,
    ONE,
    UNIT,
    Mono,
    Poly,
    TooComplex,
    add,
    atom,
    atom_key,
    constant,
    exponential,
    is_indicator,
    is_sum,
    lead_of,
    make_mono,
    mono_mul,
    mono_pow,
    negated,
    put,
    scaled,
    to_term,
)
from neptune_mlir.algebra.terms import COMPARISONS, Term, const, is_float, make, term

# Operators that `spelled` normal forms still look into.
_STRUCTURE = frozenset({"ref", "mul", "div", "neg", "cast", "exp", "exp2", "const"})
_LINEAR = _STRUCTURE | {"add", "sub"}
MAX_POWER = 8  # a sum is multiplied out up to this power, and is an atom beyond it


class Normaliser:
    """Turns terms into normal form under what `facts` knows of their references.

    The solver needs two relaxations that a proof does not:

    Args:
        spelled: keep non-linear functions of references as the program spelled them. They
            end up in final values, where multiplied out they would cancel.
        differences: also keep g(x) + t (data plus reference) as one atom, for the same reason;
            the argument is the normaliser that multiplies such differences out.
        affine: also keep g(x) + k(x) * t, whose reference has a factor of data.
        reals: no number is infinite, so comparisons with ±inf are decided (for proofs; a body
            that is built again must keep them).
    """

    def __init__(
        self,
        facts: Facts,
        *,
        spelled: bool = False,
        differences: Normaliser | None = None,
        affine: bool = False,
        reals: bool = False,
    ):
        self.reals = reals
        self.facts = facts
        self.spelled = spelled
        self.expanded = differences
        self.affine = affine
        self.dtype = "f32"  # in which atoms are spelled
        self._cache: dict[Term, Poly] = {}
        self._indicators: dict[Term, Poly] = {}
        self._spellings: dict[Term, Term] = {}

    def poly(self, t: Term) -> Poly:
        found = self._cache.get(t)
        if found is None:
            found = self._cache[t] = self._poly(t)
        return found

    def forget(self) -> None:
        for kept in (self._cache, self._indicators, self._spellings):
            kept.clear()

    def equal(self, a: Term, b: Term, slack: Fraction | int = 0) -> bool:
        """Equal normal forms, up to `slack` relative to the largest coefficient."""
        try:
            left, right = self.poly(a), self.poly(b)
        except TooComplex:
            return False
        largest = max((abs(c) for p in (left, right) for c in p.values()), default=0)
        return all(abs(c) <= slack * largest for c in add(left, right, -1).values())

    def _poly(self, t: Term) -> Poly:
        """By the tables at the end of the file: one row an operator."""
        if (
            self.spelled
            and t.op not in (_STRUCTURE if self.expanded else _LINEAR)
            and kind(t, self.facts.folded) == "ref"
            and is_float(t.dtype)
        ):
            return atom(t)
        if t.op in ("read", "ref", "sym", "index"):
            return self.indicator(t) if t.dtype == "i1" else atom(t)
        if t.op == "div" and is_float(t.dtype):
            return self.mul(self.poly(t.args[0]), self._reciprocal(t.args[1]))
        if rule := _RULES.get(t.op):
            return rule(self, t)
        if t.op in _OF_INNER:
            return _OF_INNER[t.op](self, self._inner(t.args[0]))
        return self.indicator(t) if t.dtype == "i1" else self._opaque(t)

    def _const(self, t: Term) -> Poly:
        if isinstance(t.value, float) and not math.isfinite(t.value):
            return scaled(atom(const(math.inf)), -1) if t.value < 0 else atom(t)
        return constant(t.value)

    def _cast(self, t: Term) -> Poly:
        if t.args[0].dtype == "i1":
            return self.indicator(t.args[0])
        return self.poly(t.args[0]) if is_float(t.dtype) else self._opaque(t)

    def _reciprocal(self, t: Term) -> Poly:
        """1/t, factor by factor: a product that was multiplied out has no single inverse."""
        if t.op == "mul":
            return self.mul(*map(self._reciprocal, t.args))
        return self.power(self.poly(t), Fraction(-1))

    def _inner(self, t: Term) -> Poly:
        """Under exp and log a difference is data plus reference: always multiplied out."""
        return (self.expanded or self).poly(t)

    def canonical(self, t: Term) -> Term:
        """An argument of an opaque operator, spelled in its own type: the chain may have another,
        and the operator's result is of the argument's."""
        if not is_float(t.dtype):
            return t
        found = self._spellings.get(t)
        if found is None:
            found = self._spellings[t] = to_term(self._inner(t), t.dtype)
        return found

    def _opaque(self, t: Term) -> Poly:
        return atom(term(t.op, [self.canonical(a) for a in t.args], None, t.dtype))

    def _sum(self, t: Term) -> Poly:
        a, b = map(self.poly, t.args)
        total = add(a, b, 1 if t.op == "add" else -1)
        if self.expanded is not None:
            flat = self.expanded.poly(t)
            if all(self.kind(m) in ("data", "fixed") for m in flat):
                return flat  # the references cancel
            if self.is_difference(flat) or (self.affine and self.is_affine(flat)):
                lead = lead_of({m: c for m, c in flat.items() if self.kind(m) == "data"}, flat)
                return scaled(atom(to_term(scaled(flat, 1 / lead), self.dtype)), lead)
        return total

    def is_difference(self, p: Poly) -> bool:
        """Data plus reference: every monomial is one or the other, and there are both."""
        kinds = {self.kind(m) for m in p}
        return kinds <= {"data", "fixed", "ref"} and {"data", "ref"} <= kinds

    def is_affine(self, p: Poly) -> bool:
        """Data plus references times data, in monomials whose every atom is one or the other."""
        pure = all(kind(t, self.facts.folded) != "mixed" for m in p for t, _ in m)
        kinds = {self.kind(m) for m in p}
        return pure and "data" in kinds and bool(kinds & {"ref", "mixed"})

    def kind(self, m: Mono) -> str:
        """data (varies along the stream), ref (reads references), fixed (neither), mixed."""
        return combined(kind(t, self.facts.folded) for t, _ in m)

    def mul(self, a: Poly, b: Poly) -> Poly:
        if len(a) * len(b) > MAX_MONOMIALS * 4:
            raise TooComplex
        out: Poly = {}
        for ma, ca in a.items():
            for mb, cb in b.items():
                m, c = mono_mul(ma, mb), ca * cb
                piece = self._expand(m, c) if self.expanded is None else None
                for one, times in ((m, c),) if piece is None else piece.items():
                    put(out, one, times)
        if len(out) > MAX_MONOMIALS:
            raise TooComplex
        return out

    def _expand(self, m: Mono, c: Fraction) -> Poly | None:
        """Multiply out atoms that are sums with whole positive powers; None where none is."""
        for t, e in m:
            inner = t.args[0] if t.op == "abs" and e.numerator % 2 == 0 else t
            whole = e > 0 and e.denominator == 1
            if whole and (inner is not t or (is_sum(t) and e <= MAX_POWER)):
                rest = {tuple(f for f in m if f[0] is not t): c}
                return self.mul(rest, self.power(self.poly(inner), e))
        return None

    def power(self, a: Poly, e: Fraction) -> Poly:
        if e == 1:
            return a
        if e.denominator == 1 and 0 <= e <= MAX_POWER and (len(a) > 1 or not a):
            return reduce(self.mul, [a] * int(e), constant(1))
        if len(a) == 1:
            ((m, c),) = a.items()
            whole = e.denominator == 1
            if whole or (c > 0 and all(x.denominator == 1 and self._positive(t) for t, x in m)):
                if whole:
                    return {mono_pow(m, e): c ** int(e)}
                return self.mul({mono_pow(m, e): ONE}, self._root(c, e))
        if not a:
            return atom(const(0.0), e)
        if self.reals and e.denominator == 1 and (common := _common_exponentials(a)):
            inverse = {mono_pow(common, Fraction(-1)): ONE}
            return self.mul({mono_pow(common, e): ONE}, self.power(self.mul(a, inverse), e))
        lead = abs(lead_of(a, a))
        base = scaled(a, 1 / lead)
        coefficient = constant(lead ** int(e)) if e.denominator == 1 else self._root(lead, e)
        return self.mul(coefficient, atom(to_term(base, self.dtype), e))

    def _root(self, c: Fraction, e: Fraction) -> Poly:
        exact = Fraction(float(c) ** float(e)).limit_denominator(1 << 20)
        if e.denominator == 2 and exact**2 == c ** int(2 * e):
            return constant(exact)
        return atom(const(float(c)), e) if c != 1 else constant(1)

    def _positive(self, t: Term) -> bool:
        return self.facts.sign(t) == 1 or t is LN2

    def _pow(self, t: Term) -> Poly:
        base, exponent = self.poly(t.args[0]), self.poly(t.args[1])
        if not exponent:
            return constant(1)
        if set(exponent) == {UNIT}:
            return self.power(base, exponent[UNIT])
        return self.exp(self.mul(self._inner(t.args[1]), self.log(self._inner(t.args[0]))))

    def exp(self, e: Poly) -> Poly:
        for m, c in e.items():
            hit = self._split_point(m, c)
            if hit is not None:
                return self._split(e, *hit)
        out = constant(1)
        for m, c in e.items():
            if len(m) == 1 and m[0][0].op == "const":
                if m[0][1] == 1 and m[0][0].value == math.inf and c < 0:
                    return {}  # exp(-inf)
            if len(m) == 1 and m[0][0].op == "log" and m[0][1] == 1:
                out = self.mul(out, self.power(self.poly(m[0][0].args[0]), c))
                continue
            if len(m) == 1 and m[0] == (LN2, ONE) and c.denominator == 1:
                out = scaled(out, Fraction(2) ** int(c))
                continue
            out = self.mul(out, atom(exponential(m, self.dtype), c))
        return out

    def _split_point(self, m: Mono, c: Fraction) -> tuple[Term, Poly, Poly] | None:
        """Where an exponent depends on a condition: (indicator, what it means when it holds)."""
        for t, x in m:
            if t.op == "select" and not is_indicator(t) and x == 1 and len(m) == 1:
                return t, scaled(self.poly(t.args[1]), c), scaled(self.poly(t.args[2]), c)
            if is_indicator(t) and any(has_ref(u) for u, _ in m):
                return t, {}, {}
        return None

    def _split(self, e: Poly, at: Term, then: Poly, other: Poly) -> Poly:
        """exp(e) = [c]*exp(e where c) + (1 - [c])*exp(e where not c)."""
        cond = self.indicator(at.args[0])
        where: Poly = dict(then)
        where_not: Poly = dict(other)
        for m, c in e.items():
            if any(t is at for t, _ in m):
                if is_indicator(at):
                    where = add(where, {tuple(f for f in m if f[0] is not at): c})
                continue
            where = add(where, {m: c})
            where_not = add(where_not, {m: c})
        yes = self.mul(cond, self.exp(where))
        return add(yes, self.mul(self.complement(at.args[0]), self.exp(where_not)))

    def log(self, a: Poly) -> Poly:
        if len(a) != 1:
            if not a:
                return atom(_call("log", const(0.0, self.dtype)))
            return atom(_call("log", to_term(a, self.dtype)))
        ((m, c),) = a.items()
        out: Poly = {}
        rest: dict[Term, Fraction] = {}
        for t, e in m:
            if t.op == "exp":
                out = add(out, scaled(self._inner(t.args[0]), e))
            elif self._positive(t):
                out = add(out, scaled(atom(_call("log", t)), e))
            else:
                rest[t] = e
        while c > 0 and c.denominator == 1 and c.numerator % 2 == 0:
            out, c = add(out, atom(LN2)), c / 2
        if rest or c != 1:
            inside = to_term({make_mono(rest.items()): c}, self.dtype)
            out = add(out, atom(_call("log", inside)))
        return out

    def _abs(self, a: Poly) -> Poly:
        if len(a) != 1:
            return atom(_call("abs", to_term(a, self.dtype))) if a else {}
        ((m, c),) = a.items()
        out = constant(abs(c))
        for t, e in m:
            even = e.denominator == 1 and e.numerator % 2 == 0
            known = even or self._positive(t)
            out = self.mul(out, atom(t if known else _call("abs", t), e))
        return out

    def _extremum(self, t: Term) -> Poly:
        a, b = (self._inner(x) for x in t.args)
        if a == b or self._is_identity(t.op, b):
            return a
        if self._is_identity(t.op, a):
            return b
        if not add(a, b):  # max(a, -a) = |a|
            return scaled(self._abs(a), 1 if t.op == "max" else -1)
        for known, zero in ((a, b), (b, a)):
            if not zero and len(known) == 1:
                ((m, c),) = known.items()
                if all(self._positive(t) for t, _ in m):
                    return known if (c > 0) == (t.op == "max") else {}
        args = sorted((to_term(x, t.dtype) for x in (a, b)), key=atom_key)
        return atom(term(t.op, args, None, t.dtype))

    @staticmethod
    def _is_identity(op: str, p: Poly) -> bool:
        sign = -1 if op == "max" else 1
        return p == {((const(math.inf), ONE),): Fraction(sign)}

    def _select(self, t: Term) -> Poly:
        if self.reals and (self._is_guard(t) or self._is_unmoved(t)):
            return self.poly(t.args[2])
        cond = self.indicator(t.args[0])
        if not cond:
            return self.poly(t.args[2])
        if cond == constant(1):
            return self.poly(t.args[1])
        a, b = t.args[1:]
        if t.dtype == "i1":
            return self.mix(t.args[0], self.indicator(a), self.indicator(b))
        for arm in (a, b):
            if arm.is_const and math.isinf(arm.value):
                cases = (self.canonical(a), self.canonical(b))
                return atom(term("select", (t.args[0], *cases), None, cases[0].dtype))
        return self.mix(t.args[0], self.poly(a), self.poly(b))

    def _is_guard(self, t: Term) -> bool:
        """`select(r == e, c, r)`: r differs only where it has seen no element."""
        c, regular, r = t.args
        return (
            c.op == "eq"
            and c.args[0] is r
            and r.op == "ref"
            and c.args[1].is_const
            and regular.is_const
            and c.args[1].value == self.facts.identity(r)
        )

    def _is_unmoved(self, t: Term) -> bool:
        """`select(a == b, 0, a - b)` is a - b; spelled so for a = b = -inf."""
        c, zero, moved = t.args
        if c.op != "eq" or not (zero.is_const and zero.value == 0):
            return False
        return self.poly(moved) == add(self.poly(c.args[0]), self.poly(c.args[1]), -1)

    def mix(self, cond: Term, a: Poly, b: Poly) -> Poly:
        return add(self.mul(self.indicator(cond), a), self.mul(self.complement(cond), b))

    def complement(self, c: Term) -> Poly:
        """1 - [c]; spelled as the mask [not c], since x - [c]*x cancels when x is large."""
        if self.spelled and c.op in COMPARISONS and self._guard(c) is None:
            return self.indicator(negated(c))
        if self.spelled and c.op in ("read", "and", "or", "xor"):
            return atom(term("select", (term("not", (c,), None, "i1"), const(1.0), const(0.0))))
        return add(constant(1), self.indicator(c), -1)

    def indicator(self, c: Term) -> Poly:
        """The polynomial that is 1 where the condition holds and 0 where it does not."""
        # (a selection asks three times, and each in a condition of another one again)
        found = self._indicators.get(c)
        if found is None:
            found = self._indicators[c] = self._indicator(c)
        return found

    def _indicator(self, c: Term) -> Poly:
        one = constant(1)
        match c.op:
            case "const":
                return constant(int(bool(c.value)))
            case "not":
                return self.complement(c.args[0])
            case "and":
                return self.mul(self.indicator(c.args[0]), self.indicator(c.args[1]))
            case "or":
                first, second = map(self.indicator, c.args)
                return add(first, self.mul(self.complement(c.args[0]), second))
            case "xor":
                first, second = map(self.indicator, c.args)
                return add(add(first, second), self.mul(first, second), -2)
            case "select":
                return self._select(c)
        if c.op in COMPARISONS:
            known = self._guard(c)
            if known is not None:
                return constant(int(known))
            a, b = c.args
            match "spelled" if self.spelled else c.op:
                case "ne":
                    return add(one, self.indicator(make("eq", a, b)), -1)
                case "gt":
                    return self.indicator(make("lt", b, a))
                case "le":
                    return add(one, self.indicator(make("lt", b, a)), -1)
                case "ge":
                    return add(one, self.indicator(make("lt", a, b)), -1)
            c = term(c.op, (self.canonical(a), self.canonical(b)), None, "i1")
        return atom(term("select", (c, const(1.0), const(0.0))))

    def _guard(self, c: Term) -> bool | None:
        """Comparisons that only ask whether a reference still is its identity: it is not."""
        for (a, b), flip in ((c.args, False), (c.args[::-1], True)):
            if not b.is_const or not is_float(b.dtype) or a.is_const:
                continue
            if not (has_ref(a) or (self.reals and math.isinf(b.value))):
                continue
            op = c.op
            if flip:
                op = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(op, op)
            if self.reals and b.value == 0 and a.op in ("exp", "exp2"):
                return op in ("ne", "gt", "ge")  # an exponential is positive
            infinite = isinstance(b.value, float) and math.isinf(b.value)
            nonneg = b.value == 0 and a.op == "ref" and self.facts.name(a) in self.facts.nonneg
            if not (infinite or nonneg):
                continue
            if op in ("eq", "ne"):
                return op == "ne"
            above = nonneg or b.value < 0  # the reference lies above the constant
            return (op in ("gt", "ge")) == above
        return None


def _common_exponentials(a: Poly) -> Mono:
    """What all monomials of a sum have of exponentials, which are not 0: the least powers."""
    powers = [{t: e for t, e in m if t.op == "exp"} for m in a]
    every = dict.fromkeys(t for found in powers for t in found)
    least = {t: min(found.get(t, Fraction(0)) for found in powers) for t in every}
    return make_mono((t, e) for t, e in least.items() if e)


def _call(op: str, argument: Term) -> Term:
    """An atom of one argument, in its type."""
    return term(op, (argument,), None, argument.dtype)


def combined(kinds: Iterable[str]) -> str:
    seen = set(kinds) - {"fixed"}
    if not seen:
        return "fixed"
    return seen.pop() if len(seen) == 1 else "mixed"


# how an operator's polynomial is made of its term, where there is a rule
_RULES: dict[str, Callable[[Normaliser, Term], Poly]] = {
    "const": Normaliser._const,
    "add": Normaliser._sum,
    "sub": Normaliser._sum,
    "neg": lambda n, t: scaled(n.poly(t.args[0]), -1),
    "mul": lambda n, t: n.mul(n.poly(t.args[0]), n.poly(t.args[1])),
    "pow": Normaliser._pow,
    "sqrt": lambda n, t: n.power(n.poly(t.args[0]), Fraction(1, 2)),
    "rsqrt": lambda n, t: n.power(n.poly(t.args[0]), Fraction(-1, 2)),
    "abs": lambda n, t: n._abs(n.poly(t.args[0])),
    "select": Normaliser._select,
    "cast": Normaliser._cast,
    "max": Normaliser._extremum,
    "min": Normaliser._extremum,
}
# and of its operand, multiplied out
_OF_INNER: dict[str, Callable[[Normaliser, Poly], Poly]] = {
    "exp": Normaliser.exp,
    "expm1": lambda n, p: add(n.exp(p), constant(-1)),
    "exp2": lambda n, p: n.exp(n.mul(p, atom(LN2))),
    "log": Normaliser.log,
    "log1p": lambda n, p: n.log(add(p, constant(1))),
    "log2": lambda n, p: n.mul(n.log(p), atom(LN2, -1)),
}
