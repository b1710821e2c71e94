# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Polynomials of atoms, and how to spell them as terms again.

A polynomial maps monomials to rational coefficients; a monomial is a sorted tuple of
(atom, exponent). Exponents are rational and may be negative. An atom is a term: a leaf, an
opaque function, `exp(u)` of one monomial u, an indicator [c] (spelled `select(c, 1, 0)`), or a
sum that stands undivided (a denominator, a kept difference).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import reduce
from typing import Any

from neptune_mlir.algebra.terms import Term, const, make, sym, term
from neptune_mlir.algebra.terms import key as atom_key

Mono = tuple[tuple[Term, Fraction], ...]
Poly = dict[Mono, Fraction]

UNIT: Mono = ()
ONE = Fraction(1)
LN2 = sym("ln2")
MAX_MONOMIALS = 200


class TooComplex(Exception):
    """The normal form would be too large; the caller treats the term as opaque."""


def exponential(u: Mono, dtype: str) -> Term:
    """The atom exp(u)."""
    argument = to_term({u: ONE}, dtype)
    made = term("exp", (argument,), None, argument.dtype)
    made.memo["exponent"] = u
    return made


def exponent_in(t: Term) -> Mono:
    """The monomial u of an atom exp(u)."""
    found: Mono = t.memo["exponent"]
    return found


def mono_key(m: Mono) -> tuple[tuple[str, Fraction], ...]:
    return tuple((atom_key(t), e) for t, e in m)


def constant(value: float | Fraction) -> Poly:
    value = Fraction(value)
    return {UNIT: value} if value else {}


def atom(t: Term, exponent: Fraction | int = 1) -> Poly:
    return {((t, Fraction(exponent)),): ONE}


def add(a: Poly, b: Poly, scale: Fraction | int = 1) -> Poly:
    out = dict(a)
    for m, c in b.items() if scale == 1 else scaled(b, scale).items():
        put(out, m, c)
    return out


def put(out: Poly, m: Mono, c: Fraction) -> None:
    """Add a monomial to a polynomial that is being made."""
    known = out.get(m)
    total = c if known is None else known + c
    if total:
        out[m] = total
    elif known is not None:
        del out[m]


def scaled(a: Poly, factor: Fraction | int) -> Poly:
    return {m: c * factor for m, c in a.items()} if factor else {}


def mono_mul(a: Mono, b: Mono) -> Mono:
    if not a or not b:
        return a or b
    powers: dict[Term, Fraction] = dict(a)
    for t, e in b:
        total = powers[t] + e if t in powers else e
        if is_indicator(t) and total > 1:
            total = ONE
        powers[t] = total
    return make_mono(powers.items())


def make_mono(powers: Iterable[tuple[Term, Fraction]]) -> Mono:
    found = [(t, e) for t, e in powers if e]
    return tuple(sorted(found, key=lambda p: (atom_key(p[0]), p[1])) if len(found) > 1 else found)


def mono_pow(m: Mono, exponent: Fraction) -> Mono:
    return tuple((t, e if is_indicator(t) and exponent > 0 else e * exponent) for t, e in m)


def is_indicator(t: Term) -> bool:
    return t.op == "select" and t.args[1].is_const and t.args[2].is_const and t.args[1].value == 1


def is_sum(t: Term) -> bool:
    """An atom that stands for a whole polynomial (a denominator, a kept difference)."""
    return t.op in ("add", "sub")


def lead_of(choice: Poly, whole: Poly) -> Fraction:
    """A coefficient to divide by, so that multiples of a polynomial share one atom.

    Only its sign when some quotient is no floating-point number: atoms are spelled as terms.
    """
    lead = choice[min(choice, key=mono_key)]
    if all(Fraction(float(c / lead)) == c / lead for c in whole.values()):
        return lead
    return ONE if lead > 0 else -ONE


def to_term(p: Poly, dtype: str) -> Term:
    """A term with this value; indicators become selects around the rest of their monomial."""
    if not p:
        return const(0.0, dtype)
    masked = _common_mask(p)
    if masked is not None:
        cond, inner = masked
        return make("select", cond, to_term(inner, dtype), const(0.0, dtype))
    # Positive addends first, so that x - m is not spelled -m + x; references last, so that what
    # is subtracted from data of the same size meets them, not a reference.
    def late(mc: tuple[Mono, Fraction]) -> tuple[Any, ...]:
        return mc[1] < 0, not mc[0], any(t.has_ref for t, _ in mc[0]), mono_key(mc[0])

    ordered = sorted(p.items(), key=late)
    out: Term | None = None
    for m, c in ordered:
        if out is None:
            out = mono_term(m, c, dtype)
        elif c < 0:
            out = make("sub", out, mono_term(m, -c, dtype))
        else:
            out = make("add", out, mono_term(m, c, dtype))
    assert out is not None
    return out


def _common_mask(p: Poly) -> tuple[Term, Poly] | None:
    """(c, q) when p = [c]*q, also where [c] is spelled 1 - [not c]."""
    if len(p) < 2:
        return None
    for t in dict.fromkeys(t for m in p for t, e in m if is_indicator(t) and e == 1):
        inside = {tuple(f for f in m if f[0] is not t): c for m, c in p.items() if (t, ONE) in m}
        outside = {m: c for m, c in p.items() if (t, ONE) not in m}
        if not outside:
            return t.args[0], inside
        if outside == scaled(inside, -1):
            return negated(t.args[0]), outside
    return None


def negated(c: Term) -> Term:
    opposite = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}.get(c.op)
    return make(opposite, *c.args) if opposite else make("not", c)


def mono_term(m: Mono, c: Fraction, dtype: str) -> Term:
    conditions = [t.args[0] for t, e in m if is_indicator(t) and e > 0]
    exponent: Poly = {}
    over: list[Term] = []
    under: list[Term] = []
    for t, e in m:
        if is_indicator(t) and e > 0:
            continue
        if t.op == "exp":
            put(exponent, exponent_in(t), e)
        else:
            (over if e > 0 else under).append(power_term(t, abs(e), dtype))
    if exponent:
        over.insert(0, exp_term(exponent, dtype))
    value = abs(c)
    if Fraction(float(value)) != value and max(value.numerator, value.denominator) < 1 << 53:
        # 1/768 is no floating-point number, but dividing by 768 is exact enough.
        under.append(const(float(value.denominator), dtype))
        value = Fraction(value.numerator)
    if value != 1 or not over:
        over.insert(0, const(float(value), dtype))
    out = reduce(lambda a, b: make("mul", a, b), over)
    if under:
        out = make("div", out, reduce(lambda a, b: make("mul", a, b), under))
    if c < 0:
        out = make("neg", out) if not out.is_const else const(-out.value, dtype)
    for cond in reversed(conditions):
        out = make("select", cond, out, const(0.0, dtype))
    return out


def exp_term(exponent: Poly, dtype: str) -> Term:
    """exp of a polynomial, or exp2 when every addend carries the factor ln 2."""
    op, rest = base_of(exponent)
    return make(op, to_term(rest, dtype))


def base_of(exponent: Poly) -> tuple[str, Poly]:
    """("exp2", e) when the exponent is e * ln 2, else ("exp", exponent)."""
    if all((LN2, ONE) in m for m in exponent):
        return "exp2", {tuple(f for f in m if f[0] is not LN2): c for m, c in exponent.items()}
    return "exp", exponent


def exponent_of(m: Mono) -> Poly:
    """The exponent of a monomial of `exp` atoms."""
    out: Poly = {}
    for t, e in m:
        put(out, exponent_in(t), e)
    return out


def power_term(t: Term, e: Fraction, dtype: str) -> Term:
    """t^e for a positive e."""
    t = t if t.dtype == dtype else make("cast", t, dtype=dtype)
    if e.denominator == 1 and e <= 4:
        return reduce(lambda a, b: make("mul", a, b), [t] * int(e))
    if e == Fraction(1, 2):
        return make("sqrt", t)
    return make("pow", t, const(float(e), dtype))
