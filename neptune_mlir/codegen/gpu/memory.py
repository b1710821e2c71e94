# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moving tiles between global memory, shared memory and the registers of the threads of a block.

Every function here emits the code of one thread. Shared memory is handed out like a stack:
what a loop took is free again after it, and `Memory` places a barrier before memory that some
thread may still be reading is written.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis.fragments import NEIGHBOURS
from neptune_mlir.analysis.layouts import CHUNK, Digit, Layout, Shared, access_width, blocked
from neptune_mlir.analysis.tiles import Window, element_bytes
from neptune_mlir.codegen.gpu import guarded
from neptune_mlir.codegen.gpu.addresses import (
    address_in_fragments,
    addresses,
    limits_of,
    threads_here,
)
from neptune_mlir.codegen.gpu.chip import Operand
from neptune_mlir.codegen.gpu.pages import LookedUp, place_row
from neptune_mlir.codegen.gpu.scalars import Index, Scalars
from neptune_mlir.ir.bindings import ir, scf


@dataclass(frozen=True)
class Array:
    """A tensor in global memory: its address and the stride of each dimension, in elements."""

    number: int  # which argument of the kernel
    pointer: Any
    strides: tuple[Any, ...]  # i64 values; the innermost is 1
    dtype: str
    in_fragments: bool = False  # (`analysis.fragments`)


@dataclass(frozen=True)
class SharedTile:
    """A tile in shared memory, `offset` bytes from the start."""

    layout: Shared
    offset: Index
    dtype: str

    def read(self, memory: Memory, layout: Layout) -> list[Any]:
        """What a thread holds of it."""

        def pointer(position: list[Index]) -> Any:
            offset = memory.s.add(memory.shared_offset(self.layout, position), self.offset)
            return memory.shared_pointer(offset)

        return memory.read_tile(layout, self.dtype, pointer)

    def operand(
        self, threads: Threads, memory: Memory, wanted: Operand
    ) -> Callable[[int, int, int], list[Any]]:
        """`Chip.operand_from_shared`."""
        return memory.s.chip.operand_from_shared(threads, memory, self, wanted)


class Threads:
    """The positions of this thread: which lane, which warp, which element of a layout."""

    def __init__(self, scalars: Scalars, lanes: int, warps: int, number: Any = None):
        self.s = scalars
        self.lanes, self.warps = lanes, warps
        self.count = lanes * warps
        dimension = ir.Attribute.parse("#gpu<dim x>")
        self.id = number or scalars.op("gpu.thread_id", [], scalars.index, dimension=dimension)
        self.lane = scalars.mod(self.id, lanes)
        self.warp = scalars.div(self.id, lanes)

    def digits(self, part: Sequence[Digit], number: Index, dim: int) -> Index:
        """Position along `dim` that the digits of a lane or warp number give."""
        total: Index = 0
        distance = 1
        for k, d in enumerate(part):
            if d.dim == dim:
                value = self.s.div(number, distance)
                if k + 1 < len(part):
                    value = self.s.mod(value, d.size)
                total = self.s.add(total, self.s.mul(value, d.stride))
            distance *= d.size
        return total

    def base(self, layout: Layout) -> list[Index]:
        """Position of register 0 of this thread."""
        return [
            self.s.add(
                self.digits(layout.warp, self.warp, d), self.digits(layout.lane, self.lane, d)
            )
            for d in range(len(layout.shape))
        ]

    def existing(self, layout: Layout) -> list[list[Index]]:
        """As `positions`, but the last one that exists for those that are padding."""
        limits = layout.shape if layout.padded else [None] * len(layout.shape)

        def inside(position: list[Index]) -> list[Index]:
            pairs = zip(position, limits, strict=True)
            return [p if n is None else self.s.minimum(p, n - 1) for p, n in pairs]

        return [inside(position) for position in self.positions(layout)]

    def positions(self, layout: Layout) -> list[list[Index]]:
        """Position of every register of this thread."""
        base = self.base(layout)
        return [
            [self.s.add(b, int(o)) for b, o in zip(base, offset, strict=True)]
            for offset in layout.offsets(layout.reg)
        ]


class Memory:
    """Emits loads, stores and copies, and keeps account of shared memory.

    `meet` emits the barrier of the threads that use it (default: all of the block).
    """

    def __init__(
        self, scalars: Scalars, threads: Threads, smem: Any, meet: Callable[[], None] | None = None
    ):
        self.s = scalars
        self.meet = meet or scalars.chip.barrier
        self.threads = threads
        self.smem = smem
        self.top = 0
        self.peak = 0
        self.unsafe = False  # some thread may still read memory at or above `top`
        self.byte_of: dict[Any, tuple[Any, int]] = {}  # a byte -> the word that has it, and where
        self.pair_of: dict[Any, Any] = {}  # two bytes that were made together -> both in 16 bits
        self.aligned: dict[int, int] = {}  # array -> bytes that its rows must be aligned to
        self.looked = LookedUp()

    # ---- shared memory

    def take(self, size: int) -> int:
        """Offset of `size` fresh bytes, aligned for swizzled rows."""
        start = -(-self.top // 128) * 128
        self.top = start + size
        self.peak = max(self.peak, self.top)
        return start

    def release(self, top: int) -> None:
        if top < self.top:
            self.top, self.unsafe = top, True

    def barrier(self) -> None:
        self.meet()
        self.unsafe = False

    @contextmanager
    def scratch(self, size: int) -> Iterator[int]:
        """Bytes for what warps reduced, that nobody reads any more."""
        top, offset = self.top, self.take(size)
        self.barrier()
        yield offset
        self.release(top)

    def settle(self) -> None:
        """A barrier if memory that is about to be written may still be read."""
        if self.unsafe:
            self.barrier()

    def shared_offset(self, layout: Shared, position: Sequence[Index]) -> Index:
        """Byte offset of an element in a shared tile."""
        s = self.s
        row: Index = 0
        for n, p in zip(layout.shape[:-1], position[:-1], strict=True):
            row = s.add(s.mul(row, n), p)
        column = position[-1] if position else 0
        if not layout.mask:
            return s.add(s.mul(row, layout.pitch), s.mul(column, layout.element))
        per_chunk = CHUNK // layout.element
        chunk, rest = s.div(column, per_chunk), s.mod(column, per_chunk)
        chunk = s.xor(chunk, s.mod(s.div(row, 1 << layout.shift), layout.mask + 1))
        within = s.add(s.mul(chunk, CHUNK), s.mul(rest, layout.element))
        return s.add(s.mul(row, layout.pitch), within)

    def shared_pointer(self, offset: Index) -> Any:
        kind = ir.Type.parse("!llvm.ptr<3>")
        return self.offset_pointer(self.smem, self.s.value(offset, self.s.i32), kind)

    def offset_pointer(self, pointer: Any, offset: Any, kind: Any) -> Any:
        """`pointer` moved by `offset` bytes."""
        dynamic = ir.DenseI32ArrayAttr.get([-(1 << 31)])
        byte = ir.TypeAttr.get(ir.IntegerType.get_signless(8))
        return self.s.op(
            "llvm.getelementptr", [pointer, offset], kind, rawConstantIndices=dynamic,
            elem_type=byte, noWrapFlags=ir.IntegerAttr.get(self.s.i32, 0),
        )  # fmt: skip

    def load_element(self, pointer: Any, kind: Any, size: int) -> Any:
        alignment = ir.IntegerAttr.get(self.s.i64, size)
        return ir.Operation.create(
            "llvm.load", results=[kind], operands=[pointer],
            attributes={"alignment": alignment, "ordering": ir.IntegerAttr.get(self.s.i64, 0)},
        ).results[0]  # fmt: skip

    def store_element(self, value: Any, pointer: Any, size: int) -> None:
        alignment = ir.IntegerAttr.get(self.s.i64, size)
        ir.Operation.create(
            "llvm.store", operands=[value, pointer],
            attributes={"alignment": alignment, "ordering": ir.IntegerAttr.get(self.s.i64, 0)},
        )  # fmt: skip

    def memory_type(self, dtype: str) -> Any:
        """Booleans take a byte in memory."""
        return ir.Type.parse("i8" if dtype == "i1" else "i64" if dtype == "index" else dtype)

    def to_memory(self, value: Any, dtype: str) -> Any:
        if dtype == "i1":
            return self.s.op("arith.extui", [value], self.memory_type(dtype))
        return self.s.value(value, self.s.i64) if dtype == "index" else value

    def from_memory(self, value: Any, dtype: str) -> Any:
        if dtype == "i1":
            return self.s.op("arith.trunci", [value], self.s.i1)
        return self.s.value(value, self.s.index) if dtype == "index" else value

    def load_shared(self, tile: SharedTile, positions: Sequence[Sequence[Index]]) -> list[Any]:
        """The elements at the given positions, one load each."""
        found = []
        for position in positions:
            offset = self.s.add(self.shared_offset(tile.layout, position), tile.offset)
            value = self.load_element(
                self.shared_pointer(offset), self.memory_type(tile.dtype), tile.layout.element
            )
            found.append(self.from_memory(value, tile.dtype))
        return found

    def read_tile(
        self, layout: Layout, dtype: str, pointer: Callable[[list[Index]], Any]
    ) -> list[Any]:
        """What a thread holds of a tile in memory; neighbours of up to 32 bits in pairs where it
        holds pairs.

        Args:
            pointer: where an element is.
        """
        size, last = element_bytes(dtype), len(layout.shape) - 1
        if size == 1 and dtype != "i1":
            run = layout.run_along(last)
            if run >= 4:
                return self._read_runs(layout, pointer, last, run)
        first = layout.reg[0] if layout.reg else Digit(None, 1)
        rest = [d for part in (layout.reg[1:], layout.lane, layout.warp) for d in part]
        pairs = size <= 4 and dtype != "i1" and not layout.padded
        pairs = pairs and first.dim == last and first.stride == 1
        pairs = pairs and first.size % 2 == 0
        pairs = pairs and all(d.stride % 2 == 0 for d in rest if d.dim == last)
        count = 2 if pairs else 1
        kind = self._wide(dtype, count)
        found: list[Any] = []
        for position in self.threads.existing(layout)[::count]:
            value = self.load_element(pointer(position), kind, size * count)
            both = self.unpack(value, 2, self.memory_type(dtype)) if pairs else [value]
            found += [self.from_memory(v, dtype) for v in both]
        return found

    def _read_runs(
        self, layout: Layout, pointer: Callable[[list[Index]], Any], last: int, run: int
    ) -> list[Any]:
        """Bytes of which a thread holds `run` neighbours: words at once, and which byte of which
        word each is (`byte_of`)."""
        s, count = self.s, run // 4
        offsets = [tuple(map(int, o)) for o in layout.offsets(layout.reg)]
        register = {o: r for r, o in enumerate(offsets)}
        kind = s.i32 if count == 1 else ir.VectorType.get([count], s.i32)
        i8 = ir.IntegerType.get_signless(8)
        found: list[Any] = [None] * len(offsets)
        for r, position in enumerate(self.threads.positions(layout)):
            if offsets[r][last] % run:
                continue
            loaded = self.load_element(pointer(position), kind, run)
            words = [loaded] if count == 1 else self.unpack(loaded, count, s.i32)
            for k in range(run):
                at = list(offsets[r])
                at[last] += k
                word, byte = words[k // 4], k % 4
                moved = s.op("arith.shrui", [word, s.constant(8 * byte, s.i32)], s.i32)
                value = s.op("arith.trunci", [moved], i8)
                found[register[tuple(at)]] = value
                self.byte_of[value] = (word, byte)
        return found

    def store_shared(
        self, tile: SharedTile, layout: Layout, values: Sequence[Any], valid: bool = True
    ) -> None:
        """Write a tile that the threads hold; padding is left out."""
        for value, position in zip(values, self.threads.positions(layout), strict=True):
            offset = self.s.add(self.shared_offset(tile.layout, position), tile.offset)
            inside = self.in_bounds(position, layout.shape) if layout.padded else None
            with under(self.s, inside):
                self.store_element(
                    self.to_memory(value, tile.dtype), self.shared_pointer(offset),
                    tile.layout.element,
                )  # fmt: skip

    def in_bounds(self, position: Sequence[Index], limits: Sequence[Any]) -> Any:
        """Condition that a position lies under all `limits` (None: no limit), None if always."""
        condition = None
        for p, limit in zip(position, limits, strict=True):
            known = isinstance(p, int) and isinstance(limit, int) and p < limit
            if limit is not None and not known:
                condition = self.s.both(condition, self.s.less(p, limit))
        return condition

    # ---- global memory

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
        along = guarded.guarded(self, array, window, layout)
        if along is not None:
            yield from guarded.load(self, array, window, layout, vector, along)
            return
        size, register = element_bytes(array.dtype) * vector, itertools.count()
        for inside, pointer in addresses(self, array, window, layout, vector, self.threads):
            wide = self.load_element(pointer, self._wide(array.dtype, vector), size)
            for value in [wide] if vector == 1 else self.unpack(wide, vector, kind):
                value = self.from_memory(value, array.dtype)
                missing = next(register) in layout.missing
                yield value if missing else s.select(inside, value, s.constant(0, value.type))

    def _wide(self, dtype: str, vector: int) -> Any:
        kind = self.memory_type(dtype)
        return kind if vector == 1 else ir.VectorType.get([vector], kind)

    def unpack(self, vector: Any, count: int, kind: Any) -> list[Any]:
        return [
            self.s.op("llvm.extractelement", [vector, self.s.constant(k, self.s.i32)], kind)
            for k in range(count)
        ]

    def pack(self, values: Sequence[Any]) -> Any:
        kind = ir.VectorType.get([len(values)], values[0].type)
        return self.s.op("vector.from_elements", values, kind)

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
        return [self._wide(array.dtype, vector)] * count

    def load_staged(self, array: Array, window: Window) -> list[Any]:
        """This thread's part of a window on its way to shared memory. What of it exists is for
        `store_staged` to ask: asking here would wait for the loads."""
        layout, vector = self.staging(array, window)
        kind, size = self._wide(array.dtype, vector), element_bytes(array.dtype) * vector
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


class under:
    """`with under(s, condition):` emits under a condition; None is always true."""

    def __init__(self, scalars: Scalars, condition: Any):
        self.s, self.condition = scalars, condition

    def __enter__(self) -> None:
        if self.condition is None:
            return
        self.op = scf.IfOp(self.condition)
        self.context = self.s.scope(self.op.then_block)
        self.context.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.condition is None:
            return
        if error[0] is None:
            scf.YieldOp([])
        self.context.__exit__(*error)
