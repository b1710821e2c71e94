# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of a stream under its mask: which are visited, and which need the mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.masks import Linear, affine_part
from neptune_mlir.dialects.attributes import TILE
from neptune_mlir.driver.explain import Listing
from neptune_mlir.driver.page.sizes import AssumedSizes

EMPTY, PARTIAL, FULL = "empty", "partial", "full"
MOST_ROWS = 64  # rows of tiles that a figure draws


@dataclass(frozen=True)
class Run:
    """Tiles of one kind side by side: streamed elements `start` to `end`."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class Picture:
    """The tiles of a stream: rows along one parallel axis, the stream from left to right.

    Attributes:
        row_axis, axis: names; `row_axis` is "" where the mask moves with no axis.
        rows, length: extents; `row_tile`, `tile` sizes of tiles.
        bands: start and end of a row of tiles, and what it consists of.
        step: every `step`-th row of tiles is in `bands`.
        live: share of the points that the mask leaves.
        unknown: what the mask reads, and a figure cannot know.
    """

    row_axis: str
    axis: str
    rows: int
    length: int
    row_tile: int
    tile: int
    bands: list[tuple[int, int, list[Run]]]
    step: int
    live: float
    unknown: list[str]

    @property
    def seen(self) -> float:
        """The share of the streamed elements that any row of tiles visits."""
        found = {
            s for _, _, runs in self.bands for run in runs if run.kind != EMPTY
            for s in range(run.start, run.end, self.tile)
        }  # fmt: skip
        return sum(min(self.length, s + self.tile) - s for s in found) / max(1, self.length)

    def count(self, kind: str) -> int:
        """Tiles of a kind (of those that are drawn, times the step)."""
        return self.step * sum(
            -(-(run.end - run.start) // self.tile)
            for _, _, runs in self.bands for run in runs if run.kind == kind
        )  # fmt: skip


def picture_of(listing: Listing, stream: Any, sizes: AssumedSizes) -> Picture:
    """The tiles of a stream, at these sizes."""
    names = listing.axes[stream]
    extents = sizes.domain(stream.attributes["domain"], stream.operands)
    axis = stream.attributes["axis"].value
    tiles = [t or n for t, n in zip(TILE.find(stream, [0] * len(names)), extents, strict=True)]
    mask = listing.masks.get(stream)
    forms = affine_part(mask) if mask is not None else []
    known = [f for f in forms if not f.reads and not _others(f, axis)]
    unknown = sorted({str(read.attr) for form in forms for read in form.reads})
    row = _row_axis(forms, extents, tiles, axis)
    rows = extents[row] if row is not None else 1
    row_tile = tiles[row] if row is not None else 1
    masks = _Forms(listing, sizes, known, axis, row)
    count = -(-rows // row_tile)
    step = -(-count // MOST_ROWS)
    bands = []
    for k in range(0, count, step):
        low, high = k * row_tile, min(rows, (k + 1) * row_tile)
        bands.append((low, high, list(masks.runs(low, high, extents[axis], tiles[axis]))))
    return Picture(
        names[row] if row is not None else "", names[axis], rows, extents[axis], row_tile,
        tiles[axis], bands, step, masks.live(rows, extents[axis]), unknown,
    )  # fmt: skip


def _others(form: Linear, axis: int) -> bool:
    """Whether a form has more than one axis beside the streamed one."""
    return len(form.axes - {axis}) > 1


def _row_axis(forms: list[Linear], extents: list[int], tiles: list[int], axis: int) -> int | None:
    """The parallel axis that the mask moves with, or else the largest that is cut into tiles."""
    moving = sorted({a for f in forms for a in f.axes - {axis}}, key=lambda a: -extents[a])
    if moving:
        return moving[0]
    cut = [a for a, n in enumerate(extents) if a != axis and 1 < tiles[a] < n]
    return max(cut, key=lambda a: extents[a], default=None)


class _Forms:
    """Affine forms over the streamed axis and one other, as numbers."""

    def __init__(
        self, listing: Listing, sizes: AssumedSizes, forms: list[Linear], axis: int, row: int | None
    ):
        self._lines = []
        for form in forms:
            constant = form.constant
            for atom, factor in form.without(axis).atoms:
                if atom.op != "index":
                    constant += factor * _number(atom, listing, sizes)
            own = form.coefficient(row) if row is not None else 0
            self._lines.append((form.coefficient(axis), own, constant))

    def kind(self, low: int, high: int, start: int, end: int) -> str:
        """Of the tile of rows low to high and streamed elements start to end."""
        full = True
        for a, b, c in self._lines:
            corners = [a * j + b * i + c for j in (start, end - 1) for i in (low, high - 1)]
            if max(corners) < 0:
                return EMPTY
            full &= min(corners) >= 0
        return FULL if full else PARTIAL

    def runs(self, low: int, high: int, length: int, tile: int) -> Iterator[Run]:
        starts = range(0, length, tile)
        kinds = ((self.kind(low, high, s, min(length, s + tile)), s) for s in starts)
        for kind, some in groupby(kinds, key=lambda pair: pair[0]):
            places = [s for _, s in some]
            yield Run(kind, places[0], min(length, places[-1] + tile))

    def live(self, rows: int, length: int) -> float:
        """The share of live points; of many rows, as many as tell it."""
        taken = range(0, rows, max(1, rows // 1024))
        found = sum(self._within(i, length) for i in taken)
        return found / max(1, length * len(taken))

    def _within(self, i: int, length: int) -> int:
        """How many streamed elements of a row are live."""
        low, high = 0, length - 1
        for a, b, c in self._lines:
            at = b * i + c
            if a > 0:
                low = max(low, -(at // a))
            elif a < 0:
                high = min(high, at // -a)
            elif at < 0:
                return 0
        return max(0, high - low + 1)


def _number(atom: Term, listing: Listing, sizes: AssumedSizes) -> int:
    """A scalar of the host function."""
    if atom.op == "sym" and atom.attr in listing.values:
        return sizes.of(listing.values[atom.attr])
    if atom.is_const:
        return int(atom.value)
    return sizes.every
