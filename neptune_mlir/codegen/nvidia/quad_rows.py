# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stores of matrix accumulators in chunks of 16 bytes, which lanes of a quad put together.

A thread of an accumulator has two neighbours of each 8 columns, and the four lanes of a quad have
a row. Written as they are, an instruction of a warp touches 8 rows by 16 or 32 bytes, and takes as
long as for 8 whole lines. Where there is no shared memory to stage results in (`staged_rows`), the
lanes exchange what they hold: of two blocks of 8 columns a lane gives its part of one, and takes
its neighbour's part of the other. Then it has four neighbours, 16 bytes of f32; elements of 16 bits
take a second round, over four blocks.

Results in fragments (`analysis.fragments`) have what a lane holds in order: nothing is exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import fragments
from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Digit, Layout
from neptune_mlir.analysis.tiles import Window, element_bytes, is_multiple
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.staged_rows import recomputed

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

PAIRS, ROWS = Digit(1, 4, 2), Digit(0, 8, 1)  # lanes of an accumulator
BLOCK = 8  # columns that a quad has
PAIR = 2  # that a lane has of these


def _blocks(dtype: str) -> int:
    """Blocks of which lanes put their chunks together."""
    return L.CHUNK // (PAIR * element_bytes(dtype))


def fits(array: Array, window: Window, layout: Layout) -> bool:
    """Whether a tile is an accumulator, of whole rows in whole chunks."""
    size = element_bytes(array.dtype)
    if len(layout.shape) != 2 or layout.padded or array.dtype not in ("f32", "f16", "bf16"):
        return False
    last = len(array.strides) - 1
    if layout.lane != (PAIRS, ROWS) or window.dims[1] != last or window.valid[1] is not None:
        return False
    found = {int(column) for _, column in layout.offsets(layout.reg)}
    count, rest = divmod(len(found), PAIR * _blocks(array.dtype))
    whole = {BLOCK * k + j for k in range(count * _blocks(array.dtype)) for j in range(PAIR)}
    each = L.CHUNK // size
    return not rest and found == whole and window.multiple % each == 0 and is_multiple(
        window.offsets[last], each
    )  # fmt: skip


def store(
    memory: Memory, array: Array, window: Window, layout: Layout, values: Sequence[Any]
) -> None:
    """Write what exists of a tile (see `fits`)."""
    s, size, count = memory.s, element_bytes(array.dtype), _blocks(array.dtype)
    memory.needs(array, L.CHUNK)
    threads = recomputed(memory.threads)
    held = {tuple(map(int, o)): v for o, v in zip(layout.offsets(layout.reg), values, strict=True)}
    rows = dict.fromkeys(row for row, _ in held)
    parts = Digit(1, 2, BLOCK), Digit(1, 2, BLOCK * 2 if count > 2 else PAIR * 2)
    moved = replace(layout, reg=(), lane=(*parts, ROWS))  # where a lane's first chunk begins
    ((first, column),) = threads.positions(moved)
    for row in rows:
        columns = sorted(c for r, c in held if r == row and c % BLOCK == 0)
        words = [_words(memory, held[row, c], held[row, c + 1]) for c in columns]
        for distance in (1, 2)[: count // 2]:
            words = _exchange(memory, words, s.mod(s.div(threads.lane, distance), 2), distance)
        here = s.add(first, row)
        start = memory.address(array, window, [here, column])
        there = memory.in_bounds([here], [window.valid[0]])
        there = s.constant(1, s.i32) if there is None else s.op("arith.extui", [there], s.i32)
        for k, chunk in enumerate(words):
            behind = s.constant(k * count * BLOCK * size, s.i64)
            pointer = memory.offset_pointer(start, behind, start.type)
            hopper.store_chunk(pointer, chunk, there)


def _words(memory: Memory, one: Any, two: Any) -> list[Any]:
    """Two neighbours, in words."""
    s = memory.s
    if one.type == s.f32:
        return [s.op("llvm.bitcast", [value], s.i32) for value in (one, two)]
    return [s.op("llvm.bitcast", [memory.narrow([one, two])], s.i32)]


def _exchange(memory: Memory, words: list[list[Any]], bit: Any, distance: int) -> list[list[Any]]:
    """Of two runs each, one of twice as many words: lanes whose `bit` is 0 take the other's part of
    the first, those where it is 1 that of the second."""
    s, found = memory.s, []
    low = s.less(bit, 1)
    for a, b in zip(words[::2], words[1::2], strict=True):
        sent = [s.select(low, y, x) for x, y in zip(a, b, strict=True)]
        got = [s.chip.exchange(s, word, distance) for word in sent]
        pairs = zip([*a, *got], [*got, *b], strict=True)
        found.append([s.select(low, x, y) for x, y in pairs])
    return found


def add_fragments(
    kernel: SpecializedWriter, array: Array, window: Window, layout: Layout, values: Sequence[Any]
) -> None:  # fmt: skip
    """Add a tile, an accumulator that `sums_in_fragments` chose, to a result in memory, as it lies
    in registers: a thread its four elements of each block, a warp 512 bytes in order."""
    s, memory = kernel.s, kernel.memory
    threads, size = recomputed(memory.threads), element_bytes(array.dtype)
    warp = s.value(kernel.uniform(s.value(threads.warp, s.i32)))
    along = layout.shape[0] // fragments.ROWS  # warps that have other rows
    columns = layout.shape[1] * along // kernel.warps  # of a warp
    by_rows = replace(array, in_fragments=False)
    memory.needs(array, fragments.OF_LANE * size)
    pointer = memory.address(by_rows, window, [s.mul(s.mod(warp, along), fragments.ROWS), 0])
    own = s.mul(s.div(warp, along), columns * fragments.ROWS)
    mine = s.add(own, s.mul(threads.lane, fragments.OF_LANE))
    pointer = memory.offset_pointer(pointer, s.value(s.mul(mine, size), s.i64), pointer.type)
    places = [tuple(map(int, offset)) for offset in layout.offsets(layout.reg)]
    found = dict(zip(places, values, strict=True))
    blocks = [
        [found[row, column + k] for row in (0, fragments.ROWS // 2) for k in (0, 1)]
        for column in range(0, columns, fragments.COLUMNS)
    ]
    for k, block in enumerate(kernel.issued.interleaved(blocks, len(blocks))):
        behind = s.constant(k * fragments.ROWS * fragments.COLUMNS * size, s.i64)
        there = memory.offset_pointer(pointer, behind, pointer.type)
        s.chip.add_in_memory(block, there)
