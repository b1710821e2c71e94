# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stores of matrix accumulators by whole rows, through shared memory that each warp has alone.

A thread of an accumulator holds two neighbouring elements here and two there: written as they
are, a warp touches 8 rows by 16 bytes an instruction. Staged, panel by panel of 64 columns, it
writes 4 rows by 128 bytes. Only lanes of one warp exchange data, so no other warp waits.

Where rows of the result are not aligned with chunks of 16 bytes, a warp writes half a row of a
panel an instruction, an element a lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Window, element_bytes, is_multiple
from neptune_mlir.codegen.gpu.access.guarded import GuardedAccess
from neptune_mlir.codegen.gpu.access.threads import Threads
from neptune_mlir.codegen.gpu.compute import Interleaved
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets import warp_groups
from neptune_mlir.targets.gpu import MatrixInstruction
from neptune_mlir.targets.warp_groups import CHUNK, ROW, STAGED
from neptune_mlir.targets.warp_groups import STAGED_COLUMNS as COLUMNS
from neptune_mlir.targets.warp_groups import STAGED_ROWS as ROWS

FURTHER = 16  # columns of f32: what odd rows are ahead of even ones (`stage_sums`)


def fits(array: Array, window: Window, layout: Layout, instruction: MatrixInstruction) -> bool:
    """Whether a tile is an accumulator of `instruction` with 16 rows a warp, of 16-bit elements in
    whole chunks."""
    rank, shape = len(array.strides), layout.shape
    if len(shape) != 2 or element_bytes(array.dtype) != 2 or shape[1] % CHUNK:
        return False
    if shape[0] != ROWS * layout.warps:
        return False
    if window.dims[1] != rank - 1 or not is_multiple(window.offsets[rank - 1], CHUNK):
        return False
    grid = L.WarpGrid(layout.warps, 1, layout.warps)
    return layout == L.accumulator(shape, 0, 1, grid, instruction)


def _in_chunks(window: Window) -> bool:
    """Whether what exists of rows in memory is whole chunks."""
    there = window.valid[1]
    return there is None or window.multiple % CHUNK == 0 or is_multiple(there, CHUNK)


def store(
    memory: Memory, array: Array, window: Window, layout: Layout, values: Sequence[Any],
    staged: int, room: int,
) -> None:  # fmt: skip
    """Write what exists of a tile (see `fits`).

    Args:
        staged: offset of `room` panels (STAGED bytes each) for each warp; so many are written at
            a time.
    """
    s, threads = memory.s, recomputed(memory.threads)
    base = s.add(s.mul(threads.warp, STAGED * room), staged)
    rows: _Rows | _Elements
    if _in_chunks(window):
        memory.needs(array, L.CHUNK)
        rows = _Rows(memory, threads, array, window, base)
    else:
        rows = _Elements(memory, threads, array, window, base)
    count = warp_groups.panels(layout.shape[1])
    for first in range(0, count, room):
        here = range(first, min(first + room, count))
        stage(memory, threads, layout, values, base, here)
        hopper.converge()
        rows.store(first, len(here))
        hopper.converge()  # before something is staged there again


def stage(
    memory: Memory, threads: Threads, layout: Layout, values: Sequence[Any], base: Any,
    wanted: range,
) -> None:  # fmt: skip
    """Write some panels of an accumulator's rows to shared memory, one behind the other from
    offset `base` of this warp on, 16-byte chunks swizzled by the row."""
    s = memory.s
    quad = s.div(threads.lane, 4)
    write = s.add(s.add(s.mul(quad, ROW), s.mul(s.mod(threads.lane, 4), 4)), base)
    swizzle = s.mul(quad, L.CHUNK)
    offsets = layout.offsets(layout.reg)
    for r in range(0, len(values), 2):
        down, along = (int(x) for x in offsets[r])
        if along // COLUMNS not in wanted:
            continue
        panel = along // COLUMNS - wanted.start
        place = s.xor(swizzle, along % COLUMNS // 8 * L.CHUNK)
        where = s.add(s.add(write, place), panel * STAGED + down * ROW)
        memory.store_element(memory.narrow(values[r : r + 2]), memory.shared_pointer(where), 4)


def stage_sums(
    memory: Memory, threads: Threads, layout: Layout, values: Sequence[Any], base: Any, own: int,
    interleaved: Interleaved,
) -> None:  # fmt: skip  # fmt: skip
    """Write the rows of an accumulator of which each group has `own` columns to shared memory, as
    f32: panels of 32 columns from offset `base` of this warp on, 16-byte chunks swizzled by the
    row.

    Two neighbouring rows have the same pairs of chunks: so odd rows write columns 16 further on
    when even rows write theirs, and half a warp's four rows are in different banks.
    """
    s = memory.s
    quad, lane = s.div(threads.lane, 4), s.mod(threads.lane, 4)
    odd = s.mod(quad, 2)
    write = s.add(s.add(s.mul(quad, ROW), s.mul(s.mod(lane, 2), 8)), base)
    chunk = s.xor(s.mul(quad, L.CHUNK), s.mul(s.div(lane, 2), L.CHUNK))
    chunk = s.xor(chunk, s.mul(odd, FURTHER * 4))
    is_odd = s.less(0, odd)
    offsets = layout.offsets(layout.reg)
    pairs = {tuple(map(int, offsets[r])): values[r : r + 2] for r in range(0, len(values), 2)}
    for (down, along), even in interleaved(pairs.items(), len(pairs)):
        panel, within = divmod(along % own, ROW // 4)
        place = s.xor(chunk, within // 4 * L.CHUNK)
        where = s.add(s.add(write, place), panel * STAGED + down * ROW)
        further = pairs[down, along ^ FURTHER]
        pair = [s.select(is_odd, b, a) for a, b in zip(even, further, strict=True)]
        memory.store_element(memory.pack(pair), memory.shared_pointer(where), 8)


class _Rows:
    """Moves staged panels to memory: each lane 16 bytes of 4 rows, 4 apart."""

    def __init__(
        self, memory: Memory, threads: Threads, array: Array, window: Window, base: Any
    ) -> None:
        s = self.s = memory.s
        self.memory, self.base, self.columns = memory, base, window.valid[1]
        self.whole = self.columns is None or is_multiple(self.columns, COLUMNS)  # panels
        if self.columns is None and window.shape[1] % COLUMNS:
            self.columns, self.whole = window.shape[1], False
        self.row, self.chunk = s.div(threads.lane, 8), s.mod(threads.lane, 8)
        mine = s.add(s.mul(threads.warp, ROWS), self.row)
        self.start = memory.address(array, window, [mine, s.mul(self.chunk, CHUNK)])
        self.step = s.op(
            "arith.muli", [array.strides[window.dims[0]], s.constant(4 * 2, s.i64)], s.i64
        )
        # (No branches: where threads of a warp might part, the assembler keeps nothing in the
        # registers that a warp shares, all through the kernel.)
        self.exists = [
            memory.in_bounds([s.add(mine, 4 * k)], [window.valid[0]]) for k in range(ROWS // 4)
        ]

    def store(self, first: int, count: int) -> None:
        s, memory = self.s, self.memory
        words = ir.VectorType.get([4], s.i32)
        found = []
        for panel in range(count):
            for k in range(ROWS // 4):
                here = s.add(self.row, 4 * k)
                place = s.xor(s.mul(self.chunk, L.CHUNK), s.mul(s.mod(here, 8), L.CHUNK))
                where = s.add(s.add(s.mul(here, ROW), place), self.base)
                pointer = memory.shared_pointer(s.add(where, panel * STAGED))
                value = memory.load_element(pointer, words, L.CHUNK)
                found.append((panel, k, memory.unpack(value, 4, s.i32)))
        for panel, k, value in found:
            moved = s.op("arith.muli", [self.step, s.constant(k, s.i64)], s.i64)
            moved = s.op(
                "arith.addi", [moved, s.constant((first + panel) * COLUMNS * 2, s.i64)], s.i64
            )
            pointer = memory.offset_pointer(self.start, moved, self.start.type)
            column = (first + panel) * COLUMNS
            if not self.whole:
                column = s.add(s.mul(self.chunk, CHUNK), column)
            inside = self.memory.in_bounds([column], [self.columns])
            inside = s.both(self.exists[k], inside)
            exists = s.constant(1, s.i32)
            if inside is not None:
                exists = s.op("arith.extui", [inside], s.i32)
            hopper.store_chunk(pointer, value, exists)


class _Elements:
    """Moves staged panels to memory that is not aligned: each lane an element of half a row."""

    def __init__(
        self, memory: Memory, threads: Threads, array: Array, window: Window, base: Any
    ) -> None:
        s = self.s = memory.s
        self.memory, self.base, self.lane = memory, base, threads.lane
        there = window.valid[1]
        self.left = s.sub(window.shape[1] if there is None else there, threads.lane)
        self.first, self.rows = s.mul(threads.warp, ROWS), window.valid[0]
        self.start = memory.address(array, window, [self.first, threads.lane])
        self.step = s.op(
            "arith.muli", [array.strides[window.dims[0]], s.constant(2, s.i64)], s.i64
        )

    def store(self, first: int, count: int) -> None:
        s, memory = self.s, self.memory
        half, i16 = COLUMNS // 2, ir.IntegerType.get_signless(16)
        chunk, within = s.div(self.lane, CHUNK), s.mul(s.mod(self.lane, CHUNK), 2)
        for row in range(ROWS):
            exists = memory.in_bounds([s.add(self.first, row)], [self.rows])
            left = s.select(exists, s.value(self.left, s.i32), s.constant(0, s.i32))
            moved = s.op("arith.muli", [self.step, s.constant(row, s.i64)], s.i64)
            pointer = memory.offset_pointer(self.start, moved, self.start.type)
            for place in range(0, count * COLUMNS, half):
                panel, column = divmod(place, COLUMNS)
                here = s.mul(s.add(chunk, column // CHUNK), L.CHUNK)
                where = s.add(s.add(s.xor(here, row % 8 * L.CHUNK), within), self.base)
                where = s.add(where, panel * STAGED + row * ROW)
                value = memory.load_element(memory.shared_pointer(where), i16, 2)
                access = GuardedAccess(pointer, left, first * COLUMNS + place)
                s.chip.store_guarded(s, access, 2, 1, [value])


def recomputed(threads: Threads) -> Threads:
    """The same positions, from a number that compilers cannot know before they come here: left
    alone, they keep every address below in a register all through a resident kernel."""
    s = threads.s
    lane, word = s.value(threads.lane, s.i32), s.value(threads.id, s.i32)
    number = hopper.from_lane(word, lane)
    return Threads(s, threads.lanes, threads.warps, s.value(number))
