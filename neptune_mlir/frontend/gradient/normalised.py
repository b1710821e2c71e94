# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is saved for a backward pass, in its shortest form: a reference that makes its sum 1.

No result depends on the reference t that a softmax subtracts (`invariance`), so the gradient does
not either. Where a sum T scales by exp(t - t') as t moves to t', there is one reference for which
it is 1:

    t' = t + log T      T' = 1      and every X that scales alike becomes X / T

So t + log T, the log-sum-exp, is saved in place of t, T and the sums in T; X / T mostly is a result
of the program already, and a backward pass has no division left. Where T is 0, nothing has any
weight: t' is +inf, and exp(x - t') is 0 for every x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.terms import Term
from neptune_mlir.frontend.gradient.derivatives import masks_outside
from neptune_mlir.frontend.gradient.invariance import NEW, OLD, gates, scales_by
from neptune_mlir.frontend.gradient.reverse import free_extrema
from neptune_mlir.frontend.program import Program, ReductionStep


@dataclass(frozen=True)
class SavedValue:
    """What the backward pass reads in place of `term`: it is equal to `saved`, over `axes`."""

    term: Term
    saved: Term
    axes: tuple[int, ...]
    why: str


def normalised(
    program: Program, gradient: Program, steps: Sequence[ReductionStep]
) -> tuple[list[SavedValue], dict[Term, Term], set[str]]:
    """The values to save in place of reductions, and what becomes of terms of the gradient.

    Args:
        steps: the reductions of `program` that the gradient reads and that would be saved.

    Returns:
        The values; constants in place of terms; the names of the steps that are then not read.
    """
    values: list[SavedValue] = []
    ones: dict[Term, Term] = {}
    gone: set[str] = set()
    for free in free_extrema(program):
        found = _of_reference(program, gradient, steps, masks_outside(free.value))
        if found is not None and not gone & found[2]:
            values += found[0]
            ones |= found[1]
            gone |= found[2]
    return values, ones, gone


def _of_reference(
    program: Program, gradient: Program, steps: Sequence[ReductionStep], t: Term
) -> tuple[list[SavedValue], dict[Term, Term], set[str]] | None:
    """The same for one value that no result depends on."""
    names = {s.key for s in steps}
    roots = [*(s.body for s in gradient.steps if s.key not in names),
             *(o.term for o in gradient.outputs)]  # fmt: skip
    bodies = {s.key: masks_outside(s.body) for s in program.steps}
    reductions = [
        Reduction(s.key, s.combiner, bodies[s.key], s.body.dtype, s.kept) for s in program.steps
    ]
    extrema = {r.attr for r in T.reads(t)} & bodies.keys()
    moving = [s for s in steps if s.key not in extrema and _depends(s.key, t, bodies)]
    for total in _totals(moving, roots, t):
        inside = ({r.attr for r in T.reads(total)} & bodies.keys()) - extrema
        others = [s for s in moving if s.key not in inside]
        reads = [T.read(s.key, *map(T.index, s.kept), dtype=s.body.dtype) for s in others]
        phi = T.make("exp", T.make("sub", *(_as(x, t.dtype) for x in (OLD, NEW))))
        if _hidden(extrema | inside, roots, {t, total}) and scales_by(
            t, reductions, [total, *reads], phi
        ):
            return _values(t, total, others, reads), {total: T.const(1.0, total.dtype)}, (
                extrema | {s.key for s in moving}
            )
    return None


def _as(symbol: Term, dtype: str) -> Term:
    return T.make("cast", symbol, dtype=dtype)


def _values(
    t: Term, total: Term, others: Sequence[ReductionStep], reads: Sequence[Term]
) -> list[SavedValue]:
    zero, axes = T.const(0.0, total.dtype), tuple(sorted(t.axes))
    nothing = T.make("eq", total, zero)
    log = T.make("add", t, T.make("log", total))
    found = [SavedValue(t, T.make("select", nothing, T.const(math.inf, t.dtype), log), axes,
                   "the reference for which its sum is 1")]  # fmt: skip
    for step, read in zip(others, reads, strict=True):
        share = T.make("select", nothing, zero, T.make("div", read, total))
        found.append(SavedValue(read, share, tuple(step.kept), "divided by the sum"))
    return found


def _depends(name: str, t: Term, bodies: dict[str, Term]) -> bool:
    """Whether a reduction reads `t`, directly or not."""
    body = bodies[name]
    return any(n is t for n in T.walk(body)) or any(
        _depends(r.attr, t, bodies) for r in T.reads(body) if r.attr in bodies
    )


def _totals(steps: Sequence[ReductionStep], roots: Sequence[Term], t: Term) -> list[Term]:
    """Terms that may be the sum: over the axes of the reference, the largest first."""
    found = [g for s in steps for g in gates(s.key, roots) if set(s.kept) == t.axes]
    return sorted((g for g in dict.fromkeys(found) if g is not t), key=lambda g: -g.size)


def _hidden(names: set[str], roots: Sequence[Term], terms: set[Term]) -> bool:
    """Whether roots read these reductions through the terms only."""
    blank = {x: T.sym("hidden", x.dtype) for x in terms}
    # a term may stand within another: the larger one goes first
    for x in sorted(terms, key=lambda x: -x.size):
        roots = [T.substitute(r, {x: blank[x]}) for r in roots]
    return not any(r.attr in names for root in roots for r in T.reads(root))
