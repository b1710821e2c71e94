# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which positions of an axis each device holds, and which of them meet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, pairwise, product

from neptune_mlir.errors import UsageError

Piece = tuple[int, int]  # where it begins and ends on the whole axis
Cell = tuple[tuple[int, Piece], ...]  # of each axis a piece, with its number


@dataclass(frozen=True)
class ShardLayout:
    """The pieces of an axis on each device, in the order in which the device has them."""

    pieces: tuple[tuple[Piece, ...], ...]

    @classmethod
    def contiguous(cls, lengths: Sequence[int]) -> ShardLayout:
        """One piece a device, of these lengths."""
        ends = list(accumulate(lengths))
        return cls(tuple(((end - n, end),) for end, n in zip(ends, lengths, strict=True)))

    @classmethod
    def even(cls, size: int, devices: int) -> ShardLayout:
        """One piece a device, as equal as they can be."""
        cuts = [size * k // devices for k in range(devices + 1)]
        return cls(tuple((cut,) for cut in pairwise(cuts)))

    @classmethod
    def zigzag(cls, size: int, devices: int) -> ShardLayout:
        """Two pieces a device, one from each end: under a causal mask all have the same work."""
        cuts = [size * k // (2 * devices) for k in range(2 * devices + 1)]
        every = list(pairwise(cuts))
        return cls(tuple((every[r], every[-1 - r]) for r in range(devices)))

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(sum(end - start for start, end in own) for own in self.pieces)

    @property
    def size(self) -> int:
        return sum(self.lengths)

    def checked(self) -> ShardLayout:
        """Raises UsageError unless every position is in one piece."""
        at = 0
        for start, end in sorted(p for own in self.pieces for p in own if p[1] > p[0]):
            if start != at:
                where = "two devices" if start < at else "no device"
                raise UsageError(f"position {min(start, at)} of a sharded axis is on {where}")
            at = end
        return self


class Seen(Enum):
    """Which points of a rectangle of pieces contribute."""

    NONE, SOME, ALL = range(3)


@dataclass(frozen=True)
class Form:
    """`constant + sum of c * position in the piece + sum of c * start + sum of c * size`, each by
    axis; `known` is False where a kernel's argument is in it too."""

    constant: int
    positions: Mapping[str, int]
    starts: Mapping[str, int]
    sizes: Mapping[str, int]
    known: bool = True

    def range(
        self, lengths: Mapping[str, int], starts: Mapping[str, int], sizes: Mapping[str, int]
    ) -> tuple[float, float]:
        """The least and the largest value over a rectangle."""
        if not self.known:
            return -math.inf, math.inf
        low = self.constant + sum(c * starts[a] for a, c in self.starts.items())
        low += sum(c * sizes[a] for a, c in self.sizes.items())
        ends = [c * (lengths[a] - 1) for a, c in self.positions.items()]
        return low + sum(min(e, 0) for e in ends), low + sum(max(e, 0) for e in ends)


@dataclass(frozen=True)
class Call:
    """One run of the local program: of each sharded axis the positions, in the device's own order,
    that it takes, and the start that it is told."""

    spans: Mapping[str, Piece]
    starts: Mapping[str, int]

    def on(self, axis: str, span: Piece) -> Call:
        """The same run on other positions of an axis, counted alike."""
        moved = self.starts[axis] + span[0] - self.spans[axis][0]
        return Call({**self.spans, axis: span}, {**self.starts, axis: moved})


@dataclass(frozen=True)
class Masks:
    """Conditions on positions without which nothing is added: all forms are >= 0.

    `movable`: positions matter to nothing else.
    """

    forms: tuple[Form, ...]
    movable: bool

    def seen(
        self, lengths: Mapping[str, int], starts: Mapping[str, int], sizes: Mapping[str, int]
    ) -> Seen:
        """Which points of a rectangle contribute."""
        if not all(lengths.values()):
            return Seen.NONE
        ranges = [f.range(lengths, starts, sizes) for f in self.forms]
        if any(high < 0 for _, high in ranges):
            return Seen.NONE
        return Seen.ALL if all(low >= 0 for low, _ in ranges) else Seen.SOME

    def first(self, starts: Mapping[str, int], sizes: Mapping[str, int]) -> list[float]:
        """The forms at the first point: where they are equal the same points are seen."""
        one = dict.fromkeys(starts, 1)
        return [f.range(one, starts, sizes)[0] for f in self.forms]

    def calls(self, pieces: Mapping[str, Sequence[Piece]], sizes: Mapping[str, int]) -> list[Call]:
        """The runs that cover what contributes of all rectangles of pieces, as few as the masks
        allow: pieces side by side in memory are one span where positions that are counted through
        mean the same."""
        grid = [[(k, p) for k, p in enumerate(own) if p[1] > p[0]] for own in pieces.values()]
        return list(_Cover(self, pieces, sizes).of(grid))


class _Cover:
    """Covers a grid of pieces with runs."""

    def __init__(
        self, masks: Masks, pieces: Mapping[str, Sequence[Piece]], sizes: Mapping[str, int]
    ):
        self.masks, self.sizes = masks, sizes
        self.names = list(pieces)
        self.ends = {n: [0, *accumulate(b - a for a, b in own)] for n, own in pieces.items()}

    def of(self, grid: list[list[tuple[int, Piece]]]) -> Iterator[Call]:
        seen = {cell: self._seen(cell, self._true(cell)) for cell in product(*grid)}
        live = [cell for cell, s in seen.items() if s is not Seen.NONE]
        if not live:
            return
        grid = [[x for x in axis if any(cell[d] == x for cell in live)]
                for d, axis in enumerate(grid)]  # fmt: skip
        call = self._as_one(grid, seen)
        if call is not None:
            yield call
            return
        cut = next(d for d, axis in enumerate(grid) if len(axis) > 1)
        for x in grid[cut]:
            yield from self.of([*grid[:cut], [x], *grid[cut + 1 :]])

    def _true(self, cell: Cell) -> dict[str, int]:
        return {n: p[0] for n, (_, p) in zip(self.names, cell, strict=True)}

    def _seen(self, cell: Cell, starts: Mapping[str, int]) -> Seen:
        lengths = {n: p[1] - p[0] for n, (_, p) in zip(self.names, cell, strict=True)}
        return self.masks.seen(lengths, starts, self.sizes)

    def _as_one(
        self, grid: list[list[tuple[int, Piece]]], seen: Mapping[Cell, Seen]
    ) -> Call | None:
        """One run for all of a grid, where one start an axis gives every cell what it has."""
        spans = {}
        for n, axis in zip(self.names, grid, strict=True):
            ends, numbers = self.ends[n], [k for k, _ in axis]
            between = set(range(numbers[0], numbers[-1])) - set(numbers)
            if any(ends[k] != ends[k + 1] for k in between):
                return None
            spans[n] = (ends[numbers[0]], ends[numbers[-1] + 1])
        true = {n: axis[0][1][0] for n, axis in zip(self.names, grid, strict=True)}
        partly = (cell for cell in product(*grid) if seen[cell] is Seen.SOME)
        for starts in (
            true, {n: span[0] for n, span in spans.items()}, *(self._from(c, spans) for c in partly)
        ):  # fmt: skip
            if all(self._same(cell, spans, starts, seen[cell]) for cell in product(*grid)):
                return Call(spans, starts)
        return None

    def _from(self, cell: Cell, spans: Mapping[str, Piece]) -> dict[str, int]:
        """The starts of a run in which a cell has its true positions."""
        numbers, true = {n: k for n, (k, _) in zip(self.names, cell, strict=True)}, self._true(cell)
        return {n: true[n] - (self.ends[n][k] - spans[n][0]) for n, k in numbers.items()}

    def _same(
        self, cell: Cell, spans: Mapping[str, Piece], starts: Mapping[str, int], seen: Seen
    ) -> bool:
        """Whether a cell that is counted from `starts` has the points that it has in truth."""
        told = {
            n: starts[n] + self.ends[n][k] - spans[n][0]
            for n, (k, _) in zip(self.names, cell, strict=True)
        }
        true = self._true(cell)
        if told == true:
            return True
        if not self.masks.movable or self._seen(cell, told) is not seen:
            return False
        first = self.masks.first
        return seen is not Seen.SOME or first(told, self.sizes) == first(true, self.sizes)
