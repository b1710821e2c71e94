# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A specialised kernel (`partition-warps`) as the code of one thread of sm_90a.

The consumers run the tile program (`groups/consumers.py`): their warps come first in a block, so
layouts number them as in any kernel. The producer is one warp of the last warp group. They meet at
rings (`rings`). Here are the function, the roles of its warps, and the places of what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import (
    Window,
    tuned,
    turn_of,
)
from neptune_mlir.codegen.gpu.access.threads import Threads, under
from neptune_mlir.codegen.gpu.chip import Chip
from neptune_mlir.codegen.gpu.compute import Compute
from neptune_mlir.codegen.gpu.host import KernelSignature
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.codegen.nvidia import hopper, quad_rows, staged_rows
from neptune_mlir.codegen.nvidia.adder import END, Adder
from neptune_mlir.codegen.nvidia.ahead_of_wait import EarlyProducer, may_wait_late
from neptune_mlir.codegen.nvidia.boxed_results import BoxedResults, place_staging, write_tile
from neptune_mlir.codegen.nvidia.boxes import Boxes
from neptune_mlir.codegen.nvidia.clusters.instructions import meet_in_cluster
from neptune_mlir.codegen.nvidia.clusters.pairs import Pairs, mark_cluster
from neptune_mlir.codegen.nvidia.clusters.sums import SharedSums
from neptune_mlir.codegen.nvidia.group_compute import GroupProducts
from neptune_mlir.codegen.nvidia.groups.consumers import ConsumerWriter
from neptune_mlir.codegen.nvidia.groups.exchange import SharedPlaces
from neptune_mlir.codegen.nvidia.groups.hands import Hands
from neptune_mlir.codegen.nvidia.groups.idle import IdleGroups
from neptune_mlir.codegen.nvidia.groups.turns import Turns
from neptune_mlir.codegen.nvidia.in_two import Counted, InTwo
from neptune_mlir.codegen.nvidia.instructions import SMEM
from neptune_mlir.codegen.nvidia.producer import Producer
from neptune_mlir.codegen.nvidia.program_order import order_of
from neptune_mlir.codegen.nvidia.program_queue import ProgramQueue
from neptune_mlir.codegen.nvidia.readers import few_readers
from neptune_mlir.codegen.nvidia.rings import Rings
from neptune_mlir.codegen.nvidia.vectors_staged import StagedVectors
from neptune_mlir.dialects.gpu_attributes import (
    BOXED,
    RESIDENT,
    TURNS,
)
from neptune_mlir.ir.bindings import gpu, ir, scf
from neptune_mlir.targets import warp_groups
from neptune_mlir.transforms.hopper.partition_warps import producer_of
from neptune_mlir.transforms.hopper.specialize_warps import GROUP

CONSUMER_BARRIER = 1  # the named barrier of all consumers


class SpecializedWriter(ConsumerWriter):
    """Writes a kernel with a producer and consumers."""

    def __init__(self, signature: KernelSignature, chip: Chip):
        super().__init__(signature, chip)
        assert self.warps == GROUP * self.groups
        self.blocks = tuned(self.forall, "blocks", 1)
        self.group_threads = GROUP * self.target.wave
        self.block_threads = (self.groups + 1) * self.group_threads
        self.resident = RESIDENT.on(self.forall)
        self.producer = producer_of(self.forall).regions[0].blocks[0]
        self.waits_late = False
        self.hands = Hands.of(self)
        self.idle: IdleGroups | None = None

    def write(self) -> None:
        s = self.s = Scalars(self.chip)
        self.rings = Rings(self)
        types = self.argument_types()
        queue = ProgramQueue.operands if self.resident else ()
        types += [s.i32] * len(queue)
        self.in_two = InTwo.of(self)
        types += [kind for two in self.in_two.values() for kind in two.types]
        function = gpu.GPUFuncOp(
            ir.FunctionType.get(types, []), self.signature.name, kernel=True,
            known_block_size=[self.block_threads, 1, 1],
        )  # fmt: skip
        operation = function.operation
        block = self.entry = function.add_entry_block()
        self.boxes = Boxes(self)
        with self.forall.location, s.scope(block):
            self._begin(block, len(types))
            self._roles()
            if self.pairs is not None or self.sums is not None:
                meet_in_cluster()
            self.end()
        self.boxes.fetch(self.first_thread)
        self.boxes.pass_maps(operation, types)
        self.signature.operands = [
            *queue, *(two.operand for two in self.in_two.values()),
            *self.boxes.operands(self.signature.places),
        ]  # fmt: skip
        self.signature.narrow = few_readers(self)
        self.finish(operation)
        mark_cluster(self, operation)
        self.signature.threads = self.block_threads
        self.signature.resident = self.resident

    def _begin(self, block: Any, arguments: int) -> None:
        """What all threads of a block do: places of arguments, tiles and barriers."""
        s = self.s
        self.place_arguments(block)
        more = list(block.arguments)[:arguments]
        for two in reversed(self.in_two.values()):
            more, two.values = more[: -len(two.types)], more[-len(two.types) :]
        self.threads = Threads(s, self.target.wave, self.warps)
        address = ir.FlatSymbolRefAttr.get(SMEM)
        smem = s.op("llvm.mlir.addressof", [], ir.Type.parse("!llvm.ptr<3>"), global_name=address)
        self.smem = s.op("llvm.ptrtoint", [smem], s.i32)
        self.memory = Memory(s, self.threads, smem, self._consumers_meet)
        self.exchange = SharedPlaces(self)
        self.compute = Compute(s, self.threads, self.memory, self.scalar)
        self.compute.interleaved = self.issued.interleaved
        self.compute.in_turn = True  # accumulators leave few registers for what follows them
        group = s.div(self.threads.id, self.group_threads)
        self.products = GroupProducts(self.compute, self.uniform(s.value(group, s.i32)))
        self.pairs, self.sums = Pairs.of(self), SharedSums.of(self)
        self.order = order_of(self)
        self.program_position(block)
        self._place_rings()
        self.idle = IdleGroups.of(self)
        if self.resident:
            self.queue = ProgramQueue(self, more[-1])
        with under(s, s.less(self.threads.id, 1)):
            self.first_thread = ir.InsertionPoint.current.block
            self._start_barriers()
        if self.pairs is None:
            self.chip.barrier()
        else:
            meet_in_cluster()
        self.memory.unsafe = False

    def _consumers_meet(self) -> None:
        hopper.named_barrier(CONSUMER_BARRIER, self.threads.count)
        self.exchange.met()
        if self.idle is not None:
            self.idle.met = True

    def _roles(self) -> None:
        """The branch of the consumers, and that of the producer."""
        s = self.s
        producing, consuming = warp_groups.REGISTERS[self.groups, self.blocks]
        uniform = self.uniform(s.value(self.threads.warp, s.i32))
        warp = s.op("arith.index_cast", [uniform], s.index)
        role = scf.IfOp(s.less(warp, self.warps), has_else=True)
        with s.scope(role.then_block):
            hopper.set_registers(consuming, True)
            self._wait_in_role()
            if TURNS.on(self.forall) and self.groups > 1:
                group = self.products.group
                self.turns = Turns.begin(s, group, self.groups, self.group_threads)
            if self.idle is not None:
                idle = self.idle
                self._programs(lambda: idle.write(self.consume), producing=False)
            elif self.hands is None:
                self._programs(self.consume, producing=False)
            else:
                self.hands.in_roles(lambda: self._programs(self.consume, producing=False))
            if self.boxed is not None:
                self.boxed.finish()
            if self.adder is not None:
                self.adder.settle(END)
            scf.YieldOp([])
        with s.scope(role.else_block):
            hopper.set_registers(producing, False)
            if self.adder is not None:
                there = s.less(warp, self.warps + 1 + self.groups)
                with under(s, s.both(s.less(self.warps, warp), there)):
                    self._wait_in_role()
                    self.adder.write(s.sub(warp, self.warps + 1))
            with under(s, s.less(warp, self.warps + 1)):
                producer = (EarlyProducer if self.waits_late else Producer)(self)
                self.counted.begin(self)
                self._programs(lambda: producer.write_program(self.producer), producing=True)
            if self.sums is not None:
                meet_in_cluster()  # when consumers have written what they have
            scf.YieldOp([])

    def wait_at_start(self) -> None:
        """(Its producer waits behind what it brings before.)"""
        given = self.signature.given if not self.in_two else ()
        self.waits_late = may_wait_late(self.forall, self.producer, given)
        if not self.waits_late:
            super().wait_at_start()

    def _wait_in_role(self) -> None:
        """Wait for the kernel before, where this one did not do so at its start."""
        if self.waits_late:
            self.chip.wait_for_last()

    def blocks_per_sm(self) -> int:
        return self.blocks

    def place_program(self, number: Any) -> None:
        if self.sums is not None:
            blocks = self.s.value(self.sums.blocks)
            number = self.s.op("arith.divui", [number, blocks], self.s.index)
        if self.pairs is not None:
            self.pairs.place(number, self._place_in_order)
        else:
            self._place_in_order(number)

    def _place_in_order(self, number: Any) -> None:
        if self.order is None:
            super().place_program(number)
            return
        last = len(self.bounds) - 1
        self.scalars[self.body.arguments[last]], point = self.order.place(number)
        self.place_variables(point, last)

    # ---- arguments

    def uniform(self, word: Any) -> Any:
        """A value that is the same in a warp, where the compiler can see it."""
        return hopper.from_lane(word, self.s.constant(0, self.s.i32))

    # ---- results

    def takes_turns(self, array: Array) -> bool:
        there = self.adder is not None and self.adder.in_turns
        return there and array.in_fragments and self.queue is not None

    def write_tile(
        self, op: Any, array: Array, window: Window, layout: Layout, values: Sequence[Any]
    ) -> None:
        if array.in_fragments:
            if self.adder is not None:
                self.adder.add(array, window, layout, values, turn_of(op))
            else:
                quad_rows.add_fragments(self, array, window, layout, values)
            return
        if self.adder is not None:
            self.adder.settle(ends=op.name == "tensor.parallel_insert_slice")
        if not write_tile(self, op, array, window, layout, values):
            threads = self.memory.threads
            if self.resident and len(layout.shape) > 1:
                self.memory.threads = staged_rows.recomputed(threads)
            super().write_tile(op, array, window, layout, values)
            self.memory.threads = threads

    # ---- rings and barriers

    def _place_rings(self) -> None:
        """Shared memory for every ring, for factors that groups share, and for results on their way
        out."""
        self.rings.place()
        self.exchange.place()
        self.vectors = StagedVectors(self)
        self.vectors.place()
        self.staged, self.room = place_staging(self)
        self.adder = Adder.of(self, self.staged, self.room)
        self.rings.place_barriers()
        self.gate = self.memory.take(8)
        self.counted = Counted.of(self)
        self.boxed: BoxedResults | None = None
        if self.staged is not None and BOXED.on(self.forall):
            self.boxed = BoxedResults(self, self.staged, self.room)

    def take_tiles(self, size: int) -> int:
        memory = self.memory
        memory.top = -(-memory.top // warp_groups.ATOM) * warp_groups.ATOM
        return memory.take(size)

    def _start_barriers(self) -> None:
        hopper.init_barrier(self.address(self.gate), 1)  # never completes its first phase
        self.rings.start_barriers(self.warps, self.groups)
        if self.queue is not None:
            self.queue.start_barriers()
        hopper.publish_barriers()

    # ---- programs

    def _programs(self, write: Callable[[], None], producing: bool) -> None:
        """What a role does in all programs of this block. Rings go on from one to the next."""
        self.rings.restart()
        if self.queue is None:
            write()
            return
        groups = self.rings.together()

        def one(positions: Sequence[Any]) -> Sequence[Any]:
            self.rings.bind(groups, positions)
            write()
            return self.rings.values(groups)

        end = self.queue.produce if producing else self.queue.consume
        end([self.s.value(0)] * len(groups), one)
