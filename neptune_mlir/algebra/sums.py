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

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from neptune_mlir.algebra.chain import Chain
from neptune_mlir.algebra.corrections.rescale import accumulate, safe
from neptune_mlir.algebra.deferral import Split, split_in_range
from neptune_mlir.algebra.facts import has_ref, kind
from neptune_mlir.algebra.moments import mean_of, moments
from neptune_mlir.algebra.operators import INJECTIVE
from neptune_mlir.algebra.poly import (
    ONE,
    Mono,
    Poly,
    TooComplex,
    add,
    is_indicator,
    is_sum,
    make_mono,
    mono_key,
    mono_mul,
    mono_term,
    scaled,
    to_term,
)
from neptune_mlir.algebra.proofs.proof import acc
from neptune_mlir.algebra.terms import Term, const, make, show, walk


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
    found = _deferred(chain, body)
    if not found.trivial:
        chain.step(
            f"deferral: {_factor_text(found)} does not vary along the stream: it moves behind"
        )
        return found.finish(solve_sum(chain, chain.fresh(name + "'"), found.rest))
    parts = [move_unsafe(chain, p) for p in split_monomials(chain, body)]
    if not parts:  # everything cancels
        return acc(chain.emit(name, "add", const(0.0, dtype)), dtype)
    parts = [_keep_in_range(chain, p, dtype) for p in parts]
    if len({(p.keep, p.behind) for p in parts}) == 1 and not any(p.differences for p in parts):
        return _single(chain, name, body, parts, dtype)
    return _several(chain, name, parts, dtype)


def _deferred(chain: Chain, body: Term) -> Split:
    """The factors that move behind, but for those that keep what remains in range."""

    def fits(found: Split) -> bool:
        return chain.in_range(found.rest) and chain.rounds_in_range(found.rest)

    return split_in_range(body, chain.invariant, fits)


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
        poly = _normal_form(chain, body)
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


def _normal_form(chain: Chain, body: Term) -> Poly:
    """A polynomial that keeps every difference g(x) - t that can be; multiplied out they cancel."""
    poly = chain.affine.poly(body)
    wild = [t for m in poly for t, e in m if is_sum(t) and e > 0 and not tame(chain, t)]
    if not wild:
        return poly
    for difference in wild:
        _require_sum(chain, difference)
    poly = chain.kept.poly(body)
    if all(tame(chain, t) for m in poly for t, e in m if is_sum(t) and e > 0):
        return poly
    return chain.linear.poly(body)


def _require_sum(chain: Chain, difference: Term) -> None:
    """Raises Unsolvable where the parts of a difference may cancel, so that nothing is left of its
    digits once they are summed apart, and no stress test would see it: the reference is a number
    of an earlier loop over a sum of this one, a mean that is half made. The test takes the former
    for any number."""
    flat = chain.linear.poly(difference)
    terms = [mono_term(m, c, difference.dtype) for m, c in flat.items()]
    inside = [n for t in terms if has_ref(t) for n in walk(t)]
    given = any(n.op == "read" and not chain.varies(n) for n in inside)
    summed = any(n.op == "ref" and chain.facts.combiner[n.attr] == "add" for n in inside)
    if chain.ranges is None or not (given and summed):
        return
    signs = {chain.facts.sign(t) for t in terms}
    if len(signs) > 1 or None in signs:
        raise chain.fail(
            "cancellation", difference,
            "it changes while the reference is summed up, and multiplied out its parts may cancel",
            "sum up all of the reference in an earlier loop, or allow it: numerics=fast",
        )  # fmt: skip


def tame(chain: Chain, difference: Term) -> bool:
    """Does the reference of a difference stay near its final value while it runs?

    Extrema, sums, means with weights and logarithms do. An exponential may pass through values
    so large that nothing is left of the data; then it is better multiplied out.
    """
    for m in chain.linear.poly(difference):
        mean = mean_of(chain, m) is not None
        for t, e in m:
            if kind(t, chain.facts.folded) != "ref":
                continue
            steady = mean or (t.op == "ref" and not has_ref(chain.raw(t.attr)))
            if not (steady or t.op == "log") or abs(e) != 1 or (e < 0 and not mean):
                return False
    return True


def stuck(chain: Chain, t: Term, e: Fraction):
    """Which obligation an atom that mixes data and references violates."""
    if t.op == "exp" or (is_sum(t) and e < 0) or t.op in INJECTIVE:
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
    conditions = [t.args[0] for t, _ in part.data if is_indicator(t)]
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


def _keep_in_range(chain: Chain, part: Part, dtype: str) -> Part:
    """Factors that only shrink stay, where the data alone might leave the range."""
    shrinks = [(t, e) for t, e in part.behind if t.op != "exp" and safe(chain, t, e)]
    divided = any(e < 0 and t.op != "exp" for t, e in part.behind)
    weights = [e for t, e in part.data if t.op == "exp"]
    squares = [e for t, e in part.data if t.op != "exp" and e > 1]
    # as `deferral.has_powers` and `weighs_squares`
    if divided and weights and (max(weights) > 1 or squares):
        chain.require_range(mono_term(part.data, part.coefficient, dtype), powers=True)
    data = mono_term(part.data, part.coefficient, dtype)
    rounds = chain.rounds_in_range(data)
    if chain.in_range(data) and rounds:
        return part
    keep = mono_mul(part.keep, make_mono(shrinks))
    kept = mono_term(mono_mul(part.data, keep), part.coefficient, dtype)
    if not rounds and not chain.rounds_in_range(kept):
        raise chain.fail(
            "range", data, "it is rounded to f16, and may overflow or vanish in it",
            "keep what scales it ahead of it, or allow it: numerics=fast",
        )  # fmt: skip
    if not shrinks:
        return part
    behind = make_mono(f for f in part.behind if f not in shrinks)
    return Part(part.coefficient, part.data, keep, behind, part.differences)


def _single(chain: Chain, name: str, body: Term, parts: list[Part], dtype: str) -> Term:
    """f = g(x)·φ(t): one accumulator."""
    keep, behind = parts[0].keep, parts[0].behind
    if behind:
        poly = reduce(add, ({mono_mul(p.data, p.keep): p.coefficient} for p in parts))
        body = to_term(poly, dtype)
        name = chain.fresh(name + "'")
    total = acc(accumulate(chain, name, body, keep, dtype), dtype)
    if not behind:
        return total
    factor = show(mono_term(behind, Fraction(1), dtype))
    chain.step(f"deferral: {factor} does not vary along the stream; it moves behind")
    return _scale(total, behind, dtype)


def _scale(value: Term, behind: Mono, dtype: str) -> Term:
    """value * behind, with negative powers as one division."""
    over = make_mono((t, e) for t, e in behind if e > 0)
    under = make_mono((t, -e) for t, e in behind if e < 0 and t.op != "exp")
    over = mono_mul(over, make_mono((t, e) for t, e in behind if e < 0 and t.op == "exp"))
    if over:
        value = make("mul", value, mono_term(over, Fraction(1), dtype))
    return make("div", value, mono_term(under, Fraction(1), dtype)) if under else value


def _several(chain: Chain, name: str, parts: list[Part], dtype: str) -> Term:
    """f = Σ g_i(x)·φ_i(t): one accumulator (or a family of moments) per distinct φ_i."""
    groups: dict[tuple, Poly] = {}
    for p in parts:
        times, p = _counted(chain, p) if len(parts) > 1 else (ONE, p)
        key = (p.keep, p.differences, p.behind, times)
        groups[key] = add(groups.get(key, {}), {p.data: p.coefficient})
    if len(groups) > 1:
        chain.step(f"augmented: a sum of {len(groups)} terms that move differently")
    finals = []
    for i, ((keep, differences, behind, times), weight) in enumerate(groups.items()):
        own = name if len(groups) == 1 and not behind else chain.fresh(f"{name}.{i}")
        if differences:
            value = moments(chain, own, weight, keep, differences, dtype)
        else:
            body = to_term({mono_mul(m, keep): c for m, c in weight.items()}, dtype)
            value = acc(accumulate(chain, own, body, keep, dtype), dtype)
        value = value if times == 1 else make("mul", value, const(float(times), dtype))
        finals.append(_scale(value, behind, dtype))
    return reduce(lambda a, b: make("add", a, b), finals)


def _counted(chain: Chain, part: Part) -> tuple[Fraction, Part]:
    """Of a term that is one number c all along the stream, or 0 where a condition hides it, the
    factors of c move behind. n c is rounded once; the roundings of c + c + ... are all alike."""
    moves = make_mono((t, e) for t, e in part.data if not chain.varies(t))
    count = make_mono(f for f in part.data if f not in moves)
    if part.keep or part.differences or not all(is_indicator(t) for t, _ in count):
        return ONE, part
    return part.coefficient, Part(ONE, count, (), mono_mul(part.behind, moves), ())
