# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums: one correction when f = g(x)·φ(t), several accumulators when f is a sum of such.

A body in normal form is a sum of monomials; each splits into

    X   data and constants          stays in the body
    K   exp(φ(t)) that keeps an exp(k(x)) in range      stays, and is what h repairs
    T   any other factor of t       moves behind the loop
    S   powers of differences g(x) - t      kept as differences (multiplied out, they cancel):
        the powers up to that one are closed under t -> t' by the binomial theorem

so every sum whose monomials split has an answer; when one does not split there is none.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from neptune_mlir.algebra import proof, rules
from neptune_mlir.algebra.chain import Chain, Correction
from neptune_mlir.algebra.deferral import split
from neptune_mlir.algebra.facts import has_ref, kind
from neptune_mlir.algebra.poly import (
    Mono,
    Poly,
    TooComplex,
    add,
    base_of,
    exponent_of,
    is_sum,
    make_mono,
    mono_key,
    mono_mul,
    mono_term,
    scaled,
    to_term,
)
from neptune_mlir.algebra.proof import acc, at_time, new, old, references
from neptune_mlir.algebra.terms import Term, const, leaves, make, show, substitute


@dataclass(frozen=True)
class Part:
    """One monomial, `coefficient * data * keep * behind * differences`."""

    coefficient: Fraction
    data: Mono
    keep: Mono
    behind: Mono
    differences: tuple[tuple[Term, int], ...]


def solve_sum(chain: Chain, name: str, body: Term) -> Term:
    """The final value of Σ body, over `acc` of running values that are added to `chain`.

    Raises:
        Unsolvable: no form applies.
    """
    dtype = body.dtype if chain.current is None else chain.current.dtype
    if not has_ref(body):
        return acc(chain.emit(name, "add", body), dtype)
    found = split(body, chain.invariant)
    if not found.trivial:
        chain.step(
            f"deferral: {_factor_text(found)} does not vary along the stream: it moves behind"
        )
        inner = solve_sum(chain, chain.fresh(name + "'"), found.rest)
        return found.finish(inner)
    parts = [move_unsafe(chain, p) for p in split_monomials(chain, body)]
    if not parts:  # everything cancels
        return acc(chain.emit(name, "add", const(0.0, dtype)), dtype)
    if len({(p.keep, p.behind) for p in parts}) == 1 and not any(p.differences for p in parts):
        return _single(chain, name, body, parts, dtype)
    return _several(chain, name, parts, dtype)


def solve_product(chain: Chain, name: str, body: Term) -> Term:
    """Π exp(f) = exp(Σ f). (Π g(x)·φ(t) = φ(t)^count · Π g(x) would leave the range of floats.)"""
    if body.op != "exp":
        raise chain.fail(
            "re-basing", body, "products are solved for exponentials only", "sum the logarithms"
        )
    chain.step("a product of exponentials is the exponential of a sum")
    return make("exp", solve_sum(chain, chain.fresh(f"{name}.log"), body.args[0]))


def _factor_text(found) -> str:
    over = show(found.over) if found.over else "1"
    text = f"{over} / {show(found.under)}" if found.under else over
    return ", ".join([text, *(f"0 where {show(c)} is {value}" for c, value in found.zeros)])


def split_monomials(chain: Chain, body: Term) -> list[Part]:
    try:
        poly = chain.kept.poly(body)
        if not all(tame(chain, t) for m in poly for t, e in m if is_sum(t) and e > 0):
            poly = chain.linear.poly(body)
    except TooComplex:
        raise chain.fail("re-basing", body, "its normal form is too large") from None
    parts = []
    for m, c in sorted(poly.items(), key=lambda mc: mono_key(mc[0])):
        kinds = [kind(t, chain.facts.folded) for t, _ in m]
        data: list[tuple[Term, Fraction]] = []
        keep: list[tuple[Term, Fraction]] = []
        behind: list[tuple[Term, Fraction]] = []
        differences: list[tuple[Term, int]] = []
        couples = any(t.op == "exp" and k == "data" for (t, _), k in zip(m, kinds, strict=True))
        for (t, e), what in zip(m, kinds, strict=True):
            if what in ("data", "fixed"):
                data.append((t, e))
            elif what == "ref":
                (keep if t.op == "exp" and couples else behind).append((t, e))
            elif is_sum(t) and e > 0 and e.denominator == 1 and e <= 4:
                differences.append((t, int(e)))
            else:
                raise stuck(chain, t, e)
        parts.append(
            Part(c, make_mono(data), make_mono(keep), make_mono(behind), tuple(differences))
        )
    return parts


def tame(chain: Chain, difference: Term) -> bool:
    """Does the reference of a difference stay near its final value while it runs?

    Extrema, sums, weighted means and logarithms do. An exponential may pass through values
    so large that nothing is left of the data; then it is better multiplied out.
    """
    for m in chain.linear.poly(difference):
        for t, e in m:
            if kind(t, chain.facts.folded) != "ref":
                continue
            mean = any(e == -1 and t.op == "ref" and t.attr in chain.facts.nonneg for t, e in m)
            steady = t.op == "ref" and (mean or not has_ref(chain.raw(t.attr)))
            if not (steady or t.op == "log") or abs(e) != 1 or (e < 0 and not mean):
                return False
    return True


def stuck(chain: Chain, t: Term, e: Fraction):
    """Which obligation an atom that mixes data and references violates."""
    if t.op == "exp" or (is_sum(t) and e < 0) or t.op in rules.INJECTIVE:
        where = make("div", const(1.0), t) if is_sum(t) and e < 0 else t
        return chain.fail(
            "homomorphism",
            where,
            "it can be re-based element by element, but not after elements were added up",
        )
    return chain.fail(
        "re-basing",
        t,
        "its value under one reference does not determine its value under another",
    )


def safe(chain: Chain, t: Term, exponent: Fraction) -> bool:
    """Does exp(u)^exponent only shrink while the stream runs, so that its ratio is at most 1?"""
    direction = chain.facts.direction(t.args[0])
    return direction is not None and direction * exponent <= 0


def move_unsafe(chain: Chain, part: Part) -> Part:
    """Keep only exponents whose correction cannot overflow; the rest moves behind the loop.

    exp(-m) with m a running maximum shrinks over time, so its ratio is at most 1. Where no
    exponent is safe, a running maximum of the data's own exponent is added as the anchor.
    """
    fine: list[tuple[Term, Fraction]] = []
    unsafe: list[tuple[Term, Fraction]] = []
    for t, e in part.keep:
        (fine if safe(chain, t, e) else unsafe).append((t, e))
    if not unsafe:
        return part
    behind = mono_mul(part.behind, make_mono(unsafe))
    if fine:
        return Part(part.coefficient, part.data, make_mono(fine), behind, part.differences)
    own: Poly = {}
    for t, e in part.data:
        if t.op == "exp" and kind(t, chain.facts.folded) == "data":
            own = add(own, scaled(chain.normal.poly(t.args[0]), e))
    assert chain.current is not None
    conditions = [
        t.args[0]
        for t, _ in part.data
        if t.op == "select" and t.args[1].is_const and t.args[2].is_const
    ]
    exponent = to_term(own, chain.current.dtype)
    for c in conditions:
        exponent = make("select", c, exponent, const(-math.inf, exponent.dtype))
    anchor = chain.at(chain.emit(f"{chain.current.name}.max", "max", exponent))
    chain.step(
        f"{show(mono_term(make_mono(unsafe), Fraction(1), 'f32'))} may overflow: anchored at the "
        f"running maximum {anchor.attr} = max {show(exponent)}"
    )
    (pull,) = chain.normal.poly(make("exp", anchor))
    keep = tuple((t, -e) for t, e in pull)
    return Part(part.coefficient, part.data, keep, mono_mul(behind, pull), part.differences)


def _single(chain: Chain, name: str, body: Term, parts: list[Part], dtype: str) -> Term:
    """f = g(x)·φ(t): one accumulator."""
    keep, behind = parts[0].keep, parts[0].behind
    if behind:
        poly: Poly = {}
        for p in parts:
            poly = add(poly, {mono_mul(p.data, p.keep): p.coefficient})
        body = to_term(poly, dtype)
        name = chain.fresh(name + "'")
    total = acc(accumulate(chain, name, body, keep, dtype), dtype)
    if not behind:
        return total
    factor = mono_term(behind, Fraction(1), dtype)
    chain.step(f"deferral: {show(factor)} does not vary along the stream; it moves behind")
    return _scale(total, behind, dtype)


def _scale(value: Term, behind: Mono, dtype: str) -> Term:
    """value * behind, with negative powers as one division."""
    over = make_mono((t, e) for t, e in behind if e > 0)
    under = make_mono((t, -e) for t, e in behind if e < 0 and t.op != "exp")
    over = mono_mul(over, make_mono((t, e) for t, e in behind if e < 0 and t.op == "exp"))
    if over:
        value = make("mul", value, mono_term(over, Fraction(1), dtype))
    return make("div", value, mono_term(under, Fraction(1), dtype)) if under else value


def accumulate(chain: Chain, name: str, body: Term, keep: Mono, dtype: str) -> str:
    """An accumulator of its own, rescaled by the ratio of `keep` when that moves."""
    if not keep:
        return chain.emit(name, "add", body)
    name = chain.fresh(name)
    h = make("mul", acc(name, dtype), ratio(keep, dtype))
    kept = mono_term(keep, Fraction(1), dtype)
    found = proof.obligations(chain.proof, name, "add", {name: body}, {name: h})
    correction = Correction("exponential", h, references(kept), found)
    before = len(chain.running)
    name = chain.emit(name, "add", body, correction)
    if len(chain.running) > before:
        chain.step(f"exponential: f = g(x) * {show(kept)}, so {name} <- {show(h, proof.leaf_text)}")
    return name


def ratio(keep: Mono, dtype: str) -> Term:
    """keep(t')/keep(t) as one exponential of differences, none of which can be -inf - -inf."""
    several = len(references(mono_term(keep, Fraction(1), dtype))) > 1
    op, exponent = base_of(exponent_of(keep))
    total: Term | None = None
    for m, c in sorted(exponent.items(), key=lambda mc: mono_key(mc[0])):
        moved = _difference(mono_term(m, Fraction(1), dtype), dtype, several)  # u_old - u_new
        if c > 0:
            moved = make("neg", moved)
        if abs(c) != 1:
            moved = make("mul", moved, const(float(abs(c)), dtype))
        total = moved if total is None else make("add", total, moved)
    assert total is not None
    return make(op, total)


def _difference(u: Term, dtype: str, several: bool) -> Term:
    """u(old) - u(new), as (r_old - r_new) * c where u = r * c."""
    found = leaves(u, "ref")
    if u.op == "mul" and len(found) == 1 and found[0] in u.args:
        other = u.args[1] if u.args[0] is found[0] else u.args[0]
        return make("mul", _difference(found[0], dtype, several), other)
    before, after = at_time(u, old), at_time(u, new)
    moved = make("sub", before, after)
    if several:
        moved = make("select", make("eq", before, after), const(0.0, dtype), moved)
    return moved


def _several(chain: Chain, name: str, parts: list[Part], dtype: str) -> Term:
    """f = Σ g_i(x)·φ_i(t): one accumulator (or a family of moments) per distinct φ_i."""
    groups: dict[tuple, Poly] = {}
    for p in parts:
        key = (p.keep, p.differences, p.behind)
        groups[key] = add(groups.get(key, {}), {p.data: p.coefficient})
    if len(groups) > 1:
        chain.step(f"augmented: a sum of {len(groups)} terms that move differently")
    finals = []
    for i, ((keep, differences, behind), weight) in enumerate(groups.items()):
        own = name if len(groups) == 1 and not behind else chain.fresh(f"{name}.{i}")
        if differences:
            value = moments(chain, own, weight, keep, differences, dtype)
        else:
            body = to_term(_times_mono(weight, keep), dtype)
            value = acc(accumulate(chain, own, body, keep, dtype), dtype)
        finals.append(_scale(value, behind, dtype))
    return reduce(lambda a, b: make("add", a, b), finals)


def _times_mono(p: Poly, m: Mono) -> Poly:
    return {mono_mul(k, m): c for k, c in p.items()}


@dataclass(frozen=True)
class Difference:
    """data - reference.

    Attributes:
        anchors: what the loop subtracts for the reference, one after the other: any running
            values will do, as long as the final value is re-based to the reference proper.
        gap: anchors - reference, at the end; None when that is zero.
    """

    data: Term
    anchors: tuple[Term, ...]
    gap: Term | None = None

    @property
    def term(self) -> Term:
        return reduce(_minus, self.anchors, self.data)

    @property
    def shift(self) -> Term:
        """What re-basing adds to the difference: old anchors - new anchors."""
        moves = [make("sub", at_time(a, old), at_time(a, new)) for a in self.anchors]
        return reduce(lambda a, b: make("add", a, b), moves)


def _minus(a: Term, b: Term) -> Term:
    return make("add", a, b.args[0]) if b.op == "neg" else make("sub", a, b)


def moments(
    chain: Chain,
    name: str,
    weight: Poly,
    keep: Mono,
    differences: tuple[tuple[Term, int], ...],
    dtype: str,
) -> Term:
    """Σ w·(g - t)^k as the top of a family of moments, closed under t -> t'."""
    terms = [_anchored(chain, t, dtype) for t, _ in differences]
    top = tuple(k for _, k in differences)
    names = _family(chain, name, _times_mono(weight, keep), keep, terms, top, dtype)
    if all(d.gap is None for d in terms):
        return acc(names[top], dtype)
    zero = const(0.0, dtype)
    return _binomial(top, names, [d.gap if d.gap is not None else zero for d in terms], dtype)


def _family(
    chain: Chain,
    name: str,
    weight: Poly,
    keep: Mono,
    terms: list[Difference],
    top: tuple[int, ...],
    dtype: str,
) -> dict[tuple[int, ...], str]:
    """Emit the moments Σ w·Π(g_i - anchor_i)^v_i for all v <= top; exponents to names.

    The first moment about a running mean would be zero in exact arithmetic. It is kept: it holds
    what rounding the mean lost, which the higher moments would otherwise pick up.
    """
    names: dict[tuple[int, ...], str] = {}
    bodies: dict[str, Term] = {}
    hs: dict[str, Term] = {}
    shift = [d.shift for d in terms]
    scale = ratio(keep, dtype) if keep else None
    moved = [n for d in terms for a in d.anchors for n in references(a)]
    moved += references(mono_term(keep, Fraction(1), dtype))
    for v in sorted(itertools.product(*(range(k + 1) for k in top)), key=lambda v: (sum(v), v)):
        label = name if v == top else chain.fresh(f"{name}.m{''.join(map(str, v))}")
        body = to_term(weight, dtype)
        for d, k in zip(terms, v, strict=True):
            for _ in range(k):
                body = _weighted(body, d.term)
        if sum(v) == 0:
            label = accumulate(chain, label, body, keep, dtype)
            hs[label] = make("mul", acc(label, dtype), scale) if scale else acc(label, dtype)
            names[v], bodies[label] = label, body
            continue
        label = chain.find("add", body) or chain.fresh(label)
        names[v], bodies[label] = label, body
        h = _binomial(v, names, shift, dtype)
        hs[label] = h = h if scale is None else make("mul", h, scale)
        if any(r.name == label for r in chain.running):
            continue
        obligations = proof.obligations(chain.proof, label, "add", bodies, hs)
        correction = Correction("augmented", h, tuple(dict.fromkeys(moved)), obligations)
        chain.emit(label, "add", body, correction)
        chain.step(f"augmented: {label} = Σ {show(body)} <- {show(h, proof.leaf_text)}")
    return names


def _weighted(weight: Term, value: Term) -> Term:
    """weight * value, below the mask of the weight: masked data may be infinite."""
    if weight.is_const and weight.value == 1:
        return value
    if weight.op == "select" and weight.args[2].is_const and weight.args[2].value == 0:
        cond, inner, zero = weight.args
        return make("select", cond, _weighted(inner, value), zero)
    return make("mul", weight, value)


def _binomial(
    v: tuple[int, ...], names: dict[tuple[int, ...], str], shift: list[Term], dtype: str
) -> Term:
    """Σ_u C(v,u)·Δ^(v-u)·a_u over all u <= v: what the moment v is under the new anchor."""
    total: Term | None = None
    for u in sorted(itertools.product(*(range(k + 1) for k in v)), key=lambda u: (-sum(u), u)):
        piece = acc(names[u], dtype)
        times = math.prod(math.comb(a, b) for a, b in zip(v, u, strict=True))
        powers = [d for d, a, b in zip(shift, v, u, strict=True) for _ in range(a - b)]
        if any(d.is_const and d.value == 0 for d in powers):
            continue
        for d in powers:
            piece = make("mul", piece, d)
        if times != 1:
            piece = make("mul", piece, const(float(times), dtype))
        total = piece if total is None else make("add", total, piece)
    assert total is not None
    return total


def _anchored(chain: Chain, difference: Term, dtype: str) -> Difference:
    flat = chain.linear.poly(difference)
    data = to_term({m: c for m, c in flat.items() if chain.normal.kind(m) != "ref"}, dtype)
    moving = {m: -c for m, c in flat.items() if chain.normal.kind(m) == "ref"}
    found = _running_mean(chain, data, moving, dtype)
    if found is None:
        ordered = sorted(moving.items(), key=lambda mc: mono_key(mc[0]))
        anchors = [_guard_all(chain, mono_term(m, c, dtype)) for m, c in ordered]
        return Difference(data, tuple(anchors))
    chain.step(
        f"the loop measures {show(data)} from {show(found.anchors[0])}, "
        f"the end re-bases to {show(to_term(moving, dtype))}"
    )
    return found


def _guard_all(chain: Chain, t: Term) -> Term:
    return substitute(t, {r: chain.guard(r, t, before=True) for r in leaves(t, "ref")})


def _running_mean(chain: Chain, data: Term, moving: Poly, dtype: str) -> Difference | None:
    """s / count in place of s * c, where s is a running sum: a mean from the first tile on.

    With r = Σ w·(g - s/count), which is what rounding lost, s = count * s/count + r, so the gap
    s/count - c*s is s/count * (1 - c*count) - c*r: nothing cancels when c*count is 1.
    """
    if len(moving) != 1:
        return None
    ((m, c),) = moving.items()
    refs = [(t, e) for t, e in m if has_ref(t)]
    if len(refs) != 1 or refs[0][1] != 1 or refs[0][0].op != "ref":
        return None
    total = refs[0][0]
    if chain.facts.combiner.get(total.attr) != "add" or has_ref(chain.raw(total.attr)):
        return None
    weight = _weight(chain, chain.raw(total.attr), data)
    count = chain.emit(f"{total.attr}.count", "add", weight or const(1.0, dtype))
    mean = _guard_all(chain, make("div", total, chain.at(count)))
    if weight is None:
        anchor = mean if c > 0 else make("neg", mean)
        return Difference(data, (anchor,), make("sub", anchor, to_term(moving, dtype)))
    difference = Difference(data, (mean,))
    parts = chain.normal.poly(weight)
    names = _family(chain, f"{total.attr}.rest", parts, (), [difference], (1,), dtype)
    rest = names[(1,)]
    whole = acc(total.attr, total.dtype)
    chain.relate(rest, make("sub", whole, make("mul", mean, acc(count, dtype))))
    share = tuple(f for f in m if f[0] is not total)  # the reference is c * share * total

    def part(t: Term) -> Term:
        return mono_term(mono_mul(share, ((t, Fraction(1)),)), c, dtype)

    missing = make("sub", const(1.0, dtype), part(chain.at(count)))
    gap = make("sub", make("mul", mean, missing), part(chain.at(rest)))
    return Difference(data, (mean,), gap)


def _weight(chain: Chain, body: Term, data: Term) -> Term | None:
    """w >= 0 with body = w * data, when there is one."""
    whole, unit = chain.normal.poly(body), chain.normal.poly(data)
    for m, c in whole.items():
        for n, d in unit.items():
            q = mono_mul(m, tuple((t, -e) for t, e in n))
            if not any(e < 0 for _, e in q) and not add(
                chain.normal.mul(unit, {q: c / d}), whole, -1
            ):
                weight = to_term({q: c / d}, body.dtype)
                return weight if chain.facts.sign(weight) == 1 else None
    return None
