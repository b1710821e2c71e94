# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments that lie in two arrays, one behind the other along a dimension (`neptune.in_two`).

The producer of a specialised kernel brings each tile from the array that it lies in: of both there
are tensor maps. One of the arrays may be on its way from another device when the kernel begins. A
word in memory counts what of it has come: *lanes* (points of the dimensions in front of that one,
in order), or positions of all lanes, from the last one down. Before the first tile of that array
that a program reads, and where further ones may not be there yet, the producer waits until the word
counts the tile. Streams that a mask ends run backward (`lower-to-tiles`), to the first array.

The launch passes, of each such argument: where the second array begins along the dimension, the
address of the word, between which positions it matters, milliseconds after which the kernel ends in
an error, how many positions the first of two steps has (0: lanes are counted), how much a position
counts, how many points come longest first (`program_order`), and how much a step along each
dimension in front counts. Nothing here is divided: a producer that is late keeps all others
waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import nested
from neptune_mlir.codegen.gpu.memory import under
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.pieces import in_pieces
from neptune_mlir.codegen.nvidia.producer import source_of
from neptune_mlir.dialects.attributes import IN_TWO
from neptune_mlir.dialects.op_names import PUT
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

NUMBERS = 7  # i32 values of an argument, but for those of its lanes


@dataclass
class InTwo:
    """An argument of a kernel, by its place in the plan, and the dimension; `rows`: what the second
    array has to begin at a multiple of."""

    place: tuple[str, int]
    dim: int
    rows: int
    values: Any = None

    @staticmethod
    def of(kernel: SpecializedWriter) -> dict[int, InTwo]:
        """Those of a kernel, by the number of the tensor: each is read by tiles of rings alone."""
        signature = kernel.signature
        function = kernel.forall.parent.operation
        told = dict(IN_TWO.find(function, ())) if function.name == "func.func" else {}
        puts = [op for op in nested(kernel.producer) if op.name == PUT]
        found = {}
        for number, (tensor, place) in enumerate(
            zip(signature.tensors, signature.places, strict=True)
        ):
            if place[0] != "argument" or place[1] not in told:
                continue
            dim = told[place[1]]
            windows = [w for w in (source_of(kernel.forall, p) for p in puts) if w.tensor == tensor]
            readers = [u for u in tensor.uses if _reads(u.owner.operation, kernel.forall)]
            if windows and len(readers) == len(windows) and all(
                dim != w.dims[-1] and not in_pieces(w, kernel.forall) for w in windows
            ):  # fmt: skip
                rows = max((w.shape[0] for w in windows if dim in w.dims), default=1)
                found[number] = InTwo((place[0], place[1]), dim, rows)
        return found

    @property
    def types(self) -> list[Any]:
        i32 = ir.IntegerType.get_signless(32)
        return [ir.Type.parse("!llvm.ptr<1>"), *[i32] * (NUMBERS + self.dim)]

    @property
    def operand(self) -> list[Any]:
        """Of a launch."""
        return ["in_two", *self.place, self.dim, self.rows]

    @property
    def last(self) -> Any:
        """How many points come longest first: 0 where nobody said."""
        return self.values[NUMBERS]

    def place_tile(self, kernel: SpecializedWriter, offsets: list[Any], first: Any) -> Any:
        """Wait for what a tile at `offsets` is made of, and let them count from the start of its
        array. Whether that is the second one. `first`: whether no tile came before."""
        s, (word, begin, low, high, timeout, step, row, _, *lanes) = kernel.s, self.values
        at = offsets[self.dim]
        low, high, begin, step, row = (s.value(x) for x in (low, high, begin, step, row))
        with under(s, s.both(s.less(s.sub(low, 1), at), s.less(at, high))):
            left = s.value(s.sub(high, at))  # positions, those of the tile the first ones
            before = s.value(s.sub(left, self.rows))
            passed = s.mul(s.sub(left, 1), row)
            for offset, each in zip(offsets, lanes, strict=False):
                passed = s.add(passed, s.mul(offset, s.value(each)))
            ends = s.op("arith.ori", [s.equal(at, low), s.less(before, 1)], s.i1)
            second = s.both(s.less(step, left), s.less(before, s.add(step, 1)))
            ends = s.op("arith.ori", [ends, second], s.i1)
            with under(s, s.op("arith.ori", [ends, first], s.i1)):
                hopper.await_count(word, s.value(passed, s.i32), timeout)
        behind = s.less(s.sub(begin, 1), at)
        offsets[self.dim] = s.value(s.sub(at, s.select(behind, begin, s.value(0))))
        return behind


def _reads(op: Any, forall: Any) -> bool:
    """Whether an op of a kernel reads elements of what it takes."""
    if op.name == "tensor.dim":
        return False
    while op is not None and op != forall:
        op = op.parent
    return op is not None
