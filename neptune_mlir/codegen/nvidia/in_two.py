# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments that lie in two arrays, one behind the other along a dimension (`neptune.in_two`).

The producer of a specialised kernel brings each tile from the array that it lies in: of both there
are tensor maps. One of the arrays may be on its way from another device when the kernel begins. A
word in memory counts what of it has come: *lanes* (points of the dimensions in front of that one,
in order), or positions of all lanes, from the last one down, or there is a word for each lane that
counts its positions. Before the first tile of that array that a program reads, and where further
ones may not be there yet, the producer waits until the word counts the tile. Streams that a mask
ends run backward (`lower-to-tiles`), to the first array.

*Gifts.* The tiles that a program reads of the other array are in shared memory anyway, so the
producer of one program for each lane writes them on, into the memory of the other device, and tells
there how many positions have come (`give`). No copy engine and no stream beside is needed.

The launch passes, of each such argument: addresses of the word, of words of the other device and of
words here that are set to 0; where the second array begins along the dimension, between which
positions the word matters, milliseconds after which the kernel ends in an error, how many positions
the first of two steps has (0: lanes are counted), whether positions count, how many points come
longest first (`program_order`), how many positions are told at a time where lanes have words of
their own (0: they have not), between which positions the last rows give; and how many lanes a step
along each dimension in front is. Nothing here is divided: a producer that is late keeps all others
waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import nested
from neptune_mlir.codegen.gpu.memory import under
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.pieces import in_pieces, source_of
from neptune_mlir.dialects.attributes import IN_TWO
from neptune_mlir.dialects.op_names import PUT
from neptune_mlir.ir.bindings import ir
from neptune_mlir.runtime.shards.in_two import WORD

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.boxes import BoxTile
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

WORDS, NUMBERS = 3, 10  # addresses and i32 values of an argument, but for those of its lanes
LAST, EACH = 9, 10  # of these values
GIFT = slice(11, 13)


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
        return [*[ir.Type.parse("!llvm.ptr<1>")] * WORDS, *[i32] * (NUMBERS + self.dim)]

    @property
    def operand(self) -> list[Any]:
        """Of a launch."""
        return ["in_two", *self.place, self.dim, self.rows]

    @property
    def last(self) -> Any:
        """How many points come longest first: 0 where nobody said."""
        return self.values[LAST]

    def place_tile(
        self, kernel: SpecializedWriter, offsets: list[Any], first: Any, known: InTwo | None
    ) -> Any:  # fmt: skip
        """Wait for what a tile at `offsets` is made of, and let them count from the start of its
        array. Whether that is the second one. `first`: whether no tile came before. `known`: an
        argument whose tile at the same place was waited for: if it has the same word, that counts
        both."""
        s, at = kernel.s, offsets[self.dim]
        begin, low, high, timeout, step, counts, _, each = self.values[WORDS : EACH + 1]
        low, high, begin, step, each = (s.value(x) for x in (low, high, begin, step, each))
        with under(s, s.both(s.less(s.sub(low, 1), at), s.less(at, high))):
            left = s.value(s.sub(high, at))  # positions, those of the tile the first ones
            before = s.value(s.sub(left, self.rows))
            lane = _lane(s, self.values, offsets)
            # with what is told at the same time
            more = s.maximum(s.value(s.sub(each, self.rows)), 0)
            told = s.minimum(s.value(s.add(left, more)), s.value(s.sub(high, low)))
            positions = s.less(0, s.value(counts))
            passed = s.select(positions, s.value(s.sub(told, 1)), lane)
            ends = s.op("arith.ori", [s.equal(at, low), s.less(before, 1)], s.i1)
            second = s.both(s.less(step, left), s.less(before, s.add(step, 1)))
            ends = s.op("arith.ori", [ends, second], s.i1)
            block = s.op("arith.andi", [before, s.value(s.sub(each, 1))], s.index)
            ends = s.op("arith.ori", [ends, s.equal(block, 0)], s.i1)
            wanted = s.op("arith.ori", [ends, first], s.i1)
            if known is not None:
                words = [s.op("llvm.ptrtoint", [x.values[0]], s.i64) for x in (self, known)]
                predicate = ir.IntegerAttr.get(s.i64, 1)
                other = s.op("arith.cmpi", words, s.i1, predicate=predicate)
                wanted = s.both(wanted, other)
            with under(s, wanted):
                word = _word(s, self.values[0], s.select(s.less(0, each), lane, s.value(0)))
                hopper.await_count(word, s.value(passed, s.i32), timeout)
        behind = s.less(s.sub(begin, 1), at)
        offsets[self.dim] = s.value(s.sub(at, s.select(behind, begin, s.value(0))))
        return behind


@dataclass(frozen=True)
class Read:
    """A tile that the producer has asked for: where it stands in both arrays and comes to, the
    address and parity of its barrier, and how many slots its ring has."""

    two: InTwo
    at: Any
    offsets: list[Any]  # in its own array
    tile: BoxTile
    kind: Any
    together: bool
    target: Any
    full: Any
    parity: Any
    stages: int


def gives(kernel: SpecializedWriter) -> Any:
    """Whether a program gives anything: one of the last rows, of a call in which that is so."""
    s, rows = kernel.s, len(kernel.bounds) - 1
    low, high = (s.value(x) for x in next(iter(kernel.in_two.values())).values[GIFT])
    row = s.value(s.add(kernel.scalars[kernel.body.arguments[rows]], 1))
    return s.both(s.equal(row, kernel.bounds[rows]), s.less(low, high))


def give(kernel: SpecializedWriter, reads: Sequence[Read]) -> None:
    """Write tiles that were asked for, at the same positions of several arguments, into the memory
    of the other device, if they are to be given. What was given before is told of while they are
    on their way here: a release waits for all stores under way. Slots of one stage may be used
    again behind this, others behind the next tile's."""
    s, two, at = kernel.s, reads[0].two, reads[0].at
    low, high = (s.value(x) for x in two.values[GIFT])
    each = s.value(two.values[EACH])
    with under(s, s.both(s.less(s.sub(low, 1), at), s.less(at, high))):
        lane = _lane(s, two.values, reads[0].offsets)
        before = s.value(s.sub(s.sub(high, at), two.rows))
        with under(s, s.equal(before, 0)):
            hopper.set_word(_word(s, two.values[2], lane), s.constant(0, s.i32))
        block = s.op("arith.andi", [before, s.value(s.sub(each, 1))], s.index)
        told, word = s.both(s.less(0, before), s.equal(block, 0)), _word(s, two.values[1], lane)
        hopper.await_boxes()
        with under(s, told):
            hopper.tell_count(word, s.value(before, s.i32))
        for read in reads:
            hopper.wait_barrier(read.full, read.parity)
            for copy in kernel.boxes.copies(read.tile, read.kind, read.together, there=True):
                place = s.op("arith.addi", [read.target, s.constant(copy.behind, s.i32)], s.i32)
                hopper.store_box(copy.tensor_map, copy.where, place)
        with under(s, s.equal(at, low)):
            hopper.tell_count(word, s.value(s.sub(high, low), s.i32))
        if any(read.stages < 2 for read in reads):
            hopper.await_boxes()


def _lane(s: Any, values: Sequence[Any], offsets: Sequence[Any]) -> Any:
    """The number of the lane of a tile: of the point of the dimensions in front."""
    lane = s.value(0)
    for offset, each in zip(offsets, values[WORDS + NUMBERS :], strict=False):
        lane = s.value(s.add(lane, s.mul(offset, s.value(each))))
    return lane


def _word(s: Any, words: Any, number: Any) -> Any:
    """The address of one of some words."""
    behind = s.op("arith.muli", [s.value(number, s.i64), s.constant(WORD, s.i64)], s.i64)
    return s.op("arith.addi", [s.op("llvm.ptrtoint", [words], s.i64), behind], s.i64)


def _reads(op: Any, forall: Any) -> bool:
    """Whether an op of a kernel reads elements of what it takes."""
    if op.name == "tensor.dim":
        return False
    while op is not None and op != forall:
        op = op.parent
    return op is not None
