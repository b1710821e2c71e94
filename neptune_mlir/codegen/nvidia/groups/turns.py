# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns that consumer groups take at the matrix units (ping-pong scheduling), by named barriers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.ir.bindings import ir

FIRST_TURN = 2  # the named barrier of the first group's turn


@dataclass(frozen=True)
class Turns:
    """The barriers of this group's turn and of the next one's; `threads` of two groups meet there.

    Invariant: between chains exactly one arrival at a named barrier is outstanding. The last group
    arrives first, for the first group.
    """

    mine: Any
    after: Any
    threads: int

    @classmethod
    def begin(cls, s: Scalars, group: Any, groups: int, threads: int) -> Turns:
        """The turns of `groups` groups of so many threads, of which this thread is in `group`."""
        mine = s.op("arith.addi", [group, s.constant(FIRST_TURN, s.i32)], s.i32)
        after = s.op("arith.addi", [mine, s.constant(1, s.i32)], s.i32)
        last = s.op("arith.cmpi", [group, s.constant(groups - 1, s.i32)], s.i1,
                    predicate=ir.IntegerAttr.get(s.i64, 0))  # fmt: skip
        first = s.constant(FIRST_TURN, s.i32)
        with under(s, last):
            hopper.give_turn(first, 2 * threads)
        return cls(mine, s.select(last, first, after), 2 * threads)

    def wait(self) -> None:
        hopper.await_turn(self.mine, self.threads)

    def give(self) -> None:
        hopper.give_turn(self.after, self.threads)
