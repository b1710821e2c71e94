# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How programs of different lengths are to follow each other, so that a GPU is busy to the end.

Kernels whose blocks take program after program have those of the last points of their grid (lanes)
in order of length. Where even the shortest program is long, what is left of a GPU at the end is
decided by how many lanes these are: the runs of a device in the middle of a zigzag take between 0.7
and 10% longer than their sum. No formula is known; so the queue is run here, in numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from functools import lru_cache

from neptune_mlir.runtime.shards.layout import Call, Masks

TILE = 128  # points, of rows and of columns
MANY = 16  # programs for each multiprocessor: of more the last ones do not matter
TRIED = 8  # numbers of lanes
COSTS = 0.5, 1.5  # tiles that a program takes as long as, beside its own
GAIN = 0.998  # what more lanes in order have to take of the time: they share less


def last_lanes(
    masks: Masks, call: Call, sizes: Mapping[str, int], lanes: int, multiprocessors: int
) -> int:
    """Of how many of the last lanes the programs of a run come longest first; 0: any."""
    lengths = tiles(masks, call, sizes)
    few = lanes * len(lengths) <= MANY * multiprocessors
    return found(tuple(lengths), lanes, multiprocessors) if few and lengths else 0


def tiles(masks: Masks, call: Call, sizes: Mapping[str, int]) -> list[int]:
    """How many tiles of the last axis each tile of the first one meets by masks."""
    rows, columns = call.spans
    (begin, end), (low, high) = call.spans[rows], call.spans[columns]
    made = []
    for at in range(0, end - begin, TILE):
        lengths = {rows: min(TILE, end - begin - at), columns: 1}
        starts = {rows: call.starts[rows] + at, columns: call.starts[columns]}
        first, last = 0.0, float(high - low)
        for form in masks.forms:
            most, step = form.range(lengths, starts, sizes)[1], form.positions.get(columns, 0)
            if not form.known:
                continue
            if step < 0:
                last = min(last, most // -step + 1)
            elif step > 0:
                first = max(first, -(most // step))
        made.append(max(0, int(-(-last // TILE) - first // TILE)))
    return made


@lru_cache(maxsize=256)
def found(lengths: tuple[int, ...], lanes: int, multiprocessors: int) -> int:
    """The number of lanes with which a queue of programs is empty first. `lengths`: of a lane's."""
    best, time = 0, float("inf")
    for last in sorted({*range(1, min(lanes, TRIED) + 1), lanes}):
        each = order(lengths, lanes, last)
        needed = max(queued(each, cost, multiprocessors) for cost in COSTS)
        if needed < GAIN * time:
            best, time = last, needed
    return best


def order(lengths: Sequence[int], lanes: int, last: int) -> list[int]:
    """The lengths of the programs as `codegen.nvidia.program_order` has them."""
    down = list(reversed(lengths))
    return [*down * (lanes - last), *(x for x in down for _ in range(last))]


def queued(lengths: Sequence[int], cost: float, multiprocessors: int) -> float:
    """How long a queue takes, of what it would take if all multiprocessors ended together."""
    ends = [0.0] * multiprocessors
    for x in lengths:
        heapq.heapreplace(ends, ends[0] + x + cost)
    return max(ends) * multiprocessors / (sum(lengths) + cost * len(lengths))
