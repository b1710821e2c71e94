# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A specialised kernel (`partition-warps`) as the code of one thread of sm_90a.

The consumers run the tile program: their warps come first in a block, so layouts number them as
in any kernel. The producer is one warp of the last warp group. They meet at rings (`rings`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout, iteration_of, layout_of
from neptune_mlir.analysis.tiles import (
    Contraction,
    Generic,
    Window,
    element_of,
    element_type,
    load_window,
    nested,
    read_generic,
    shape_of,
    tuned,
)
from neptune_mlir.codegen.gpu.compute import Compute, Held, Pending, Splat, Tile
from neptune_mlir.codegen.gpu.exponentials import EQUAL, within
from neptune_mlir.codegen.gpu.kernels import KernelWriter
from neptune_mlir.codegen.gpu.memory import Array, Memory, Threads, under
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.codegen.nvidia import hopper, panel_tiles, staged_rows
from neptune_mlir.codegen.nvidia.boxed_results import BoxedResults
from neptune_mlir.codegen.nvidia.boxes import Boxes, BoxTile, in_one_box
from neptune_mlir.codegen.nvidia.instructions import SMEM
from neptune_mlir.codegen.nvidia.panel_tiles import PanelTile
from neptune_mlir.codegen.nvidia.program_order import order_of
from neptune_mlir.codegen.nvidia.program_queue import ProgramQueue
from neptune_mlir.codegen.nvidia.rings import Rings
from neptune_mlir.dialects.attributes import BOXED, CONSUMERS, RESIDENT, SKIPS_ONES, TURNS, VIA
from neptune_mlir.dialects.op_names import (
    AWAIT_TURN,
    FENCE,
    GET,
    GIVE_TURN,
    PUT,
    RELEASE,
    START,
    WAIT,
    WARP_ALL,
)
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import gpu, ir, location_text, scf
from neptune_mlir.targets import group_tiles, warp_groups
from neptune_mlir.transforms.hopper.partition_warps import producer_of
from neptune_mlir.transforms.hopper.specialize_warps import GROUP, ROWS

CONSUMER_BARRIER = 1  # the named barrier of all consumers
FIRST_TURN = 2  # that of the first group's turn


class ConsumerMemory(Memory):
    """Memory of the consumers: barriers leave the producer out."""

    def barrier(self) -> None:
        hopper.named_barrier(CONSUMER_BARRIER, self.threads.count)
        self.unsafe = False


class ConsumerCompute(Compute):
    """Matmuls of warp groups by wgmma; `matrix` is one that each warp does on its own."""

    group: Any = None  # which consumer group this thread belongs to, i32
    smem: Any = None

    def registers(
        self, tile: Tile | PanelTile, layout: Layout, dims: Sequence[int] | None = None
    ) -> list[Any]:
        if not isinstance(tile, PanelTile):
            return super().registers(tile, layout, dims)
        dims = tuple(range(len(layout.shape))) if dims is None else tuple(dims)
        needed = layout.project(dims)
        values = self.s.remember(
            (tile.address, needed), lambda: panel_tiles.read(self.memory, tile, needed)
        )
        sources = layout.sources(needed, dims)
        assert sources is not None
        return [values[k] for k in sources]

    def _operand(
        self, g: Generic, k: int, tile: Any, which: str, p: Contraction, grid: L.WarpGrid,
        i: Any,
    ) -> Callable[[int, int, int], list[Any]]:  # fmt: skip
        if not isinstance(tile, PanelTile):
            return super()._operand(g, k, tile, which, p, grid, i)
        operand = self.operand_of(g, k, which, p, grid, i)
        # cold path: recompute addresses rather than keep them in registers
        number = hopper.unknown(self.s.value(self.threads.id, self.s.i32))
        threads = Threads(self.s, self.threads.lanes, self.threads.warps, number)
        tile = replace(tile, address=hopper.unknown(tile.address))
        return panel_tiles.operand(threads, self.memory, tile, operand)

    def issue(self, g: Generic, p: Contraction, tiles: Any, layout: Layout) -> list[Any]:
        """Start a product; `hopper.wait_products` gives its values."""
        s = self.s
        n, k = g.extents[p.n], g.extents[p.k]
        a_tile, b_tile, start = tiles[p.a], tiles[p.b], tiles[-1]
        assert isinstance(b_tile, PanelTile)
        fresh = isinstance(start, Splat) and s.constant_of(start.value) == 0.0
        acc = None if fresh else self.registers(start, layout)
        transposed = g.maps[p.b].index(p.k) == 0
        if transposed:
            b = self._descriptor(b_tile.address, b_tile, b_tile.panel_bytes)
            b_steps = [j * warp_groups.DEEP * b_tile.row_bytes >> 4 for j in range(k // 16)]
        else:
            b = self._descriptor(b_tile.address, b_tile)
            b_steps = [self._along(j, b_tile) for j in range(k // 16)]
        a: Any
        if isinstance(a_tile, PanelTile):
            rows = s.constant(ROWS * a_tile.row_bytes, s.i32)
            moved = s.op("arith.muli", [self.group, rows], s.i32)
            address = s.op("arith.addi", [a_tile.address, moved], s.i32)
            a = self._descriptor(address, a_tile)
            a_steps = [self._along(j, a_tile) for j in range(k // 16)]
        else:
            a = self.fragments(g, p, a_tile, layout)
            a_steps = [0] * (k // 16)
        steps = list(zip(a_steps, b_steps, strict=True))
        dtype = element_of(g.inputs[p.b])
        return hopper.multiply(dtype, n, acc, a, b, steps, transposed)

    def _along(self, j: int, tile: PanelTile) -> int:
        """Of a descriptor, to the j-th 16 columns of a tile."""
        panel, inside = divmod(j, tile.width // warp_groups.DEEP)
        return (panel * tile.panel_bytes >> 4) + hopper.step_along_rows(inside)

    def _descriptor(self, address: Any, tile: PanelTile, leading: int = 16) -> Any:
        """`leading`: bytes from panel to panel, where these lie along the free axis."""
        s = self.s
        unit = s.op("arith.shrui", [address, s.constant(4, s.i32)], s.i32)
        unit = s.op("arith.andi", [unit, s.constant(0x3FFF, s.i32)], s.i32)
        wide = s.op("arith.extui", [unit], s.i64)
        bits = s.constant(hopper.descriptor_bits(leading, tile.row_bytes), s.i64)
        return s.op("arith.ori", [wide, bits], s.i64)

    def fragments(self, g: Generic, p: Contraction, tile: Any, layout: Layout) -> list[Any]:
        """The words of operand A, as the accumulator's layout leaves them in this thread."""
        loops, shape = g.maps[p.a], [g.extents[d] for d in g.maps[p.a]]
        grid = self.warp_grid(layout, g, p)
        needed = L.operand_a(shape, loops.index(p.m), loops.index(p.k), grid, self.instruction(g))
        values = self.registers(tile, needed)
        return self.words(values)


class SpecializedWriter(KernelWriter):
    """Writes a kernel with a producer and consumers."""

    def write(self) -> None:
        s = self.s = Scalars(self.chip)
        self.groups = CONSUMERS.of(self.forall)
        assert self.warps == GROUP * self.groups
        self.blocks = tuned(self.forall, "blocks", 1)
        self.group_threads = GROUP * self.target.wave
        self.producer = producer_of(self.forall).regions[0].blocks[0]
        self.rings = Rings(self)
        types = self.argument_types()
        self.resident = RESIDENT.on(self.forall)
        queue = ProgramQueue.operands if self.resident else ()
        types += [s.i32] * len(queue)
        consumers = self.warps * self.target.wave
        self.block_threads = consumers + GROUP * self.target.wave
        function = gpu.GPUFuncOp(
            ir.FunctionType.get(types, []), self.signature.name, kernel=True,
            known_block_size=[self.block_threads, 1, 1],
        )  # fmt: skip
        operation = function.operation
        block = self.entry = function.add_entry_block()
        self.boxes = Boxes(self)
        with self.forall.location, s.scope(block):
            self.place_arguments(block)
            self.threads = Threads(s, self.target.wave, self.warps)
            address = ir.FlatSymbolRefAttr.get(SMEM)
            smem = s.op(
                "llvm.mlir.addressof", [], ir.Type.parse("!llvm.ptr<3>"), global_name=address
            )
            self.smem = s.op("llvm.ptrtoint", [smem], s.i32)
            self.memory = ConsumerMemory(s, self.threads, smem)
            compute = ConsumerCompute(s, self.threads, self.memory, self.scalar)
            self.compute = self.consumer = compute
            compute.group = self.uniform(s.value(s.div(self.threads.id, 128), s.i32))
            self.order = order_of(self)
            self.program_position(block)
            self._place_rings()
            counter = list(block.arguments)[len(types) - 1]
            self.queue = ProgramQueue(self, counter) if self.resident else None
            with under(s, s.less(self.threads.id, 1)):
                self._start_barriers()
            Memory.barrier(self.memory)
            producing, consuming = warp_groups.REGISTERS[self.groups, self.blocks]
            uniform = self.uniform(s.value(self.threads.warp, s.i32))
            warp = s.op("arith.index_cast", [uniform], s.index)
            role = scf.IfOp(s.less(warp, self.warps), has_else=True)
            with s.scope(role.then_block):
                hopper.set_registers(consuming, True)
                self.turn: Any = None  # see `take_turns`
                take_turns(self)
                self._programs(self._consume, producing=False)
                if self.boxed is not None:
                    self.boxed.finish()
                scf.YieldOp([])
            with s.scope(role.else_block):
                hopper.set_registers(producing, False)
                with under(s, s.less(warp, self.warps + 1)):
                    self._programs(lambda: self._produce(self.producer), producing=True)
                scf.YieldOp([])
            gpu.ReturnOp([])
        self.boxes.pass_maps(operation, types)
        self.signature.operands = [*queue, *self.boxes.operands(self.signature.places)]
        self.finish(operation)
        self.signature.threads = self.block_threads
        self.signature.resident = self.resident

    def _blocks_per_sm(self) -> int:
        return self.blocks

    def place_program(self, number: Any) -> None:
        if self.order is None:
            super().place_program(number)
            return
        last = len(self.bounds) - 1
        self.scalars[self.body.arguments[last]], point = self.order.place(number)
        self.place_variables(point, last)

    # ---- arguments

    def source(self, put: Any) -> Window:
        """Where the tile comes from that a put takes."""
        found = load_window(put.operands[1], self.forall)
        if found is None or not 1 <= len(found.shape) <= 2:
            raise LoweringError("a put of what TMA cannot load", loc=location_text(put.location))
        return found

    def streamed_offsets(self) -> list[tuple[Any, ...]]:
        """Where the tiles stand that loops of the producer load."""
        puts = [op for op in nested(self.producer) if op.name == PUT]
        return [self.source(op).offsets for op in puts if op.block != self.producer]

    def uniform(self, word: Any) -> Any:
        """A value that is the same in a warp, where the compiler can see it."""
        return hopper.from_lane(word, self.s.constant(0, self.s.i32))

    # ---- results

    def _write(
        self, op: Any, array: Array, window: Window, layout: Layout, values: list[Any]
    ) -> None:
        instruction = self.target.matrix[0]  # any of them: accumulators are alike
        if self.staged is None or not staged_rows.fits(array, window, layout, instruction):
            super()._write(op, array, window, layout, values)
        elif self.boxed is not None and self.boxed.fits(op, array, window):
            self.boxed.store(array, window, layout, values)
        else:
            staged_rows.store(self.memory, array, window, layout, values, self.staged, self.room)

    # ---- rings and barriers

    def _place_rings(self) -> None:
        """Shared memory for every ring, and for results on their way out."""
        self.rings.place()
        self.staged, self.room = self._stage_results()
        self.rings.place_barriers()
        self.gate = self.memory.take(8)
        self.boxed: BoxedResults | None = None
        if self.staged is not None and BOXED.on(self.forall):
            self.boxed = BoxedResults(self, self.staged, self.room)

    def _stage_results(self) -> tuple[int | None, int]:
        """Where results are staged, and how many panels at a time; None without room for one."""
        outputs = self.signature.tensors[len(self.signature.tensors) - self.signature.outputs :]
        kinds = [ir.RankedTensorType(t.type) for t in outputs]
        static = [k.shape[-1] for k in kinds if k.rank and not k.is_dynamic_dim(k.rank - 1)]
        most = max(map(warp_groups.panels, static), default=0)
        room = group_tiles.staged_panels(
            self.target, self.blocks, self.warps, self.memory.top, most
        )  # fmt: skip
        return (self.take_tiles(warp_groups.STAGED * self.warps * room) if room else None), room

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
        s = self.s
        return s.op("arith.addi", [self.smem, s.value(offset, s.i32)], s.i32)

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

    # ---- the producer

    def _produce(self, block: Any) -> None:
        """The puts and the loops of a block of the producer."""
        for op in block.operations:
            operation = op.operation
            if operation.name == PUT:
                self._put(operation)
            elif operation.name == "scf.for":
                self._put_all(operation)

    def _put_all(self, op: Any) -> None:
        """A loop of the producer."""
        s, block, rings = self.s, op.regions[0].blocks[0], self.rings
        groups = rings.advancing(op)
        if not groups:
            return
        puts = [o.operation for o in block.operations if o.operation.name == PUT]
        loop = scf.ForOp(*(self.scalar(v) for v in op.operands), rings.values(groups))
        with s.scope(loop.body):
            self.scalars[block.arguments[0]] = loop.induction_variable
            rings.bind(groups, list(loop.inner_iter_args))
            first = rings.rings[puts[0].operands[0]] if len(puts) > 1 else None
            begun = rings.positions[puts[0].operands[0]] if first else None
            self._produce(block)
            if first and begun and first.stages > 1:
                with under(s, s.less(begun.base, 1)):  # do not let prefetches compete with the
                    # tiles that the block's first wgmma waits for
                    hopper.wait_barrier(self.address(first.full), s.constant(0, s.i32))
            scf.YieldOp(rings.values(groups))
        rings.bind(groups, list(loop.results))

    def _put(self, op: Any) -> None:
        s, ring, window = self.s, self.rings.rings[op.operands[0]], self.source(op)
        slot, parity = self.rings.slot(ring, self.rings.take(op.operands[0]))
        free = s.op("arith.xori", [parity, s.constant(1, s.i32)], s.i32)
        hopper.wait_barrier(self.address(s.add(s.mul(slot, 8), ring.empty)), free)
        full = self.address(s.add(s.mul(slot, 8), ring.full))
        lane = s.value(self.threads.lane, s.i32)
        hopper.expect_bytes(full, ring.bytes, lane)
        self.memory.needs(self.arrays[window.tensor], L.CHUNK)
        target = self.address(s.add(s.mul(slot, ring.slot), ring.offset))
        *rows, columns = window.shape
        number, kind = self.signature.tensors.index(window.tensor), window.tensor.type
        offsets, inner = self.window(window).offsets, window.dims[-1]
        tile = BoxTile(number, offsets, window.dims, math.prod(rows), columns, ring.panel)
        kind = ir.RankedTensorType(kind)
        together = in_one_box(kind, window.offsets[inner], columns, ring.panel)
        for copy in self.boxes.copies(tile, kind, together):
            place = target
            if copy.behind:
                place = s.op("arith.addi", [target, s.constant(copy.behind, s.i32)], s.i32)
            hopper.load_tile(place, copy.tensor_map, copy.where, full, lane)

    # ---- the consumers

    def _consume(self) -> None:
        self.running: dict[Any, Held] = {}  # registers of matmuls that were not waited for
        for op in self.body.operations:
            self.write_op(op.operation)

    def write_op(self, op: Any) -> None:
        if op.name == GET:
            tiles: dict[Any, Any] = self.tiles
            tiles[op.results[0]] = self.rings.get(op)
        elif op.name == RELEASE:
            self.rings.release(op)
        elif op.name in _OPS:
            _OPS[op.name](self, op)
        else:
            super().write_op(op)

    def _start(self, op: Any) -> None:
        g = read_generic(op)
        layout, tiles = layout_of(op, shape_of(g.init)), [*map(self.tile, op.operands)]
        begun = self.consumer.issue(g, self.oriented(g), tiles, layout)
        self.running[g.result] = Held(layout, begun)

    def _wait(self, op: Any) -> None:
        begun = self.running.pop(op.operands[0])
        pending = ir.IntegerAttr(op.attributes["pending"]).value
        values = hopper.wait_products(pending, begun.values)
        self.tiles[op.results[0]] = Held(begun.layout, values)

    def _turn(self, op: Any) -> None:
        turn = take_turns(self)
        if turn is not None and op.name == AWAIT_TURN:
            hopper.await_turn(turn[0], 2 * self.group_threads)
        elif turn is not None:
            hopper.give_turn(turn[1], 2 * self.group_threads)

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
        super()._load(op)
        value = op.results[0]
        tile = self.tiles[value]
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
            super()._generic(op)
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
        low, high, step = (self.scalar(v) for v in list(op.operands)[:3])
        starts = list(op.operands)[3:]
        layouts = self.carried_layouts(op, starts)
        first, loaded = self.rings.values(groups), self.elements_of([op])
        loop = scf.ForOp(low, high, step, [*self.spread(starts, layouts), *first])
        with self.s.scope(loop.body), self.instead(loaded):
            self.scalars[body.arguments[0]] = loop.induction_variable
            arguments = list(loop.inner_iter_args)
            self.bind(body.arguments[1:], layouts, arguments)
            self.rings.bind(groups, arguments)
            *inner, end = body.operations
            for operation in inner:
                self.write_op(operation.operation)
            yielded = self.spread(end.operation.operands, layouts)
            scf.YieldOp([*yielded, *self.rings.values(groups)])
        results = list(loop.results)
        self.rings.bind(groups, results[len(results) - len(groups) :])
        self.bind(op.results, layouts, results)

    def _if(self, op: Any) -> None:
        """A branch of which all threads of a warp take the same side."""
        condition, layouts = self.scalar(op.operands[0]), self.carried_layouts(op, op.results)
        self.tiles |= self.elements_of([op])
        groups = self.rings.advancing(op)
        before = self.rings.positions
        kinds = [
            kind for value, layout in zip(op.results, layouts, strict=True)
            for kind in (self.compute.carried_types(element_type(value), layout)
                         if isinstance(layout, Layout) else [value.type])
        ]  # fmt: skip
        known = self.s.constant_of(condition)
        if known is not None:  # one side alone
            *inner, end = op.regions[not known].blocks[0].operations
            for operation in inner:
                self.write_op(operation.operation)
            self.bind(op.results, layouts, self.spread(end.operation.operands, layouts))
            return
        branch = scf.IfOp(condition, [*kinds, *[self.s.index] * len(groups)], has_else=True)
        for region, block in zip(op.regions, (branch.then_block, branch.else_block), strict=True):
            self.rings.positions = dict(before)
            *inner, end = region.blocks[0].operations
            with self.s.scope(block):
                for operation in inner:
                    self.write_op(operation.operation)
                yielded = self.spread(end.operation.operands, layouts)
                scf.YieldOp([*yielded, *self.rings.values(groups)])
        results = list(branch.results)
        self.rings.bind(groups, results[len(kinds) :])
        self.bind(op.results, layouts, results)


def take_turns(kernel: SpecializedWriter) -> tuple[Any, Any] | None:
    """The barriers of this group's turn and of the next one's, where groups take turns.

    Invariant: between chains exactly one arrival at a named barrier is outstanding. The last group
    arrives first, for the first group.
    """
    if not TURNS.on(kernel.forall) or kernel.groups == 1:
        return None
    if kernel.turn is None:
        s, group = kernel.s, kernel.consumer.group
        mine = s.op("arith.addi", [group, s.constant(FIRST_TURN, s.i32)], s.i32)
        after = s.op("arith.addi", [mine, s.constant(1, s.i32)], s.i32)
        last = s.op("arith.cmpi", [group, s.constant(kernel.groups - 1, s.i32)], s.i1,
                    predicate=ir.IntegerAttr.get(s.i64, 0))  # fmt: skip
        first = s.constant(FIRST_TURN, s.i32)
        with under(s, last):
            hopper.give_turn(first, 2 * kernel.group_threads)
        kernel.turn = mine, s.select(last, first, after)
    return kernel.turn


# ops that other kernels do not have
_OPS: dict[str, Callable[[SpecializedWriter, Any], None]] = {
    "scf.if": SpecializedWriter._if,
    WARP_ALL: SpecializedWriter._warp_all,
    START: SpecializedWriter._start,
    WAIT: SpecializedWriter._wait,
    FENCE: SpecializedWriter.pass_gate,
    AWAIT_TURN: SpecializedWriter._turn,
    GIVE_TURN: SpecializedWriter._turn,
}
