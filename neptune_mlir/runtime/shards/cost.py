# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long a program over devices takes: work, bytes on the link, and what of them is not hidden.

A device computes with its own data while those of the next owner come, and so on around; then it
joins its parts. With c(s) the time of the runs of step s, and x the time in which one owner's data
come,

    begin(0) = 0,   begin(s) = max(begin(s-1) + c(s-1), arrival(s))
    total = begin(n-1) + c(n-1) + join

where `arrival(s)` is `first + s * x`: transfers follow one another. `exposed` is the time in which
a device only waits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from neptune_mlir.errors import UsageError
from neptune_mlir.runtime.shards.layout import Call
from neptune_mlir.runtime.shards.plan import Run, ShardSchedule
from neptune_mlir.targets.links import Link

SAMPLED = 512  # rows of a run whose points are counted
MOST = 7  # devices that are looked at, and the first one
_BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i8": 1, "i1": 1,
          "f8E4M3FN": 1}


@dataclass(frozen=True)
class Speed:
    """Of one device: positions' pairs a second that one lane (a head of a batch, say) of the local
    kernel gets done, bytes a second of its memory, and seconds between two kernels."""

    points: float
    memory: float
    gap: float = 0.0


@dataclass(frozen=True)
class Prediction:
    """Seconds of the slowest device that was looked at: in all, in runs, waiting for data, and
    joining."""

    total: float
    compute: float
    exposed: float
    join: float


def predict(
    schedule: ShardSchedule, extents: Mapping[str, int], speed: Speed, link: Link
) -> Prediction:
    """The time of a program with two sharded axes.

    Args:
        extents: of every axis that is not sharded.
        speed: of one device; `points` over all lanes.
        link: from a device to the next one.

    Raises:
        UsageError: a program with one sharded axis, whose parts alone travel.
    """
    if len(schedule.plan.axes) != 2:
        raise UsageError("the model is for programs whose data travel", hint="two sharded axes")
    ranks = {r * (schedule.devices - 1) // MOST for r in range(MOST + 1)}
    every = [_ShardDevice(schedule, extents, r).predict(speed, link) for r in sorted(ranks)]
    return max(every, key=lambda p: p.total)


class _ShardDevice:
    def __init__(self, schedule: ShardSchedule, extents: Mapping[str, int], rank: int):
        self.schedule, self.plan, self.rank = schedule, schedule.plan, rank
        self.extents = dict(self.plan.extents) | dict(extents)

    def predict(self, speed: Speed, link: Link) -> Prediction:
        plan, owners = self.plan, list(self.schedule.owners(self.rank))
        traveling = plan.axes[-1]
        moving = [a for a in plan.arguments if a.axes and traveling in a.axes]
        at, computed, exposed, arrival = 0.0, 0.0, 0.0, 0.0
        for step, owner in enumerate(owners):
            if step:
                size = sum(self._bytes(a.axes or (), a.dtype, owner) for a in moving)
                arrival += size / link.bandwidth + link.latency
                exposed += max(0.0, arrival - at)
                at = max(at, arrival)
            spent = sum(self._time(call, speed) for call in self._calls(owner))
            at, computed = at + spent, computed + spent
        back = sum(
            self._bytes(p.axes, p.dtype, owners[-1]) for p in plan.parts if p.over != traveling
        )
        if back:  # beside the parts of the last step come the runs that are late
            late = sum(self._time(run.call, speed) for run in self._late())
            shown = max(0.0, back / link.bandwidth + link.latency - late)
            at, computed, exposed = at + late + shown, computed + late, exposed + shown
        join = sum(self._join(over, speed) for over in plan.joins)
        return Prediction(at + join, computed, exposed, join)

    def _bytes(self, axes: tuple[str, ...], dtype: str, owner: int) -> int:
        *staying, traveling = self.plan.axes
        sizes = {a: self.schedule.layouts[a].lengths[self.rank] for a in staying}
        sizes[traveling] = self.schedule.layouts[traveling].lengths[owner]
        return math.prod({**self.extents, **sizes}[a] for a in axes) * _BYTES[dtype]

    def _calls(self, owner: int) -> list[Call]:
        if self.plan.carries:
            return [link.call for link in self.schedule.chain(self.rank)[owner]]
        return [run.call for run in self.schedule.runs(self.rank, owner) if not run.late]

    def _late(self) -> list[Run]:
        return [run for run in self.schedule.runs(self.rank, self.rank) if run.late]

    def _time(self, call: Call, speed: Speed) -> float:
        return self.points(call) / speed.points + speed.gap

    def points(self, call: Call) -> float:
        """The pairs of positions that a run computes: those that its masks let through, counted row
        by row over a sample."""
        rows, columns = self.plan.axes
        (a, b), (c, d) = call.spans[rows], call.spans[columns]
        step = max(1, (b - a) // SAMPLED)
        sampled = range(step // 2, b - a, step)
        found = sum(self._seen(call, row, d - c) for row in sampled)
        return found * (b - a) / max(1, len(sampled))

    def _seen(self, call: Call, row: int, length: int) -> float:
        """How many columns a row sees: an interval, since every form is linear."""
        rows, columns = self.plan.axes
        low, high = 0.0, length - 1.0
        for f in self.plan.masks.forms:
            if not f.known:
                continue
            value = f.constant + f.positions.get(rows, 0) * row
            value += sum(c * call.starts[x] for x, c in f.starts.items())
            value += sum(c * self.schedule.sizes[x] for x, c in f.sizes.items())
            c = f.positions.get(columns, 0)
            if c > 0:
                low = max(low, math.ceil(-value / c))
            elif c < 0:
                high = min(high, math.floor(value / -c))
            elif value < 0:
                return 0.0
        return max(0.0, high - low + 1)

    def _join(self, over: str, speed: Speed) -> float:
        """Parts are read, results written; the local kernel's writes are hidden behind its work,
        and so are the parts that runs take along."""
        if self.plan.carries:
            return 0.0
        parts, kept = self.plan.parts_over(over), self.schedule.kept(over)
        total = 0.0
        for stretch in self.schedule.stretches(over, self.rank):
            length = stretch.span[1] - stretch.span[0]
            sizes = {**self.extents, kept: length}
            total += stretch.count * sum(
                math.prod(sizes[a] for a in p.axes) * _BYTES[p.dtype] for p in parts
            )
            total += sum(
                math.prod(sizes[a] for a in r.axes or ()) * _BYTES[r.dtype]
                for r in self.plan.joins[over].results
            )
        count = len(self.schedule.stretches(over, self.rank))
        return total / speed.memory + count * speed.gap
