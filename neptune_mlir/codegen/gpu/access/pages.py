# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where rows of a tensor in pages stand: looked up in the table, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import Window
from neptune_mlir.codegen.gpu.scalars import Index
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.memory import Memory


class LookedUp:
    """Pages that were looked up in the block at hand: keys and values have the same rows."""

    def __init__(self) -> None:
        self.block: Any = None
        self.found: dict[Any, Any] = {}

    def here(self) -> dict[Any, Any]:
        """What was found in the block of the insertion point."""
        block = ir.InsertionPoint.current.block
        if self.block is None or block != self.block:
            self.block, self.found = block, {}
        return self.found


def place_row(memory: Memory, window: Window, dim: int, row: Index) -> list[tuple[Index, int]]:
    """Where a row of a window in pages stands: its page, and its slot in that, each with the
    tensor's dimension.

    Rows that do not exist are in the last page that has one that does, so that nothing is read
    behind the table's row.

    Args:
        dim: the window's dimension of rows.
    """
    s, pages, end = memory.s, window.pages, window.valid[dim]
    assert pages is not None
    row = s.add(pages.start, row)
    number = s.div(row, pages.size)
    if end is not None:  # of a page, not of each row: rows of a page are looked up once
        last = s.sub(s.add(pages.start, end), 1)
        number = s.minimum(number, s.div(last, pages.size))
    at = list(pages.at)
    at.insert(pages.column, number)
    found, key = memory.looked.here(), (pages.table.number, pages.count, *at)
    if key not in found:
        page = s.value(memory.load_one(pages.table, at))
        page = s.op("arith.minsi", [page, s.value(s.sub(pages.count, 1))], s.index)
        found[key] = s.op("arith.maxsi", [page, s.value(0)], s.index)
    slot = [] if pages.slot is None else [(s.mod(row, pages.size), pages.slot)]
    return [(found[key], pages.dim), *slot]
