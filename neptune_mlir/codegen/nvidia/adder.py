# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A warp for each group that adds what the group makes to sums in memory.

    group g                                   warp g behind the producer
    wait: the staged tile was read            say: it may be written
    store 16 bytes a lane and block           wait: a tile is staged at an address
    say: staged; its address                  fence, start the copy engine's additions
    go on                                     wait until they have read it, say so, again

A group that starts additions itself waits for its fence and for the copy engine to take its orders,
at the end of an iteration where nothing is left of a product to wait beside. Tiles in fragments
(`analysis.fragments`) lie in shared memory as they do in memory: 512 bytes of a warp in order, no
bank twice. The order is of this thread's stores, the barrier, the other warp's fence, the copy.

In turns (`transforms.tiling.in_turns`) it also gets the tile's row, the number that the tile's word
is to have before it may add (0: it stores the tile), and the one that it writes there when memory
has the sums; so a group has an iteration's time to spare before it waits for other programs.

In any order it counts programs (`transforms.tiling.sums_awaited`): a group says that it has nothing
more to add, and the warp, which follows the queue of programs as groups do, adds 1 to the word of
the program's sums when memory has these.

Both wait at named barriers, which the chip counts: neither has to know how often they met. The
address is in shared memory; END ends the warp, and NONE asks for nothing: where a group is to stage
its results at the same place, the tile must have been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import fragments
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import (
    Window,
    adds_in_turns,
    nested,
    slice_parts,
    strip_slice,
    tuned,
    turn_of,
)
from neptune_mlir.codegen.gpu.memory import Array
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.staged_rows import recomputed
from neptune_mlir.dialects.gpu_attributes import IN_FRAGMENTS
from neptune_mlir.dialects.op_names import COUNT, TURN
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.targets.group_tiles import GROUP_ROWS
from neptune_mlir.targets.warp_groups import GROUP_WARPS, STAGED
from neptune_mlir.transforms.gpu.layout_stages import added_panels
from neptune_mlir.transforms.tiling.in_turns import WORDS

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

MOST_GROUPS = GROUP_WARPS - 1  # warps that the producer leaves idle
FIRST_BARRIER = 8  # of the named ones; those below are the consumers'
END, NONE, ALL = 0, 1, 2  # addresses of nothing: the last one, of all that a program adds
SIZE = 4  # bytes of a sum
BLOCK = fragments.ROWS * fragments.COLUMNS * SIZE
APART = 2  # tiles that a program has of what it keeps, for one of the sums
SAID = 8  # bytes of what a group says: an address
TURN_SAID = 3 * SAID  # that, the tile's row, and two numbers


class Adder:
    """The warps of one kernel; `staged` is the offset of `room` panels for each consumer warp."""

    def __init__(self, kernel: SpecializedWriter, staged: int, room: int):
        self.kernel, self.s = kernel, kernel.s
        self.staged, self.each = staged, room * STAGED
        self.in_turns = adds_in_turns(kernel.forall)
        adds = [op for op in nested(kernel.body) if len(turn_of(op)) == COUNT]
        self.counted = adds[0] if adds and kernel.resident else None
        self.said = TURN_SAID if self.in_turns else SAID
        self.is_counted = True  # the program at hand
        self.words = kernel.memory.take(self.said * kernel.groups)  # what the groups say
        self.threads = kernel.group_threads + kernel.target.wave  # that meet at a barrier
        self.pieces: tuple[int, int] | None = None  # bytes of a warp's rows; from one to the next
        self.tile: tuple[int, ...] = ()  # of the sums, and how many warps have other rows of it
        self.along, self.first_word = 1, None  # where words begin

    @classmethod
    def of(cls, kernel: SpecializedWriter, staged: int | None, room: int) -> Adder | None:
        """None where registers are added, or there is no room."""
        forall = kernel.forall
        wanted = tuned(forall, "adder", 0) and IN_FRAGMENTS.on(forall)
        fits = staged is not None and room >= added_panels(forall)
        if not (wanted and fits and kernel.groups <= MOST_GROUPS):
            return None
        assert staged is not None
        return cls(kernel, staged, room)

    def _barriers(self, group: Any) -> tuple[Any, Any]:
        """The barriers of a group (an i32 value): its tile was read, and is staged."""
        s, first = self.s, FIRST_BARRIER
        read = s.op("arith.addi", [group, s.constant(first, s.i32)], s.i32)
        staged = s.op("arith.addi", [group, s.constant(first + MOST_GROUPS, s.i32)], s.i32)
        return read, staged

    def _word(self, group: Any, which: int = 0) -> Any:
        s = self.s
        moved = s.op("arith.muli", [group, s.constant(self.said, s.i32)], s.i32)
        first = self.kernel.address(self.words + SAID * which)
        return s.op("arith.addi", [first, moved], s.i32)

    # ---- the groups

    def add(
        self, array: Array, window: Window, layout: Layout, values: Sequence[Any],
        turn: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        """Stage a tile, an accumulator that `sums_in_fragments` chose, and have it added."""
        s, kernel, memory = self.s, self.kernel, self.kernel.memory
        threads = recomputed(memory.threads)
        warp = s.value(kernel.uniform(s.value(threads.warp, s.i32)))
        along = layout.shape[0] // fragments.ROWS  # warps that have other rows
        columns = layout.shape[1] * along // kernel.warps  # of a warp
        own = columns * fragments.ROWS * SIZE
        self.pieces = own, layout.shape[1] * fragments.ROWS * SIZE
        memory.needs(array, fragments.OF_LANE * SIZE)
        pointer = memory.address(
            replace(array, in_fragments=False), window,
            [s.mul(s.mod(warp, along), fragments.ROWS), 0],
        )  # fmt: skip
        part = s.value(s.mul(s.div(warp, along), own), s.i64)
        pointer = memory.offset_pointer(pointer, part, pointer.type)
        places = [tuple(map(int, offset)) for offset in layout.offsets(layout.reg)]
        found = dict(zip(places, values, strict=True))
        blocks = [
            [found[row, column + k] for row in (0, fragments.ROWS // 2) for k in (0, 1)]
            for column in range(0, columns, fragments.COLUMNS)
        ]
        read, staged = self._barriers(kernel.products.group)
        hopper.await_turn(read, self.threads)
        hopper.await_boxes()  # results of the program before
        here = s.add(s.mul(warp, self.each), s.mul(threads.lane, fragments.OF_LANE * SIZE))
        here = s.add(here, self.staged)
        for k, block in enumerate(kernel.issued.interleaved(blocks, len(blocks))):
            where = memory.shared_pointer(s.add(here, k * BLOCK))
            memory.store_element(memory.pack(block), where, fragments.OF_LANE * SIZE)
        self.is_counted = self.counted is None
        if self.in_turns:
            *when, self.first_word = turn[:TURN]
            self.tile, self.along = layout.shape, along
            self._say_turn(window, when, threads.id)
        self._say(s.op("llvm.ptrtoint", [pointer], s.i64), threads.id)
        hopper.give_turn(staged, self.threads)

    def settle(self, then: int = NONE, ends: bool = False) -> None:
        """Wait until what this group staged was read; then it may stage results there. With END its
        warp ends; where the program `ends`, that was all it adds."""
        read, staged = self._barriers(self.kernel.products.group)
        hopper.await_turn(read, self.threads)
        if self.in_turns:
            self._say(self.s.constant(0, self.s.i64), self.kernel.threads.id, 2)
        elif ends and not self.is_counted:
            self.is_counted, self.kernel.signature.tells = True, self.kernel.groups
            then = ALL
        self._say(self.s.constant(then, self.s.i64), self.kernel.threads.id)
        hopper.give_turn(staged, self.threads)

    def _say(self, word: Any, thread: Any, which: int = 0) -> None:
        s = self.s
        first = s.value(s.mod(thread, self.kernel.group_threads), s.i32)
        hopper.store_address(self._word(self.kernel.products.group, which), word, first)

    def _say_turn(self, window: Window, turn: Sequence[Any], thread: Any) -> None:
        """Say when a tile may be added: where it is in the result, what its word has before and
        then. (The word's address, 64 bits in registers through the loop, made groups spill.)"""
        s = self.s
        variable = list(self.kernel.body.arguments)[len(self.kernel.bounds) - 1]
        number = hopper.unknown(s.value(self.kernel.scalars[variable], s.i32))
        local = {variable: s.value(number)}  # computed here, in no registers through the loop
        awaited, own = (self.kernel.scalar(value, local) for value in turn)
        row, _ = window.dims
        self._say(s.value(s.value(window.offsets[row]), s.i64), thread, 1)
        both = [s.value(s.value(awaited), s.i64), s.value(s.value(own), s.i64)]
        both[1] = s.op("arith.shli", [both[1], s.constant(32, s.i64)], s.i64)
        self._say(s.op("arith.ori", both, s.i64), thread, 2)

    # ---- their warps

    def write(self, number: Any) -> None:
        """The program of the warp of that group (an index). In turns it also keeps the address of
        the tile before and of its word: tiles come in order, as a rule, so it looks at the next
        word while it waits for the tile."""
        s, group = self.s, self.s.value(number, self.s.i32)
        read, staged = self._barriers(group)
        hopper.give_turn(read, self.threads)
        if self.in_turns:
            self.kernel.signature.tells = self.kernel.groups
        kept = [s.constant(0, s.i64)] if self.in_turns else []
        if self.counted is not None:
            kept = self._program(s.value(0), group)
        kinds = [s.i64, *(v.type for v in kept)]
        behind = [s.i64, *kinds, *([s.i32] if self.in_turns else [])]
        loop = scf.WhileOp(behind, [s.constant(NONE, s.i64), *kept])
        before, after = (
            r.blocks.append(*k)
            for r, k in zip(loop.operation.regions, (kinds, behind), strict=True)
        )
        with s.scope(before):
            last = list(before.arguments)
            seen = [self._look(last[1])] if self.in_turns else []
            hopper.await_turn(staged, self.threads)
            address = hopper.load_address(self._word(group))
            is_one = s.less(0, s.value(hopper.is_somewhere(address)))
            scf.ConditionOp(is_one, [address, *last, *seen])
        with s.scope(after):
            address, *last = after.arguments
            hopper.publish_tile()
            turn = self._await_turn(address, last, number) if self.in_turns else []
            self._start(group, address, turn[1:])
            hopper.await_boxes()
            hopper.give_turn(read, self.threads)
            if turn:
                hopper.tell_word(*turn)
            counted = self._after(address, last[1:], group) if self.counted is not None else []
            scf.YieldOp([address, *turn[:1], *counted])

    def _program(self, number: Any, group: Any) -> list[Any]:
        """The word that counts the block's program of that number, and the number."""
        s, kernel = self.s, self.kernel
        _, *position = kernel.queue.get(number)
        local = dict(zip(kernel.queue.variables, position, strict=False))
        strip = strip_slice(self.counted.operands[1])
        offsets, _, dims = slice_parts(strip)
        at = [x if isinstance(x, int) else kernel.scalar(x, local) for x in offsets]
        at[dims[0]] = kernel.scalar(turn_of(self.counted)[0], local)
        array = replace(kernel.views[strip.operands[0]].array, in_fragments=False)
        place = kernel.memory.address(array, Window(None, tuple(at), (), (), ()), ())
        start = s.op("llvm.ptrtoint", [place], s.i64)
        moved = s.op("arith.muli", [group, s.constant(SIZE, s.i32)], s.i32)
        return [s.op("arith.addi", [start, s.op("arith.extui", [moved], s.i64)], s.i64), number]

    def _after(self, address: Any, program: Sequence[Any], group: Any) -> list[Any]:
        """Count a program of which that was all; what `_program` has of the one at hand then."""
        s = self.s
        word, number = program
        is_all = self._same(address, s.constant(ALL, s.i64))
        branch = scf.IfOp(is_all, [s.i64, s.index], has_else=True)
        with s.scope(branch.then_block):
            hopper.count_word(word)
            scf.YieldOp(self._program(s.value(s.add(number, 1)), group))
        with s.scope(branch.else_block):
            scf.YieldOp([word, number])
        return list(branch.results)

    def _look(self, word: Any) -> Any:
        """What the word behind one is, while the tile is not there yet: if programs begin at tiles
        that lie apart, so that the one before was there long ago. Else looks come too early."""
        if GROUP_ROWS * self.kernel.groups < APART * self.tile[0]:
            return self.s.constant(0, self.s.i32)
        return hopper.look_at_word(word, WORDS * SIZE)

    def _await_turn(self, address: Any, last: Sequence[Any], number: Any) -> list[Any]:
        """Wait until a group's tile may be added: its word (0 of none), and its turn. `last`: the
        tile before, its word, and what the word behind that one was."""
        s, group = self.s, self.s.value(number, self.s.i32)
        before, word, seen = last
        at, turn = (hopper.load_address(self._word(group, k)) for k in (1, 2))
        rows, columns = self.tile
        behind = s.op("arith.addi", [before, s.constant(rows * columns * SIZE, s.i64)], s.i64)
        follows = scf.IfOp(self._same(behind, address), [s.i64, s.i32], has_else=True)
        with s.scope(follows.then_block):
            found = s.op("arith.addi", [word, s.constant(WORDS * SIZE, s.i64)], s.i64)
            scf.YieldOp([found, seen])
        with s.scope(follows.else_block):
            none = s.constant(0, s.i64)
            found = scf.IfOp(self._same(turn, none), [s.i64], has_else=True)
            with s.scope(found.then_block):
                scf.YieldOp([none])
            with s.scope(found.else_block):
                scf.YieldOp([self._word_of(address, at, number)])
            scf.YieldOp([found.results[0], s.constant(0, s.i32)])
        found, seen = follows.results
        hopper.await_word(found, turn, seen)
        return [found, turn]

    def _same(self, a: Any, b: Any) -> Any:
        """Whether two words of 64 bits are the same. (Positions have 32.)"""
        s = self.s
        return s.op("arith.cmpi", [a, b], s.i1, predicate=ir.IntegerAttr.get(s.i64, 0))

    def _word_of(self, address: Any, at: Any, group: Any) -> Any:
        """Where the word of a group's tile is, which lies in the result from row `at` on. Words are
        behind the rows of the result, as many for each tile as there are groups at most."""
        s, (rows, columns) = self.s, self.tile
        assert self.pieces is not None
        warp = s.mul(group, GROUP_WARPS)
        own = s.mul(s.div(warp, self.along), self.pieces[0])
        own = s.add(own, s.mul(s.mod(warp, self.along), self.pieces[1]))
        at = s.value(at)
        behind = s.value(s.sub(self.kernel.scalar(self.first_word), at), s.i64)
        moved = s.op("arith.muli", [behind, s.constant(columns * SIZE, s.i64)], s.i64)
        word = s.add(s.mul(s.div(at, rows), WORDS), group)
        less = s.value(s.sub(s.mul(word, SIZE), own), s.i64)
        moved = s.op("arith.addi", [moved, less], s.i64)
        return s.op("arith.addi", [address, moved], s.i64)

    def _start(self, group: Any, address: Any, turn: Sequence[Any]) -> None:
        """Start adding what a group has staged: its warps' rows, together where they are so."""
        s = self.s
        assert self.pieces is not None
        size, step = self.pieces
        together = size == step == self.each
        moved = s.op("arith.muli", [group, s.constant(GROUP_WARPS * self.each, s.i32)], s.i32)
        source = s.op("arith.addi", [self.kernel.address(self.staged), moved], s.i32)
        runs = 1 if together else GROUP_WARPS
        size = size * GROUP_WARPS // runs
        pieces = [(k * step, k * self.each) for k in range(runs)]
        hopper.add_runs(address, source, pieces, size, *turn)
