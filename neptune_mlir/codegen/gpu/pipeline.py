# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops whose loads to shared memory are under way while earlier iterations compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import layout_of
from neptune_mlir.analysis.tiles import Window, element_of, load_window, shape_of
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.gpu.memory import Array
from neptune_mlir.dialects.gpu_attributes import LAYOUT, STAGES
from neptune_mlir.ir.bindings import scf
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets import resources
from neptune_mlir.transforms.gpu.streams import chain_of

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter


class LoopPipeline:
    """A loop with no loads to shared memory, or none that are to run ahead."""

    def __init__(self, kernel: KernelWriter, loop: Any):
        self.kernel, self.s, self.memory = kernel, kernel.s, kernel.memory
        self.iv = loop.regions[0].blocks[0].arguments[0]

    def start(self, low: Any, high: Any, step: Any) -> None:
        """Before the loop: start the copies of its first iterations."""

    def carried(self) -> list[Any]:
        """What the loop is to carry."""
        return []

    def advance(self, position: Any, high: Any, step: Any, carried: Sequence[Any]) -> list[Any]:
        """At the start of an iteration: wait for its tiles, start copies for a later one."""
        return []

    def finish(self, carried: Sequence[Any], top: int) -> None:
        """Behind the loop.

        Args:
            carried: what it gives of `carried`.
            top: that of shared memory before the loop.
        """
        self.memory.release(top)


class Staged(LoopPipeline):
    """A loop with loads to shared memory."""

    def __init__(self, kernel: KernelWriter, loop: Any):
        super().__init__(kernel, loop)
        self.stages = STAGES.of(loop)
        self.loads: list[tuple[Any, Window, SharedTile]] = []

    def reserve(self, loop: Any, buffers: int) -> None:
        """Take the shared memory of all tiles that the loop loads."""
        for value in _staged_values(loop):
            found = load_window(value, self.kernel.forall)
            assert found is not None
            layout = layout_of(defining_op(value), found.shape)
            offset = self.memory.take(layout.bytes * buffers)
            self.loads.append((value, found, SharedTile(layout, offset, element_of(value))))

    def source(self, found: Window, position: Any) -> tuple[Array, Window]:
        """The array of a load and its window in the iteration at `position`."""
        array = self.kernel.arrays[found.tensor]
        return array, self.kernel.window(found, {self.iv: position})


class AsyncPipeline(Staged):
    """Copies that need no registers, `stages - 1` iterations ahead, a buffer for each stage.

    Where a loop goes on with the tiles of the loop before (its last tile has a mask, say), copies
    for it are started by that one, whose buffers it takes: nobody waits for memory between them.
    """

    def __init__(self, kernel: KernelWriter, loop: Any):
        super().__init__(kernel, loop)
        self.chip = kernel.chip
        self.before: tuple[AsyncPipeline, Any, int] | None = kernel.going_on.pop(loop, None)
        self.after = _goes_on(loop)
        if self.before is None:
            self.reserve(loop, self.stages)
        else:
            self.loads = self.before[0].of_next

    def start(self, low: Any, high: Any, step: Any) -> None:
        if self.before is not None:
            return
        self.memory.settle()
        if self.after is None:
            for k in range(self.stages - 1):
                self._issue(self.s.add(low, self.s.mul(step, k)), k, high)
            return
        self.of_next = self._loads_of_next()
        s = self.s
        first = scf.ForOp(s.value(0), s.value(self.stages - 1), s.value(1))
        with s.scope(first.body):
            k = first.induction_variable
            self._issue(s.add(low, s.mul(step, k)), k, high)
            scf.YieldOp([])

    def _loads_of_next(self) -> list[tuple[Any, Window, SharedTile]]:
        found = []
        values = _staged_values(self.after)
        for value, (_, _, tile) in zip(values, self.loads, strict=True):
            window = load_window(value, self.kernel.forall)
            assert window is not None
            found.append((value, window, tile))
        return found

    def _issue(self, position: Any, slot: Any, high: Any) -> None:
        """Start the copies of the iteration at `position`, if there is one."""
        s = self.s
        with under(s, s.less(position, high)):
            self._copy(self.loads, self.iv, position, slot)
        if self.after is not None:
            end = self.kernel.scalar(self.after.operands[1])
            behind = s.less(high, s.add(position, 1))
            with under(s, s.both(behind, s.less(position, end))):
                iv = self.after.regions[0].blocks[0].arguments[0]
                self._copy(self.of_next, iv, position, slot)
        self.chip.commit()

    def _copy(self, loads: Sequence[Any], iv: Any, position: Any, slot: Any) -> None:
        for _, found, tile in loads:
            offset = self.s.add(self.s.mul(slot, tile.layout.bytes), tile.offset)
            array = self.kernel.arrays[found.tensor]
            window = self.kernel.window(found, {iv: position})
            to = SharedTile(tile.layout, offset, tile.dtype)
            self.chip.start_copy(self.memory, array, window, to)

    def carried(self) -> list[Any]:
        return [self.s.value(0) if self.before is None else self.before[1]]

    def advance(self, position: Any, high: Any, step: Any, carried: Sequence[Any]) -> list[Any]:
        s = self.s
        slot = carried[0]
        self.chip.wait(self.stages - 2)
        self.memory.barrier()
        self.kernel.landing.clear()  # what was fetched before the loop is older
        ahead = s.add(position, s.mul(step, self.stages - 1))
        self._issue(ahead, self._wrap(s.add(slot, self.stages - 1)), high)
        for value, _, tile in self.loads:
            offset = s.add(s.mul(slot, tile.layout.bytes), tile.offset)
            self.kernel.tiles[value] = SharedTile(tile.layout, offset, tile.dtype)
        return [self._wrap(s.add(slot, 1))]

    def _wrap(self, slot: Any) -> Any:
        """`slot` modulo the number of stages, for slots under twice that."""
        s = self.s
        if not self.stages & (self.stages - 1):
            return s.mod(slot, self.stages)
        return s.select(s.less(slot, self.stages), slot, s.value(s.sub(slot, self.stages)))

    def finish(self, carried: Sequence[Any], top: int) -> None:
        top = top if self.before is None else self.before[2]
        if self.after is not None:
            self.kernel.going_on[self.after] = self, carried[0], top
            return
        self.memory.release(top)
        self.chip.wait(0)


class RegisterPipeline(Staged):
    """Loads to registers one iteration ahead; each iteration writes its own to shared memory."""

    def __init__(self, kernel: KernelWriter, loop: Any):
        super().__init__(kernel, loop)
        self.reserve(loop, 1)

    def _issue(self, position: Any, high: Any, before: Sequence[Any] = ()) -> list[Any]:
        """What the threads load for the iteration at `position`. If there is none, what they loaded
        before, which nothing reads again: the registers that hold it need not be written."""
        s, memory = self.s, self.memory
        types = [
            kind
            for _, found, _ in self.loads
            for kind in memory.staged_types(self.kernel.arrays[found.tensor], found)
        ]
        made = scf.IfOp(s.less(position, high), types, has_else=True)
        with s.scope(made.then_block):
            sources = [self.source(found, position) for _, found, _ in self.loads]
            scf.YieldOp([v for source in sources for v in memory.load_staged(*source)])
        with s.scope(made.else_block):
            scf.YieldOp(list(before)[: len(types)] or [memory.zero(kind) for kind in types])
        return list(made.results)

    def start(self, low: Any, high: Any, step: Any) -> None:
        self.first = self._issue(low, high)

    def carried(self) -> list[Any]:
        return self.first

    def advance(self, position: Any, high: Any, step: Any, carried: Sequence[Any]) -> list[Any]:
        self.memory.barrier()  # all threads are done with the tiles before
        held = list(carried)
        for value, found, tile in self.loads:
            array = self.kernel.arrays[found.tensor]
            count = len(self.memory.staged_types(array, found))
            # what exists of the window is asked again: conditions that a loop carries are many, and
            # of the registers for them there are few
            self.memory.store_staged(*self.source(found, position), tile, held[:count])
            held = held[count:]
            self.kernel.tiles[value] = tile
        self.memory.barrier()
        self.kernel.landing.clear()
        return self._issue(self.s.add(position, step), high, carried)


def pipeline_of(kernel: KernelWriter, loop: Any) -> LoopPipeline:
    """The pipeline of a loop, as its attributes and the chip's copies ask for."""
    if STAGES.find(loop, 0) < 2:
        return LoopPipeline(kernel, loop)
    return (AsyncPipeline if kernel.chip.copies_ahead else RegisterPipeline)(kernel, loop)


def _staged_values(loop: Any) -> list[Any]:
    """What a loop loads to shared memory."""
    return [
        op.operation.results[0]
        for op in loop.regions[0].blocks[0].operations
        if op.operation.name in ("tensor.pad", "tensor.extract_slice") and LAYOUT.on(op.operation)
    ]


def _goes_on(loop: Any) -> Any:
    """The loop whose first copies this one starts: the one behind it, unless that starts those of a
    third one."""
    found = _next_alike(loop)
    return None if found is None or _next_alike(found) is not None else found


def _next_alike(loop: Any) -> Any:
    """The loop that carries the results of this one on and begins where it ends, if its tiles are
    alike. (So this one has whole steps: else positions were left out, or counted twice.)"""
    _, *behind = chain_of(loop)
    if STAGES.of(loop) <= resources.STAGES or not behind:
        return None  # of what waits for memory copies are further ahead than by an iteration
    if STAGES.find(behind[0], 0) != STAGES.of(loop):
        return None
    other = behind[0]
    if other.operands[0] != loop.operands[1] or not _is_same(other.operands[2], loop.operands[2]):
        return None
    tiles = [
        [(layout_of(defining_op(v), shape_of(v)), element_of(v)) for v in _staged_values(one)]
        for one in (loop, other)
    ]
    return other if tiles[0] == tiles[1] and tiles[0] else None


def _is_same(a: Any, b: Any) -> bool:
    """Whether two values are one, or constants that are equal."""
    x, y = defining_op(a), defining_op(b)
    if a == b or x is None or y is None:
        return bool(a == b)
    return {x.name, y.name} == {"arith.constant"} and x.attributes["value"] == y.attributes["value"]
