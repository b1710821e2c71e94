# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiling strategies that a target tries in order: schedule knobs, passes, an applicability test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from neptune_mlir.pipelines.runner import Step


@dataclass(frozen=True)
class Way:
    """One way.

    Attributes:
        knobs: bindings of shipped schedules, by the schedule's name.
        steps: passes on the tile program that belong to this way.
        suits: whether this way is for a tile program, by what they left; it changes nothing.
        applies: the same, asked of what a schedule makes of a program whatever its numbers are.
        few: further knobs, by schedule, for launches of few programs, which make more of them; the
            second for those with short streams.
        cut: ways of cutting streams into chunks for calls with few rows, the best first; none: they
            are not cut.
        most: rows of a tile of such a way, at most, and `least`, at least.
        spare: whether it is for tiles that find multiprocessors idle (`Case.spare`).
        smaller: further knobs, one after the other, for a variant whose code spills or takes more
            memory than there is.
        narrow: further knobs, by schedule, for programs whose products stream elements of so many
            bytes, `narrow_bytes`.
        shorter: a length of such a stream, and a further knob for calls with no longer ones, or
            with fewer programs than there are processors (0: none).
        rows: numbers of rows of a stream, and a further knob for calls with no more than that.
        lengths: the same of lengths of a stream without products, by schedule; and a number that
            these are more than.
        longer: a further knob for calls with longer streams, where shorter ones are known apart.
        needs: a knob; who sets it to 0 does not want this way.
        multiplies_bytes: whether products may take factors of 8 bits.
        schedule: in place of the one that the rule chooses.
        spills: whether code is taken that keeps registers in memory; else the next way is tried.
    """

    knobs: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    suits: Callable[[Any], bool] = lambda module: True
    applies: Callable[[Any], bool] | None = None
    multiplies_bytes: bool = False
    spills: bool = True
    few: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cut: tuple[Way, ...] = ()
    most: int = 0
    least: int = 0
    spare: bool = False
    smaller: tuple[str, ...] = ()
    narrow: Mapping[str, str] = field(default_factory=dict)
    narrow_bytes: int = 1
    shorter: tuple[int, str] = (0, "")
    rows: tuple[tuple[int, str], ...] = ()
    lengths: Mapping[str, tuple[tuple[int, str, int], ...]] = field(default_factory=dict)
    longer: str = ""
    needs: str = ""
    schedule: str = ""

    def takes(self, schedule: str, rows: int) -> bool:
        """Whether it is for tiles of so many rows, and knows a schedule."""
        return schedule in self.knobs and self.least <= rows <= (self.most or rows)

    @classmethod
    def unfused(cls, shared: int) -> Way:
        """The last resort for a program with a kernel that all other ways give more shared memory
        than there is: each reduction is a kernel of its own, whose factors take a third (for there
        may be two stages of them, and what lies between)."""
        return cls({"unfused": f"shared:{shared // 3}"}, schedule="unfused")

    def within(self, shared: int) -> Way:
        """This way with so many KiB of shared memory for tiles of streams in chunks."""
        way = self
        for schedule in self.knobs:
            if schedule in ("private", "ahead_private"):
                way = way.bound(schedule, f"shared:{shared}")
        return way

    def bound(self, schedule: str, knob: str) -> Way:
        """This way with one more knob (`name:value`) of a schedule."""
        knobs = ";".join(filter(None, [self.knobs.get(schedule, ""), knob]))
        return replace(self, knobs={**self.knobs, schedule: knobs})


def ways_of(pipeline: Any, target: str) -> tuple[Way, ...]:
    """The ways of a pipeline for one chip, the best first; the last takes any program."""
    if hasattr(pipeline, "ways"):
        return tuple(pipeline.ways(target))
    return (Way(getattr(pipeline, "KNOBS", {})),)
