# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shared memory: who has which bytes, and accesses to tiles in it.

It is handed out like a stack: what a loop took is free again after it. A barrier is placed before
memory is written that some thread may still be reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import CHUNK, Digit, Layout, Shared
from neptune_mlir.analysis.tiles import element_bytes
from neptune_mlir.codegen.gpu.access.threads import Threads, under
from neptune_mlir.codegen.gpu.chip import Operand
from neptune_mlir.codegen.gpu.scalars import Index, Scalars
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.memory import Memory

FRESH = 1024  # bytes that a kernel without loops takes so as not to wait before it writes them


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


class SharedMemory:
    """Emits accesses to shared memory, and keeps account of what of it is taken.

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
        self.once = False  # whether no code is run twice, and no parts of other kernels are joined
        self.byte_of: dict[Any, tuple[Any, int]] = {}  # a byte -> the word that has it, and where
        self.pair_of: dict[Any, Any] = {}  # two bytes that were made together -> both in 16 bits

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
        """Bytes for what warps reduced, that nobody reads any more: behind a barrier, or, as long
        as they are few, such as nobody ever took, in code that is run once."""
        top = self.top
        once = self.once and ir.InsertionPoint.current.block.owner.operation.name == "gpu.func"
        fresh = once and self.peak - top + size <= FRESH
        self.top = self.peak if fresh else top
        offset = self.take(size)
        if not fresh:
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
        kind = self.wide(dtype, count)
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

    # ---- vectors

    def wide(self, dtype: str, vector: int) -> Any:
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
