# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A specialised kernel (`partition-warps`) as the code of one thread of sm_90a.

The consumers run the tile program: their warps come first in a block, so layouts number them as
in any kernel. The producer is one warp of the last warp group. Of a ring, each slot has a barrier
that TMA completes ("full": a put does, a get waits) and one that the consumers complete ("empty":
releases do, a put waits). A counter, the number of iterations so far, names slot and phase; it
goes on from loop to loop. Rings that are put and got in the same places have one counter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout, parse_layout
from neptune_mlir.analysis.tiles import (
    Contraction,
    Generic,
    Window,
    element_bytes,
    element_of,
    load_window,
    nested,
    owner,
    read_generic,
    shape_of,
    tuned,
)
from neptune_mlir.codegen.gpu.compute import Compute, Held, Splat, Tile
from neptune_mlir.codegen.gpu.kernels import KernelWriter
from neptune_mlir.codegen.gpu.memory import Array, Memory, Threads, under
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.codegen.nvidia import hopper, panel_tiles, staged_rows
from neptune_mlir.codegen.nvidia.boxed_results import BoxedResults
from neptune_mlir.codegen.nvidia.instructions import SMEM
from neptune_mlir.codegen.nvidia.panel_tiles import PanelTile
from neptune_mlir.codegen.nvidia.program_order import order_of
from neptune_mlir.codegen.nvidia.program_queue import ProgramQueue
from neptune_mlir.codegen.nvidia.skewed import Fragments, SkewedLoops, take_turns
from neptune_mlir.dialects.verify_aref import CREATE, GET, PUT, RELEASE, ring_type
from neptune_mlir.dialects.verify_matmul import START, WAIT
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import gpu, ir, location_text, scf
from neptune_mlir.targets import warp_groups
from neptune_mlir.transforms.gpu.keep_references import AGAIN
from neptune_mlir.transforms.hopper.partition_warps import RESERVED, producer_of
from neptune_mlir.transforms.hopper.skew_loops import chain_of
from neptune_mlir.transforms.hopper.specialize_warps import GROUP, ROWS

CONSUMER_BARRIER = 1  # the named barrier of all consumers

# of a tensor map: the tensor's number, the dimension of rows (-1: none), rows and columns of a box
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Ring:
    """The offset of slot 0, those of its barriers, the bytes of a tile and from slot to slot.
    `by_warps`: each warp releases a slot, for it reads the tile on its own; products are over for
    a group at once."""

    offset: int
    full: int
    empty: int
    bytes: int
    slot: int
    stages: int
    by_warps: bool


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
        operand = self._operand_of(g, k, which, p, grid, i)
        # rarely done: its addresses are worth no registers elsewhere
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
            b = self._descriptor(b_tile.address, b_tile.rows * warp_groups.ROW)
            b_steps = [j * 16 * warp_groups.ROW >> 4 for j in range(k // 16)]
        else:
            b = self._descriptor(b_tile.address, 16)
            b_steps = [self._along(j, b_tile.rows) for j in range(k // 16)]
        a: Any
        if isinstance(a_tile, PanelTile):
            rows = s.constant(ROWS * warp_groups.ROW, s.i32)
            moved = s.op("arith.muli", [self.group, rows], s.i32)
            address = s.op("arith.addi", [a_tile.address, moved], s.i32)
            a = self._descriptor(address, 16)
            a_steps = [self._along(j, a_tile.rows) for j in range(k // 16)]
        else:
            words = isinstance(a_tile, Fragments)
            a = a_tile.words if words else self.fragments(g, p, a_tile, layout)
            a_steps = [0] * (k // 16)
        steps = list(zip(a_steps, b_steps, strict=True))
        dtype = element_of(g.inputs[p.b])
        return hopper.multiply(dtype, n, acc, a, b, steps, transposed)

    def _along(self, j: int, rows: int) -> int:
        """Of a descriptor, to the j-th 16 columns of a tile."""
        panel, inside = divmod(j, warp_groups.PANEL // 16)
        return (panel * rows * warp_groups.ROW >> 4) + hopper.step_along_rows(inside)

    def _descriptor(self, address: Any, leading: int) -> Any:
        s = self.s
        unit = s.op("arith.shrui", [address, s.constant(4, s.i32)], s.i32)
        unit = s.op("arith.andi", [unit, s.constant(0x3FFF, s.i32)], s.i32)
        wide = s.op("arith.extui", [unit], s.i64)
        bits = s.constant(hopper.descriptor_bits(leading, warp_groups.ATOM), s.i64)
        return s.op("arith.ori", [wide, bits], s.i64)

    def fragments(self, g: Generic, p: Contraction, tile: Any, layout: Layout) -> list[Any]:
        """The words of operand A, as the accumulator's layout leaves them in this thread."""
        s = self.s
        loops, shape = g.maps[p.a], [g.extents[d] for d in g.maps[p.a]]
        grid = self._grid(layout, g, p)
        needed = L.operand_a(shape, loops.index(p.m), loops.index(p.k), grid, self.instruction(g))
        values = self.registers(tile, needed)
        return [
            s.op("llvm.bitcast", [self.memory.narrow(values[j : j + 2])], s.i32)
            for j in range(0, len(values), 2)
        ]


class SpecializedWriter(KernelWriter):
    """Writes a kernel with a producer and consumers."""

    def write(self) -> None:
        s = self.s = Scalars(self.chip)
        self.groups = ir.IntegerAttr(self.forall.attributes["neptune.consumers"]).value
        assert self.warps == GROUP * self.groups
        self.blocks = tuned(self.forall, "blocks", 1)
        self.group_threads = GROUP * self.target.wave
        self.producer = producer_of(self.forall).regions[0].blocks[0]
        self._read_rings()
        types = self._argument_types()
        self.resident = "neptune.resident" in self.forall.attributes
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
        self.maps: dict[Box, Any] = {}
        with self.forall.location, s.scope(block):
            self._arguments(block)
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
            self._program_position(block)
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
                    self._programs(self._produce, producing=True)
                scf.YieldOp([])
            gpu.ReturnOp([])
        self._pass_maps(operation, types)
        self.signature.operands = [
            *queue,
            *(["map", *self.signature.places[number], *box] for number, *box in self.maps),
        ]
        self._finish(operation)
        self.signature.threads = self.block_threads
        self.signature.resident = self.resident

    def _blocks_per_sm(self) -> int:
        return self.blocks

    def _place_program(self, number: Any) -> None:
        if self.order is None:
            super()._place_program(number)
            return
        last = len(self.bounds) - 1
        self.scalars[self.body.arguments[last]], point = self.order.place(number)
        self._place_variables(point, last)

    # ---- arguments

    def tensor_map(self, box: Box) -> Any:
        """The address (i64) of the tensor map of a box, from now on an argument of the kernel."""
        if box not in self.maps:
            kind = ir.Type.parse("!llvm.ptr")
            self.maps[box] = self.entry.add_argument(kind, self.forall.location)
        return self.s.op("llvm.ptrtoint", [self.maps[box]], self.s.i64)

    def coordinates(self, offsets: Sequence[Any], dims: Sequence[int]) -> list[Any]:
        """Of a box in its tensor map; the tile's dimensions run along `dims`."""
        s, (*down, inner) = self.s, dims
        rest = [d for d in reversed(range(len(offsets))) if d not in dims]
        row = offsets[down[0]] if down else 0
        where = [0, row, s.div(offsets[inner], warp_groups.PANEL), *(offsets[d] for d in rest)]
        return [s.value(x, s.i32) for x in where]

    def _source(self, put: Any) -> Window:
        """Where the tile comes from that a put takes."""
        found = load_window(put.operands[1], self.forall)
        if found is None or not 1 <= len(found.shape) <= 2:
            raise LoweringError("a put of what TMA cannot load", loc=location_text(put.location))
        return found

    def streamed_offsets(self) -> list[tuple[Any, ...]]:
        """Where the tiles stand that loops of the producer load."""
        puts = [op for op in nested(self.producer) if op.name == PUT]
        return [self._source(op).offsets for op in puts if self._loop_of(op) is not None]

    def _box(self, window: Window) -> Box:
        *rows, columns = window.shape
        down = window.dims[0] if rows else -1  # a vector is one row
        return self.signature.tensors.index(window.tensor), down, math.prod(rows), columns

    def _pass_maps(self, function: Any, types: Sequence[Any]) -> None:
        """Tensor maps are arguments behind the others (`types`), in parameter space, where the copy
        engine reads them."""
        maps = list(self.maps.values())
        everything = ir.FunctionType.get([*types, *(m.type for m in maps)], [])
        function.attributes["function_type"] = ir.TypeAttr.get(everything)
        plain = ir.DictAttr.get({})
        by_value = ir.Attribute.parse("{llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64}")
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [plain] * len(types) + [by_value] * len(maps)
        )

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

    def _read_rings(self) -> None:
        """Which loops use which rings: those that are got in the same loops have one counter.

        Raises LoweringError where the counters of producer and consumers could part.
        """
        self.signatures: dict[Any, Any] = {}  # loop (None: no loop) -> what names its counter
        self.counter: dict[Any, Any] = {}  # ring -> the same
        puts, partner = self._places(self.producer, PUT), {None: None}
        for ring, loops in self._places(self.body, GET).items():
            key = self.counter[ring] = tuple(loops)
            alike = all(self.signatures.setdefault(x, key) == key for x in loops)
            feeding = zip(puts[ring], loops, strict=True)  # (as many: the verifier counts them)
            paired = all(partner.setdefault(put, got) == got for put, got in feeding)
            if not alike or not paired or len(set(loops)) < len(loops):
                raise LoweringError(
                    "rings that a loop uses together are not put and got in the same loops",
                    loc=location_text(owner(ring).location),
                    hint="each loop of the producer feeds one of the consumers'",
                )
        self.counts: dict[Any, Any] = dict.fromkeys(self.signatures.values(), 0)

    def _places(self, block: Any, name: str) -> dict[Any, list[Any]]:
        """By ring, the loops in which ops of a name use it (None: no loop), in order."""
        found: dict[Any, list[Any]] = {}
        for op in nested(block):
            if op.name == name:
                found.setdefault(op.operands[0], []).append(self._loop_of(op))
        return found

    def _loop_of(self, op: Any) -> Any:
        """The loop that a put, get or release stands in; None for no loop."""
        return None if op.block in (self.body, self.producer) else op.parent

    def _place_rings(self) -> None:
        """Shared memory for every ring, and for results on their way out."""
        created = [op.operation.results[0] for op in self.body.operations if op.name == CREATE]
        kinds = [ring_type(ring.type) for ring in created]
        sizes = [math.prod(t.shape) * element_bytes(str(t.element_type)) for t, _ in kinds]
        apart = [-(-size // warp_groups.ATOM) * warp_groups.ATOM for size in sizes]
        tiles = [
            self._take_tiles(step * slots) for step, (_, slots) in zip(apart, kinds, strict=True)
        ]
        self.staged, self.room = self._stage_results()
        self.rings = {}
        for ring, at, size, step, (_, slots) in zip(
            created, tiles, sizes, apart, kinds, strict=True
        ):
            full = self.memory.take(2 * 8 * slots)
            by_warps = self._is_read_by_warps(ring)
            self.rings[ring] = Ring(at, full, full + 8 * slots, size, step, slots, by_warps)
        self.gate = self.memory.take(8)
        self.boxed: BoxedResults | None = None
        if self.staged is not None and "neptune.boxed" in self.forall.attributes:
            self.boxed = BoxedResults(self, self.staged, self.room)

    def _stage_results(self) -> tuple[int | None, int]:
        """Where results are staged, and how many panels at a time; None without room for one."""
        outputs = self.signature.tensors[len(self.signature.tensors) - self.signature.outputs :]
        kinds = [ir.RankedTensorType(t.type) for t in outputs]
        static = [k.shape[-1] for k in kinds if k.rank and not k.is_dynamic_dim(k.rank - 1)]
        for room in range(max(map(staged_rows.panels, static), default=0), 0, -1):
            size = warp_groups.STAGED * self.warps * room
            if self.memory.top + size + RESERVED <= self.target.shared_for(self.blocks):
                return self._take_tiles(size), room
        return None, 0

    def _take_tiles(self, size: int) -> int:
        memory = self.memory
        memory.top = -(-memory.top // warp_groups.ATOM) * warp_groups.ATOM
        return memory.take(size)

    def _is_read_by_warps(self, ring: Any) -> bool:
        """Whether something else than products of warp groups reads the tiles of a ring."""
        gets = [use.owner.operation for use in ring.uses if use.owner.operation.name == GET]
        readers = [use.owner.operation for op in gets for use in op.results[0].uses]
        return any(
            AGAIN in op.attributes or ("neptune.via" in op.attributes
            and ir.StringAttr(op.attributes["neptune.via"]).value != "mma")
            for op in readers
        )  # fmt: skip

    def pass_gate(self) -> None:
        """Wait for what is over from the start: the assembler moves no arithmetic across a wait.

        Without it, arithmetic that is to run beside a product stands behind the wait for the
        product. (A barrier of a ring will not do: a warp that comes late finds it used again.)
        """
        hopper.wait_barrier(self.address(self.gate), self.s.constant(1, self.s.i32))

    def _start_barriers(self) -> None:
        hopper.init_barrier(self.address(self.gate), 1)  # never completes its first phase
        for ring in self.rings.values():
            for k in range(ring.stages):
                hopper.init_barrier(self.address(ring.full + 8 * k), 1)
                arrivals = self.warps if ring.by_warps else self.groups
                hopper.init_barrier(self.address(ring.empty + 8 * k), arrivals)
        if self.queue is not None:
            self.queue.start_barriers()
        hopper.publish_barriers()

    def address(self, offset: Any) -> Any:
        s = self.s
        return s.op("arith.addi", [self.smem, s.value(offset, s.i32)], s.i32)

    def _slot(self, ring: Ring, count: Any) -> tuple[Any, Any]:
        """Slot and parity of the phase of iteration `count`."""
        s = self.s
        slot, phase = s.mod(count, ring.stages), s.mod(s.div(count, ring.stages), 2)
        return slot, s.value(phase, s.i32)

    # ---- programs

    def _programs(self, write: Callable[[], None], producing: bool) -> None:
        """What a role does in all programs of this block. Rings go on from one to the next."""
        keys = list(self.counts)
        self.counts = dict.fromkeys(keys, 0)
        if self.queue is None:
            write()
            return

        def one(counts: Sequence[Any]) -> Sequence[Any]:
            self.counts = dict(zip(keys, counts, strict=True))
            write()
            return [self.s.value(count) for count in self.counts.values()]

        end = self.queue.produce if producing else self.queue.consume
        end([self.s.value(0)] * len(keys), one)

    def _end_program(self) -> None:
        once = self.signatures.get(None)
        if once is not None:
            self.counts[once] = self.s.add(self.counts[once], 1)

    # ---- the producer

    def _produce(self) -> None:
        for op in self.producer.operations:
            operation = op.operation
            if operation.name == PUT:
                self._put(operation, self.counts[self.counter[operation.operands[0]]], {})
            elif operation.name == "scf.for":
                self._put_all(operation)
        self._end_program()

    def _put_all(self, op: Any) -> None:
        """A loop of the producer."""
        s, block = self.s, op.regions[0].blocks[0]
        puts = [o.operation for o in block.operations if o.operation.name == PUT]
        if not puts:
            return
        key = self.counter[puts[0].operands[0]]  # that of all of them
        loop = scf.ForOp(*(self.scalar(v) for v in op.operands), [s.value(self.counts[key])])
        with s.scope(loop.body):
            count = loop.inner_iter_args[0]
            for put in puts:
                self._put(put, count, {block.arguments[0]: loop.induction_variable})
            first = self.rings[puts[0].operands[0]]
            if len(puts) > 1 and first.stages > 1:
                with under(s, s.less(count, 1)):  # what later tiles take of memory's rate is not
                    # to come before what the block's first product waits for
                    hopper.wait_barrier(self.address(first.full), s.constant(0, s.i32))
            scf.YieldOp([s.value(s.add(count, 1))])
        self.counts[key] = loop.results[0]

    def _put(self, op: Any, count: Any, local: Any) -> None:
        s, ring, window = self.s, self.rings[op.operands[0]], self._source(op)
        slot, parity = self._slot(ring, count)
        free = s.op("arith.xori", [parity, s.constant(1, s.i32)], s.i32)
        hopper.wait_barrier(self.address(s.add(s.mul(slot, 8), ring.empty)), free)
        full = self.address(s.add(s.mul(slot, 8), ring.full))
        lane = s.value(self.threads.lane, s.i32)
        hopper.expect_bytes(full, ring.bytes, lane)
        self.memory.needs(self.arrays[window.tensor], L.CHUNK)
        target = self.address(s.add(s.mul(slot, ring.slot), ring.offset))
        where = self.coordinates(self.window(window, dict(local)).offsets, window.dims)
        hopper.load_tile(target, self.tensor_map(self._box(window)), where, full, lane)

    # ---- the consumers

    def _consume(self) -> None:
        self.running: dict[Any, Held] = {}  # registers of matmuls that were not waited for
        self.written: list[Any] = []  # what a chain of loops wrote with its first one
        for op in self.body.operations:
            self._op(op.operation)
        self._end_program()

    def _op(self, op: Any) -> None:
        if op in self.written:
            return
        if op.name == GET:
            self._await(op.results[0], self.counts[self.signatures[self._loop_of(op)]])
        elif op.name == RELEASE:
            self._release(op.operands[0], self.counts[self.signatures[self._loop_of(op)]])
        elif op.name == START:
            self._start(op)
        elif op.name == WAIT:
            self._wait(op)
        else:
            super()._op(op)

    def _start(self, op: Any) -> None:
        g = read_generic(op)
        text = ir.StringAttr(op.attributes["neptune.layout"]).value
        layout, tiles = parse_layout(text, shape_of(g.init)), [*map(self.tile, op.operands)]
        begun = self.consumer.issue(g, self._oriented(g), tiles, layout)
        self.running[g.result] = Held(layout, begun)

    def _wait(self, op: Any) -> None:
        begun = self.running.pop(op.operands[0])
        pending = ir.IntegerAttr(op.attributes["pending"]).value
        values = hopper.wait_products(pending, begun.values)
        self.tiles[op.results[0]] = Held(begun.layout, values)

    def release_after(self, loop: Any) -> None:
        """Write the releases that stand right behind a loop."""
        operations = [op.operation for op in self.body.operations]
        for op in operations[operations.index(loop) + 1 :]:
            if op.name != RELEASE:
                break
            self._op(op)
            self.written.append(op)

    def _await(self, tile: Any, count: Any) -> None:
        s, ring = self.s, self._ring_of(tile)
        slot, parity = self._slot(ring, count)
        hopper.wait_barrier(self.address(s.add(s.mul(slot, 8), ring.full)), parity)
        address = self.address(s.add(s.mul(slot, ring.slot), ring.offset))
        tiles: dict[Any, Any] = self.tiles
        *rows, columns = shape_of(tile)
        tiles[tile] = PanelTile(address, math.prod(rows), columns, element_of(tile))

    def _release(self, tile: Any, count: Any) -> None:
        s, ring = self.s, self._ring_of(tile)
        slot, _ = self._slot(ring, count)
        together = self.target.wave * (1 if ring.by_warps else GROUP)
        if ring.by_warps:
            hopper.converge()
        thread = s.value(s.mod(self.threads.id, together), s.i32)
        hopper.arrive_if_first(self.address(s.add(s.mul(slot, 8), ring.empty)), thread)

    def _ring_of(self, tile: Any) -> Ring:
        return self.rings[owner(tile).operands[0]]

    def _for(self, op: Any) -> None:
        if op not in self.signatures:
            super()._for(op)
            return
        if "neptune.skew" in op.attributes:
            chain = chain_of(op)
            self.written += chain
            with self.instead(self.elements_of(chain)):
                SkewedLoops(self, chain).write()
            return
        s, key = self.s, self.signatures[op]
        body = op.regions[0].blocks[0]
        low, high, step = (self.scalar(v) for v in list(op.operands)[:3])
        starts = list(op.operands)[3:]
        layouts = self._carried_layouts(op, starts)
        first, loaded = s.value(self.counts[key]), self.elements_of([op])
        loop = scf.ForOp(low, high, step, [*self._spread(starts, layouts), first])
        with s.scope(loop.body), self.instead(loaded):
            self.scalars[body.arguments[0]] = loop.induction_variable
            *arguments, count = loop.inner_iter_args
            self.counts[key] = count
            self._bind(body.arguments[1:], layouts, arguments)
            *inner, end = body.operations
            for operation in inner:
                self._op(operation.operation)
            yielded = self._spread(end.operation.operands, layouts)
            scf.YieldOp([*yielded, s.value(s.add(count, 1))])
        *results, self.counts[key] = loop.results
        self._bind_results(op, layouts, results)
