# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a device knows of reductions over a sharded axis, and how such knowledge is joined.

The reductions over the axis are a chain, solved as for one kernel: running values, each with the
correction that repairs it when a reference moved. A device's running values over its piece are
*parts*. Joining them is `privatize`'s global nest: the parts are re-based from their own reference
to the joined one by the same corrections, then reduced.

Where no result depends on the exact value of a reference m, one sum of the chain can be 1: measured
from t = m + log l, a sum l that is corrected by exp(m - t) is l * exp(-log l). Then t travels in
place of m and l, and every other sum as x / l (`normalised`), whose size is that of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Reduction, Running, Solution, instead
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.numerics.accept import accept
from neptune_mlir.algebra.proofs.proof import PROVED, Obligation, acc, discharge, new, old
from neptune_mlir.algebra.terms import Term
from neptune_mlir.errors import InputError
from neptune_mlir.frontend.gradient.invariance import free_value
from neptune_mlir.frontend.program import Program, ReductionStep


@dataclass(frozen=True)
class RunningPart:
    """A running value as it travels.

    Attributes:
        name: of the result of the local program, and of the argument of the join.
        running: what it is of.
        value: over `read` of the running values of the local program.
        empty: what a device gives that has nothing to reduce.
    """

    name: str
    running: Running
    value: Term
    empty: float | bool

    @property
    def axes(self) -> tuple[int, ...]:
        return self.running.axes


@dataclass(frozen=True)
class Partials:
    """The parts of the reductions over one axis.

    Attributes:
        total: the sum that is 1 in every part that is not empty, and does not travel.
        obligations: what was proved so that it is.
    """

    axis: int
    steps: tuple[ReductionStep, ...]
    solution: Solution
    parts: tuple[RunningPart, ...]
    total: str | None = None
    obligations: tuple[Obligation, ...] = ()

    @property
    def keys(self) -> set[str]:
        return {s.key for s in self.steps}


def partials_over(program: Program, axis: int, meaning: Program, first: int) -> Partials | None:
    """The parts of the reductions over `axis`; None where there is none.

    Args:
        program: localized.
        meaning: the program whose results count: where those do not depend on a reference, another
            may be taken.
        first: the number of the first part.

    Raises:
        FusionError: the chain has no correction.
        InputError: a reduction over the axis that another device has to wait for.
    """
    steps = tuple(s for s in program.steps if axis in s.removed)
    if not steps:
        return None
    keys = {s.key for s in steps}
    chain = [
        Reduction(s.key, s.combiner, _refs(s.body, keys), s.body.dtype, s.kept) for s in steps
    ]
    solution, _ = accept(chain, axis, _outputs(program, keys))
    found = Partials(axis, steps, solution, _plain(solution, first))
    return normalised(found, meaning, first) or found


def _refs(t: Term, keys: set[str]) -> Term:
    return T.rewrite(t, lambda n: T.ref(n.attr, *n.args, dtype=n.dtype)
                     if n.op == "read" and n.attr in keys else None)  # fmt: skip


def _outputs(program: Program, keys: set[str]) -> dict[str, Term]:
    """What the chain has to give: the results, or where more stands between, the reductions."""
    found: dict[str, Term] = {}
    steps = {s.key: s for s in program.steps}
    for output in program.outputs:
        made = {r.attr for r in T.reads(output.term)} & steps.keys()
        if made and made <= keys:
            found[output.name] = _refs(output.term, keys)
    if found:
        return found
    return {k: T.ref(k, dtype=s.body.dtype) for k, s in steps.items() if k in keys}


def reading(t: Term, axes: dict[str, tuple[int, ...]]) -> Term:
    """References to running values as reads of what the local program computes."""

    def rule(n: Term) -> Term | None:
        if n.op != "ref" or n.attr not in axes:
            return None
        at = n.args or tuple(map(T.index, axes[n.attr]))
        return T.read(n.attr, *at, dtype=n.dtype)

    return T.rewrite(t, rule)


def _plain(solution: Solution, first: int) -> tuple[RunningPart, ...]:
    parts = []
    for k, r in enumerate(solution.running):
        empty = lookup(r.combiner).identity_on(r.dtype)
        if empty is None:
            raise InputError(f"the combiner '{r.combiner}' has no neutral element: it has no parts")
        value = T.read(r.name, *map(T.index, r.axes), dtype=r.dtype)
        parts.append(RunningPart(f"part{first + k}", r, value, empty))
    return tuple(parts)


def normalised(partials: Partials, meaning: Program, first: int) -> Partials | None:
    """The parts with one sum as 1, where a proof allows it."""
    running = partials.solution.running
    corrected = [r for r in running if r.correction is not None]
    names = {n for r in corrected for n in r.correction.references}  # type: ignore[union-attr]
    if len(names) != 1 or any(not T.is_float(r.dtype) for r in running):
        return None
    (name,) = names
    m = next(r for r in running if r.name == name)
    if m.combiner != "max" or m.correction is not None or not _is_free(name, meaning):
        return None
    for total in corrected:
        if total.axes == m.axes and total.name in partials.solution.facts.nonneg:
            proof = _measured_from_log(partials.solution, m, total, corrected)
            if proof is not None:
                made = _parts_of(running, m, total, corrected, first)
                return replace(partials, parts=made, total=total.name, obligations=proof)
    return None


def _is_free(name: str, meaning: Program) -> bool:
    reductions = [Reduction(s.key, s.combiner, s.body, s.body.dtype, s.kept) for s in meaning.steps]
    return free_value(name, reductions, [o.term for o in meaning.outputs]) is not None


def _measured_from_log(
    solution: Solution, m: Running, total: Running, corrected: Sequence[Running]
) -> tuple[Obligation, ...] | None:
    """h(x, m, m + log l) = x / l for every corrected x, so 1 for l itself; None without proof."""
    facts = Facts(frozenset())
    facts.nonneg.add(total.name)
    normal = Normaliser(facts, reals=True)
    reference, sum_ = T.ref(m.name, dtype=m.dtype), T.ref(total.name, dtype=total.dtype)
    there = T.make("add", reference, T.make("log", sum_))
    found = []
    for r in corrected:
        own = T.ref(r.name, dtype=r.dtype)
        table = {old(m.name, m.dtype): reference, new(m.name, m.dtype): there}
        assert r.correction is not None
        h = T.substitute(r.correction.h, table | {acc(r.name, r.dtype): own})
        if any(n.op == "ref" and isinstance(n.attr, tuple) for n in T.walk(h)):
            return None  # it takes another accumulator along
        obligation = discharge(
            Obligation("normalised", r.name, h, T.make("div", own, sum_)), normal
        )
        if obligation.status != PROVED:
            return None
        found.append(obligation)
    return tuple(found)


def _parts_of(
    running: Sequence[Running], m: Running, total: Running, corrected: Sequence[Running], first: int
) -> tuple[RunningPart, ...]:
    def value(r: Running) -> Term:
        return T.read(r.name, *map(T.index, r.axes), dtype=r.dtype)

    sum_, zero = value(total), T.const(0.0, total.dtype)
    parts: list[RunningPart] = []
    for r in running:
        name = f"part{first + len(parts)}"
        if r is m:  # an empty part: its guarded reference 0, and log 0
            given = T.make("add", instead(value(m), -math.inf), T.make("log", sum_))
            parts.append(RunningPart(name, r, given, -math.inf))
        elif r in corrected and r is not total:
            ratio = T.make("div", value(r), sum_)
            given = T.make("select", T.make("eq", sum_, zero), T.const(0.0, r.dtype), ratio)
            parts.append(RunningPart(name, r, given, 0.0))
        elif r is not total:
            empty = lookup(r.combiner).identity_on(r.dtype)
            assert empty is not None
            parts.append(RunningPart(name, r, value(r), empty))
    return tuple(parts)
