# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the elements of a window lie that one thread brings from global memory.

Addresses of few elements are sums of their own: what a loop does not move is added in front of it.
Of many elements these sums would take all registers. There the next address is made from the one
before it, in the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.fragments import COLUMNS, NEIGHBOURS, OF_LANE, ROWS
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Window, element_bytes

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.access.threads import Threads
    from neptune_mlir.codegen.gpu.memory import Array, Memory
    from neptune_mlir.codegen.gpu.scalars import Index


def threads_here(memory: Memory, places: int) -> Threads:
    """The positions of this thread, for so many places in global memory. An address takes two
    registers. If all take a quarter of what a thread has, the optimizer may not know that the
    positions are the same in each iteration: it would make all addresses in front of the loop."""
    chip = memory.s.chip
    many = 2 * places >= chip.target.thread_registers // 4
    return chip.again(memory.threads) if many else memory.threads


def addresses(
    memory: Memory, array: Array, window: Window, layout: Layout, vector: int, threads: Threads
) -> Iterator[tuple[Any, Any]]:
    """Of every `vector` elements that this thread holds: whether they exist, and the address.

    Positions outside are clamped to the last element, so that no load needs a branch.
    """
    s = memory.s
    positions, offsets = threads.positions(layout), layout.offsets(layout.reg)
    limits = limits_of(window, layout)
    last = [1] * (len(limits) - 1) + [vector]  # what one access takes along each axis
    chained = threads is not memory.threads and window.pages is None and not array.in_fragments
    pointer: Any = None
    for start in range(0, len(positions), vector):
        position = positions[start]
        inside = memory.in_bounds(position, limits)
        moved = _moved(offsets[start - vector], offsets[start]) if chained and start else None
        if moved is None:
            clamped = [
                p if limit is None else s.minimum(p, s.sub(limit, step))
                for p, limit, step in zip(position, limits, last, strict=False)
            ]
            pointer = memory.address(array, window, clamped)
        else:
            dim, distance = moved
            exists = memory.in_bounds([position[dim]], [limits[dim]])
            pointer = _next(memory, array, window.dims[dim], distance, pointer, exists)
        yield inside, pointer


def _moved(before: Sequence[int], now: Sequence[int]) -> tuple[int, int] | None:
    """The only dimension along which two offsets differ, and by how much, if it is forwards."""
    steps = [(d, int(n - b)) for d, (b, n) in enumerate(zip(before, now, strict=True)) if n != b]
    return steps[0] if len(steps) == 1 and steps[0][1] > 0 else None


def _next(memory: Memory, array: Array, dim: int, distance: int, pointer: Any, exists: Any) -> Any:
    """An address moved along a dimension. Where nothing exists it stays: at what exists, or at what
    the first address was clamped to."""
    s = memory.s
    size = s.constant(distance * element_bytes(array.dtype), s.i64)
    step = s.op("arith.muli", [array.strides[dim], size], s.i64)
    if exists is not None:
        step = s.select(exists, step, s.constant(0, s.i64))
    return memory.offset_pointer(pointer, step, array.pointer.type)


def address_in_fragments(
    memory: Memory, array: Array, window: Window, position: Sequence[Index]
) -> Any:
    """`Memory.address` of an array in fragments (`analysis.fragments`)."""
    s, rank = memory.s, len(array.strides)
    place, half = list(window.offsets), ROWS // 2
    for p, dim in zip(position, window.dims, strict=True):
        place[dim] = s.add(place[dim], p)
    row, column = place[rank - 2 :]
    within, block = s.mod(row, ROWS), s.div(column, COLUMNS)
    pairs = s.div(s.mod(column, COLUMNS), NEIGHBOURS)
    parts = [
        s.mul(block, ROWS * COLUMNS), s.mul(s.mod(within, half), ROWS), s.mul(pairs, OF_LANE),
        s.mul(s.div(within, half), NEIGHBOURS), s.mod(column, NEIGHBOURS),
    ]  # fmt: skip
    behind: Index = 0  # the first of the block of rows
    for part in parts:
        behind = s.add(behind, part)
    strip = [*place[: rank - 2], s.sub(row, within), behind]
    by_rows = replace(array, in_fragments=False)
    return memory.address(by_rows, Window(None, tuple(strip), (), (), ()), ())


def limits_of(window: Window, layout: Layout) -> list[Any]:
    """Of each dimension, how many positions of a window exist (None: all that threads hold)."""
    beyond = layout.beyond if layout.missing else [layout.padded] * len(layout.shape)
    return [
        v if v is not None else (n if reaches else None)
        for v, n, reaches in zip(window.valid, window.shape, beyond, strict=True)
    ]
