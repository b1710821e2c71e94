# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Resident blocks: each runs one program after another, taken from a queue.

A launch has no more blocks than the chip runs at once. The first program of a block is the one
of its own number; the next it takes from a counter in global memory, so blocks that got short
programs get more of them. The producer takes numbers, ahead of the consumers, and hands them,
the grid's variables and what it reads from memory for these (where a tile of rows begins) on
through slots in shared memory, so the consumers divide nothing and wait for no number; a number
that is no program's ends the block. While the consumers finish one program, the first tiles of the
next are on their way.

Programs that wait for those with lower numbers (`transforms.tiling.in_turns`) take the first number
from the counter too: a block that has not begun holds up nobody then, whatever else the chip runs.

The counter belongs to the code (`COUNTERS`, zero when the code is loaded); the runtime gives
every call one of them, for calls that run at the same time must not share one. It counts
modulo how many numbers a launch takes from it, so that it is zero again when that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import adds_in_turns
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.program_order import LongestFirst
from neptune_mlir.ir.bindings import ir, llvm, scf
from neptune_mlir.transforms.hopper.clusters import PAIR

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

COUNTERS = "neptune_counters"
CALLS = 1 << 16  # counters: half of them for prepared and captured calls, which may run any time
SLOTS = 2


def declare_counters() -> None:
    kind = f"!llvm.array<{CALLS} x i32>"
    made = llvm.global_array(kind, COUNTERS, "internal", addr_space=1, alignment=4)
    block = made.regions[0].blocks.append()
    with ir.InsertionPoint(block):
        zero = ir.Operation.create("llvm.mlir.zero", results=[ir.Type.parse(kind)]).results[0]
        ir.Operation.create("llvm.return", operands=[zero])


class ProgramQueue:
    """The queue of one kernel, whose counter has the number `counter` (i32)."""

    operands = (["counter", CALLS],)  # of a launch

    def __init__(self, kernel: SpecializedWriter, counter: Any):
        self.kernel, self.s, self.counter = kernel, kernel.s, counter
        self.in_order = adds_in_turns(kernel.forall)  # begun by blocks that run
        self.variables = list(kernel.body.arguments)[: len(kernel.bounds)]
        also = [kernel.idle.read] if kernel.idle is not None else []
        self.read = _read_by_program(kernel.body, kernel.producer, self.variables, also)
        # a program's number, the grid's variables, what is read for these
        self.words = 1 + len(self.variables) + len(self.read)
        self.slots = kernel.memory.take(SLOTS * 4 * self.words)
        self.full = kernel.memory.take(SLOTS * 2 * 8)
        self.empty = self.full + SLOTS * 8
        self.programs = self.s.value(1)
        for bound in kernel.bounds:
            self.programs = self.s.value(self.s.mul(self.programs, bound))
        self.pairs, self.taken = kernel.pairs, self.programs
        if self.pairs is not None:
            self.programs = self.s.value(self.s.mul(self.programs, PAIR))
        # (pairs of one length are given to blocks ahead: nothing is to be told)
        self.agrees = self.pairs is not None and isinstance(kernel.order, LongestFirst)
        if self.pairs is not None and self.agrees:
            self.pairs.place_words()

    def start_barriers(self) -> None:
        adder = self.kernel.adder
        others = self.kernel.groups if adder is not None and adder.counted is not None else 0
        readers = self.kernel.warps + others  # warps that follow the queue
        for k in range(SLOTS):
            hopper.init_barrier(self.kernel.address(self.full + 8 * k), 1)
            hopper.init_barrier(self.kernel.address(self.empty + 8 * k), readers)
        if self.pairs is not None and self.agrees:
            self.pairs.start_barriers()

    def produce(self, counts: Sequence[Any], write: Write) -> None:
        """Take programs; `write(counts)` gives the counts after one, where it stands."""
        s = self.s
        dimension = ir.Attribute.parse("#gpu<dim x>")
        blocks = s.op("gpu.grid_dim", [], s.index, dimension=dimension)
        if self.in_order:  # all are taken, and each block takes one that is no program
            taken, begun = s.value(s.add(self.programs, blocks)), s.value(0)
            first = self._take(taken)
        else:
            taken, begun = self.taken, blocks
            first = s.op("gpu.block_id", [], s.index, dimension=dimension)
        kinds = [s.index] * (2 + len(counts))
        loop = scf.WhileOp(kinds, [first, s.value(0), *counts])
        before, after = (r.blocks.append(*kinds) for r in loop.operation.regions)
        with s.scope(before):
            condition = s.less(before.arguments[0], self.programs)
            scf.ConditionOp(condition, list(before.arguments))
        with s.scope(after):
            program, number, *inside = after.arguments
            self.kernel.place_program(program)
            self._give(number, program, self._read_numbers())
            inside = list(write(inside))
            # late: who is ahead takes more
            following = s.value(s.add(self._more(program, number, taken), begun))
            scf.YieldOp([following, s.value(s.add(number, 1)), *inside])
        zero = s.value(0)
        self.kernel.scalars.update(dict.fromkeys(self.variables, zero))
        self._give(loop.results[1], loop.results[0], [zero] * len(self.read))

    def consume(self, counts: Sequence[Any], write: Write) -> None:
        """Run what the producer has taken; `write` as in `produce`."""
        s = self.s
        kinds = [s.index] * (1 + len(counts))
        place = [s.index] * len(self.variables) + [s.i32] * len(self.read)
        loop = scf.WhileOp([*place, *kinds], [s.value(0), *counts])
        before, after = (
            r.blocks.append(*k)
            for r, k in zip(loop.operation.regions, (kinds, [*place, *kinds]), strict=True)
        )
        with s.scope(before):
            number, *inside = before.arguments
            program, *position = self.get(number)
            number = s.value(s.add(number, 1))
            more = s.less(program, self.programs)
            scf.ConditionOp(more, [*position, number, *inside])
        with s.scope(after):
            arguments = list(after.arguments)
            for value in (*self.variables, *(op.results[0] for op in self.read)):
                self.kernel.scalars[value] = arguments.pop(0)
            number, *inside = arguments
            inside = list(write(inside))
            hopper.converge()
            scf.YieldOp([number, *inside])

    def _more(self, program: Any, number: Any, taken: Any) -> Any:
        """What was taken before the next program of this block, which had `number` before."""
        if self.pairs is None:
            return self._take(taken)
        if not self.agrees:
            return program
        s = self.s
        pair = self.pairs.agree(number, lambda: self._take(taken))
        return s.add(s.mul(pair, PAIR), s.op("arith.index_cast", [self.pairs.rank], s.index))

    # ---- one number

    def _take(self, all_taken: Any) -> Any:
        """How many were taken before, of as many as a launch takes from the counter."""
        s = self.s
        address = ir.FlatSymbolRefAttr.get(COUNTERS)
        start = s.op("llvm.mlir.addressof", [], ir.Type.parse("!llvm.ptr<1>"), global_name=address)
        place = s.op("llvm.ptrtoint", [start], s.i64)
        moved = s.op("arith.extui", [s.value(self.counter, s.i32)], s.i64)
        moved = s.op("arith.muli", [moved, s.constant(4, s.i64)], s.i64)
        place = s.op("arith.addi", [place, moved], s.i64)
        lane = s.value(self.kernel.threads.lane, s.i32)
        limit = s.value(s.sub(all_taken, 1), s.i32)
        taken = hopper.count_modulo(place, limit, lane)
        return s.value(self.kernel.uniform(taken))

    def _read_numbers(self) -> list[Any]:
        """What the program at hand reads for the grid's variables, for the producer as well."""
        found = [self.kernel.write_extract(op) for op in self.read]
        for same, value in zip(self.read.values(), found, strict=True):
            self.kernel.scalars.update({op.results[0]: value for op in same})
        return found

    def _give(self, number: Any, program: Any, numbers: Sequence[Any]) -> None:
        slot, full, empty, parity = self._slot(number)
        s, lane = self.s, self.s.value(self.kernel.threads.lane, self.s.i32)
        free = s.op("arith.xori", [parity, s.constant(1, s.i32)], s.i32)
        hopper.wait_barrier(empty, free)
        position = (self.kernel.scalars[v] for v in self.variables)
        for k, value in enumerate([program, *position, *numbers]):
            where = s.op("arith.addi", [slot, s.constant(4 * k, s.i32)], s.i32)
            hopper.store_word(where, s.value(value, s.i32), lane)
        hopper.arrive_if_first(full, lane)

    def get(self, number: Any) -> list[Any]:
        """A program's number, the grid's variables there, and what is read for them."""
        slot, full, empty, parity = self._slot(number)
        hopper.wait_barrier(full, parity)
        s = self.s
        lane = s.value(self.kernel.threads.lane, s.i32)
        words = []  # read by the lane whose arrival lets them be overwritten
        for k in range(self.words):
            where = s.op("arith.addi", [slot, s.constant(4 * k, s.i32)], s.i32)
            words.append(hopper.load_word(where, lane))
        hopper.arrive_if_first(empty, lane)
        words = [self.kernel.uniform(word) for word in words]
        count = 1 + len(self.variables)
        return [*map(s.value, words[:count]), *words[count:]]

    def _slot(self, number: Any) -> tuple[Any, Any, Any, Any]:
        """Addresses of a slot and its barriers, and the parity of its phase."""
        s, address = self.s, self.kernel.address
        slot, phase = s.mod(number, SLOTS), s.mod(s.div(number, SLOTS), 2)
        eight, words = s.mul(slot, 8), s.mul(slot, 4 * self.words)
        return (
            address(s.add(words, self.slots)), address(s.add(eight, self.full)),
            address(s.add(eight, self.empty)), s.value(phase, s.i32),
        )  # fmt: skip


def _read_by_program(
    body: Any, producer: Any, variables: Sequence[Any], also: Sequence[Any]
) -> dict[Any, list[Any]]:
    """The reads of single numbers of 32 bits that stand in a program at the grid's variables alone,
    and the same reads of its producer: those that have some, and those of `also`."""
    found = {}
    for op in (x.operation for x in body.operations):
        if op.name == "tensor.extract" and str(op.results[0].type) == "i32":
            _, *at = op.operands
            same = [x.operation for x in producer.operations if _is_same(x.operation, op)]
            if (same or op in also) and all(v in variables for v in at):
                found[op] = same
    return found


def _is_same(op: Any, other: Any) -> bool:
    return op.name == other.name and list(op.operands) == list(other.operands)


Write = Callable[[Sequence[Any]], Sequence[Any]]
