# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that TMA brought to shared memory (panels, see `hopper.py`), read by threads."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import element_bytes
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.access.threads import Threads
from neptune_mlir.codegen.gpu.chip import Operand
from neptune_mlir.codegen.gpu.memory import Memory
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets import warp_groups


@dataclass(frozen=True)
class PanelTile:
    """A tile in panels in shared memory, the last of which may be partly filled; `address` is an
    i32 value."""

    address: Any
    rows: int
    columns: int
    dtype: str
    width: int  # columns of a panel
    place: int | None = None  # of a tile that groups make (`SharedPlaces`): its offset
    turned: bool = False  # whether it is the tile of the program the other way round

    @property
    def row_bytes(self) -> int:
        return self.width * self.size

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return element_bytes(self.dtype)

    @property
    def panels(self) -> int:
        return -(-self.columns // self.width)

    @property
    def panel_bytes(self) -> int:
        return self.rows * self.row_bytes

    def layout(self, panels: int = 1) -> L.Shared:
        """That of some panels: the swizzle counts lines of 128 bytes."""
        chunks = self.row_bytes // L.CHUNK
        shift = (warp_groups.ROW // self.row_bytes).bit_length() - 1
        return L.Shared(
            (self.rows * panels, self.width), self.size, self.row_bytes, chunks - 1, shift
        )

    def pointer(self, memory: Memory) -> Any:
        kind = ir.Type.parse("!llvm.ptr<3>")
        return memory.s.op("llvm.inttoptr", [self.address], kind)

    def read(self, memory: Memory, layout: Layout) -> list[Any]:
        """What a thread holds of it; the second time, what it has from the first."""
        return list(memory.s.remember((self.address, layout), lambda: _read(memory, self, layout)))

    def operand(
        self, threads: Threads, memory: Memory, wanted: Operand
    ) -> Callable[[int, int, int], list[Any]]:
        """`Chip.operand_from_shared`. (A cold path, warp groups multiply by descriptors: addresses
        are computed again rather than kept in registers.)"""
        s = memory.s
        number = hopper.unknown(s.value(threads.id, s.i32))
        again = Threads(s, threads.lanes, threads.warps, number)
        return _operand(again, memory, replace(self, address=hopper.unknown(self.address)), wanted)


def _read(memory: Memory, tile: PanelTile, layout: Layout) -> list[Any]:
    """What a thread holds of a tile."""
    s = memory.s
    panels, width = tile.layout(tile.panels), tile.width
    whole = tile.panel_bytes % (8 * tile.row_bytes) == 0  # else the swizzle counts on
    start = tile.pointer(memory)

    def pointer(position: list[Any]) -> Any:
        *row, column = position
        number, within = s.div(column, width), s.mod(column, width)
        above, own = s.mul(number, tile.rows), (row or [0])[0]
        offset = memory.shared_offset(panels, [own if whole else s.add(above, own), within])
        if whole:
            offset = s.add(offset, s.mul(above, tile.row_bytes))
        return memory.offset_pointer(start, s.value(offset, s.i32), start.type)

    return memory.read_tile(layout, tile.dtype, pointer)


def _operand(
    threads: Threads, memory: Memory, tile: PanelTile, wanted: Operand
) -> Callable[[int, int, int], list[Any]]:
    """`Chip.operand_from_shared` for a tile in panels."""
    memory = copy(memory)
    memory.smem = tile.pointer(memory)
    readers = [
        memory.s.chip.operand_from_shared(
            threads, memory, SharedTile(tile.layout(), n * tile.panel_bytes, tile.dtype), wanted
        )
        for n in range(tile.panels)
    ]
    along = wanted.step if wanted.deep == 0 else wanted.instruction.k  # a piece, along columns

    def fragments(row: int, depth: int, count: int) -> list[Any]:
        if wanted.deep == 1:
            panel, depth = divmod(depth, tile.width // along)
        else:
            panel, row = divmod(row, tile.width // along)
        return readers[panel](row, depth, count)

    return fragments
