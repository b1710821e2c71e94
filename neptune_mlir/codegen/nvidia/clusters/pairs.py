# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two programs in two blocks, which share tiles.

Of a tile that two programs load, each block brings one half of the rows to both: a copy of
the engine writes to the same place in each, and counts on the barrier there. So a slot is free when
the consumers of both blocks have released it: these arrive at the barriers of both. Both begin when
all barriers are there, and end when neither writes to the other any more. Programs are numbered by
pairs, and the two of one differ in one variable of the grid, of which there may be an odd number:
the last pair's second program does what the first one does again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import tuned
from neptune_mlir.codegen.nvidia.clusters import instructions
from neptune_mlir.codegen.nvidia.pieces import in_pieces
from neptune_mlir.codegen.nvidia.producer import source_of
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.hopper.clusters import PAIR, shares

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter


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

    def share(self, puts: list[Any]) -> bool:
        """Whether both blocks of a pair put the same tiles to a ring."""
        forall = self.kernel.forall
        return bool(puts) and all(
            shares(forall, self.variable, put) and not in_pieces(source_of(forall, put), forall)
            for put in puts
        )
