# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How programs of different lengths are to follow each other, so that a GPU is busy to the end.

Kernels whose blocks take program after program have those of the last points of their grid (lanes)
in order of length. Where even the shortest program is long, what is left of a GPU at the end is
decided by how many lanes these are; and where the data of lanes come one after the other, programs
of all lanes at once wait for the last one's. No formula is known; so the queue is run here, in
numbers. Times are those of a tile. Programs that are all as long leave most of a GPU idle in the
last turn where they are few more than fill it (`left_over`).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from neptune_mlir.runtime.shards.layout import Call, Masks, Piece

TILE = 128  # points, of rows and of columns
MANY = 16  # programs for each multiprocessor: of more the last ones do not matter
TRIED = 8  # numbers of lanes
COSTS = 0.5, 1.5  # what a program takes beside its tiles
GAIN = 0.998  # what more lanes in order have to take of the time: they share less
COMING = 8  # tiles that come from another device in the time of a tile
BEGIN, EACH = 3.0, 5.0  # of a transfer, of a group of lanes
LEAST = 64  # tiles that chunks have to save, for there are two launches and a join more


@dataclass(frozen=True)
class Queue:
    """The programs of a run: of each tile of rows how many tiles of columns it meets, of this
    device's data (which are first) and of the other one's.

    Attributes:
        lanes: points of the grid beside rows.
        groups: in which the other one's data come, lane by lane; 0: they are there.
        fill: what programs that follow take.
    """

    own: tuple[int, ...]
    theirs: tuple[int, ...]
    lanes: int
    groups: int = 0
    fill: tuple[int, ...] = ()

    @property
    def programs(self) -> int:
        return len(self.own) * self.lanes

    def order(self, last: int) -> list[tuple[int, int]]:
        """Lane and tile of rows of each program, as `codegen.nvidia.program_order` has them."""
        rows, before = range(len(self.own))[::-1], self.lanes - last
        every = [(lane, row) for lane in range(before) for row in rows]
        return every + [(lane, row) for row in rows for lane in range(before, self.lanes)]

    def time(self, last: int, cost: float, multiprocessors: int) -> float:
        """How long it takes with so many lanes in order of length."""
        ends = [0.0] * multiprocessors
        most, groups = max(self.theirs), max(1, self.groups)
        each = self.lanes * most / COMING / groups + EACH
        for lane, row in self.order(last):
            at = ends[0] + self.own[row]
            if self.groups and self.theirs[row]:
                at = max(at, BEGIN + each * (lane * groups // self.lanes + 1))
            heapq.heapreplace(ends, at + self.theirs[row] + cost)
        for length in self.fill:
            heapq.heapreplace(ends, ends[0] + length + cost)
        return max(ends)


@lru_cache(maxsize=256)
def last_lanes(queue: Queue, multiprocessors: int) -> int:
    """The number of lanes in order of length with which a queue is empty first; 0: any."""
    differ = len(set(zip(queue.own, queue.theirs, strict=True))) > 1
    if not differ or queue.programs > MANY * multiprocessors:
        return 0
    best, time = 0, float("inf")
    for last in sorted({*range(1, min(queue.lanes, TRIED) + 1), queue.lanes}):
        needed = max(queue.time(last, cost, multiprocessors) for cost in COSTS)
        if needed < GAIN * time:
            best, time = last, needed
    return best


@dataclass(frozen=True)
class LeftOver:
    """What a run leaves over so that its programs fill all multiprocessors: of each lane the rows
    from `start` on. They are reduced in `chunks` chunks of each part of the columns, side by side,
    and these are joined."""

    start: int
    chunks: int


def left_over(
    rows: int, tile: int, lanes: int, columns: Sequence[int], multiprocessors: int
) -> LeftOver | None:
    """Of a run whose programs, of `tile` rows each, are all as long. A program that is left over
    keeps a few multiprocessors busy and the others waiting; None: that costs less than this."""
    count = -(-rows // tile)
    turns = (count * lanes - 1) // multiprocessors
    taken = -(-(count * lanes - turns * multiprocessors) // lanes)
    most = multiprocessors // (taken * lanes)
    fit = [n for n in range(2, most + 1) if not any(c % (n * TILE) for c in columns)]
    if not turns or taken >= count or not fit:
        return None
    saved = sum(columns) // TILE * (fit[-1] - 1) // fit[-1]
    return LeftOver((count - taken) * tile, fit[-1]) if saved > LEAST else None


def tiles(
    masks: Masks, call: Call, sizes: Mapping[str, int], part: Piece
) -> tuple[int, ...]:
    """How many tiles of a part of the last axis (of a run's own positions) each tile of the first
    axis meets by masks."""
    rows, columns = call.spans
    (begin, end), origin = call.spans[rows], call.spans[columns][0]
    made = []
    for at in range(0, end - begin, TILE):
        lengths = {rows: min(TILE, end - begin - at), columns: 1}
        starts = {rows: call.starts[rows] + at, columns: call.starts[columns]}
        first, last = float(part[0] - origin), float(part[1] - origin)
        for form in masks.forms:
            step = form.positions.get(columns, 0)
            if not form.known or not step:
                continue
            most = form.range(lengths, starts, sizes)[1]
            if step < 0:
                last = min(last, most // -step + 1)
            else:
                first = max(first, -(most // step))
        made.append(max(0, int(-(-last // TILE) - first // TILE)))
    return tuple(made)
