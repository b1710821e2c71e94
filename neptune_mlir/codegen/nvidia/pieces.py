# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that the copy engine brings in pieces: rows that lie in several pages, and tiles that end
before their tensor does.

A piece is the rows of one page, or the tile. A whole piece is a box. Of a piece that ends early
what exists comes in boxes of 1, 2, 4, ... rows, and so do the zeros behind it: a box that begins
behind a tensor's end brings zeros. So a tile always counts the same number of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import Window, is_multiple
from neptune_mlir.codegen.gpu.access.pages import place_row
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.gpu.scalars import Index
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.boxes import BoxTile, Copy
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.transforms.hopper.specialize_warps import ends_early

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.rings import Ring
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

BEYOND = 1 << 30  # a row that no tensor has

Load = Callable[[Copy, Index], None]  # a copy, and how many bytes behind its place it goes


def in_pieces(window: Window, forall: Any) -> bool:
    """Whether a tile comes in pieces."""
    return window.pages is not None or ends_early(window, forall)


@dataclass(frozen=True)
class Piece:
    """So many rows of a tile, from row `first` on: where they stand in the tensor, and how many
    there are (None: all)."""

    first: Index
    rows: int
    offsets: tuple[Any, ...]
    exist: Index | None


class BoxPieces:
    """One tile, of tensor `number`. Its pages are looked up where this is made: the rows of a table
    come from far, so of several pages that is before the producer waits for room."""

    def __init__(self, kernel: SpecializedWriter, number: int, found: Window, ring: Ring):
        window, end = kernel.window(found), found.valid[0]
        self.kernel, self.s = kernel, kernel.s
        self.number, self.window, self.ring = number, window, ring
        pages = window.pages
        self.down = window.dims[0] if pages is None else pages.slot
        self.rows = window.shape[0]
        self.size = self.rows if pages is None else min(self.rows, pages.size)
        whole = self.rows if pages is None else pages.size
        self.whole_or_none = end is not None and is_multiple(end, whole)
        self.page = None if pages is None else self._page_of_lane()
        if self.size < self.rows and self.page is not None:
            self.page = hopper.unknown(self.page)  # here, not in the loop

    def bring(self, load: Load) -> None:
        """Emit the copies; `load` starts one."""
        self.load = load
        if self.size == self.rows:
            self._piece(0)
            return
        s = self.s
        # written one behind the other, pieces need more registers than a producer has
        rows = s.value(hopper.unknown(s.constant(self.rows, s.i32)))
        loop = scf.ForOp(s.value(0), rows, s.value(self.size))
        with s.scope(loop.body):
            hopper.keep_loop()
            self._piece(loop.induction_variable)
            scf.YieldOp([])

    def _piece(self, first: Index) -> None:
        """The copies of the piece from row `first` on."""
        piece = self._found(first)
        if piece.exist is None:
            self._box(piece, 0, piece.rows, piece.first)
            return
        whole = self.s.less(piece.rows - 1, piece.exist)
        found = scf.IfOp(whole, has_else=True)
        with self.s.scope(found.then_block):
            self._box(piece, 0, piece.rows, piece.first)
            scf.YieldOp([])
        with self.s.scope(found.else_block):
            if self.whole_or_none:
                self._box(piece, None, piece.rows, piece.first)
            else:
                self._part(piece)
            scf.YieldOp([])

    def _found(self, first: Index) -> Piece:
        s, window, pages, size = self.s, self.window, self.window.pages, self.size
        end, offsets = window.valid[0], list(window.offsets)
        if pages is not None:
            lane = s.value(s.div(first, size), s.i32)
            offsets[pages.dim] = s.value(hopper.from_lane(self.page, lane))
            offsets[self.down] = 0
        exist = None
        if end is not None:
            exist = s.minimum(s.maximum(s.sub(end, first), 0), size)
        return Piece(first, size, tuple(offsets), exist)

    def _page_of_lane(self) -> Any:
        """The page of the piece whose number is that of this lane, as i32: all are looked up at
        once, and take one register."""
        s, pages = self.s, self.window.pages
        assert pages is not None
        row = s.mul(self.kernel.threads.lane, pages.size)
        row = s.minimum(row, self.rows - pages.size)  # of the lanes that have no piece
        places = place_row(self.kernel.memory, self.window, 0, row)
        return s.value(next(at for at, dim in places if dim == pages.dim), s.i32)

    def _part(self, piece: Piece) -> None:
        """Of a piece that is not whole: what exists, then zeros."""
        s = self.s
        sizes = [1 << k for k in reversed(range(piece.rows.bit_length()))]
        done: Index = 0
        for count, real in ((piece.exist, True), (s.sub(piece.rows, piece.exist), False)):
            for size in sizes:
                bit = s.op("arith.andi", [s.value(count), s.value(size)], s.index)
                with under(s, s.less(0, bit)):
                    self._box(piece, done if real else None, size, s.add(done, piece.first))
                done = s.add(done, bit)

    def _box(self, piece: Piece, row: Index | None, rows: int, to: Index) -> None:
        """Copy `rows` rows of a piece, from its row `row` on, to row `to` of the tile; zeros for a
        row of None."""
        s = self.s
        offsets = list(piece.offsets)
        offsets[self.down] = BEYOND if row is None else s.add(offsets[self.down], row)
        columns, inner = self.window.shape[-1], self.window.dims[-1]
        tile = BoxTile(
            self.number, offsets, (self.down, inner), rows, columns, self.ring.panel, self.rows,
            self.ring.rounds,
        )
        kind = ir.RankedTensorType(self.kernel.signature.tensors[self.number].type)
        for copy in self.kernel.boxes.copies(tile, kind, together=False):
            self.load(copy, s.mul(to, self.ring.row))
