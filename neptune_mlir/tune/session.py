# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A search over the knobs of one program: tries points until a budget ends, then lets the best ones
and the rule take turns. The result is JSON data, with the best cost over evaluations."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.targets.findings import ProgramFinding
from neptune_mlir.tune.gain import Gain, gain
from neptune_mlir.tune.search import Point, Search
from neptune_mlir.tune.trial import Measured, Trial

FINALISTS = 3
DROPPED = 1.5  # times the least cost, after a first round


@dataclass(frozen=True)
class Budget:
    """`evaluations` at most, none begun after `seconds`; `rounds` of the finalists."""

    evaluations: int = 50
    seconds: float = math.inf
    rounds: int = 10


def run(
    trial: Trial, space: Mapping[str, Mapping[str, Sequence[int]]], budget: Budget, seed: int,
    say: Callable[[str], None],
) -> tuple[dict[str, Any], ProgramFinding | None]:  # fmt: skip
    """What was tried, and what won over the rule by more than the noise (None: nothing did)."""
    search = Search(space, seed)
    started, rows, least = time.monotonic(), list[dict[str, Any]](), 1.0
    say(f"{search.size} points; the rule's kernel is 1.00")
    while len(rows) < budget.evaluations and time.monotonic() - started < budget.seconds:
        point = search.propose()
        if point is None:
            say("every point was tried")
            break
        cost, why = trial.try_point(point, DROPPED * least)
        search.tell(point, cost)
        if cost is not None and cost < least:
            least = cost
            say(f"{len(rows) + 1:4}  {cost:.3f} of the rule's time: {point}")
        rows.append({"script": point.script, "knobs": dict(point.knobs), "cost": cost, "why": why,
                     "best": least, "seconds": round(time.monotonic() - started, 2)})  # fmt: skip
    failed = [row for row in rows if row["cost"] is None]
    if failed:
        say(f"{len(failed)} of {len(rows)} did not count; the first: {failed[0]['why']}")
    finals = _finals(trial, search.best(FINALISTS), budget.rounds)
    found: dict[str, Any] = {"target": trial.target, "points": search.size, "seed": seed,
             "rows": rows, "finals": [f.as_json() for f in finals]}  # fmt: skip
    best = max(finals, key=lambda f: f.gain.gain, default=None)
    if best is None or not best.gain.counts:
        say("the rule stays" + (f": {best.gain} of {best.point}" if best else ""))
        return found, None
    say(f"{best.gain}: {best.point}")
    measured = {"gain": round(best.gain.gain, 3), "spread": round(best.gain.spread, 3),
                "evaluations": len(rows)}  # fmt: skip
    return found, trial.finding(best.point, measured)


@dataclass(frozen=True)
class Final:
    point: Point
    measured: Measured

    @property
    def gain(self) -> Gain:
        """Over the rule: of the geometric mean of the lengths in each round."""
        rule, own = (
            [math.exp(sum(map(math.log, times)) / len(times)) for times in zip(*every, strict=True)]
            for every in (self.measured.rule, self.measured.own)
        )
        return gain(rule, own)

    def as_json(self) -> dict[str, Any]:
        return {
            "script": self.point.script, "knobs": dict(self.point.knobs),
            "seconds": [list(times) for times in self.measured.own],
            "rule_seconds": [list(times) for times in self.measured.rule],
            "gain": self.gain.gain, "spread": self.gain.spread,
        }  # fmt: skip


def _finals(trial: Trial, points: Sequence[Point], rounds: int) -> list[Final]:
    measured = trial.finals(points, rounds) if points else []
    return [Final(p, m) for p, m in zip(points, measured, strict=True)]
