# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moving tiles between global memory, shared memory and the registers of the threads of a block.

Every function here emits the code of one thread.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis.fragments import NEIGHBOURS
from neptune_mlir.analysis.layouts import CHUNK, Layout, access_width, blocked
from neptune_mlir.analysis.tiles import Window, element_bytes
from neptune_mlir.codegen.gpu.access import guarded
from neptune_mlir.codegen.gpu.access.addresses import (
    address_in_fragments,
    addresses,
    limits_of,
    threads_here,
)
from neptune_mlir.codegen.gpu.access.pages import LookedUp, place_row
from neptune_mlir.codegen.gpu.access.shared import SharedMemory, SharedTile
from neptune_mlir.codegen.gpu.access.threads import Threads, under
from neptune_mlir.codegen.gpu.scalars import Index, Scalars
from neptune_mlir.ir.bindings import ir


@dataclass(frozen=True)
class Array:
    """A tensor in global memory: its address and the stride of each dimension, in elements."""

    number: int  # which argument of the kernel
    pointer: Any
    strides: tuple[Any, ...]  # i64 values; the innermost is 1
    dtype: str
    in_fragments: bool = False  # (`analysis.fragments`)


class Memory(SharedMemory):
    """Emits loads, stores and copies of tiles in global memory too.

    `meet`: as of `SharedMemory`.
    """

    def __init__(
        self, scalars: Scalars, threads: Threads, smem: Any, meet: Callable[[], None] | None = None
    ):
        super().__init__(scalars, threads, smem, meet)
        self.aligned: dict[int, int] = {}  # array -> bytes that its rows must be aligned to
        self.passing = False  # whether what programs read for themselves alone is read no more
        self.looked = LookedUp()

    def load_one(self, array: Array, position: Sequence[Index]) -> Any:
        """The element of an array at a position."""
        kind, size = self.memory_type(array.dtype), element_bytes(array.dtype)
        loaded = self.load_element(self._place(array, position), kind, size)
        return self.from_memory(loaded, array.dtype)

    def store_one(self, value: Any, array: Array, position: Sequence[Index]) -> None:
        stored = self.to_memory(value, array.dtype)
        self.store_element(stored, self._place(array, position), element_bytes(array.dtype))

    def _place(self, array: Array, position: Sequence[Index]) -> Any:
        return self.address(array, Window(None, tuple(position), (), (), ()), ())

    def address(self, array: Array, window: Window, position: Sequence[Index]) -> Any:
        """Address of an element of a window. What loops move is added last: the rest of the sum
        stays one value in front of them."""
        if array.in_fragments:
            return address_in_fragments(self, array, window, position)
        offsets = list(zip(window.offsets, range(len(window.offsets)), strict=True))
        still = [at for at in offsets if self._stays(at[0])]
        moving = [at for at in offsets if at not in still]
        inside = [(p, window.dims[k]) for k, p in enumerate(position)]
        if window.pages is not None:
            row = window.dims.index(window.pages.dim)
            moving += place_row(self, window, row, inside.pop(row)[0])
        pointer = array.pointer
        for terms in (still, inside, moving):
            if terms:
                offset = self._bytes(array, terms)
                pointer = self.offset_pointer(pointer, offset, array.pointer.type)
        return pointer

    @staticmethod
    def _stays(position: Index) -> bool:
        """Whether a position is made outside all loops."""
        if isinstance(position, int):
            return True
        owner = position.owner
        around = owner.owner if isinstance(owner, ir.Block) else owner.operation.parent
        return bool(around.operation.name == "gpu.func")

    def _bytes(self, array: Array, terms: Sequence[tuple[Index, int]]) -> Any:
        """Sum of position * stride, in bytes, as i64."""
        s, size = self.s, element_bytes(array.dtype)
        total = None
        constant = 0
        for position, dim in terms:
            innermost = dim == len(array.strides) - 1
            if isinstance(position, int) and (innermost or position == 0):
                constant += position * size
                continue
            scaled = s.value(position, s.i64)
            if not innermost:
                scaled = s.op("arith.muli", [scaled, array.strides[dim]], s.i64)
            scaled = s.op("arith.muli", [scaled, s.constant(size, s.i64)], s.i64)
            total = scaled if total is None else s.op("arith.addi", [total, scaled], s.i64)
        if total is None:
            return s.constant(constant, s.i64)
        if constant:
            total = s.op("arith.addi", [total, s.constant(constant, s.i64)], s.i64)
        return total

    def load_global(self, array: Array, window: Window, layout: Layout) -> list[Any]:
        """The elements of a window that this thread holds; 0 outside of what exists. One that
        holds no element of the tile in any thread has anything."""
        return list(self.load_each(array, window, layout))

    def load_each(self, array: Array, window: Window, layout: Layout) -> Iterator[Any]:
        """The same, each access where it is asked for."""
        s, kind = self.s, self.memory_type(array.dtype)
        vector = self.access_of(array, window, layout)
        passing = self._passes(array, window, vector)
        along = guarded.guarded(self, array, window, layout)
        if along is not None:
            yield from guarded.load(self, array, window, layout, vector, along, passing)
            return
        size, register = element_bytes(array.dtype), itertools.count()
        for inside, pointer in addresses(self, array, window, layout, vector, self.threads):
            access = guarded.GuardedAccess(pointer, None, 0, passing)
            for value in guarded.load_at(self, access, kind, size, vector):
                value = self.from_memory(value, array.dtype)
                missing = next(register) in layout.missing
                yield value if missing else s.select(inside, value, s.constant(0, value.type))

    def _passes(self, array: Array, window: Window, vector: int) -> bool:
        """Whether accesses to what a program has alone pass by the first-level cache: chunks that
        are read once. (Lines that they took there would keep other loads waiting.)"""
        own = not all(isinstance(offset, int) for offset in window.offsets)
        whole = vector * element_bytes(array.dtype) == CHUNK
        return self.passing and self.s.chip.guards and own and whole

    def access_of(self, array: Array, window: Window, layout: Layout) -> int:
        """How many neighbouring elements one access may take."""
        last = len(layout.shape) - 1
        if not layout.reg or layout.reg[0].dim != last or layout.reg[0].stride != 1:
            return 1
        if window.dims[last] != len(array.strides) - 1:
            return 1
        others = [d.stride for part in (layout.reg[1:], layout.lane, layout.warp) for d in part
                  if d.dim == last]  # fmt: skip
        known = math.gcd(layout.reg[0].size, layout.shape[last], *others)
        width = access_width(window, element_bytes(array.dtype))
        width = min(width, NEIGHBOURS) if array.in_fragments else width
        while known % width:
            width //= 2
        if width > 1:
            self.needs(array, width * element_bytes(array.dtype))
        return width

    def needs(self, array: Array, unit: int) -> None:
        self.aligned[array.number] = max(self.aligned.get(array.number, 1), unit)

    def _existing(
        self, window: Window, layout: Layout, positions: Sequence[Any], vector: int
    ) -> Iterator[int]:
        """Where runs of `vector` elements begin, each under the condition that it exists."""
        limits = limits_of(window, layout)
        groups: dict[Any, list[int]] = {}
        for start in range(0, len(positions), vector):
            groups.setdefault(self.in_bounds(positions[start], limits), []).append(start)
        for condition, starts in groups.items():
            with under(self.s, condition):
                yield from starts

    def store_global(
        self, array: Array, window: Window, layout: Layout, values: Sequence[Any]
    ) -> None:
        """Write what exists of a tile that the threads hold."""
        layout, order = _neighbours_first(layout)
        if order != list(range(len(order))):
            values = [values[k] for k in order]
        positions = self.threads.positions(layout)
        vector = self.access_of(array, window, layout)
        along = guarded.guarded(self, array, window, layout)
        if along is not None:
            guarded.store(self, array, window, layout, values, vector, along)
            return
        for start in self._existing(window, layout, positions, vector):
            parts = [self.to_memory(v, array.dtype) for v in values[start : start + vector]]
            value = parts[0] if vector == 1 else self.narrow(parts)
            pointer = self.address(array, window, positions[start])
            self.store_element(value, pointer, vector * element_bytes(array.dtype))

    def add_global(
        self, array: Array, window: Window, layout: Layout, values: Sequence[Any]
    ) -> None:
        """Add what exists of a tile that the threads hold to what is there, while others do."""
        layout, order = _neighbours_first(layout)
        values = [values[k] for k in order]
        positions = self.threads.positions(layout)
        vector = min(self.s.chip.adds, self.access_of(array, window, layout))
        for start in self._existing(window, layout, positions, vector):
            pointer = self.address(array, window, positions[start])
            self.s.chip.add_in_memory(values[start : start + vector], pointer)

    def narrow(self, values: Sequence[Any]) -> Any:
        """A vector of the values; a pair that was just rounded is rounded as a pair."""
        wide = [self.s.parts(v, "arith.truncf") for v in values]
        if len(values) == 2 and all(w and w[0].type == self.s.f32 for w in wide):
            pair = self.pack([w[0] for w in wide if w])
            return self.s.op("arith.truncf", [pair], ir.VectorType.get([2], values[0].type))
        return self.pack(values)

    # ---- copies from global to shared memory

    def can_copy(self, array: Array, window: Window) -> bool:
        """Whether whole 16-byte chunks of the window lie together in global memory."""
        if not window.shape or window.dims[-1] != len(array.strides) - 1:
            return False
        size = element_bytes(array.dtype)
        return (
            window.shape[-1] * size % CHUNK == 0
            and window.shape[-1] * size <= CHUNK * self.threads.count
            and window.multiple * size % CHUNK == 0
            and _ends_between(window.valid[-1], CHUNK // size)
        )

    def staging(self, array: Array, window: Window) -> tuple[Layout, int]:
        """How the block brings a window to shared memory by way of registers: the layout, and how
        many elements one access takes."""
        vector = CHUNK // element_bytes(array.dtype) if self.can_copy(array, window) else 1
        if vector > 1:
            self.needs(array, CHUNK)
        return blocked(window.shape, self.threads.lanes, self.threads.warps, vector), vector

    def staged_types(self, array: Array, window: Window) -> list[Any]:
        """The types of what `load_staged` gives."""
        layout, vector = self.staging(array, window)
        count = layout.registers // vector
        return [self.wide(array.dtype, vector)] * count

    def load_staged(self, array: Array, window: Window) -> list[Any]:
        """This thread's part of a window on its way to shared memory. What of it exists is for
        `store_staged` to ask: asking here would wait for the loads."""
        layout, vector = self.staging(array, window)
        kind, size = self.wide(array.dtype, vector), element_bytes(array.dtype) * vector
        threads = threads_here(self, layout.registers // vector)
        places = addresses(self, array, window, layout, vector, threads)
        return [self.load_element(pointer, kind, size) for _, pointer in places]

    def store_staged(
        self, array: Array, window: Window, tile: SharedTile, values: Sequence[Any]
    ) -> None:
        """Write what `load_staged` gave of the same window; 0 where nothing exists."""
        layout, vector = self.staging(array, window)
        positions = threads_here(self, len(values)).positions(layout)[::vector]
        if _is_part(window):
            limits = limits_of(window, layout)
            values = [
                self.s.select(self.in_bounds(position, limits), value, self.zero(value.type))
                for value, position in zip(values, positions, strict=True)
            ]
        for value, position in zip(values, positions, strict=True):
            offset = self.s.add(self.shared_offset(tile.layout, position), tile.offset)
            inside = self.in_bounds(position, layout.shape) if layout.padded else None
            with under(self.s, inside):
                size = tile.layout.element * vector
                self.store_element(value, self.shared_pointer(offset), size)

    def zero(self, kind: Any) -> Any:
        if isinstance(kind, ir.VectorType):
            return self.s.op("llvm.mlir.zero", [], kind)
        return self.s.constant(0, kind)

    def unflatten(self, row: Index, shape: Sequence[int]) -> list[Index]:
        position: list[Index] = []
        for n in reversed(shape[1:]):
            position.insert(0, self.s.mod(row, n))
            row = self.s.div(row, n)
        return [row, *position] if shape else []


def _neighbours_first(layout: Layout) -> tuple[Layout, list[int]]:
    """The layout with its registers in another order, neighbours along the last dimension one
    behind the other, and which register each was."""
    last = len(layout.shape) - 1
    first = [d for d in layout.reg if d.dim == last and d.stride == 1]
    if not first or layout.reg[0] in first:
        return layout, list(range(layout.registers))
    reg = (*first, *(d for d in layout.reg if d not in first))
    register = {tuple(o): r for r, o in enumerate(layout.offsets(layout.reg))}
    moved = dataclasses.replace(layout, reg=reg)
    return moved, [register[tuple(o)] for o in moved.offsets(reg)]


def _is_part(window: Window) -> bool:
    """Whether some of a window may lie outside of its array."""
    return any(limit is not None for limit in window.valid)


def _ends_between(limit: Any, width: int) -> bool:
    """Whether what exists along a dimension is a number of runs of `width` elements; of what only a
    call knows, the window says it (`Window.multiple`)."""
    return not isinstance(limit, int) or limit % width == 0
