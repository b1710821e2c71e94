# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ops of a specialised kernel (`partition-warps`) as the code of one thread of a consumer.

What other kernels have too is written as there, but for what meets the producer, the other groups
of consumers, or products that run on while a thread does something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis.layouts import Layout, Shared, iteration_of, layout_of
from neptune_mlir.analysis.tiles import (
    chooses_scalars,
    element_type,
    nested,
    read_generic,
    shape_of,
)
from neptune_mlir.codegen.gpu.chip import Chip
from neptune_mlir.codegen.gpu.exponentials import EQUAL, within
from neptune_mlir.codegen.gpu.host import KernelSignature
from neptune_mlir.codegen.gpu.kernels import EMITTERS, Emitter, KernelWriter
from neptune_mlir.codegen.gpu.tile_forms import Held, Pending, ResultView
from neptune_mlir.codegen.nvidia import group_compute, hopper, quad_rows, staged_rows
from neptune_mlir.codegen.nvidia.clusters.sums import SharedSums
from neptune_mlir.codegen.nvidia.group_compute import GroupProducts, IssuedProducts, LeftFactor
from neptune_mlir.codegen.nvidia.groups.exchange import SharedPlaces
from neptune_mlir.codegen.nvidia.groups.hands import Hands
from neptune_mlir.codegen.nvidia.groups.idle import IdleGroups
from neptune_mlir.codegen.nvidia.groups.turns import Turns
from neptune_mlir.codegen.nvidia.program_queue import ProgramQueue
from neptune_mlir.codegen.nvidia.rings import Rings
from neptune_mlir.codegen.nvidia.vectors_staged import StagedVectors, bring_next
from neptune_mlir.dialects.gpu_attributes import AHEAD, CONSUMERS, HANDED, RUNS_ON, SKIPS_ONES, VIA
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
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.tuned import ALL_AHEAD


class ConsumerWriter(KernelWriter):
    """Writes what consumers do. `SpecializedWriter` places what they meet at."""

    rings: Rings
    exchange: SharedPlaces
    products: GroupProducts
    vectors: StagedVectors
    hands: Hands | None
    sums: SharedSums | None
    idle: IdleGroups | None
    smem: Any  # the address of shared memory, i32
    gate: int  # where a barrier is that never completes its first phase

    def __init__(self, signature: KernelSignature, chip: Chip):
        super().__init__(signature, chip, CONSUMER_EMITTERS)
        self.groups = CONSUMERS.of(self.forall)
        self.turns: Turns | None = None
        self.queue: ProgramQueue | None = None
        self.running: dict[Any, Held] = {}  # registers of matmuls that were not waited for
        self.again: Any = None  # of a loop whose products run on: whether one ran before
        self.lefts: dict[Any, LeftFactor] = {}  # in registers, of tiles that are loaded once
        self.issued = IssuedProducts()
        # whether it adds to sums: registers hold nothing beside these, not what masks compare
        self.adds = any(op.name == ADD_SLICE for op in nested(self.body))

    def span(self, loop: Any) -> tuple[Any, Any, Any]:
        """Bounds and step of a loop, or of this block's part of it."""
        low, high, step = (self.scalar(v) for v in list(loop.operands)[:3])
        return (low, high, step) if self.sums is None else self.sums.span(low, high, step)

    def consume(self) -> None:
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
        if self.idle is not None:
            self.idle.clear(op, tile)
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

    def bind(
        self, values: Any, layouts: Sequence[Layout | ResultView | None], scalars: list[Any]
    ) -> None:
        for value, layout in zip(values, layouts, strict=True):
            if isinstance(layout, Shared):
                self.tiles[value] = self.exchange.carried(value, layout)
            else:
                super().bind([value], [layout], scalars)

    def pass_gate(self, _: Any = None) -> None:
        """Wait for what is over from the start: the assembler moves no arithmetic across a wait.

        Without it, arithmetic that is to run beside a product stands behind the wait for the
        product. (A barrier of a ring will not do: a warp that comes late finds it used again.)
        """
        hopper.wait_barrier(self.address(self.gate), self.s.constant(1, self.s.i32))

    def address(self, offset: Any) -> Any:
        return self.s.op("arith.addi", [self.smem, self.s.value(offset, self.s.i32)], self.s.i32)


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
CONSUMER_EMITTERS: dict[str, Emitter] = {
    **EMITTERS,
    "linalg.copy": ConsumerWriter._copy,
    "linalg.generic": ConsumerWriter._generic,
    "scf.for": ConsumerWriter._for,
    "scf.if": ConsumerWriter._if,
    "tensor.pad": ConsumerWriter._load,
    WARP_ALL: ConsumerWriter._warp_all,
    GET: ConsumerWriter._get,
    RELEASE: ConsumerWriter._release,
    START: ConsumerWriter._start,
    WAIT: ConsumerWriter._wait,
    FENCE: ConsumerWriter.pass_gate,
    AWAIT_TURN: ConsumerWriter._turn,
    GIVE_TURN: ConsumerWriter._turn,
}
