# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that a program reads several times, kept in shared memory by the threads that read them.

A row that is read again once it was reduced is held in registers where these suffice. Longer rows
(choice `stash`) are asked for at once by asynchronous copies, 16 bytes each, which need no register
while they are under way. Each thread copies what it will read, so that nothing meets: it waits for
its own copies, and reads its own bytes in each pass.

A vector that all rows share (scales, say) has no place there, where it would take the room of other
programs' rows: each pass reads it from near caches, which have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import CHUNK, Layout, iteration_of
from neptune_mlir.analysis.tiles import Window, element_bytes, read_generic, tuned
from neptune_mlir.codegen.gpu.access import guarded
from neptune_mlir.codegen.gpu.access.addresses import addresses
from neptune_mlir.codegen.gpu.tile_forms import Anew, Arriving, zero_behind
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter
    from neptune_mlir.codegen.gpu.memory import Array
    from neptune_mlir.codegen.gpu.scalars import Scalars


class Stash:
    """What a program reads of a window, by a layout, in shared memory."""

    def __init__(self, writer: KernelWriter, array: Array, window: Window, layout: Layout):
        self.s, self.chip, self.memory = writer.s, writer.chip, writer.memory
        self.array, self.window, self.layout = array, window, layout
        self.threads = writer.threads
        self.elements = CHUNK // element_bytes(array.dtype)
        self.chunks = layout.registers // self.elements
        self.behind: Any = 0  # what is added to an address: 0, once something else has come
        self.memory.settle()
        self.offset = self.memory.take(self.chunks * self.threads.count * CHUNK)
        self._start()

    def _start(self) -> None:
        """Ask for everything."""
        for k, (inside, source) in enumerate(self._places()):
            self.chip.copy_chunk(self.memory, self._place(k), source, inside)
        self.chip.commit()

    def _places(self) -> Iterator[tuple[Any, Any]]:
        """Of each chunk of a thread: whether it exists (None: it does), and its address."""
        s, memory, array = self.s, self.memory, self.array
        along = guarded.guarded(memory, array, self.window, self.layout)
        if along is None:
            given = self.window, self.layout, self.elements, self.threads
            yield from addresses(memory, array, *given)
            return
        size, first = element_bytes(array.dtype), None
        for access in guarded.accesses(
            memory, array, self.window, self.layout, self.elements, along
        ):
            if access is None:
                yield s.constant(0, s.i1), first
                continue
            first = first or access.pointer
            offset = s.constant(access.place * size, s.i64)
            inside = None if access.left is None else s.op(
                "arith.cmpi", [s.constant(access.place, s.i32), access.left], s.i1,
                predicate=ir.IntegerAttr.get(s.i64, 2),
            )  # fmt: skip
            yield inside, memory.offset_pointer(access.pointer, offset, access.pointer.type)

    def _place(self, chunk: int) -> Any:
        before = chunk * self.threads.count * CHUNK + self.offset
        return self.s.add(self.s.mul(self.threads.id, CHUNK), before)

    def tie(self, s: Scalars, others: Sequence[Arriving]) -> None:
        """Let who reads it wait for others, too."""
        self.behind = zero_behind(s, others)

    def each(self) -> Iterator[Any]:
        """What a thread holds of the window, read from shared memory."""
        self.chip.wait(0)
        memory = self.memory
        kind = memory.memory_type(self.array.dtype)
        wide = ir.VectorType.get([self.elements], kind)
        for k in range(self.chunks):
            place = self.s.add(self._place(k), self.behind)
            loaded = memory.load_element(memory.shared_pointer(place), wide, CHUNK)
            for value in memory.unpack(loaded, self.elements, kind):
                yield memory.from_memory(value, self.array.dtype)


def stash(writer: KernelWriter, op: Any, array: Array, window: Window) -> Anew | None:
    """The tile of a load of a program, if it is to have one: two passes read it in whole chunks,
    by one layout."""
    if not tuned(writer.forall, "stash", 0) or not writer.chip.copies_ahead:
        return None
    if op.operation.block != writer.body:
        return None
    layouts = read_layouts(op.results[0])
    if len(layouts) < 2 or any(layout != layouts[0] for layout in layouts):
        return None
    vector = writer.memory.access_of(array, window, layouts[0])
    if vector * element_bytes(array.dtype) != CHUNK:
        return None
    otherwise = partial(writer.memory.load_global, array, window)
    if all(isinstance(offset, int) for offset in window.offsets):
        each = partial(writer.memory.load_each, array, window, layouts[0])
        return Anew(layouts[0], each, otherwise)
    return Anew(layouts[0], Stash(writer, array, window, layouts[0]).each, otherwise)


def stash_of(tile: Any) -> Stash | None:
    """The row of a tile that shared memory has."""
    found = getattr(tile.each, "__self__", None) if isinstance(tile, Anew) else None
    return found if isinstance(found, Stash) else None


def read_layouts(tile: Any) -> list[Layout]:
    """The layout by which each op reads a tile; none where other ops than generics do."""
    layouts: list[Layout] = []
    for use in tile.uses:
        user = use.owner.operation
        if user.name != "linalg.generic":
            return []
        g = read_generic(user)
        if use.operand_number < len(g.inputs) and g.is_read(use.operand_number):
            layouts.append(iteration_of(user, g.extents).project(g.maps[use.operand_number]))
    return layouts


def is_stored_once(tile: Any) -> bool:
    """Whether a tile is only written to a result, perhaps a part of it."""
    users = [use.owner.operation for use in tile.uses]
    if len(users) == 1 and users[0].name == "tensor.extract_slice":
        return is_stored_once(users[0].results[0])
    stores = ("tensor.insert_slice", "tensor.parallel_insert_slice")
    return len(users) == 1 and users[0].name in stores
