# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops whose loads to shared memory are under way while earlier iterations compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import layout_of
from neptune_mlir.analysis.tiles import Window, element_of, load_window
from neptune_mlir.codegen.gpu.memory import Array, SharedTile, under
from neptune_mlir.dialects.attributes import LAYOUT, STAGES
from neptune_mlir.ir.bindings import scf

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

    def finish(self) -> None:
        """Behind the loop."""


class Staged(LoopPipeline):
    """A loop with loads to shared memory."""

    def __init__(self, kernel: KernelWriter, loop: Any):
        super().__init__(kernel, loop)
        self.stages = STAGES.of(loop)
        self.loads: list[tuple[Any, Window, SharedTile]] = []

    def reserve(self, loop: Any, buffers: int) -> None:
        """Take the shared memory of all tiles that the loop loads."""
        for op in loop.regions[0].blocks[0].operations:
            operation = op.operation
            staged = operation.name in ("tensor.pad", "tensor.extract_slice")
            if not staged or not LAYOUT.on(operation):
                continue
            value = operation.results[0]
            found = load_window(value, self.kernel.forall)
            assert found is not None
            layout = layout_of(operation, found.shape)
            offset = self.memory.take(layout.bytes * buffers)
            self.loads.append((value, found, SharedTile(layout, offset, element_of(value))))

    def source(self, found: Window, position: Any) -> tuple[Array, Window]:
        """The array of a load and its window in the iteration at `position`."""
        array = self.kernel.arrays[found.tensor]
        return array, self.kernel.window(found, {self.iv: position})


class AsyncPipeline(Staged):
    """Copies that need no registers, `stages - 1` iterations ahead, a buffer for each stage."""

    def __init__(self, kernel: KernelWriter, loop: Any):
        super().__init__(kernel, loop)
        self.chip = kernel.chip
        self.reserve(loop, self.stages)

    def _issue(self, position: Any, slot: Any, high: Any) -> None:
        """Start the copies of the iteration at `position`, if there is one."""
        with under(self.s, self.s.less(position, high)):
            for _, found, tile in self.loads:
                offset = self.s.add(self.s.mul(slot, tile.layout.bytes), tile.offset)
                array, window = self.source(found, position)
                to = SharedTile(tile.layout, offset, tile.dtype)
                self.chip.start_copy(self.memory, array, window, to)
        self.chip.commit()

    def start(self, low: Any, high: Any, step: Any) -> None:
        self.memory.settle()
        for k in range(self.stages - 1):
            self._issue(self.s.add(low, self.s.mul(step, k)), k, high)

    def carried(self) -> list[Any]:
        return [self.s.value(0)]

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

    def finish(self) -> None:
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
