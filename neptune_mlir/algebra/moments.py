# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moments: sums of powers of differences, measured from a reference that runs along.

    Σ w (g - t)^2   with   t = Σ w g / Σ w        (a variance)
    Σ (y - t x)^2   with   t = Σ x y / Σ x x      (the residual of a projection)

Multiplied out, such sums cancel. Kept as they are, they are closed under t -> t' by the binomial
theorem: with D = g - t k and a move d = t - t', the difference becomes D + d k, so the family
Σ w D^v k^u for v + u <= p corrects itself (Chan, Golub, LeVeque 1983, for k = 1). The sums of the
loop are measured from *anchors*, values near the references; the finish re-bases them from the
anchors to the references over gaps that are sums of their own and do not cancel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from neptune_mlir.algebra.chain import Chain, Correction
from neptune_mlir.algebra.corrections.rescale import accumulate, ratio
from neptune_mlir.algebra.facts import has_ref, kind
from neptune_mlir.algebra.poly import (
    Mono,
    Poly,
    add,
    make_mono,
    mono_key,
    mono_mul,
    mono_term,
    to_term,
)
from neptune_mlir.algebra.proofs import proof
from neptune_mlir.algebra.proofs.proof import acc, at_time, new, old, references
from neptune_mlir.algebra.terms import Term, const, leaves, make, show, substitute, walk

ONE = Fraction(1)

# Powers of one difference and of the factors of its anchors: (v, u_1, u_2, ...)
Powers = tuple[int, ...]


@dataclass(frozen=True)
class Anchor:
    """What the loop subtracts for one reference of a difference.

    Attributes:
        value: a running value near the reference, and its coefficient.
        factor: data that it is multiplied by; None for 1.
        gap: value - reference, at the end; None where that is zero.
    """

    value: Term
    factor: Term | None = None
    gap: Term | None = None

    @property
    def moved(self) -> Term:
        return make("sub", at_time(self.value, old), at_time(self.value, new))


@dataclass(frozen=True)
class Difference:
    """data - the sum over its anchors of value * factor, to a power of at most `top`."""

    data: Term
    anchors: tuple[Anchor, ...]
    top: int

    @property
    def term(self) -> Term:
        return reduce(_minus, self.anchors, self.data)

    @property
    def factors(self) -> list[Term]:
        """The distinct factors of its anchors that are not 1."""
        return list(dict.fromkeys(a.factor for a in self.anchors if a.factor is not None))

    @property
    def members(self) -> Iterator[Powers]:
        """Exponents of the difference and of each factor that the family of moments has: all
        that a move makes of the highest one."""
        plain = any(a.factor is None for a in self.anchors)
        for powers in itertools.product(range(self.top + 1), repeat=1 + len(self.factors)):
            if sum(powers) == self.top or (plain and sum(powers) < self.top):
                yield powers

    def value(self, powers: Powers) -> list[Term]:
        """The factors of a moment, one for each power."""
        bases = (self.term, *self.factors)
        return [t for t, e in zip(bases, powers, strict=True) for _ in range(e)]

    def shifts(self, gaps: bool) -> dict[int, Term]:
        """What is added for each factor (0 stands for 1) when the anchors move, or at the end."""
        found: dict[int, Term] = {}
        for a in self.anchors:
            shift = a.gap if gaps else a.moved
            if shift is None:
                continue
            place = 0 if a.factor is None else 1 + self.factors.index(a.factor)
            found[place] = make("add", found[place], shift) if place in found else shift
        return found

    def expansion(self, powers: Powers, gaps: bool) -> Iterator[tuple[int, list[Term], Powers]]:
        """(D + Σ_k shift_k k)^v k^u as coefficients, shifts and members of the family."""
        shifts = self.shifts(gaps)
        places = sorted(shifts)
        v = powers[0]
        for taken in itertools.product(range(v + 1), repeat=len(places)):
            left = v - sum(taken)
            if left < 0:
                continue
            times = math.factorial(v) // math.factorial(left)
            times //= math.prod(math.factorial(k) for k in taken)
            member = [left, *powers[1:]]
            for place, k in zip(places, taken, strict=True):
                if place:
                    member[place] += k
            pieces = zip(places, taken, strict=True)
            yield times, [shifts[p] for p, k in pieces for _ in range(k)], tuple(member)


def _minus(a: Term, anchor: Anchor) -> Term:
    b = anchor.value
    if anchor.factor is not None:
        b = make("mul", b, anchor.factor)
    return make("add", a, b.args[0]) if b.op == "neg" else make("sub", a, b)


def moments(
    chain: Chain,
    name: str,
    weight: Poly,
    keep: Mono,
    differences: tuple[tuple[Term, int], ...],
    dtype: str,
) -> Term:
    """Σ w·(g - t k)^p as the top of a family of moments, closed under t -> t'."""
    powers = sum(power for _, power in differences)
    if powers > 1:
        for difference, _ in differences:
            chain.require_near(difference)
    if powers > 2:
        _require_sign(chain, weight, dtype)
    terms = [_anchored(chain, t, p, weight, dtype) for t, p in differences]
    names = _family(chain, name, {mono_mul(m, keep): c for m, c in weight.items()}, keep, terms,
                    dtype)  # fmt: skip
    top = tuple((d.top, *(0 for _ in d.factors)) for d in terms)
    if all(a.gap is None for d in terms for a in d.anchors):
        return acc(names[top], dtype)
    return _expanded(top, names, terms, True, dtype)


def _require_sign(chain: Chain, weight: Poly, dtype: str) -> None:
    """Raises Unsolvable where weights may have any sign. Their mean may be as far from the data as
    these are from each other, or further, and of (d + gap)^4 the terms with odd powers cancel: up
    to 2^4 times the error of the program as written, where squares have 2^2."""
    w = to_term(weight, dtype)
    if chain.ranges is not None and chain.facts.sign(w) is None:
        raise chain.fail(
            "cancellation", w,
            "with weights of any sign, powers of differences over 2 cancel when they are re-based",
            "weight them by magnitudes, or allow it: numerics=fast",
        )  # fmt: skip


def _family(
    chain: Chain, name: str, weight: Poly, keep: Mono, terms: list[Difference], dtype: str
) -> dict[tuple[Powers, ...], str]:
    """Emit the moments of a product of differences, and all that a move makes of it. Factors are
    multiplied in the order of the program: w (d d) keeps digits of small w and d that (w d) d loses
    below the smallest normal number, and overflows where w d does not.

    The first moment about a running mean would be zero in exact arithmetic. It is kept: it holds
    what rounding the mean lost, which the higher moments would otherwise pick up.
    """
    names: dict[tuple[Powers, ...], str] = {}
    bodies: dict[str, Term] = {}
    hs: dict[str, Term] = {}
    scale = ratio(chain, keep, dtype) if keep else None
    moved = [n for d in terms for a in d.anchors for n in references(a.value)]
    moved += references(mono_term(keep, ONE, dtype))
    top = tuple((d.top, *(0 for _ in d.factors)) for d in terms)
    differences_first = _differences_first(chain)
    family = itertools.product(*(d.members for d in terms))
    for v in sorted(family, key=lambda v: (sum(p[0] for p in v), v)):
        digits = "".join(str(e) for powers in v for e in powers)
        label = name if v == top else chain.fresh(f"{name}.m{digits}")
        body = to_term(weight, dtype)
        factors = [t for d, powers in zip(terms, v, strict=True) for t in d.value(powers)]
        if differences_first and factors:
            factors = [reduce(_product, factors)]
        for factor in factors:
            body = _weighted(body, factor)
        if not any(p[0] for p in v):
            label = accumulate(chain, label, body, keep, dtype)
            hs[label] = make("mul", acc(label, dtype), scale) if scale else acc(label, dtype)
            names[v], bodies[label] = label, body
            continue
        label = chain.find("add", body) or chain.fresh(label)
        names[v], bodies[label] = label, body
        h = _expanded(v, names, terms, False, dtype)
        hs[label] = h = h if scale is None else _rescaled(h, acc(label, dtype), scale)
        if any(r.name == label for r in chain.running):
            continue
        obligations = proof.obligations(chain.proof, label, "add", bodies, hs)
        correction = Correction("augmented", h, tuple(dict.fromkeys(moved)), obligations)
        chain.emit(label, "add", body, correction)
        chain.step(f"augmented: {label} = Σ {show(body)} <- {show(h, proof.leaf_text)}")
    return names


def _product(a: Term, b: Term) -> Term:
    return make("mul", a, b)


def _differences_first(chain: Chain) -> bool:
    """Whether the reduction, as written, multiplies differences before it weights them."""
    assert chain.current is not None
    return any(
        n.op == "mul" and all(a.op in ("add", "sub") and has_ref(a) for a in n.args)
        for n in walk(chain.current.body)
    )


def _rescaled(h: Term, mine: Term, scale: Term) -> Term:
    """h * scale, of the accumulator alone where the scale is 0: the move may then be infinite (a
    mask of the smallest float ends, and what was accumulated under it vanishes)."""
    gone = make("eq", scale, const(0.0, h.dtype))
    return make("select", gone, make("mul", mine, scale), make("mul", h, scale))


def _weighted(weight: Term, value: Term) -> Term:
    """weight * value, below the mask of the weight: masked data may be infinite."""
    if weight.is_const and weight.value == 1:
        return value
    if weight.op == "select" and weight.args[2].is_const and weight.args[2].value == 0:
        cond, inner, zero = weight.args
        return make("select", cond, _weighted(inner, value), zero)
    return make("mul", weight, value)


def _expanded(
    v: tuple[Powers, ...],
    names: dict[tuple[Powers, ...], str],
    terms: list[Difference],
    gaps: bool,
    dtype: str,
) -> Term:
    """What the moment v is under the new anchors, or (`gaps`) about the references."""
    pieces = []
    for parts in itertools.product(
        *(d.expansion(powers, gaps) for d, powers in zip(terms, v, strict=True))
    ):
        member = tuple(part[2] for part in parts)
        shifts = [shift for part in parts for shift in part[1]]
        pieces.append((member, math.prod(part[0] for part in parts), shifts))
    total: Term | None = None
    for member, times, shifts in sorted(
        pieces, key=lambda p: (-sum(powers[0] for powers in p[0]), p[0])
    ):
        piece = reduce(_product, shifts, acc(names[member], dtype))
        if times != 1:
            piece = _product(piece, const(float(times), dtype))
        total = piece if total is None else make("add", total, piece)
    assert total is not None
    return total


def _anchored(chain: Chain, difference: Term, top: int, outer: Poly, dtype: str) -> Difference:
    flat = chain.linear.poly(difference)
    data: Poly = {}
    moving: Poly = {}
    for m, c in flat.items():
        reads = any(kind(t, chain.facts.folded) == "ref" for t, _ in m)
        (moving if reads else data)[m] = -c if reads else c
    value = to_term(data, dtype)
    anchors = []
    for m, c in sorted(moving.items(), key=lambda mc: mono_key(mc[0])):
        alone = len(moving) == 1
        anchors.append(_anchor(chain, value, m, c, outer if alone else None, dtype))
    return Difference(value, tuple(anchors), top)


def _anchor(
    chain: Chain, data: Term, m: Mono, c: Fraction, outer: Poly | None, dtype: str
) -> Anchor:
    """The anchor for the reference c * m of a difference from `data`.

    `outer`: the weights of the powers of the difference; None where it has several references.
    """
    folded = chain.facts.folded
    factor = make_mono((t, e) for t, e in m if kind(t, folded) == "data")
    rest = make_mono((t, e) for t, e in m if kind(t, folded) != "data")
    spelled = mono_term(factor, ONE, dtype) if factor else None
    reference = mono_term(rest, c, dtype)
    found = None
    if outer is not None:
        found = _of_sum(chain, data, spelled, rest, c, outer, dtype)
    if found is None:
        return Anchor(_guarded(chain, reference), spelled)
    value, gap = found
    gap = make("sub", value, reference) if gap is None else gap
    chain.step(
        f"the loop measures {show(data)} from {show(value)}, the end re-bases to {show(reference)}"
    )
    return Anchor(value, spelled, gap)


def _guarded(chain: Chain, t: Term) -> Term:
    return substitute(t, {r: chain.guard(r, t, before=True) for r in leaves(t, "ref")})


Found = tuple[Term, Term | None]  # the anchor, and its gap where there is a better one


def mean_of(chain: Chain, m: Mono) -> Term | None:
    """The running sum r where a monomial reads r / s, a mean: s is a positive sum, or r is a sum of
    data for which the loop has a mean of its own (`_of_sum`)."""
    refs = [(t, e) for t, e in m if kind(t, chain.facts.folded) == "ref"]
    over = [t for t, e in refs if e == 1 and t.op == "ref" and _is_sum(chain, t)]
    under = [t for t, e in refs if e == -1]
    if len(over) != 1 or len(refs) != 1 + len(under):
        return None
    steady = all(t.op == "ref" and t.attr in chain.facts.nonneg for t in under)
    return over[0] if steady or not has_ref(chain.raw(over[0].attr)) else None


def _is_sum(chain: Chain, t: Term) -> bool:
    return chain.facts.combiner.get(t.attr) == "add"


def _of_sum(
    chain: Chain, data: Term, factor: Term | None, m: Mono, c: Fraction, outer: Poly, dtype: str
) -> Found | None:
    """t = φ Σ q g, for the difference g - t k: a mean where φ is 1 / Σ q k, or close to it.

    The loop takes the mean a = Σ q g / Σ q k of the data so far. Where the sign of q k is not
    known its sum may come close to 0 on the way; then the mean has the weights |q k|, which lies
    among the quotients g / k of the data. Such a quotient may be large, where k is small. Weights
    w of the powers that are others than those of the coefficient a (q = w k) may meet a large k
    then, or data of which the mean has seen nothing: they have a coefficient of their own,
    Σ |w| k g / Σ |w| k k, with which their squares are at most those of the data.

    Either way r = Σ q (g - a k) is what rounding the anchor lost (and what its weights differ by),
    and t = φ (a Σ q k + r), so the gap is

        a - t = a (1 - φ Σ q k) - φ r

    where both pieces are small if a is close to t because φ Σ q k is close to 1. Where they are
    not, the pieces may cancel (the signs of q differ), and a and t do so by chance only: then the
    gap is as exact as t, which the program as written subtracts from the data.

    Where others read t, too, the gap is that to t as it was rounded. (x - t) / sqrt(Σ (x - t)^2) is
    at most 1 for any t, equal data included; with a sum around what t was before it was rounded it
    is what rounding lost, over 0.
    """
    total = mean_of(chain, m)
    if total is None:
        return None
    share = tuple(f for f in m if f[0] is not total)  # t is c * share * total
    found = _weight(chain, chain.raw(total.attr), data)
    if found is None:
        return _of_other_data(chain, factor, total, share, dtype)
    weight, keep = found
    whole = chain.linear.mul(weight, chain.linear.poly(factor or const(1.0, dtype)))
    body = to_term(whole, dtype)
    count = chain.at(accumulate(chain, f"{total.attr}.count", body, keep, dtype))
    near = make("div", total, make("cast", count, dtype=total.dtype))
    own = chain.linear.mul(outer, chain.linear.poly(factor or const(1.0, dtype)))
    if not (keep or _alike(weight, own) or (weight.keys() == {()} and _exponential(own))):
        near = _coefficient(chain, total.attr, outer, data, factor, dtype)
    elif chain.facts.sign(chain.raw(count.attr)) != 1:
        if keep:
            return None
        signed = make("select", make("lt", body, const(0.0, dtype)),
                      make("neg", chain.raw(total.attr)), chain.raw(total.attr))  # fmt: skip
        size = chain.at(chain.emit(f"{total.attr}.size", "add", make("abs", body)))
        near = make("div", chain.at(chain.emit(f"{total.attr}.sized", "add", signed)), size)
    near = _guarded(chain, near)
    difference = Difference(data, (Anchor(near, factor),), 1)
    names = _family(chain, f"{total.attr}.rest", weight, keep, [difference], dtype)
    rest = chain.at(names[((1, *(0 for _ in difference.factors)),)])
    sums = make("mul", near, make("cast", acc(count.attr, count.dtype), dtype=dtype))
    chain.relate(rest.attr, make("sub", acc(total.attr, total.dtype), sums))

    def part(t: Term) -> Term:
        return mono_term(mono_mul(share, ((t, ONE),)), c, dtype)

    if total.attr in chain.visible:
        return near, None
    return near, _gap(chain, near, part(total), part(count), part(rest))


def _gap(chain: Chain, near: Term, reference: Term, whole: Term, rest: Term) -> Term:
    """near - reference, where the latter is near * whole + rest (see `_of_sum`)."""
    if chain.linear.poly(whole) == {(): ONE}:
        return make("neg", rest)
    dtype = near.dtype
    missing = make("mul", near, make("sub", const(1.0, dtype), whole))
    pieces = make("add", make("abs", missing), make("abs", rest))
    close = make("lt", pieces, make("mul", make("abs", reference), const(0.5, dtype)))
    return make("select", close, make("sub", missing, rest), make("sub", near, reference))


def _exponential(weight: Poly) -> bool:
    """Whether weights would need a reference of their own to be summed."""
    return any(t.op == "exp" for m in weight for t, _ in m)


def _alike(a: Poly, b: Poly) -> bool:
    """Whether one is the other, times a number."""
    return a.keys() == b.keys() and len({a[m] / b[m] for m in a}) == 1


def _coefficient(
    chain: Chain, name: str, weight: Poly, data: Term, factor: Term | None, dtype: str
) -> Term:
    """The running coefficient that makes Σ |weight| (data - coefficient factor)^2 least; without
    weights that vary along other axes than the data do, for these would be many coefficients."""
    w, factor = to_term(weight, dtype), factor or const(1.0, dtype)
    if not w.axes <= data.axes | factor.axes:
        w = const(1.0, dtype)
    if chain.facts.sign(w) != 1:
        w = make("abs", w)
    w = _weighted(w, factor)
    size = chain.emit(f"{name}.size", "add", _weighted(w, factor))
    return make("div", chain.at(chain.emit(f"{name}.sized", "add", _weighted(w, data))),
                chain.at(size))  # fmt: skip


def _of_other_data(
    chain: Chain, factor: Term | None, total: Term, share: Mono, dtype: str
) -> Found | None:
    """A mean of other data than what is measured from it: as good an anchor as any number."""
    if factor is not None or any(has_ref(t) for t, _ in share) or has_ref(chain.raw(total.attr)):
        return None
    count = chain.emit(f"{total.attr}.count", "add", const(1.0, dtype))
    return _guarded(chain, make("div", total, chain.at(count))), None


def _weight(chain: Chain, body: Term, data: Term) -> tuple[Poly, Mono] | None:
    """w with body = w * data, when there is one, and those of its factors that move."""
    whole, unit = chain.linear.poly(body), chain.linear.poly(data)
    for m, c in whole.items():
        for n, d in unit.items():
            q = mono_mul(m, tuple((t, -e) for t, e in n))
            if any(e < 0 and t.op != "exp" for t, e in q):
                continue
            if not add(chain.linear.mul(unit, {q: c / d}), whole, -1):
                moving = [(t, e) for t, e in q if kind(t, chain.facts.folded) == "ref"]
                exponentials = all(t.op == "exp" for t, _ in moving)
                return ({q: c / d}, make_mono(moving)) if exponentials else None
    return None
