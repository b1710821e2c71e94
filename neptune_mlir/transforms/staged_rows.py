# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stores of matrix accumulators by whole rows, through shared memory that each warp has alone.

A thread of an accumulator holds two neighbouring elements here and two there: written as they
are, a warp touches 8 rows by 16 bytes an instruction. Staged, panel by panel of 64 columns, it
writes 4 rows by 128 bytes. Only lanes of one warp exchange data, so no other warp waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Window, element_bytes
from neptune_mlir.bindings import ir
from neptune_mlir.targets.gpu import MatrixInstruction
from neptune_mlir.transforms.distribute_memory import Array, Memory, Threads, under

ROWS, COLUMNS, ROW = 16, 64, 128  # of a panel of a warp; bytes of a row
WARP = ROWS * ROW  # bytes that a warp needs


def fits(array: Array, window: Window, layout: Layout, instruction: MatrixInstruction) -> bool:
    """Whether a tile is an accumulator of `instruction` with 16 rows a warp, in whole panels of
    16-bit elements."""
    rank, shape = len(array.strides), layout.shape
    if len(shape) != 2 or element_bytes(array.dtype) != 2 or shape[1] % COLUMNS:
        return False
    if shape[0] != ROWS * layout.warps or window.valid[1] is not None:
        return False
    offset = window.offsets[rank - 1]
    if window.dims[1] != rank - 1 or not isinstance(offset, int) or offset % 8:
        return False
    grid = L.WarpGrid(layout.warps, 1, layout.warps)
    return layout == L.accumulator(shape, 0, 1, grid, instruction)


def store(
    memory: Memory, array: Array, window: Window, layout: Layout, values: Sequence[Any],
    staged: int,
) -> None:  # fmt: skip
    """Write what exists of a tile (see `fits`); `staged`: offset of WARP bytes for each warp."""
    s, threads = memory.s, _recomputed(memory.threads)
    memory.needs(array, L.CHUNK)
    base = s.add(s.mul(threads.warp, WARP), staged)
    quad = s.div(threads.lane, 4)
    write = s.add(s.add(s.mul(quad, ROW), s.mul(s.mod(threads.lane, 4), 4)), base)
    swizzle = s.mul(quad, L.CHUNK)
    row, chunk = s.div(threads.lane, 8), s.mod(threads.lane, 8)
    offsets = layout.offsets(layout.reg)
    for panel in range(layout.shape[1] // COLUMNS):
        for r in range(0, len(values), 2):
            down, along = (int(x) for x in offsets[r])
            if along // COLUMNS != panel:
                continue
            place = s.xor(swizzle, along % COLUMNS // 8 * L.CHUNK)
            pointer = memory.shared_pointer(s.add(s.add(write, place), down * ROW))
            memory.store_element(memory.narrow(values[r : r + 2]), pointer, 4)
        _together()
        for k in range(ROWS // 4):
            here = s.add(row, 4 * k)
            place = s.xor(s.mul(chunk, L.CHUNK), s.mul(s.mod(here, 8), L.CHUNK))
            start = s.add(s.add(s.mul(here, ROW), place), base)
            words = ir.VectorType.get([4], s.i32)
            found = memory.load_element(memory.shared_pointer(start), words, L.CHUNK)
            position = [
                s.add(s.mul(threads.warp, ROWS), here),
                s.add(s.mul(chunk, 8), panel * COLUMNS),
            ]
            with under(s, memory.in_bounds(position, [window.valid[0], None])):
                memory.store_element(found, memory.address(array, window, position), L.CHUNK)
        _together()


def _recomputed(threads: Threads) -> Threads:
    """The same positions, from a number that compilers cannot know before they come here: left
    alone, they keep every address below in a register all through a resident kernel."""
    s = threads.s
    lane, word = s.value(threads.lane, s.i32), s.value(threads.id, s.i32)
    operands = [s.constant(-1, s.i32), word, lane, s.constant(31, s.i32)]
    number = ir.Operation.create(
        "nvvm.shfl.sync", results=[s.i32], operands=operands,
        attributes={"kind": ir.Attribute.parse("#nvvm<shfl_kind idx>")},
    ).results[0]  # fmt: skip
    return Threads(s, threads.lanes, threads.warps, s.value(number))


def _together() -> None:
    """The lanes of a warp see each other's shared memory."""
    i32 = ir.IntegerType.get_signless(32)
    everyone = ir.Operation.create(
        "llvm.mlir.constant", results=[i32], attributes={"value": ir.IntegerAttr.get(i32, -1)}
    ).results[0]
    ir.Operation.create("nvvm.bar.warp.sync", operands=[everyone])
