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
from neptune_mlir.algebra.normal import (
    Mono,
    Poly,
    TooComplex,
    add,
    is_sum,
    make_mono,
    mono_key,
    mono_mul,
    mono_term,
    scaled,
    to_term,
)
from neptune_mlir.algebra.proof import acc, at_time, new, old, references
from neptune_mlir.algebra.terms import Term, const, leaves, make, ref, rewrite, show, substitute


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
        chain.step(f"deferral: {_factor_text(found)} does not vary along the stream; it moves behind")
        inner = solve_sum(chain, chain.fresh(name + "'"), found.rest)
        return found.finish(inner)
    parts = [move_unsafe(chain, p) for p in split_monomials(chain, body)]
    if len({(p.keep, p.behind) for p in parts}) == 1 and not any(p.differences for p in parts):
        return _single(chain, name, body, parts, dtype)
    return _several(chain, name, parts, dtype)


def _factor_text(found) -> str:
    over = show(found.over) if found.over else "1"
    return f"{over} / {show(found.under)}" if found.under else over


def split_monomials(chain: Chain, body: Term) -> list[Part]:
    try:
        poly = chain.kept.poly(body)
    except TooComplex:
        raise chain.fail("re-basing", body, "its normal form is too large") from None
    parts = []
    for m, c in sorted(poly.items(), key=lambda mc: mono_key(mc[0])):
        kinds = [kind(t, chain.facts.folded) for t, _ in m]
        data, keep, behind, differences = [], [], [], []
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


def move_unsafe(chain: Chain, part: Part) -> Part:
    """Keep only exponents whose correction cannot overflow; the rest moves behind the loop.

    exp(-m) with m a running maximum shrinks over time, so its ratio is at most 1. Where no
    exponent is safe, a running maximum of the data's own exponent is added as the anchor.
    """
    safe, unsafe = [], []
    for t, e in part.keep:
        direction = chain.facts.direction(t.args[0])
        fine = direction is not None and direction * e <= 0
        (safe if fine else unsafe).append((t, e))
    if not unsafe:
        return part
    behind = mono_mul(part.behind, make_mono(unsafe))
    if safe:
        return Part(part.coefficient, part.data, make_mono(safe), behind, part.differences)
    own: Poly = {}
    for t, e in part.data:
        if t.op == "exp" and kind(t, chain.facts.folded) == "data":
            own = add(own, scaled(chain.normal.poly(t.args[0]), e))
    assert chain.current is not None
    conditions = [
        t.args[0] for t, _ in part.data if t.op == "select" and t.args[1].is_const
        and t.args[2].is_const
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
    correction = Correction(
        "exponential", h, references(kept), proof.obligations(chain.normal, name, "add", {name: body}, {name: h})
    )
    before = len(chain.running)
    name = chain.emit(name, "add", body, correction)
    if len(chain.running) > before:
        chain.step(f"exponential: f = g(x) * {show(kept)}, so {name} <- {show(h, proof.leaf_text)}")
    return name


def ratio(keep: Mono, dtype: str) -> Term:
    """keep(t')/keep(t) as one exponential of differences, none of which can be -inf - -inf."""
    several = len(references(mono_term(keep, Fraction(1), dtype))) > 1
    total: Term | None = None
    for t, e in keep:
        u = t.args[0]
        moved = _difference(u, dtype, several)  # u_old - u_new
        if e > 0:
            moved = make("neg", moved)
        if abs(e) != 1:
            moved = make("mul", moved, const(float(abs(e)), dtype))
        total = moved if total is None else make("add", total, moved)
    assert total is not None
    return make("exp", total)


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
    """data - reference, to the `power`; `anchor` is what the loop uses for the reference."""

    data: Term
    reference: Term
    anchor: Term
    power: int


def moments(
    chain: Chain,
    name: str,
    weight: Poly,
    keep: Mono,
    differences: tuple[tuple[Term, int], ...],
    dtype: str,
) -> Term:
    """Σ w·(g - t)^k as the top of a family of moments, closed under t -> t'.

    The anchor of the differences may be any running value, as long as the final value is
    re-based from it to t: a running mean keeps every moment small.
    """
    whole = _times_mono(weight, keep)
    terms = [_anchored(chain, t, k, dtype) for t, k in differences]
    top = tuple(d.power for d in terms)
    names: dict[tuple[int, ...], str] = {}
    bodies: dict[str, Term] = {}
    hs: dict[str, Term] = {}
    gone: list[tuple[str, Term]] = []
    shift = [
        make("sub", at_time(d.anchor, old), at_time(d.anchor, new)) for d in terms
    ]
    scale = ratio(keep, dtype) if keep else None
    low = sorted(itertools.product(*(range(k + 1) for k in top)), key=lambda v: (sum(v), v))
    for v in low:
        label = name if v == top else f"{name}.m{''.join(map(str, v))}"
        body = to_term(whole, dtype)
        for d, k in zip(terms, v, strict=True):
            for _ in range(k):
                body = _product(body, make("sub", d.data, d.anchor))
        if sum(v) == 0:
            label = accumulate(chain, label, body, keep, dtype)
            names[v], bodies[label] = label, body
            hs[label] = make("mul", acc(label, dtype), scale) if scale else acc(label, dtype)
            continue
        zero = _vanishing(chain, whole, terms[v.index(1)], names[low[0]], dtype) if sum(v) == 1 else None
        label = label if zero is None else f"{label}?"  # never emitted
        label = chain.fresh(label)
        names[v], bodies[label] = label, body
        h = _binomial(v, names, shift, dtype)
        hs[label] = h if scale is None else make("mul", h, scale)
        if zero is not None:
            gone.append((label, zero))
            chain.step(f"first moment Σ {show(body)} = {show(zero)} = 0, so it is not kept")
            continue
        full = {n: hs[n] for n in names.values()}
        dead = {acc(n, dtype): const(0.0, dtype) for n, _ in gone}
        obligations = proof.obligations(chain.normal, label, "add", bodies, full, gone)
        h = _without(hs[label], dead)
        moved = tuple(dict.fromkeys(n for d in terms for n in references(d.anchor)))
        moved += tuple(n for n in references(mono_term(keep, Fraction(1), dtype)) if n not in moved)
        emitted = chain.emit(
            label, "add", body, Correction("augmented", h, moved, obligations)
        )
        chain.step(f"augmented: {emitted} = Σ {show(body)} <- {show(h, proof.leaf_text)}")
        if emitted != label:
            names[v] = emitted
            bodies[emitted], hs[emitted] = bodies.pop(label), hs.pop(label)
    return _finish(chain, terms, names, {n for n, _ in gone}, top, dtype)


def _product(a: Term, b: Term) -> Term:
    return b if a.is_const and a.value == 1 else make("mul", a, b)


def _without(h: Term, dead: dict[Term, Term]) -> Term:
    def rule(n: Term) -> Term | None:
        if n in dead:
            return dead[n]
        zero = [a.is_const and a.value == 0 for a in n.args]
        if n.op == "mul" and any(zero):
            return const(0.0, n.dtype)
        if n.op == "add" and any(zero):
            return n.args[0] if zero[1] else n.args[1]
        return None

    return rewrite(h, rule)


def _binomial(
    v: tuple[int, ...], names: dict[tuple[int, ...], str], shift: list[Term], dtype: str
) -> Term:
    """Σ_u C(v,u)·Δ^(v-u)·a_u over all u <= v: what the moment v is under the new anchor."""
    total: Term | None = None
    for u in sorted(itertools.product(*(range(k + 1) for k in v)), key=lambda u: (-sum(u), u)):
        piece = acc(names[u], dtype)
        times = math.prod(math.comb(a, b) for a, b in zip(v, u, strict=True))
        for d, a, b in zip(shift, v, u, strict=True):
            for _ in range(a - b):
                piece = make("mul", piece, d)
        if times != 1:
            piece = make("mul", piece, const(float(times), dtype))
        total = piece if total is None else make("add", total, piece)
    assert total is not None
    return total


def _finish(chain, terms, names, gone, top, dtype) -> Term:
    """The top moment, re-based from the anchors to the references proper."""
    shift = [make("sub", d.anchor, d.reference) for d in terms]
    if all(d.anchor is d.reference for d in terms):
        return acc(names[top], dtype) if names[top] not in gone else const(0.0, dtype)
    h = _binomial(top, names, shift, dtype)
    return _without(h, {acc(n, dtype): const(0.0, dtype) for n in gone})


def _anchored(chain: Chain, difference: Term, power: int, dtype: str) -> Difference:
    flat = chain.linear.poly(difference)
    data = to_term({m: c for m, c in flat.items() if chain.normal.kind(m) != "ref"}, dtype)
    moving = {m: -c for m, c in flat.items() if chain.normal.kind(m) == "ref"}
    reference = to_term(moving, dtype)
    anchor = _running_mean(chain, data, moving, dtype) or reference
    table = {}
    for r in leaves(anchor, "ref"):
        guarded = chain.guard(r, anchor)
        if guarded is not r:
            table[r] = guarded
    if table:
        anchor = substitute(anchor, table)
    if anchor is not reference:
        chain.step(f"the loop measures {show(data)} from {show(anchor)}; the end re-bases to {show(reference)}")
    return Difference(data, reference, anchor, power)


def _running_mean(chain: Chain, data: Term, moving: Poly, dtype: str) -> Term | None:
    """s / count in place of s / n, where s is a running sum: a mean from the first tile on."""
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
    sign = 1
    if weight is None:
        weight, sign = const(1.0, dtype), 1 if c > 0 else -1
    count = chain.emit(f"{total.attr}.count", "add", weight)
    mean = make("div", total, chain.at(count))
    return mean if sign > 0 else make("neg", mean)


def _weight(chain: Chain, body: Term, data: Term) -> Term | None:
    """w >= 0 with body = w * data, when there is one."""
    whole, unit = chain.normal.poly(body), chain.normal.poly(data)
    if not whole or not unit:
        return None
    for m, c in whole.items():
        for n, d in unit.items():
            q = mono_mul(m, tuple((t, -e) for t, e in n))
            if not any(e < 0 for _, e in q) and not add(
                chain.normal.mul(unit, {q: c / d}), whole, -1
            ):
                weight = to_term({q: c / d}, body.dtype)
                return weight if chain.facts.sign(weight) == 1 else None
    return None


def _vanishing(chain: Chain, whole: Poly, d: Difference, count: str, dtype: str) -> Term | None:
    """Σ w·(g - t) = Σ w·g - t·Σ w, when both sums are at hand and the difference is 0."""
    total = chain.find("add", to_term(chain.normal.mul(whole, chain.normal.poly(d.data)), dtype))
    if total is None:
        return None
    zero = make(
        "sub", ref(total, dtype=dtype), make("mul", d.anchor, ref(count, dtype=dtype))
    )
    bare = _bare(zero)
    return zero if chain.normal.equal(bare, const(0.0, dtype)) else None


def _bare(t: Term) -> Term:
    """References without indices and without guards, to compare as values."""
    def rule(n: Term) -> Term | None:
        if n.op == "ref":
            return ref(n.attr, dtype=n.dtype)
        if n.op == "select" and n.args[0].op == "eq" and n.args[0].args[0] is n.args[2]:
            return n.args[2]
        return None

    return rewrite(t, rule)
