# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows in which a reference saw nothing: the finish gives what the program as written gives.

While a running maximum is -inf the loop reads 0 in its place (`Chain.guarded`), so that a first
tile without a live element makes no NaN. Where the whole row has none the loop ends with 0, but

    Σ exp(x - m)           at x = m = -inf is a sum of NaNs           -> NaN
    Σ where(c, x / l, 0)   without an element that c lets in, l = 0   -> 0, not 0 / 0

None of this is visible over the reals, so it is no part of the proofs; the stress test compares.
"""

from __future__ import annotations

import math

from neptune_mlir.algebra.chain import Chain, Reduction, stood_in_for
from neptune_mlir.algebra.facts import evaluate_scalar, has_ref
from neptune_mlir.algebra.proofs.proof import is_acc
from neptune_mlir.algebra.terms import Term, const, is_float, leaves, make, walk


def exact_when_empty(
    chain: Chain, reduction: Reduction, body: Term, final: Term, infinite: bool
) -> Term:
    """`final`, with the cases that the real numbers do not tell apart.

    Args:
        body: what is reduced, over running values.
        infinite: also where a reference still is infinite; else only where it is 0.
    """
    final = _nothing_live(chain, reduction, body, _nonneg(chain, reduction, body, final))
    if not is_float(final.dtype):
        return final
    for r, empty in _stand_ins(chain, final, infinite):
        data = {n: empty for n in leaves(chain.raw(r.attr), "read") if is_float(n.dtype)}
        if math.isnan(evaluate_scalar(body, {**data, **{n: empty for n in _same(body, r)}})):
            gone = make("eq", r, const(empty, r.dtype))
            if _hides(body):
                live = _live(body)
                if live is None or not infinite:
                    continue
                gone = make("and", gone, _any(chain, reduction, live))
            final = make("select", gone, const(math.nan, final.dtype), final)
    return final


def _nonneg(chain: Chain, reduction: Reduction, body: Term, final: Term) -> Term:
    """At least 0 where only rounding could make a sum of squares negative: it goes under roots."""
    if reduction.combiner != "add" or not is_float(final.dtype) or chain.facts.sign(body) != 1:
        return final
    differs = any(n.op in ("sub", "neg") for n in walk(final))
    return make("max", final, const(0.0, final.dtype)) if differs else final


def _live(t: Term) -> Term | None:
    """The condition below which a product lies, where that is all that masks it."""
    if t.op in ("neg", "cast", "mul", "div"):
        found = [a for a in t.args if _hides(a)]
        return _live(found[0]) if len(found) == 1 else None
    if t.op != "select" or has_ref(t.args[0]):
        return None
    condition, first, second = t.args
    zero = [a.is_const and a.value == 0 for a in (first, second)]
    if zero.count(True) != 1 or _hides(second if zero[0] else first):
        return None
    return make("not", condition) if zero[0] else condition


def _same(body: Term, r: Term) -> list[Term]:
    return [n for n in leaves(body, "ref") if n.attr == r.attr]


def _stand_ins(chain: Chain, final: Term, infinite: bool) -> list[tuple[Term, float]]:
    """References that a regular number stood in for, and what they were then."""
    names = {n.attr[1] for n in leaves(final, "ref") if is_acc(n)}
    undefined = not math.isfinite(evaluate_scalar(final, _empties(chain, final)))
    found: dict[tuple[str, float], tuple[Term, float]] = {}
    for running in chain.running:
        if running.name in names:
            for r, empty in stood_in_for(running.body).items():
                if infinite if math.isinf(empty) else not undefined:
                    found[r.attr, empty] = r, empty
    return list(found.values())


def _hides(body: Term) -> bool:
    """Whether a mask decides which elements count: without one, all do. (Where a mask is added to
    an exponent, its zero hides nothing.)"""
    seen, pending = set(), [body]
    while pending:
        t = pending.pop()
        if t in seen or t.op in ("exp", "exp2"):
            continue
        seen.add(t)
        if t.op == "select" and not has_ref(t.args[0]) and _zero_arm(t):
            return True
        pending.extend(t.args)
    return False


def _zero_arm(select: Term) -> bool:
    return any(a.is_const and a.value == 0 for a in select.args[1:])


def _nothing_live(chain: Chain, reduction: Reduction, body: Term, final: Term) -> Term:
    """0 where a mask lets no element in, though the finish would divide by nothing."""
    if reduction.combiner != "add" or not has_ref(body):
        return final
    live = _live(body)
    if live is None or not chain.varies(live):
        return final
    if math.isfinite(evaluate_scalar(final, _empties(chain, final))):
        return final
    return make("select", _any(chain, reduction, live), final, const(0.0, final.dtype))


def _any(chain: Chain, reduction: Reduction, live: Term) -> Term:
    return chain.at(chain.emit(f"{reduction.name}.live", "or", live))


def _empties(chain: Chain, final: Term) -> dict[Term, float]:
    """What accumulators hold that saw nothing."""
    found = {n: chain.facts.identity(n) for n in leaves(final, "ref")}
    return {n: 0.0 if e is None or isinstance(e, bool) else e for n, e in found.items()}
