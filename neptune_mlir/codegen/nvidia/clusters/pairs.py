# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two programs in two blocks, which share tiles.

Of a tile that two programs load, each block brings one half of the rows to both: a copy of
the engine writes to the same place in each, and counts on the barrier there. So a slot is free when
the consumers of both blocks have released it: these arrive at the barriers of both. Both begin when
all barriers are there, and end when neither writes to the other any more. Programs are numbered by
pairs, and the two of one differ in one variable of the grid, of which there may be an odd number:
the last pair's second program does what the first one does again.

Blocks that stay, of programs that are not as long as each other, take pairs from the queue
(`program_queue`): the first block's producer takes a number, and writes it to the shared memory of
the second block, whose producer has released the place of the number two before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import tuned
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.clusters import instructions
from neptune_mlir.codegen.nvidia.pieces import in_pieces
from neptune_mlir.codegen.nvidia.producer import source_of
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.transforms.hopper.clusters import PAIR, shares

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

SLOTS = 2  # numbers that are told before the first is read
WORD = 4  # bytes


def mark_cluster(kernel: SpecializedWriter, function: Any) -> None:
    """Say how many blocks of a kernel run together."""
    blocks = kernel.sums.blocks if kernel.sums is not None else PAIR
    if kernel.sums is not None or kernel.pairs is not None:
        function.attributes["nvvm.cluster_dim"] = ir.DenseI32ArrayAttr.get([blocks, 1, 1])
        kernel.signature.cluster = blocks


class Pairs:
    """The pairs of one kernel, whose programs differ in the variable of number `axis`."""

    def __init__(self, kernel: SpecializedWriter, axis: int):
        self.kernel, self.axis, s = kernel, axis, kernel.s
        self.variable = kernel.body.arguments[axis]
        self.last = s.value(s.sub(kernel.bounds[axis], 1))
        self.rank = kernel.uniform(instructions.rank_in_cluster())
        self.other = s.op("arith.xori", [self.rank, s.constant(1, s.i32)], s.i32)
        halved = s.op("arith.ceildivui", [kernel.bounds[axis], s.value(PAIR)], s.index)
        kernel.bounds[axis] = halved

    @classmethod
    def of(cls, kernel: SpecializedWriter) -> Pairs | None:
        """(Its grid counts pairs from here on.)"""
        pairs = tuned(kernel.forall, "pairs", 0)
        return cls(kernel, len(kernel.bounds) - pairs) if pairs else None

    def place(self, number: Any, place: Callable[[Any], None]) -> None:
        """The variables of a program, by what places a pair."""
        s, scalars = self.kernel.s, self.kernel.scalars
        place(s.op("arith.divui", [number, s.value(PAIR)], s.index))
        rank = s.op("arith.index_cast", [self.rank], s.index)
        here = s.value(s.add(s.mul(scalars[self.variable], PAIR), rank))
        scalars[self.variable] = s.value(s.minimum(here, self.last))

    def place_words(self) -> None:
        """Places for the numbers that one block tells the other, and their barriers."""
        memory = self.kernel.memory
        self.told = memory.take(SLOTS * 8)
        self.read = memory.take(SLOTS * 8)
        self.words = memory.take(SLOTS * 8)

    def start_barriers(self) -> None:
        for k in range(SLOTS):
            for barriers in (self.told, self.read):
                hopper.init_barrier(self.kernel.address(barriers + 8 * k), 1)

    def agree(self, number: Any, take: Callable[[], Any]) -> Any:
        """In the producer of either block, behind program `number`: what the first one takes."""
        s, address = self.kernel.s, self.kernel.address
        slot, phase = s.mod(number, SLOTS), s.mod(s.div(number, SLOTS), 2)
        parity, lane = s.value(phase, s.i32), s.value(self.kernel.threads.lane, s.i32)
        eight = s.mul(slot, 8)
        told, read, word = (
            address(s.add(eight, start)) for start in (self.told, self.read, self.words)
        )
        rank = s.op("arith.index_cast", [self.rank], s.index)
        role = scf.IfOp(s.less(rank, 1), [s.i32], has_else=True)
        with s.scope(role.then_block):
            free = s.op("arith.xori", [parity, s.constant(1, s.i32)], s.i32)
            instructions.wait_for_told(read, free)
            taken = s.value(take(), s.i32)
            instructions.tell_beside(word, told, taken, lane, self.other)
            scf.YieldOp([taken])
        with s.scope(role.else_block):
            hopper.expect_bytes(told, WORD, lane)
            instructions.wait_for_told(told, parity)
            known = hopper.load_word(word, lane)  # by the lane that releases it
            instructions.arrive_beside_if_first(read, lane, self.other)
            scf.YieldOp([known])
        return s.value(self.kernel.uniform(role.results[0]))

    def share(self, puts: list[Any]) -> bool:
        """Whether both blocks of a pair put the same tiles to a ring."""
        forall = self.kernel.forall
        return bool(puts) and all(
            shares(forall, self.variable, put) and not in_pieces(source_of(forall, put), forall)
            for put in puts
        )
