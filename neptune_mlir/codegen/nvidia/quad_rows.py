# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stores and loads of matrix accumulators in chunks of 16 bytes, which lanes of a quad share.

A thread of an accumulator has two neighbours of each 8 columns, and the four lanes of a quad have
a row. Written as they are, an instruction of a warp touches 8 rows by 16 or 32 bytes, and takes as
long as for 8 whole lines. Where there is no shared memory to stage results in (`staged_rows`), the
lanes exchange what they hold: of two blocks of 8 columns a lane gives its part of one, and takes
its neighbour's part of the other. Then it has four neighbours, 16 bytes of f32; elements of 16 bits
take a second round, over four blocks.

What is read behind all loops (a sum that a product adds to, say) comes the other way: a lane loads
a chunk and gives its neighbours what is theirs. So a lane reads what others of its quad compute and
write, but before any of them does: what they compute takes what it gives.

Results in fragments (`analysis.fragments`) have what a lane holds in order: nothing is exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import fragments
from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Digit, Layout
from neptune_mlir.analysis.tiles import Window, element_bytes, is_multiple
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.gpu.tile_forms import Pending
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.staged_rows import recomputed
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.groups.consumers import ConsumerWriter
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

PAIRS, ROWS = Digit(1, 4, 2), Digit(0, 8, 1)  # lanes of an accumulator
BLOCK = 8  # columns that a quad has
PAIR = 2  # that a lane has of these
AHEAD = 8  # chunks of a lane that are under way at once


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
    first, column = _first_chunk(threads, layout, count)
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


def _first_chunk(threads: Any, layout: Layout, count: int) -> tuple[Any, Any]:
    """Where a lane's first chunk begins."""
    parts = Digit(1, 2, BLOCK), Digit(1, 2, BLOCK * 2 if count > 2 else PAIR * 2)
    ((row, column),) = threads.positions(replace(layout, reg=(), lane=(*parts, ROWS)))
    return row, column


def bring_chunks(kernel: ConsumerWriter, op: Any) -> None:
    """Let a tile that is read behind all loops come in chunks, to accumulators that it fits."""
    tile, parent = kernel.tiles[op.results[0]], op.operation.parent
    if not isinstance(tile, Pending) or not isinstance(tile.load, partial):
        return
    users = [use.owner.operation for use in op.results[0].uses]
    if tile.load.func == kernel.memory.load_each and all(
        u.parent == parent == kernel.forall for u in users
    ):
        kernel.tiles[op.results[0]] = Pending(partial(load_each, kernel.memory, *tile.load.args))


def load_each(
    memory: Memory, array: Array, window: Window, layout: Layout
) -> Iterator[Any]:
    """As `Memory.load_each`: in chunks, if the tile `fits`."""
    if window.pages is not None or array.in_fragments or not fits(array, window, layout):
        yield from memory.load_each(array, window, layout)
        return
    count = _blocks(array.dtype)
    wide = BLOCK * count
    places = [tuple(map(int, offset)) for offset in layout.offsets(layout.reg)]
    chunks = list(dict.fromkeys((row, column // wide) for row, column in places))
    each = _loaded(memory, array, window, layout, chunks)
    loaded: list[Any] = []
    found: dict[Any, Any] = {}
    for row, column in places:
        chunk = chunks.index((row, column // wide))
        while len(loaded) < min(chunk + AHEAD, len(chunks)):
            loaded.append(next(each))
        if chunk not in found:
            found[chunk] = _spread(memory, array.dtype, *loaded[chunk])
        yield found[chunk][column % wide // BLOCK][column % BLOCK]


def _loaded(
    memory: Memory, array: Array, window: Window, layout: Layout, chunks: Sequence[tuple[int, int]]
) -> Iterator[tuple[list[Any], Any]]:  # fmt: skip
    """The words of each chunk, (row, number), and whether its row exists."""
    s, count, limit = memory.s, _blocks(array.dtype), window.valid[0]
    memory.needs(array, L.CHUNK)
    first, column = _first_chunk(recomputed(memory.threads), layout, count)
    kind, starts = ir.VectorType.get([L.CHUNK // 4], s.i32), dict[int, Any]()
    for row, number in chunks:
        here = s.add(first, row)
        if row not in starts:
            there = here if limit is None else s.minimum(here, s.sub(limit, 1))
            starts[row] = memory.address(array, window, [there, column])
        behind = s.constant(number * count * BLOCK * element_bytes(array.dtype), s.i64)
        pointer = memory.offset_pointer(starts[row], behind, starts[row].type)
        words = memory.unpack(memory.load_element(pointer, kind, L.CHUNK), L.CHUNK // 4, s.i32)
        yield words, memory.in_bounds([here], [limit])


def _spread(memory: Memory, dtype: str, words: list[Any], exists: Any) -> list[list[Any]]:
    """Of the chunks of a quad, this lane's two elements of each block: the rounds of a store, the
    last one first."""
    s, runs = memory.s, [words]
    lane = recomputed(memory.threads).lane
    for distance in (2, 1) if _blocks(dtype) > 2 else (1,):
        low = s.less(s.mod(s.div(lane, distance), 2), 1)
        halves = [(run[: len(run) // 2], run[len(run) // 2 :]) for run in runs]
        runs = []
        for a, b in halves:
            kept = [s.select(low, x, y) for x, y in zip(a, b, strict=True)]
            got = [s.chip.exchange(s, s.select(low, y, x), distance)
                   for x, y in zip(a, b, strict=True)]  # fmt: skip
            pairs = list(zip(kept, got, strict=True))
            runs.append([s.select(low, x, y) for x, y in pairs])
            runs.append([s.select(low, y, x) for x, y in pairs])
    kind, found = memory.memory_type(dtype), []
    for run in runs:
        if len(run) == 1:
            pair = s.op("llvm.bitcast", run, ir.VectorType.get([PAIR], kind))
            values = memory.unpack(pair, PAIR, kind)
        else:
            values = [s.op("llvm.bitcast", [word], kind) for word in run]
        found.append([s.select(exists, v, s.constant(0, v.type)) for v in values])
    return found


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
