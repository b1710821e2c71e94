# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that end inside a tile: accesses that happen only where something exists.

A thread's elements along a row lie known distances apart. So a thread has one address and one
number for each of its rows: how many elements the row has from there on. Each access is the
address plus a constant, under a comparison with a constant. (Clamped positions would be an address
of their own for each element, stores a branch.)

Only where the chip has such accesses (`Chip.guards`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Window, element_bytes
from neptune_mlir.codegen.gpu.access.addresses import limits_of
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.memory import Array, Memory

WORD = 4  # bytes


@dataclass(frozen=True)
class GuardedAccess:
    """An access of a thread: where its row begins for this thread, how many elements exist from
    there on (i32; None: it exists in any case), how many elements further on it is, and whether
    what it loads passes by the first-level cache."""

    pointer: Any
    left: Any
    place: int
    passing: bool = False


def guarded(memory: Memory, array: Array, window: Window, layout: Layout) -> int | None:
    """The dimension of a window along which it may end and elements are neighbours, if accesses
    under a condition are best."""
    inner = len(array.strides) - 1
    if not memory.s.chip.guards or window.pages is not None or inner not in window.dims:
        return None
    along = window.dims.index(inner)
    return along if limits_of(window, layout)[along] is not None else None


def accesses(
    memory: Memory, array: Array, window: Window, layout: Layout, vector: int, along: int
) -> Iterator[GuardedAccess | None]:
    """Of every `vector` elements that this thread holds, in order; None: of no thread they exist.

    Args:
        along: as of `guarded`.
    """
    s, limits = memory.s, limits_of(window, layout)
    base, offsets = memory.threads.base(layout), layout.offsets(layout.reg)
    limit, reach = limits[along], _reach(layout, along)
    rows: dict[tuple[int, ...], tuple[Any, Any, Any]] = {}
    for offset in offsets[::vector]:
        place = int(offset[along])
        row = tuple(0 if d == along else int(n) for d, n in enumerate(offset))
        if row not in rows:
            position = [s.add(b, n) for b, n in zip(base, row, strict=True)]
            others = [None if d == along else n for d, n in enumerate(limits)]
            exists = memory.in_bounds(position, others)
            left = s.value(s.sub(limit, position[along]), s.i32)
            if exists is not None:
                left = s.select(exists, left, s.constant(0, s.i32))
            rows[row] = memory.address(array, window, position), left, exists
        pointer, left, exists = rows[row]
        if isinstance(limit, int) and place >= limit:
            yield None
        elif isinstance(limit, int) and exists is None and reach + place + vector <= limit:
            yield GuardedAccess(pointer, None, place)
        else:
            yield GuardedAccess(pointer, left, place)


def _reach(layout: Layout, dim: int) -> int:
    """How far the last thread's first element along a dimension is from the first one's."""
    digits = (*layout.lane, *layout.warp)
    return sum((d.size - 1) * d.stride for d in digits if d.dim == dim)


def load(
    memory: Memory, array: Array, window: Window, layout: Layout, vector: int, along: int,
    passing: bool = False,
) -> Iterator[Any]:  # fmt: skip
    """The elements of a window that this thread holds; 0 outside of what exists. `passing`: as of
    an access."""
    s, size = memory.s, element_bytes(array.dtype)
    kind = memory.memory_type(array.dtype)
    for access in accesses(memory, array, window, layout, vector, along):
        if access is None:
            values = [s.constant(0, kind)] * vector
        else:
            values = load_at(memory, replace(access, passing=passing), kind, size, vector)
        for value in values:
            yield memory.from_memory(value, array.dtype)


def load_at(memory: Memory, access: GuardedAccess, kind: Any, size: int, vector: int) -> list[Any]:
    """What an access loads: `vector` elements of a kind."""
    s = memory.s
    wide = kind if vector == 1 else ir.VectorType.get([vector], kind)
    if access.left is None and not access.passing:
        offset = s.constant(access.place * size, s.i64)
        pointer = memory.offset_pointer(access.pointer, offset, access.pointer.type)
        loaded = memory.load_element(pointer, wide, size * vector)
    else:
        words = s.chip.load_guarded(s, access, size, vector)
        whole = words[0] if len(words) == 1 else memory.pack(words)
        if whole.type == kind and vector == 1:
            loaded = whole
        elif size * vector == 1:
            loaded = s.op("arith.trunci", [whole], wide)
        else:
            loaded = s.op("llvm.bitcast", [whole], wide)
    return [loaded] if vector == 1 else memory.unpack(loaded, vector, kind)


def store(
    memory: Memory, array: Array, window: Window, layout: Layout, values: Sequence[Any],
    vector: int, along: int,
) -> None:  # fmt: skip
    """Write what exists of a tile that the threads hold, neighbours one behind the other."""
    s, size = memory.s, element_bytes(array.dtype)
    for k, access in enumerate(accesses(memory, array, window, layout, vector, along)):
        if access is None:
            continue
        parts = [memory.to_memory(v, array.dtype) for v in values[k * vector : (k + 1) * vector]]
        value = parts[0] if vector == 1 else memory.narrow(parts)
        if access.left is None:
            offset = s.constant(access.place * size, s.i64)
            pointer = memory.offset_pointer(access.pointer, offset, access.pointer.type)
            memory.store_element(value, pointer, size * vector)
        else:
            s.chip.store_guarded(s, access, size, vector, _words(memory, value, size * vector))


def _words(memory: Memory, value: Any, size: int) -> list[Any]:
    """What is stored in registers: of 16 bits, or as many as there are of 32."""
    s = memory.s
    i16 = ir.IntegerType.get_signless(16)
    if size == 1:
        return [s.op("arith.extui", [value], i16)]
    if size <= WORD:
        kind = i16 if size == 2 else s.i32
        return [value if value.type == kind else s.op("llvm.bitcast", [value], kind)]
    count = size // WORD
    whole = s.op("llvm.bitcast", [value], ir.VectorType.get([count], s.i32))
    return memory.unpack(whole, count, s.i32)
