# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where rows of a tensor in pages stand: looked up in the table, row by row.

A loop that copies tiles ahead looks pages up an iteration before it copies (`Lookups`): a lane has
those of its rows in registers, and others ask it. So no copy waits for the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import Window
from neptune_mlir.codegen.gpu.scalars import Index
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.memory import Memory


MOST_PAGES = 2  # that a lane holds


class LookedUp:
    """Pages that were looked up in the block at hand: keys and values have the same rows."""

    def __init__(self) -> None:
        self.block: Any = None
        self.found: dict[Any, Any] = {}
        self.held: Sequence[Any] = ()  # pages: of rows k, k + lanes, ... in lane k

    def here(self) -> dict[Any, Any]:
        """What was found in the block of the insertion point."""
        block = ir.InsertionPoint.current.block
        if self.block is None or block != self.block:
            self.block, self.found = block, {}
        return self.found

    @contextmanager
    def holding(self, pages: Sequence[Any]) -> Iterator[None]:
        """Rows are those of a tile whose pages lanes hold (none: they are looked up)."""
        before, self.held = self.held, pages
        try:
            yield
        finally:
            self.held = before


def place_row(memory: Memory, window: Window, dim: int, row: Index) -> list[tuple[Index, int]]:
    """Where a row of a window in pages stands: its page, and its slot in that, each with the
    tensor's dimension.

    Rows that do not exist are the last one that does, so that nothing is read behind the table's
    row.

    Args:
        dim: the window's dimension of rows.
    """
    s, pages, end = memory.s, window.pages, window.valid[dim]
    assert pages is not None
    inside = row if end is None else s.minimum(row, s.sub(end, 1))
    row = s.add(pages.start, inside)
    slot = [] if pages.slot is None else [(s.mod(row, pages.size), pages.slot)]
    if memory.looked.held:
        return [(s.value(_of_lane(memory, inside)), pages.dim), *slot]
    at = _entry(memory, window, row)
    found, key = memory.looked.here(), (pages.table.number, pages.count, *at)
    if key not in found:
        found[key] = _page(memory, window, at)
    return [(found[key], pages.dim), *slot]


def _page(memory: Memory, window: Window, at: Sequence[Index]) -> Any:
    """The page that the table says; where that is none, some other one."""
    s, pages = memory.s, window.pages
    assert pages is not None
    page = s.value(memory.load_one(pages.table, at))
    page = s.op("arith.minsi", [page, s.value(s.sub(pages.count, 1))], s.index)
    return s.op("arith.maxsi", [page, s.value(0)], s.index)


def _entry(memory: Memory, window: Window, row: Index) -> list[Index]:
    """The place in the table of the page that a row of the tensor lies in."""
    pages = window.pages
    assert pages is not None
    at = list(pages.at)
    at.insert(pages.column, memory.s.div(row, pages.size))
    return at


def _of_lane(memory: Memory, row: Index) -> Any:
    """The page of a row of the tile, which a lane of this warp holds."""
    s, lanes = memory.s, memory.threads.lanes
    lane = s.value(s.mod(row, lanes), s.i32)
    page, *others = (s.chip.from_lane(s, value, lane) for value in memory.looked.held)
    for k, other in enumerate(others, 1):
        page = s.select(s.less(row, k * lanes), page, other)
    return page


class Lookups:
    """The pages of the tiles that an iteration of a loop copies, looked up before it does."""

    def __init__(self, memory: Memory, windows: Sequence[Window]):
        """`windows`: of all tiles, as the tile program has them."""
        self.memory = memory
        self.windows: list[Window] = []  # whose rows are looked up: one of those that share them
        self.place: list[int | None] = []  # by tile: its window's place there
        for window in windows:
            like = [k for k, w in enumerate(self.windows) if _have_same_pages(w, window)]
            new = window.pages is not None and not like
            self.place.append(len(self.windows) if new else like[0] if like else None)
            self.windows += [window] if new else []
        if sum(map(self._count, self.windows)) > MOST_PAGES:
            self.windows, self.place = [], [None] * len(windows)

    def _count(self, window: Window) -> int:
        """Pages that a lane holds."""
        return -(-window.shape[_dim_of_rows(window)] // self.memory.threads.lanes)

    @property
    def pages(self) -> int:
        return sum(map(self._count, self.windows))

    def of(self, tile: int, pages: Sequence[Any]) -> Sequence[Any]:
        """Those of one tile."""
        place = self.place[tile]
        if place is None:
            return ()
        first = sum(map(self._count, self.windows[:place]))
        return pages[first : first + self._count(self.windows[place])]

    def load(self, here: Callable[[Window], Window]) -> list[Any]:
        """Look all up. `here`: a window with values of this kernel."""
        s, threads = self.memory.s, self.memory.threads
        found = []
        for one in self.windows:
            window, dim = here(one), _dim_of_rows(one)
            end = window.valid[dim]
            last = s.sub(window.shape[dim] if end is None else end, 1)
            for k in range(self._count(one)):
                row = s.minimum(s.add(threads.lane, k * threads.lanes), last)
                assert window.pages is not None
                at = _entry(self.memory, window, s.add(window.pages.start, row))
                found.append(s.value(_page(self.memory, window, at), s.i32))
        return found


def _dim_of_rows(window: Window) -> int:
    assert window.pages is not None
    return window.dims.index(window.pages.dim)


def _have_same_pages(one: Window, other: Window) -> bool:
    """Whether the rows of two tiles lie in the same pages, and as many of them exist."""
    if one.pages is None or other.pages is None:
        return False
    a, b = ((w.pages.table, w.pages.at, w.pages.column, w.pages.size, w.pages.start,
             w.pages.count, w.shape[k], w.valid[k])
            for w in (one, other) for k in [_dim_of_rows(w)])  # fmt: skip
    return a == b
