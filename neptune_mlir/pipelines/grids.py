# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the grids of launches say of calls: how many programs there are, how busy the chip is."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import foralls, tuned
from neptune_mlir.runtime.plan import Expression, Launch, Plan
from neptune_mlir.transforms.tiling.lower_to_tiles import FEWER

if TYPE_CHECKING:
    from neptune_mlir.pipelines.cases import Case

SHORT = 1024  # points of a stream
# Of the multiprocessors, with which a stream is not cut; of few rows, which wait for memory
# (measured on an H200)
BUSY, BUSY_FEW = (17, 20), (3, 4)


def in_parts(variant: Plan) -> Launch:
    """The launch of a program's last stream, in chunks with which its grid begins: before the
    kernels that join them. (Reductions before it may be cut and joined as well.)"""
    last = variant.launches[-1].kernel
    joins = 1 + sum(launch.kernel in [last + s for s in FEWER] for launch in variant.launches)
    return variant.launches[-1 - joins]


def few(
    case: Case, plan: Plan, variant: Plan, rounds: Expression | None = None
) -> Expression:  # fmt: skip
    """Calls that are to take smaller tiles because their launch has few programs: with streams of
    any length if it leaves half of the multiprocessors idle (or as `rounds` say, where these are
    known), with short ones if a smaller tile has all rows that a larger one would. Where blocks
    share a multiprocessor, those with short streams too of which all its programs run at once: they
    wait less for the first and the last product.

    Args:
        plan: of the program for any call, one kernel.
        variant: of that with smaller tiles.
    """
    multiprocessors = ["multiprocessors"]  # of the device that is called
    idle = rounds or ["le", ["mul", 2, programs_of(plan)], multiprocessors]
    if case.length is None:
        return idle
    holds = ["and", ["le", case.length, SHORT], ["le", programs_of(variant), programs_of(plan)]]
    idle = ["or", idle, holds]
    if case.blocks == 1:
        return idle
    at_once = ["le", programs_of(variant), ["mul", case.blocks, multiprocessors]]
    fits = ["and", ["le", case.length, SHORT], at_once]
    return fits if case.short else ["or", idle, fits]


def is_idle(tiles: Expression, busy: tuple[int, int] = BUSY) -> Expression:
    """Whether programs of so many tiles do not keep the multiprocessors busy."""
    return ["lt", ["mul", busy[1], tiles], ["mul", busy[0], places_of(tiles)]]


def places_of(tiles: Expression) -> Expression:
    """For programs of so many tiles, in the rounds that they take on all multiprocessors."""
    chip = ["multiprocessors"]
    return ["mul", ["ceildiv", tiles, chip], chip]


def programs_of(plan: Plan) -> Expression:
    """Those of a program of one kernel, which others may look at masks for before."""
    return points_of(plan.launches[-1].grid) if plan.launches else 0


def visits_of(tiles: Expression, plan: Plan) -> Expression:
    """How many tiles are visited one after the other, at most, by programs that visit so many."""
    return ["mul", ["ceildiv", programs_of(plan), ["multiprocessors"]], tiles]


def points_of(grid: Sequence[Expression]) -> Expression:
    """How many programs a grid has; those of a kernel without parallel axes are its chunks."""
    return functools.reduce(lambda a, b: ["mul", a, b], grid[1:], grid[0]) if grid else 1


def blocks_of(module: Any) -> int:
    """How many blocks of a tile program are to share a multiprocessor, as `tile` noted."""
    return max((tuned(forall, "blocks", 1) for forall in foralls(module)), default=1)
