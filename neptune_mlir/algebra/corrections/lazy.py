# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lazy rescale: references that move in steps, so that most tiles need no correction.

A running maximum m moves a little at almost every tile. Its *anchor*

    t = max over j of bound * ceil(x_j / bound)

is a maximum too (a monoid, unlike "keep the old value unless it moved far"), never below m and
less than `bound` above it, and it stays where it is until m crosses a multiple of `bound`.
Bodies and corrections read t in place of m: exp(x - t) is at most 1 and at least exp(-bound)
times what it was, and where t did not move the correction is the identity. The results are
exact: the last correction, from t to m itself, happens once, behind the loop.
"""

from __future__ import annotations

from dataclasses import replace

from neptune_mlir.algebra.chain import Running, Solution
from neptune_mlir.algebra.terms import Term, const, make, ref, rewrite, substitute, walk


def lazily(solution: Solution, bound: float) -> Solution:
    """`solution` with an anchor for every running maximum that corrections refer to.

    Args:
        bound: how far a reference may lag, in units of the exponent; positive.

    The obligations hold as they stand: they are about any value of the references.
    """
    by_name = {r.name: r for r in solution.running}
    wanted = [
        name
        for r in solution.running
        if r.correction and r.correction.form == "exponential"
        for name in r.correction.references
    ]
    anchored = {n for n in wanted if by_name[n].combiner == "max" and not by_name[n].correction}
    # an anchor must serve all who read the maximum, or they would disagree
    for r in solution.running:
        repaired = set(r.correction.references) if r.correction else set()
        exponential = r.correction is not None and r.correction.form == "exponential"
        for n in walk(r.body):
            if n.op == "ref" and n.attr in anchored and not (exponential and n.attr in repaired):
                anchored.discard(n.attr)
    if not anchored:
        return solution
    running: list[Running] = []
    for r in solution.running:
        running.append(_reading_anchors(r, anchored))
        if r.name in anchored:
            running.append(_anchor(r, bound))
    lagging = {
        r.name: r
        for r in solution.running
        if r.correction and anchored & set(r.correction.references)
    }
    finals = {k: _caught_up(f, lagging, anchored) for k, f in solution.finals.items()}
    steps = tuple(
        f"{name}: lazy: {_name(name)} lags it by less than {bound:g}, and moves in steps of that"
        for name in sorted(anchored)
    )
    return replace(
        solution, running=tuple(running), finals=finals, steps=(*solution.steps, *steps)
    )


def _name(reference: str) -> str:
    return f"{reference}.anchor"


def _anchor(r: Running, bound: float) -> Running:
    step = const(bound, r.dtype)
    body = make("mul", make("ceil", make("div", r.body, step)), step)
    return replace(r, name=_name(r.name), body=body)


def _reading_anchors(r: Running, anchored: set[str]) -> Running:
    def rule(n: Term) -> Term | None:
        if n.op != "ref":
            return None
        if n.attr in anchored:
            return ref(_name(n.attr), *n.args, dtype=n.dtype)
        if isinstance(n.attr, tuple) and n.attr[0] in ("old", "new") and n.attr[1] in anchored:
            return ref((n.attr[0], _name(n.attr[1])), *n.args, dtype=n.dtype)
        return None

    correction = r.correction
    if correction is not None:
        references = tuple(_name(n) if n in anchored else n for n in correction.references)
        correction = replace(correction, h=rewrite(correction.h, rule), references=references)
    return replace(r, body=rewrite(r.body, rule), correction=correction)


def _caught_up(final: Term, lagging: dict[str, Running], anchored: set[str]) -> Term:
    """The final value over accumulators that are brought from the anchor to the maximum."""
    table: dict[Term, Term] = {}
    for n in walk(final):
        if n.op == "ref" and n.attr in lagging:
            table[n] = _last_correction(n, lagging[n.attr], anchored)
    return substitute(final, table)


def _last_correction(value: Term, r: Running, anchored: set[str]) -> Term:
    correction = r.correction
    assert correction is not None
    moved: list[Term] = []

    def rule(n: Term) -> Term | None:
        if n.op != "ref" or not isinstance(n.attr, tuple):
            return None
        side, name = n.attr
        if side == "acc":
            return value if name == r.name else ref(name, dtype=n.dtype)
        at = ref(_name(name) if name in anchored and side == "old" else name, dtype=n.dtype)
        if side == "old" and name in anchored:
            moved.append(make("ne", at, ref(name, dtype=n.dtype)))
        return at

    h = rewrite(correction.h, rule)
    apart = moved[0]
    for other in moved[1:]:
        apart = make("or", apart, other)
    return make("select", apart, h, value)  # -inf - -inf: nothing was seen, nothing to repair
