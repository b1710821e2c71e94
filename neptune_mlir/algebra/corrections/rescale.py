# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Accumulators that are rescaled when a factor of what they hold moves: h = a * φ(t') / φ(t).

The factors are exponentials, whose ratio is one exponential of a difference, and positive running
values, whose ratio is a quotient of two numbers of the same size. Both are at most 1 where the
factor only shrinks (`safe`), so nothing overflows.
"""

from __future__ import annotations

import math
from fractions import Fraction

from neptune_mlir.algebra.chain import Chain, Correction, instead
from neptune_mlir.algebra.facts import evaluate_scalar
from neptune_mlir.algebra.poly import (
    Mono,
    base_of,
    exponent_of,
    make_mono,
    mono_key,
    mono_term,
    power_term,
)
from neptune_mlir.algebra.proofs import proof
from neptune_mlir.algebra.proofs.proof import acc, at_time, new, old, references
from neptune_mlir.algebra.terms import Term, const, is_float, leaves, make, show, substitute


def accumulate(chain: Chain, name: str, body: Term, keep: Mono, dtype: str) -> str:
    """An accumulator of its own, rescaled by the ratio of `keep` when that moves."""
    if not keep:
        return chain.emit(name, "add", body)
    name = chain.fresh(name)
    h = make("mul", acc(name, dtype), ratio(chain, keep, dtype))
    kept = mono_term(keep, Fraction(1), dtype)
    found = proof.obligations(chain.proof, name, "add", {name: body}, {name: h})
    correction = Correction(form_of(keep), h, references(kept), found)
    before = len(chain.running)
    name = chain.emit(name, "add", body, correction, nonzero_in(keep))
    if len(chain.running) > before:
        chain.step(
            f"{form_of(keep)}: f = g(x) * {show(kept)}, so {name} <- {show(h, proof.leaf_text)}"
        )
    return name


def nonzero_in(keep: Mono) -> list[Term]:
    """The references that a factor is divided by and that may be 0 before the first element that
    is not. What was accumulated until then is 0, whatever it was divided by."""
    found = []
    for t, e in keep:
        if t.op != "exp" and e < 0:
            found += [r for r in leaves(t, "ref") if evaluate_scalar(t, {r: 0.0}) == 0]
    return list(dict.fromkeys(found))


def form_of(keep: Mono) -> str:
    return "exponential" if all(t.op == "exp" for t, _ in keep) else "multiplicative"


def safe(chain: Chain, t: Term, exponent: Fraction) -> bool:
    """Does t^exponent only shrink while the stream runs, so that its ratio is at most 1?"""
    if t.op != "exp":
        direction = chain.facts.direction(t) if chain.facts.sign(t) == 1 else None
        return direction is not None and direction * exponent < 0
    direction = chain.facts.direction(t.args[0])
    return direction is not None and direction * exponent <= 0


def ratio(chain: Chain, keep: Mono, dtype: str) -> Term:
    """keep(t')/keep(t): one exponential of differences, none of which can be -inf - -inf, and
    quotients of the other factors."""
    total: Term | None = None
    for t, e in keep:
        if t.op != "exp":
            over, under = (old, new) if e < 0 else (new, old)
            above = substitute(t, {r: _started(chain, r) for r in leaves(t, "ref")})
            below = substitute(t, {r: instead(r, 0) for r in leaves(t, "ref")})
            quotient = make("div", at_time(above, over), at_time(below, under))
            piece = power_term(quotient, abs(e), dtype)
            total = piece if total is None else make("mul", total, piece)
    exponentials = make_mono((t, e) for t, e in keep if t.op == "exp")
    if not exponentials:
        assert total is not None
        return total
    piece = _exponential(exponentials, dtype)
    return piece if total is None else make("mul", piece, total)


def _started(chain: Chain, r: Term) -> Term:
    """A reference that is 0 while it is an infinite identity."""
    identity = chain.facts.identity(r)
    if not is_float(r.dtype) or not isinstance(identity, float) or math.isfinite(identity):
        return r
    return instead(r, identity)


def _exponential(keep: Mono, dtype: str) -> Term:
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
    if several or u.op != "ref":  # it may be infinite and stay so while a reference moves
        moved = make("select", make("eq", before, after), const(0.0, dtype), moved)
    return moved
