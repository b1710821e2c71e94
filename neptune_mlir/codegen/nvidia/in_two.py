# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments that lie in two arrays, one behind the other along a dimension (`neptune.in_two`).

The producer of a specialised kernel brings each tile from the array that it lies in: of both there
are tensor maps. One of the arrays may be on its way from another device when the kernel begins. A
word in memory counts what of it has come: *lanes* (points of the dimensions in front of that one,
in order), or positions of all lanes, from the last one down, in two steps. So a loop of the
producer runs in *stretches*: tiles of one array that come at once. In front of each it waits until
the word counts all of it, if it has not seen that before (`Counted`); within, a tile costs what
it does in one array, for what a tile takes beside that is time in which a slot is free. Streams
that a mask ends run backward (`lower-to-tiles`), to the first array.

The launch passes, of each such argument: where the second array begins along the dimension, the
address of the word, between which positions it matters, milliseconds after which the kernel ends in
an error, how many positions the first of two steps has (0: lanes are counted), how much a position
counts, how many points come longest first (`program_order`), and how much a step along each
dimension in front counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import nested
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.pieces import in_pieces
from neptune_mlir.codegen.nvidia.producer import source_of
from neptune_mlir.dialects.attributes import IN_TWO
from neptune_mlir.dialects.op_names import PUT
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.scalars import Scalars
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

NUMBERS = 7  # i32 values of an argument, but for those of its lanes
MOST = 1 << 30  # positions
WORD = 4  # bytes


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

    def enter(self, kernel: SpecializedWriter, offsets: list[Any]) -> OneArray:
        """The stretch that a tile at `offsets` is of; all of it is there then."""
        s, (word, begin, low, high, timeout, step, row, _, *lanes) = kernel.s, self.values
        at = s.value(offsets[self.dim])
        low, high, begin, step, row = (s.value(x) for x in (low, high, begin, step, row))
        behind = s.less(s.sub(begin, 1), at)
        origin = s.select(behind, begin, s.value(0))
        cut = s.value(s.sub(high, step))
        above = s.less(s.sub(cut, 1), at)  # of two steps the first one
        start = s.value(s.select(above, s.value(s.maximum(origin, cut)), origin))
        end = s.select(behind, s.value(MOST), begin)
        end = s.select(above, end, s.value(s.minimum(s.value(end), cut)))
        with under(s, s.both(s.less(s.sub(low, 1), at), s.less(at, high))):
            passed = s.mul(s.sub(s.sub(high, start), 1), row)
            for offset, each in zip(offsets, lanes, strict=False):
                passed = s.add(passed, s.mul(offset, s.value(each)))
            hopper.await_count(word, s.value(passed, s.i32), timeout, kernel.counted.address)
        return OneArray(self.dim, behind, origin, start, s.value(end), at)


@dataclass
class Counted:
    """What the producer has seen of the word that counts: a word in shared memory, `offset` bytes
    from the start. A block runs several programs, of several tensors each, and a question to memory
    takes longer than a tile: what has come is asked for once."""

    offset: int | None
    address: Any = None

    @staticmethod
    def of(kernel: SpecializedWriter) -> Counted:
        return Counted(kernel.memory.take(WORD) if kernel.in_two else None)

    def begin(self, kernel: SpecializedWriter) -> None:
        """Nothing has been seen."""
        if self.offset is not None:
            self.address = kernel.address(self.offset)
            hopper.forget_seen(self.address)


@dataclass(frozen=True)
class OneArray:
    """A stretch: positions from `start` to `end`, of one array, that come at once; `at`: of a tile
    in it. Those of its array begin at `origin`; `behind`: whether that is the second one."""

    dim: int
    behind: Any
    origin: Any
    start: Any
    end: Any
    at: Any

    def left(self, s: Scalars, following: Any, step: Any) -> Any:
        """How far a loop runs from the tile at hand to the stretch's end, `step` by `step`; where
        the tile behind it is `following`."""
        back = s.add(s.sub(self.at, self.start), step)
        back = s.sub(back, s.mod(s.sub(self.at, self.start), step))
        ahead = s.sub(self.end, self.at)
        still = s.value(MOST)
        found = s.select(s.less(self.at, following), s.value(ahead), still)
        return s.select(s.less(following, self.at), s.value(back), found)

    def place(self, s: Scalars, offsets: list[Any]) -> None:
        """Let the offsets of a tile count from the start of its array."""
        offsets[self.dim] = s.value(s.sub(offsets[self.dim], self.origin))


def _reads(op: Any, forall: Any) -> bool:
    """Whether an op of a kernel reads elements of what it takes."""
    if op.name == "tensor.dim":
        return False
    while op is not None and op != forall:
        op = op.parent
    return op is not None
