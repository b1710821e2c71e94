# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks that stay and copy ahead of their programs (`chain-programs`), without warps of roles.

The tiles of all main loops (those without masks) are one stream through the slots of shared memory.
In each iteration the tile that comes `stages - 1` later is asked for, be it of the program at hand or
of the next one, so a loop finds its first tiles as it finds all others. A program of fewer iterations
asks for the rest of the next one's first tiles behind its loop. What a program loads once comes with
its first tile, to one of two places that programs take in turns.

What is read in front of the loops (the order of sequences, their lengths) is read one program ahead,
and a program's number is asked for two ahead: nobody waits for either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from neptune_mlir.analysis.layouts import layout_of
from neptune_mlir.analysis.tiles import Window, chooses_scalars, element_of, load_window
from neptune_mlir.codegen.gpu.chip import Chip
from neptune_mlir.codegen.gpu.host import KernelSignature
from neptune_mlir.codegen.gpu.kernels import EMITTERS, KernelWriter
from neptune_mlir.codegen.gpu.memory import SharedTile, under
from neptune_mlir.codegen.gpu.pipeline import LoopPipeline
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.program_queue import ProgramQueue, take_number
from neptune_mlir.dialects.attributes import STAGES
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.transforms.gpu.chain_programs import chained_loops, main_loop, staged_loads

TURNS = 2  # places of what a program loads once


class ChainedWriter(KernelWriter):
    """Writes a kernel whose blocks stay, and whose warps all do the same."""

    def __init__(self, signature: KernelSignature, chip: Chip):
        super().__init__(signature, chip, {**EMITTERS, "tensor.pad": ChainedWriter._load})

    def argument_types(self) -> list[Any]:
        return [*super().argument_types(), *[self.s.i32] * len(ProgramQueue.operands)]

    def programs(self, block: Any) -> None:
        self.signature.operands = list(ProgramQueue.operands)
        self.signature.resident = True
        self.place_results()
        self.chain = ProgramChain(self, list(block.arguments)[-1])
        self.chain.write()

    def pipeline(self, loop: Any) -> LoopPipeline:
        return (ChainedLoop if loop == self.chain.main else LoopApart)(self, loop)

    def _load(self, op: Any) -> None:
        value = op.results[0]
        place = self.chain.once.get(value)
        if place is None or value in self.tiles:
            super()._load(op)
            return
        self.tiles[value] = self.chain.place(place, self.chain.turn)
        self.landing.add(value)


class ChainedLoop(LoopPipeline):
    """The main loop: it carries the slot of its next tile."""

    kernel: ChainedWriter

    def carried(self) -> list[Any]:
        return [self.kernel.chain.slot]

    def advance(self, position: Any, high: Any, step: Any, carried: Sequence[Any]) -> list[Any]:
        chain, slot = self.kernel.chain, carried[0]
        self.kernel.chip.wait(chain.stages - 2)
        self.kernel.memory.barrier()
        self.kernel.landing.clear()
        chain.copy_ahead(position, slot)
        chain.bind(self.iv, slot)
        return [chain.wrap(chain.s.add(slot, 1))]

    def finish(self, carried: Sequence[Any]) -> None:
        self.kernel.chain.end_main(carried[0])


class LoopApart(LoopPipeline):
    """A loop of few iterations (those with masks): each copies its own tile, to the slot that the
    stream leaves free."""

    kernel: ChainedWriter

    def __init__(self, kernel: ChainedWriter, loop: Any):
        super().__init__(kernel, loop)
        self.loop = loop

    def advance(self, position: Any, high: Any, step: Any, carried: Sequence[Any]) -> list[Any]:
        chain, memory, chip = self.kernel.chain, self.kernel.memory, self.kernel.chip
        free = chain.wrap(chain.s.value(chain.s.add(chain.slot, chain.stages - 1)))
        memory.barrier()
        chain.start(self.loop, position, free)
        chip.commit()
        chip.wait(0)
        memory.barrier()
        self.kernel.landing.clear()
        chain.bind(self.iv, free)
        return []


class ProgramChain:
    """The programs of a block.

    Attributes:
        slot: of the next tile; turn: of what the program at hand loads once.
        loads: by the variable of a loop: the tiles that it copies, with their windows and places.
        once: the places of tiles that a program loads once.
    """

    def __init__(self, kernel: ChainedWriter, counter: Any):
        self.kernel, self.s, self.chip, self.counter = kernel, kernel.s, kernel.chip, counter
        self.loops = chained_loops(kernel.forall)
        self.main = main_loop(self.loops, kernel.forall)
        self.stages = STAGES.of(self.main)
        self.step = int(self.loops[0].operands[2].owner.attributes["value"].value)
        self.base = dict(kernel.scalars)
        self.carried = self._read_ahead()
        self.programs = self.s.value(1)
        for bound in kernel.bounds:
            self.programs = self.s.value(self.s.mul(self.programs, bound))
        self.slot = self.turn = self.s.value(0)
        self._reserve()

    def _read_ahead(self) -> list[Any]:
        """The grid's variables, and numbers that the loops' bounds and windows may depend on."""
        found = list(self.kernel.body.arguments)[: len(self.kernel.bounds)]
        self.reads = []
        for op in (x.operation for x in self.kernel.body.operations):
            reads = op.name == "tensor.extract" and op.operands[0] in self.kernel.arrays
            if reads or (op.name == "scf.if" and chooses_scalars(op)):
                self.reads.append(op)
                found += op.results
        return found

    # ---- shared memory

    def _reserve(self) -> None:
        memory, forall = self.kernel.memory, self.kernel.forall
        iterators = [loop.regions[0].blocks[0].arguments[0] for loop in self.loops]
        self.loads: dict[Any, list[tuple[Any, Window, SharedTile]]] = {}
        places: list[int] = []
        for loop, iterator in zip(self.loops, iterators, strict=True):
            found = []
            for k, op in enumerate(staged_loads(loop.regions[0].blocks[0], forall)):
                tile = self._tile(op, places[k] if k < len(places) else None, self.stages)
                places += [tile.offset] if k == len(places) else []
                found.append((op.results[0], self._window(op), tile))
            self.loads[iterator] = found
        self.once = {op.results[0]: self._tile(op, None, TURNS)
                     for op in staged_loads(self.kernel.body, forall)}  # fmt: skip
        self.words = memory.take(4 * TURNS) if self.kernel.warps > 1 else 0
        memory.settle()

    def _tile(self, op: Any, offset: int | None, times: int) -> SharedTile:
        found = self._window(op)
        layout = layout_of(op, found.shape)
        place = self.kernel.memory.take(layout.bytes * times) if offset is None else offset
        return SharedTile(layout, place, element_of(op.results[0]))

    def _window(self, op: Any) -> Window:
        found = load_window(op.results[0], self.kernel.forall)
        assert found is not None
        return found

    def bind(self, iterator: Any, slot: Any) -> None:
        """The tiles of the iteration at hand are in a slot."""
        for value, _, tile in self.loads[iterator]:
            self.kernel.tiles[value] = self.place(tile, slot)

    def place(self, tile: SharedTile, number: Any) -> SharedTile:
        """A tile in one of its places."""
        s = self.s
        offset = s.add(s.mul(number, tile.layout.bytes), tile.offset)
        return SharedTile(tile.layout, offset, tile.dtype)

    def wrap(self, slot: Any) -> Any:
        """A slot modulo their number, under twice that."""
        s, stages = self.s, self.stages
        if not stages & (stages - 1):
            return s.value(s.mod(slot, stages))
        return s.select(s.less(slot, stages), slot, s.value(s.sub(slot, stages)))

    # ---- programs

    def write(self) -> None:
        """All programs of a block."""
        s, kernel = self.s, self.kernel
        first, blocks = (
            s.op(name, [], s.index, dimension=ir.Attribute.parse("#gpu<dim x>"))
            for name in ("gpu.block_id", "gpu.grid_dim")
        )
        start = self._values(first)
        self._begin(start)
        second = s.value(s.add(first, blocks))
        kinds = [s.index, s.index, s.index, s.index, *[v.type for v in start]]
        loop = scf.WhileOp(kinds, [first, second, self.slot, self.turn, *start])
        before, after = (r.blocks.append(*kinds) for r in loop.operation.regions)
        with s.scope(before):
            scf.ConditionOp(s.less(before.arguments[0], self.programs), list(before.arguments))
        kernel.memory.programs = loop.operation
        with s.scope(after):
            _, following, self.slot, self.turn, *values = after.arguments
            self.entry = self.slot
            kernel.memory.unsafe = True  # slower threads may still be in the program before
            later = s.value(s.add(self._take(), s.mul(blocks, 2)))
            self.own = self._bound(values)
            self.exists = s.less(following, self.programs)
            last = s.value(s.sub(self.programs, 1))
            ahead = self._values(s.minimum(following, last))
            self.next = self._bound(ahead)
            kernel.scalars = dict(self.own)
            for op in kernel.body.operations:
                if op.operation not in self.reads:
                    kernel.write_op(op.operation)
            turn = s.value(s.sub(1, self.turn))
            scf.YieldOp([following, later, self.slot, turn, *ahead])
        kernel.memory.programs = None
        self.chip.wait(0)

    def _take(self) -> Any:
        """How many programs blocks have taken beside their first ones."""
        s, kernel, memory = self.s, self.kernel, self.kernel.memory
        lane = s.value(kernel.threads.id, s.i32)
        taken = take_number(s, self.counter, self.programs, lane)
        zero = s.constant(0, s.i32)
        if kernel.warps > 1:  # by a word in shared memory; two of them, so one barrier is enough
            offset = s.add(s.mul(self.turn, 4), self.words)
            with under(s, s.less(kernel.threads.id, 1)):
                memory.store_element(taken, memory.shared_pointer(offset), 4)
            memory.barrier()
            taken = memory.load_element(memory.shared_pointer(offset), s.i32, 4)
        return s.value(hopper.from_lane(taken, zero))

    def _values(self, number: Any) -> list[Any]:
        """What is carried of a program, by its number."""
        kernel = self.kernel
        kernel.scalars = dict(self.base)
        kernel.place_program(number)
        for op in self.reads:
            kernel.write_op(op)
        return [self.s.value(kernel.scalars[v]) if isinstance(v.type, ir.IndexType)
                else kernel.scalars[v] for v in self.carried]  # fmt: skip

    def _bound(self, values: Sequence[Any]) -> dict[Any, Any]:
        return {**self.base, **dict(zip(self.carried, values, strict=True))}

    @contextmanager
    def _of(self, scalars: dict[Any, Any]) -> Iterator[None]:
        """Code of another program."""
        before, self.kernel.scalars = self.kernel.scalars, dict(scalars)
        yield
        self.kernel.scalars = before

    # ---- the stream: what the main loops of one program after another copy

    def _bounds(self, scalars: dict[Any, Any]) -> tuple[Any, Any]:
        """Of the main loop of a program."""
        with self._of(scalars):
            low, high = (self.kernel.scalar(v) for v in list(self.main.operands)[:2])
            return low, high

    def _begin(self, values: Sequence[Any]) -> None:
        """Copy the first tiles of the first program."""
        scalars = self._bound(values)
        self._copy_once(scalars, self.turn)
        for k in range(self.stages - 1):
            self._copy_first(scalars, k, self.s.value(k))

    def _copy_first(self, scalars: dict[Any, Any], k: int, slot: Any) -> None:
        """Copy the tile of iteration k, if there is one."""
        low, high = self._bounds(scalars)
        position = self.s.value(self.s.add(low, k * self.step))
        with under(self.s, self.s.less(position, high)), self._of(scalars):
            self.start(self.main, position, slot)
        self.chip.commit()

    def copy_ahead(self, position: Any, slot: Any) -> None:
        """Copy the tile that comes `stages - 1` behind the one at a position of the main loop: of
        this program, else of the next one."""
        s = self.s
        (low, high), (its_low, its_high) = self._bounds(self.own), self._bounds(self.next)
        ahead = s.value(s.add(position, self.step * (self.stages - 1)))
        to = self.wrap(s.value(s.add(slot, self.stages - 1)))
        branch = scf.IfOp(s.less(ahead, high), has_else=True)
        with s.scope(branch.then_block):
            self.start(self.main, ahead, to)
            scf.YieldOp([])
        with s.scope(branch.else_block):
            with under(s, self.exists):
                # its first tile where this iteration is the first that copies none of its own
                first = s.value(s.maximum(low, self._last(low, high)))
                place = s.value(s.add(its_low, s.sub(position, first)))
                with under(s, s.less(position, s.add(first, 1))):
                    self._copy_once(self.next, s.value(s.sub(1, self.turn)))
                with under(s, s.less(place, its_high)), self._of(self.next):
                    self.start(self.main, place, to)
            scf.YieldOp([])
        self.chip.commit()

    def _last(self, low: Any, high: Any) -> Any:
        """The iteration of the main loop from which on nothing more is to be copied."""
        s = self.s
        count = s.div(s.add(s.maximum(s.sub(high, low), 0), self.step - 1), self.step)
        return s.value(s.add(low, s.mul(s.sub(count, self.stages - 1), self.step)))

    def end_main(self, slot: Any) -> None:
        """Copy what a short program has not copied of the first tiles of the next one."""
        s, (low, high) = self.s, self._bounds(self.own)
        span = s.sub(high, low)
        is_short = s.less(span, self.step * (self.stages - 2) + 1)
        with under(s, is_short):
            self.kernel.memory.barrier()
            for k in range(self.stages - 1):
                with under(s, s.less(span, k * self.step + 1)):
                    if k == 0:
                        with under(s, self.exists):
                            self._copy_once(self.next, s.value(s.sub(1, self.turn)))
                    to = s.value(s.add(self.entry, (self.stages - 1 + k) % self.stages))
                    with under(s, self.exists):
                        self._copy_first(self.next, k, self.wrap(to))
        self.slot = s.select(is_short, self.wrap(s.add(self.entry, self.stages - 1)), slot)

    def start(self, loop: Any, position: Any, slot: Any) -> None:
        """Copy the tiles of a loop's iteration, for the program that scalars are of."""
        kernel, iterator = self.kernel, loop.regions[0].blocks[0].arguments[0]
        for _, found, tile in self.loads[iterator]:
            window = kernel.window(found, {iterator: position})
            to = self.place(tile, slot)
            self.chip.start_copy(kernel.memory, kernel.arrays[found.tensor], window, to)

    def _copy_once(self, scalars: dict[Any, Any], turn: Any) -> None:
        """Copy what a program loads once."""
        kernel = self.kernel
        with self._of(scalars):
            for value, tile in self.once.items():
                found = load_window(value, kernel.forall)
                assert found is not None
                to = self.place(tile, turn)
                array = kernel.arrays[found.tensor]
                self.chip.start_copy(kernel.memory, array, kernel.window(found), to)
