# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A specialised kernel (`partition-warps`) as the code of one thread of sm_90a.

The consumers run the tile program: their warps come first in a block, so layouts number them as
in any kernel. The producer is one warp of the last warp group. They meet at rings (`rings`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.analysis.layouts import Layout, Shared, iteration_of, layout_of
from neptune_mlir.analysis.tiles import (
    Window,
    chooses_scalars,
    element_type,
    nested,
    read_generic,
    shape_of,
    tuned,
    turn_of,
)
from neptune_mlir.codegen.gpu.access.threads import Threads, under
from neptune_mlir.codegen.gpu.chip import Chip
from neptune_mlir.codegen.gpu.compute import Compute
from neptune_mlir.codegen.gpu.exponentials import EQUAL, within
from neptune_mlir.codegen.gpu.host import KernelSignature
from neptune_mlir.codegen.gpu.kernels import EMITTERS, Emitter, KernelWriter
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.codegen.gpu.tile_forms import Held, Pending, ResultView
from neptune_mlir.codegen.nvidia import group_compute, hopper, quad_rows, staged_rows
from neptune_mlir.codegen.nvidia.adder import END, Adder
from neptune_mlir.codegen.nvidia.ahead_of_wait import EarlyProducer, may_wait_late
from neptune_mlir.codegen.nvidia.boxed_results import BoxedResults, place_staging, write_tile
from neptune_mlir.codegen.nvidia.boxes import Boxes
from neptune_mlir.codegen.nvidia.clusters.instructions import meet_in_cluster
from neptune_mlir.codegen.nvidia.clusters.pairs import Pairs, mark_cluster
from neptune_mlir.codegen.nvidia.clusters.sums import SharedSums
from neptune_mlir.codegen.nvidia.group_compute import GroupProducts, IssuedProducts, LeftFactor
from neptune_mlir.codegen.nvidia.groups.exchange import SharedPlaces
from neptune_mlir.codegen.nvidia.groups.hands import Hands
from neptune_mlir.codegen.nvidia.groups.turns import Turns
from neptune_mlir.codegen.nvidia.in_two import Counted, InTwo
from neptune_mlir.codegen.nvidia.instructions import SMEM
from neptune_mlir.codegen.nvidia.producer import Producer
from neptune_mlir.codegen.nvidia.program_order import order_of
from neptune_mlir.codegen.nvidia.program_queue import ProgramQueue
from neptune_mlir.codegen.nvidia.rings import Rings
from neptune_mlir.codegen.nvidia.vectors_staged import StagedVectors, bring_next
from neptune_mlir.dialects.gpu_attributes import (
    AHEAD,
    BOXED,
    CONSUMERS,
    HANDED,
    RESIDENT,
    RUNS_ON,
    SKIPS_ONES,
    TURNS,
    VIA,
)
from neptune_mlir.dialects.op_names import (
    ADD_SLICE,
    AWAIT_TURN,
    FENCE,
    GET,
    GIVE_TURN,
    RELEASE,
    START,
    WAIT,
    WARP_ALL,
)
from neptune_mlir.ir.bindings import gpu, ir, scf
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets import warp_groups
from neptune_mlir.targets.tuned import ALL_AHEAD
from neptune_mlir.transforms.hopper.partition_warps import producer_of
from neptune_mlir.transforms.hopper.specialize_warps import GROUP

CONSUMER_BARRIER = 1  # the named barrier of all consumers


class SpecializedWriter(KernelWriter):
    """Writes a kernel with a producer and consumers."""

    def __init__(self, signature: KernelSignature, chip: Chip):
        super().__init__(signature, chip, SPECIALIZED_EMITTERS)
        self.groups = CONSUMERS.of(self.forall)
        assert self.warps == GROUP * self.groups
        self.blocks = tuned(self.forall, "blocks", 1)
        self.group_threads = GROUP * self.target.wave
        self.block_threads = (self.groups + 1) * self.group_threads
        self.resident = RESIDENT.on(self.forall)
        self.producer = producer_of(self.forall).regions[0].blocks[0]
        self.waits_late = False
        self.turns: Turns | None = None
        self.queue: ProgramQueue | None = None
        self.running: dict[Any, Held] = {}  # registers of matmuls that were not waited for
        self.again: Any = None  # of a loop whose products run on: whether one ran before
        self.lefts: dict[Any, LeftFactor] = {}  # in registers, of tiles that are loaded once
        self.issued = IssuedProducts()
        self.hands = Hands.of(self)
        # whether it adds to sums: registers hold nothing beside these, not what masks compare
        self.adds = any(op.name == ADD_SLICE for op in nested(self.body))

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
            if self.hands is None:
                self._programs(self._consume, producing=False)
            else:
                self.hands.in_roles(lambda: self._programs(self._consume, producing=False))
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

    def bind(
        self, values: Any, layouts: Sequence[Layout | ResultView | None], scalars: list[Any]
    ) -> None:
        for value, layout in zip(values, layouts, strict=True):
            if isinstance(layout, Shared):
                self.tiles[value] = self.exchange.carried(value, layout)
            else:
                super().bind([value], [layout], scalars)

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

    def pass_gate(self, _: Any = None) -> None:
        """Wait for what is over from the start: the assembler moves no arithmetic across a wait.

        Without it, arithmetic that is to run beside a product stands behind the wait for the
        product. (A barrier of a ring will not do: a warp that comes late finds it used again.)
        """
        hopper.wait_barrier(self.address(self.gate), self.s.constant(1, self.s.i32))

    def _start_barriers(self) -> None:
        hopper.init_barrier(self.address(self.gate), 1)  # never completes its first phase
        self.rings.start_barriers(self.warps, self.groups)
        if self.queue is not None:
            self.queue.start_barriers()
        hopper.publish_barriers()

    def address(self, offset: Any) -> Any:
        return self.s.op("arith.addi", [self.smem, self.s.value(offset, self.s.i32)], self.s.i32)

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

    # ---- the consumers

    def span(self, loop: Any) -> tuple[Any, Any, Any]:
        """Bounds and step of a loop, or of this block's part of it."""
        low, high, step = (self.scalar(v) for v in list(loop.operands)[:3])
        return (low, high, step) if self.sums is None else self.sums.span(low, high, step)

    def _consume(self) -> None:
        self.running.clear()
        self.lefts.clear()
        self.exchange.meet_again()
        self._write_ops([op.operation for op in self.body.operations])

    def _write_ops(self, operations: Sequence[Any]) -> None:
        for k, op in enumerate(operations):
            self.write_op(op)
            if self.sums is not None and op.name == "scf.for":
                branch = self.sums.join(op)
                with self.s.scope(branch.then_block):
                    for behind in operations[k + 1 :]:
                        self.write_op(behind)
                    scf.YieldOp([])
                return

    def write_op(self, op: Any) -> None:
        read = self.queue.read if self.queue is not None else {}  # by the producer
        if not (op in read or (self.hands is not None and self.hands.skips(op))):
            super().write_op(op)

    def _store(self, op: Any) -> None:
        if self.hands is None or not self.hands.skips(op):
            super()._store(op)

    def _get(self, op: Any) -> None:
        tiles: dict[Any, Any] = self.tiles
        tile = tiles[op.results[0]] = self.rings.get(op)
        if op.block == self.body and (left := group_compute.kept_left(self, op.results[0], tile)):
            self.lefts[op.results[0]] = left

    def _release(self, op: Any) -> None:
        if RUNS_ON.on(op.parent):
            self.rings.release_before(op, self.again)
        else:
            self.rings.release(op)

    def _start(self, op: Any) -> None:
        g = read_generic(op)
        layout, tiles = layout_of(op, shape_of(g.init)), [*map(self.tile, op.operands)]
        p = self.oriented(g)
        tiles[p.a] = self.lefts.get(op.operands[p.a], tiles[p.a])
        ahead = AHEAD.find(op, ALL_AHEAD)
        pieces, count = self.products.issue(g, p, tiles, layout, ahead)
        held = AHEAD.on(op) and self.exchange.follows(op)
        self.issued.begin(
            pieces, count, lambda begun: self.running.update({g.result: Held(layout, begun)}), held
        )
        self.exchange.started(op)
        if self.hands is not None:
            self.hands.started(op)

    def _wait(self, op: Any) -> None:
        if op.operands[0] not in self.running:
            self.issued.end()
        begun = self.running.pop(op.operands[0])
        if _runs_into_next(op):
            self.tiles[op.results[0]] = begun
            return
        pending = self.issued.later(ir.IntegerAttr(op.attributes["pending"]).value)
        if self.hands is not None and not self.hands.first:
            pending = 0  # those that are under way are the first group's
        if RUNS_ON.on(op.parent):  # for the same product of the iteration before
            pending = sum(other.operation.name == START for other in op.block.operations)
        values = hopper.wait_products(pending, begun.values)
        self.tiles[op.results[0]] = Held(begun.layout, values)
        self.exchange.waited(op)
        if self.hands is not None:
            self.hands.waited(defining_op(op.operands[0]))

    def _copy(self, op: Any) -> None:
        if HANDED.on(op) and self.hands is not None:
            self.hands.copy(op)
            return
        tile = self.tile(op.operands[0])
        if op in self.exchange.places and isinstance(tile, Held):
            self.tiles[op.results[0]] = self.exchange.share(op, tile)
        else:
            self.issued.end()
            super()._copy(op)

    def _turn(self, op: Any) -> None:
        if self.turns is not None:
            (self.turns.wait if op.name == AWAIT_TURN else self.turns.give)()

    def _warp_all(self, op: Any) -> None:
        s, tile = self.s, self.tile(op.operands[0])
        assert isinstance(tile, Held)
        every = None
        for value in tile.values:
            every = s.both(every, value)
        self.scalars[op.results[0]] = self.chip.in_all_lanes(s, every)

    def _load(self, op: Any) -> None:
        """Vectors that registers take come where they stand, in front of waits for products; not
        in front of a loop, through which they would take registers."""
        if op in self.vectors.places:
            self.tiles[op.results[0]] = self.vectors.load(op)
            return
        super()._load(op)
        bring_next(self, op)
        quad_rows.bring_chunks(self, op)
        tile = self.tiles[value := op.results[0]]
        if not isinstance(tile, Pending) or len(shape_of(value)) != 1:
            return
        if any(other.operation.name == "scf.for" for other in op.block.operations):
            return
        for use in value.uses:
            reader = use.owner.operation
            if VIA.find(reader, "") == "registers":
                g = read_generic(reader)
                iteration = iteration_of(reader, g.extents)
                self.compute.registers(tile, iteration, g.maps[use.operand_number])

    def _generic(self, op: Any) -> None:
        if not SKIPS_ONES.on(op):
            threads = self.compute.threads
            if self.adds and op.parent.name == "scf.for" and _asks_position(op):
                self.compute.threads = staged_rows.recomputed(threads)
            super()._generic(op)
            self.compute.threads = threads
            return
        s, g = self.s, read_generic(op)
        tiles = dict(zip(g.maps, map(self.tile, g.inputs), strict=False))
        scaled = tiles.pop(g.maps[-1])
        (factor,) = tiles.values()
        if not isinstance(factor, Held) or not isinstance(scaled, Held) or any(
            v.type != s.f32 for v in factor.values
        ):  # fmt: skip
            super()._generic(op)
            return
        self.issued.end()
        skips = self.chip.in_all_lanes(s, within(s, factor.values, EQUAL, 1.0))
        branch = scf.IfOp(skips, [v.type for v in scaled.values], has_else=True)
        with s.scope(branch.then_block):
            scf.YieldOp(scaled.values)
        with s.scope(branch.else_block):
            super()._generic(op)
            scf.YieldOp(self.compute.registers(self.tile(g.result), scaled.layout))
        self.tiles[g.result] = Held(scaled.layout, list(branch.results))

    def _for(self, op: Any) -> None:
        groups = self.rings.advancing(op)
        if not groups:
            super()._for(op)
            return
        body = op.regions[0].blocks[0]
        low, high, step = self.span(op)
        starts = list(op.operands)[3:]
        layouts = self.carried_layouts(op, starts)
        first, loaded = self.rings.values(groups), self.elements_of([op])
        self.exchange.enter(op)
        loop = scf.ForOp(low, high, step, [*self.spread(starts, layouts), *first])
        with self.s.scope(loop.body), self.instead(loaded):
            self.exchange.begin(op)
            self.scalars[body.arguments[0]] = loop.induction_variable
            arguments = list(loop.inner_iter_args)
            self.bind(body.arguments[1:], layouts, arguments)
            self.rings.bind(groups, arguments)
            if RUNS_ON.on(op):
                self.again = self.s.less(low, loop.induction_variable)
            *inner, end = body.operations
            for operation in inner:
                self.write_op(operation.operation)
            self.issued.end()
            yielded = self.spread(end.operation.operands, layouts)
            scf.YieldOp([*yielded, *self.rings.values(groups)])
        results = list(loop.results)
        self.rings.bind(groups, results[len(results) - len(groups) :])
        self.bind(op.results, layouts, results)
        if RUNS_ON.on(op):
            self._end_products(op, self.s.less(low, high))

    def _end_products(self, loop: Any, ran: Any) -> None:
        """Wait for the products of a loop that run on, and give back what they read."""
        for value in loop.results:
            tile = self.tiles[value]
            assert isinstance(tile, Held)
            self.tiles[value] = Held(tile.layout, hopper.wait_products(0, tile.values))
        for op in loop.regions[0].blocks[0].operations:
            if op.operation.name == GET:
                self.rings.release_last(op.operation, ran)

    def _if(self, op: Any) -> None:
        """A branch of which all threads of a warp take the same side."""
        if chooses_scalars(op):
            self.scalars.update(zip(op.results, self.choose(op), strict=True))
            return
        condition, layouts = self.scalar(op.operands[0]), self.carried_layouts(op, op.results)
        self.tiles |= self.elements_of([op])
        groups = self.rings.advancing(op)
        before = self.rings.positions
        kinds = [
            kind for value, layout in zip(op.results, layouts, strict=True)
            for kind in (self.compute.carried_types(element_type(value), layout)
                         if isinstance(layout, Layout) else [value.type] if layout is None else [])
        ]  # fmt: skip
        known = self.s.constant_of(condition)
        if known is not None:  # one side alone
            *inner, end = op.regions[not known].blocks[0].operations
            for operation in inner:
                self.write_op(operation.operation)
            self.bind(op.results, layouts, self.spread(end.operation.operands, layouts))
            return
        branch = scf.IfOp(condition, [*kinds, *[self.s.index] * len(groups)], has_else=True)
        state, after = dict(self.exchange.state), dict(self.exchange.state)
        for region, block in zip(op.regions, (branch.then_block, branch.else_block), strict=True):
            self.rings.positions = dict(before)
            after, self.exchange.state = self.exchange.state, dict(state)
            *inner, end = region.blocks[0].operations
            with self.s.scope(block), self.issued.branch():
                for operation in inner:
                    self.write_op(operation.operation)
                yielded = self.spread(end.operation.operands, layouts)
                scf.YieldOp([*yielded, *self.rings.values(groups)])
        self.exchange.either(after)
        results = list(branch.results)
        self.rings.bind(groups, results[len(kinds) :])
        self.bind(op.results, layouts, results)


def _runs_into_next(wait: Any) -> bool:
    """Whether nothing but a product that adds to it reads a product: the matrix unit runs one
    behind the other."""
    (result,) = wait.results
    uses = [(use.owner.operation, use.operand_number) for use in result.uses]
    return [(op.name, op.block, k) for op, k in uses] == [(START, wait.block, 2)]


def _asks_position(op: Any) -> bool:
    """Whether an element of a tile op depends on where it stands."""
    return any(o.operation.name == "linalg.index" for o in op.regions[0].blocks[0].operations)


# ops that other kernels do not have, and those that are something else here
SPECIALIZED_EMITTERS: dict[str, Emitter] = {
    **EMITTERS,
    "linalg.copy": SpecializedWriter._copy,
    "linalg.generic": SpecializedWriter._generic,
    "scf.for": SpecializedWriter._for,
    "scf.if": SpecializedWriter._if,
    "tensor.pad": SpecializedWriter._load,
    WARP_ALL: SpecializedWriter._warp_all,
    GET: SpecializedWriter._get,
    RELEASE: SpecializedWriter._release,
    START: SpecializedWriter._start,
    WAIT: SpecializedWriter._wait,
    FENCE: SpecializedWriter.pass_gate,
    AWAIT_TURN: SpecializedWriter._turn,
    GIVE_TURN: SpecializedWriter._turn,
}
