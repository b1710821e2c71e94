# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One stress test for chains that differ in nothing but names.

The layers of a network are the same chain over other tensors, and a long chain is tried in many
windows that are alike. The test looks at no name, so what it said of one it says of the other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
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
    naming = _Naming()
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
