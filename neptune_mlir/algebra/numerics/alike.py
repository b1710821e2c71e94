# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One stress test for chains that differ in nothing but names.

The layers of a network are the same chain over other tensors, and a long chain is tried in many
windows that are alike. The test looks at no name, so what it said of one it says of the other.
Which elements of an array are read, where all positions along a dimension are constants (steps of
a recurrence), are names as well. So are the numbers of axes, but for their order: a program has the
axes of all its reductions, and no chain has them all.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Reduction, Solution
from neptune_mlir.algebra.numerics.remembered import remembered
from neptune_mlir.algebra.numerics.stress import LENGTH, PLANS, Failure, Report, stress
from neptune_mlir.algebra.terms import Term

KEPT = 256  # verdicts


@dataclass(frozen=True)
class _Unnamed:
    """A stress test by its content: equal where only names differ."""

    content: Hashable
    run: Callable[[], Report] = field(compare=False)
    names: tuple[Any, ...] = field(compare=False)


def stressed(
    chain: Sequence[Reduction], solution: Solution | Sequence[Reduction], axis: int,
    outputs: Mapping[str, Term], fused_outputs: Mapping[str, Term], nonneg: Collection[Any],
    length: int = LENGTH, plans: Sequence[tuple[int, int]] = PLANS,
) -> Report:  # fmt: skip
    """`stress`, once for all chains that are alike."""
    change = _closed_up([*_terms(chain, outputs), *fused_outputs.values()])
    chain = [replace(r, body=change(r.body)) for r in chain]
    if isinstance(solution, Solution):
        solution = solution.mapped(change)
    else:
        solution = [replace(r, body=change(r.body)) for r in solution]
    outputs, fused_outputs = (
        {name: change(t) for name, t in given.items()} for given in (outputs, fused_outputs)
    )
    change = _ClosedAxes(chain, solution, axis, [*outputs.values(), *fused_outputs.values()])
    chain, axis = change.chain(chain), change.places[axis]
    if isinstance(solution, Solution):
        solution = change.solution(solution)
    else:
        solution = change.chain(solution)
    outputs, fused_outputs = (
        {name: change.term(t) for name, t in given.items()} for given in (outputs, fused_outputs)
    )
    naming = _Naming()
    fused: Hashable = (
        naming.solution(solution) if isinstance(solution, Solution) else naming.chain(solution)
    )
    content = (
        naming.chain(chain), fused, axis, naming.outputs(outputs), naming.outputs(fused_outputs),
        frozenset(naming.number(k) for k in naming.known & set(nonneg)), length, tuple(plans),
    )  # fmt: skip

    def run() -> Report:
        return stress(
            chain, solution, axis, outputs=outputs, fused_outputs=fused_outputs, nonneg=nonneg,
            length=length, plans=plans,
        )  # fmt: skip

    report, names = _verdict(_Unnamed(content, run, tuple(naming.table)))
    return _renamed(report, dict(zip(names, naming.table, strict=True)))


def digest(
    chain: Sequence[Reduction], axis: int, outputs: Mapping[str, Term], nonneg: Collection[Any]
) -> str:
    """Text that chains have in common which are alike, the same in every process."""
    naming, change = _Naming(), _closed_up(_terms(chain, outputs))
    chain = [replace(r, body=change(r.body)) for r in chain]
    outputs = {name: change(t) for name, t in outputs.items()}
    content = [
        (T.key(body), *rest) for body, *rest in naming.chain(chain)
    ], [(number, T.key(t)) for number, t in naming.outputs(outputs)]  # fmt: skip
    never = sorted(naming.number(k) for k in naming.known & set(nonneg))
    return hashlib.sha256(repr((content, axis, never)).encode()).hexdigest()[:16]


@lru_cache(maxsize=KEPT)
def _verdict(test: _Unnamed) -> tuple[Report, tuple[Any, ...]]:
    """What was said of a test, and the names that its content had then."""
    numbers = {name: str(k) for k, name in enumerate(test.names)}

    def run() -> dict[str, Any]:
        report = test.run()
        if report.failure is not None:  # the data are large, and have names of their own
            report = replace(report, failure=replace(report.failure, data={}))
        return asdict(_renamed(report, numbers))

    found = _as_report(remembered(test.content, run))
    return _renamed(found, {k: name for name, k in numbers.items()}), test.names


def _as_report(found: Mapping[str, Any]) -> Report:
    """A report from what `asdict` made of it."""
    failure = found["failure"]
    return Report(
        found["fused"], found["unfused"], found["runs"], failure and Failure(**failure)
    )


def forget_verdicts() -> None:
    """Drop what is kept."""
    _verdict.cache_clear()


def _terms(chain: Sequence[Reduction], outputs: Mapping[str, Term]) -> list[Term]:
    return [*(r.body for r in chain), *outputs.values()]


def _closed_up(terms: Iterable[Term]) -> Callable[[Term], Term]:
    """A change of terms: along dimensions where these read an array at constants alone, what is
    read comes first. (A test makes arrays up to the last element that is read.)"""
    places: dict[tuple[Any, int], set[Term]] = defaultdict(set)
    for n in {n for t in terms for n in T.walk(t) if n.op == "read"}:
        for k, position in enumerate(n.args):
            places[n.attr, k].add(position)
    closer = {
        place: {old: T.const(new, old.dtype) for new, old in enumerate(sorted(found, key=_value))}
        for place, found in places.items() if all(position.is_const for position in found)
    }  # fmt: skip

    def rule(n: Term) -> Term | None:
        if n.op != "read":
            return None
        args = [closer.get((n.attr, k), {}).get(i, i) for k, i in enumerate(n.args)]
        return T.term("read", args, n.attr, n.dtype)

    return lambda t: T.rewrite(t, rule) if closer else t


def _value(position: Term) -> Any:
    return position.value


class _ClosedAxes:
    """A change of terms: the axes that a chain has are numbered in their order, without gaps."""

    def __init__(
        self, chain: Sequence[Reduction], solution: Solution | Sequence[Reduction], axis: int,
        outputs: Iterable[Term],
    ) -> None:  # fmt: skip
        terms, lists = [*outputs], [[axis]]
        if isinstance(solution, Solution):
            lists += [[*r.axes, *r.folded] for r in solution.running]
            terms += [r.body for r in solution.running] + [*solution.finals.values()]
            terms += [r.correction.h for r in solution.running if r.correction]
            reductions = [*chain]
        else:
            reductions = [*chain, *solution]
        terms += [r.body for r in reductions]
        lists += [[*r.axes] for r in reductions if r.axes is not None]
        known = sorted({*itertools.chain(*lists, *(t.axes for t in terms))})
        self.places = {old: new for new, old in enumerate(known)}
        self._indices = {old: T.index(new) for old, new in self.places.items()}

    def term(self, t: Term) -> Term:
        return T.rename_axes(t, self._indices)

    def _listed(self, axes: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.places[k] for k in axes)

    def chain(self, chain: Sequence[Reduction]) -> list[Reduction]:
        axes = [None if r.axes is None else self._listed(r.axes) for r in chain]
        return [
            replace(r, body=self.term(r.body), axes=a) for r, a in zip(chain, axes, strict=True)
        ]

    def solution(self, solution: Solution) -> Solution:
        solution = solution.mapped(self.term)
        running = [
            replace(r, axes=self._listed(r.axes), folded=self._listed(r.folded))
            for r in solution.running
        ]
        return replace(solution, running=tuple(running))


class _Naming:
    """Numbers instead of names, in order of appearance."""

    def __init__(self) -> None:
        self.table: dict[Any, int] = {}

    @property
    def known(self) -> set[Any]:
        return set(self.table)

    def number(self, name: Any) -> int:
        return self.table.setdefault(name, len(self.table))

    def term(self, t: Term) -> Term:
        def rule(n: Term) -> Term | None:
            if n.op not in ("read", "ref", "sym"):
                return None
            side, name = None, n.attr
            if n.op == "ref" and isinstance(name, tuple) and len(name) == 2:
                side, name = name  # of a correction: the old, the new, ...
            return T.term(n.op, n.args, (side, self.number(name)), n.dtype)

        return T.rewrite(t, rule)

    def chain(self, chain: Sequence[Reduction]) -> tuple[tuple[Any, ...], ...]:
        return tuple(
            (self.term(r.body), self.number(r.name), r.combiner, r.dtype, r.axes) for r in chain
        )

    def outputs(self, outputs: Mapping[str, Term]) -> tuple[tuple[int, Term], ...]:
        return tuple((self.number(name), self.term(t)) for name, t in outputs.items())

    def solution(self, solution: Solution) -> Hashable:
        running = []
        for r in solution.running:
            correction = r.correction and (
                self.term(r.correction.h), tuple(map(self.number, r.correction.references))
            )
            running.append((
                self.number(r.name), r.combiner, self.term(r.body), correction, r.dtype, r.axes,
                r.folded,
            ))  # fmt: skip
        return tuple(running), self.outputs(solution.finals)


def _renamed(report: Report, names: Mapping[Any, Any]) -> Report:
    """A report in other names."""
    if all(old == new for old, new in names.items()):
        return report
    failure = report.failure
    if failure is not None:
        texts = {str(old): str(new) for old, new in names.items()}
        case = re.sub(r"(?<= \()[^()]*(?=\))", lambda m: texts.get(m[0], m[0]), failure.case)
        failure = replace(failure, case=case, result=names[failure.result])
    return replace(
        report, failure=failure, fused={names[k]: v for k, v in report.fused.items()},
        unfused={names[k]: v for k, v in report.unfused.items()},
    )  # fmt: skip
