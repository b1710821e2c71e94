# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks that stay and copy ahead of their programs (`chain-programs`), without warps of roles.

The tiles of all programs of a block are one stream through the slots of shared memory. In each
iteration the tile that comes `stages - 1` later is asked for, be it of a later loop of the program
or of the next program; so every iteration finds its tile as if the loop had no beginning. A program
of less than `stages - 1` iterations asks for the rest of the next one's first tiles at its end. What
a program loads once comes with its first tile, to one of two places that programs take in turns.

What is read in front of the loops (the order of sequences, their lengths) is read one program ahead,
and a program's number is asked for two ahead: nobody waits for either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis.layouts import layout_of
from neptune_mlir.analysis.tiles import Window, chooses_scalars, element_of, load_window
from neptune_mlir.codegen.gpu.chip import Chip
from neptune_mlir.codegen.gpu.host import KernelSignature
from neptune_mlir.codegen.gpu.kernels import EMITTERS, KernelWriter
from neptune_mlir.codegen.gpu.memory import SharedTile, under
from neptune_mlir.codegen.gpu.pipeline import LoopPipeline
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.program_queue import ProgramQueue, take_number
from neptune_mlir.dialects.attributes import STAGES
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.transforms.gpu.chain_programs import chained_loops, staged_loads

NOWHERE = 1 << 30  # behind the end of every stream
TURNS = 2  # places of what a program loads once


@dataclass(frozen=True)
class Part:
    """A loop's part of a program's stream, `begin` to `end`, and the loop's bounds."""

    begin: Any
    end: Any
    low: Any
    high: Any

    def place(self, s: Scalars, position: Any) -> Any:
        """Where the iteration at a position of the loop is in the stream."""
        return s.value(s.add(s.sub(position, self.low), self.begin))

    def position(self, s: Scalars, place: Any) -> Any:
        """The inverse of `place`."""
        return s.value(s.add(s.sub(place, self.begin), self.low))


Stream = list[Part]


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
        return ChainedLoop(self, loop)

    def _load(self, op: Any) -> None:
        value = op.results[0]
        place = self.chain.once.get(value)
        if place is None or value in self.tiles:
            super()._load(op)
            return
        self.tiles[value] = self.chain.place(place, self.chain.turn)
        self.landing.add(value)


class ChainedLoop(LoopPipeline):
    """One of the loops of a chain: it carries the slot of its next tile."""

    kernel: ChainedWriter

    def carried(self) -> list[Any]:
        return [self.kernel.chain.slot]

    def advance(self, position: Any, high: Any, step: Any, carried: Sequence[Any]) -> list[Any]:
        chain, slot = self.kernel.chain, carried[0]
        chain.chip.wait(chain.stages - 2)
        chain.kernel.memory.barrier()
        self.kernel.landing.clear()
        chain.copy_ahead(chain.iterators.index(self.iv), position, slot)
        for value, _, tile in chain.loads[self.iv]:
            self.kernel.tiles[value] = chain.place(tile, slot)
        return [chain.wrap(chain.s.add(slot, 1))]

    def finish(self, carried: Sequence[Any]) -> None:
        self.kernel.chain.slot = carried[0]


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
        self.stages = STAGES.of(self.loops[0])
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
        self.iterators = [loop.regions[0].blocks[0].arguments[0] for loop in self.loops]
        self.loads: dict[Any, list[tuple[Any, Window, SharedTile]]] = {}
        places: list[int] = []
        for loop, iterator in zip(self.loops, self.iterators, strict=True):
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
            self._measure()
            kernel.scalars = dict(self.own)
            for op in kernel.body.operations:
                if op.operation not in self.reads:
                    kernel.write_op(op.operation)
            self._copy_rest()
            slot = s.select(self.is_short, self.wrap(s.add(self.entry, self.stages - 1)), self.slot)
            turn = s.value(s.sub(1, self.turn))
            scf.YieldOp([following, later, slot, turn, *ahead])
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

    # ---- the stream: places in it are multiples of the loops' step, whatever these begin with

    def _stream(self, scalars: dict[Any, Any]) -> Stream:
        s, found = self.s, []
        begin = s.value(0)
        with self._of(scalars):
            for loop in self.loops:
                low, high = (self.kernel.scalar(v) for v in list(loop.operands)[:2])
                span = s.maximum(s.sub(high, low), 0)
                end = s.add(begin, s.mul(s.div(s.add(span, self.step - 1), self.step), self.step))
                found.append(Part(begin, s.value(end), low, high))
                begin = s.value(end)
        return found

    def _measure(self) -> None:
        """Where the copies of this program give way to those of the next one."""
        s, reach = self.s, self.step * (self.stages - 1)
        self.parts = self._stream(self.own)
        self.end = self.parts[-1].end
        self.tail = s.value(s.maximum(s.sub(self.end, reach), 0))
        self.is_short = s.less(self.end, reach)

    def _begin(self, values: Sequence[Any]) -> None:
        """Copy the first tiles of the first program."""
        scalars = self._bound(values)
        self._copy_once(scalars, self.turn)
        for k in range(self.stages - 1):
            self._copy(scalars, self.s.value(k * self.step), self.s.value(k))
            self.chip.commit()

    def copy_ahead(self, number: int, position: Any, slot: Any) -> None:
        """Copy the tile that comes `stages - 1` behind the one at a position of a loop."""
        s, part, reach = self.s, self.parts[number], self.step * (self.stages - 1)
        to = self.wrap(s.value(s.add(slot, self.stages - 1)))
        if number and number + 1 == len(self.loops):  # few iterations, and those behind the last
            self._copy_behind(part.place(s, position), to)
        else:
            ahead = s.value(s.add(position, reach))
            branch = scf.IfOp(s.less(ahead, part.high), has_else=True)
            with s.scope(branch.then_block):
                self._start(self.iterators[number], ahead, to)
                scf.YieldOp([])
            with s.scope(branch.else_block):
                self._copy_behind(part.place(s, position), to)
                scf.YieldOp([])
        self.chip.commit()

    def _copy_behind(self, place: Any, to: Any) -> None:
        """Copy a tile of another loop of this program, or of the next program: `place` is where
        the stream is."""
        s = self.s
        ahead = s.value(s.add(place, self.step * (self.stages - 1)))
        mine = s.less(ahead, self.end)
        chosen = {
            v: x if x is self.next[v] else s.select(mine, x, self.next[v])
            for v, x in self.own.items()
        }
        its = s.select(self.exists, s.value(s.sub(place, self.tail)), s.value(NOWHERE))
        begins = s.both(self.exists, s.less(place, s.add(self.tail, self.step)))
        with under(s, s.both(begins, s.less(s.sub(self.end, 1), ahead))):
            self._copy_once(self.next, s.value(s.sub(1, self.turn)))
        self._copy(chosen, s.select(mine, ahead, its), to)

    def _copy_rest(self) -> None:
        """Copy what a short program has not copied of the first tiles of the next one."""
        s = self.s
        with under(s, self.is_short):
            self.kernel.memory.barrier()
            for k in range(self.stages - 1):
                with under(s, s.less(self.end, k * self.step + 1)):
                    place = s.select(self.exists, s.value(k * self.step), s.value(NOWHERE))
                    if k == 0:
                        with under(s, self.exists):
                            self._copy_once(self.next, s.value(s.sub(1, self.turn)))
                    slot = s.value(s.add(self.entry, (self.stages - 1 + k) % self.stages))
                    self._copy(self.next, place, self.wrap(slot))
                    self.chip.commit()

    def _copy(self, scalars: dict[Any, Any], place: Any, slot: Any) -> None:
        """Copy the tile at a place of a program's stream, if there is one."""
        parts = self._stream(scalars)
        with self._of(scalars):
            self._of_part(0, parts, place, slot)

    def _of_part(self, number: int, parts: Stream, place: Any, slot: Any) -> None:
        s, part, more = self.s, parts[number], number + 1 < len(parts)
        branch = scf.IfOp(s.less(place, part.end), has_else=more)
        with s.scope(branch.then_block):
            self._start(self.iterators[number], part.position(s, place), slot)
            scf.YieldOp([])
        if more:
            with s.scope(branch.else_block):
                self._of_part(number + 1, parts, place, slot)
                scf.YieldOp([])

    def _start(self, iterator: Any, position: Any, slot: Any) -> None:
        kernel = self.kernel
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
