# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Corrections inside the loop where deferral would do without (`solve_chain(deferral=False)`).

The accumulator then always holds the reduction itself, under the references of the moment:
FlashAttention's first form, whose output is normalised at every step. Costs more at run time;
a later loop may read the running value as it is.

    multiplicative  f = g(x)·φ(t), the sign of φ known         h = a · φ(t')/φ(t)
    additive        f = g(x) + φ(t), ⊕ = max/min               h = a + φ(t') - φ(t)
    monotone        f = u(g(x), t), ⊕ = max/min, u invertible  h = u(u⁻¹(a, t), t')
"""

from __future__ import annotations

from fractions import Fraction

from neptune_mlir.algebra.chain import Chain, Correction, Unsolvable
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.corrections.rescale import ratio, safe
from neptune_mlir.algebra.extrema import Peel
from neptune_mlir.algebra.facts import has_ref
from neptune_mlir.algebra.normal import TooComplex
from neptune_mlir.algebra.operators import inverse_of
from neptune_mlir.algebra.poly import mono_term, to_term
from neptune_mlir.algebra.proofs import proof
from neptune_mlir.algebra.proofs.proof import acc, at_time, new, old, references
from neptune_mlir.algebra.sums import split_monomials
from neptune_mlir.algebra.terms import Term, const, leaves, make, show, substitute, walk


def solve_eager(chain: Chain, name: str, combiner: str, body: Term) -> Term | None:
    """One accumulator that needs no finish, or None when that form does not apply."""
    if combiner == "add":
        found = _multiplicative(chain, name, body)
    elif combiner in ("max", "min"):
        found = _additive(chain, name, body) or _monotone(chain, name, combiner, body)
    else:
        return None
    if found is None:
        return None
    form, h, moved = found
    proved = proof.obligations(chain.proof, name, combiner, {name: body}, {name: h})
    if not proved.proved:
        return None
    correction = Correction(form, h, moved, proved)
    chain.step(f"{form}: {name} <- {show(h, proof.leaf_text)}")
    return acc(chain.emit(name, combiner, body, correction), body.dtype)


Found = tuple[str, Term, tuple[str, ...]] | None  # form, h, the references that move it


def _multiplicative(chain: Chain, name: str, body: Term) -> Found:
    try:
        parts = split_monomials(chain, body)
    except Unsolvable:
        return None
    if not parts:  # everything cancels: there is nothing to repair
        return None
    if any(not safe(chain, t, e) for p in parts for t, e in p.keep):
        return None
    keep, behind = parts[0].keep, parts[0].behind
    if {(p.keep, p.behind) for p in parts} != {(keep, behind)}:
        return None
    if any(p.differences for p in parts) or not behind:
        return None
    factor = mono_term(behind, Fraction(1), body.dtype)
    # Only factors that are never 0 where they are defined can be divided out again.
    if not all(e < 0 or t.op in ("exp", "rsqrt") for t, e in behind):
        return None
    if chain.facts.sign(factor) is None:
        return None
    h = make("mul", acc(name, body.dtype), _moved("div", chain, factor))
    if keep:
        h = make("mul", h, ratio(chain, keep, body.dtype))
    return "multiplicative", h, _names(factor, mono_term(keep, Fraction(1), body.dtype))


def _moved(op: str, chain: Chain, t: Term) -> Term:
    """t(new) op t(old), defined before the first element too."""
    regular = make("add", t, make("div", const(1.0, t.dtype), t)) if op == "div" else t
    table = {r: chain.guard(r, regular, before=True) for r in leaves(t, "ref")}
    guarded = substitute(t, table)
    return make(op, at_time(guarded, new), at_time(guarded, old))


def _additive(chain: Chain, name: str, body: Term) -> Found:
    try:
        flat = chain.linear.poly(body)
    except TooComplex:
        return None
    if not chain.linear.is_difference(flat):
        return None
    moving = {m: c for m, c in flat.items() if chain.linear.kind(m) == "ref"}
    t = to_term(moving, body.dtype)
    return "additive", make("add", acc(name, body.dtype), _moved("sub", chain, t)), _names(t)


def _names(*terms: Term) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for t in terms for n in references(t)))


class _Path(Peel):
    """The final value as a function of the data's extremum, without emitting that."""

    def core(self, body: Term, want: str) -> Term:
        return acc(f"({show(body)})", body.dtype)


def _monotone(chain: Chain, name: str, combiner: str, body: Term) -> Found:
    try:
        u = _Path(chain, name)(body, combiner)
    except Unsolvable:
        return None
    cores = [n for n in leaves(u, "ref") if proof.is_acc(n)]
    if len(cores) != 1:
        return None
    mine = acc(name, body.dtype)
    before = substitute(u, {r: chain.guard(r, u, before=True) for r in leaves(u, "ref")})
    back = _invert(at_time(before, old), cores[0], mine)
    if back is None:
        return None
    h = substitute(at_time(before, new), {cores[0]: back})
    empty = const(lookup(combiner).identity, body.dtype)
    h = make("select", make("eq", mine, empty), empty, h)
    return "monotone", h, _names(substitute(u, {cores[0]: empty}))


def _invert(u: Term, core: Term, value: Term) -> Term | None:
    """The core for which u has this value, where floating point can tell.

    Not through a product with a reference (it may be 0), nor through exp(...) + c, whose sum
    forgets small exponentials.
    """
    summed = False
    while u is not core:
        if inverse := inverse_of(u.op):
            if summed and u.op != "cast":
                return None
            value, u = make(inverse, value, dtype=u.args[0].dtype), u.args[0]
            continue
        if u.op not in ("add", "sub", "mul", "div"):
            return None
        a, b = u.args
        inside = core in set(walk(a))
        if inside == (core in set(walk(b))):
            return None
        if u.op == "mul" and has_ref(b if inside else a):
            return None
        summed |= u.op in ("add", "sub")
        if u.op == "sub" and not inside:
            value = make("sub", a, value)
        elif u.op == "div" and not inside:
            value = make("div", a, value)
        else:
            opposite = {"add": "sub", "sub": "add", "mul": "div", "div": "mul"}[u.op]
            value = make(opposite, value, b if inside else a)
        u = a if inside else b
    return value
