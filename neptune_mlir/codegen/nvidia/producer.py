# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The producer of a specialised kernel: one warp that brings tiles to the slots of rings by TMA."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.tiles import Window, chooses_scalars, element_bytes, load_window, nested
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.boxes import BoxTile, Copy, in_one_box
from neptune_mlir.codegen.nvidia.pieces import BoxPieces, in_pieces
from neptune_mlir.dialects.op_names import PAGED, PUT
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text, scf
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.hopper.clusters import PAIR

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.in_two import OneArray
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

LINE = 128  # bytes of a cache


def source_of(forall: Any, put: Any) -> Window:
    """Where the tile comes from that a put takes. Raises LoweringError."""
    found = load_window(put.operands[1], forall)
    if found is None or not 1 <= len(found.shape) <= 2:
        raise LoweringError("a put of what TMA cannot load", loc=location_text(put.location))
    return found


def loaded_offsets(forall: Any, producer: Any, streamed: bool) -> list[tuple[Any, ...]]:
    """Where the tiles stand that loops of the producer load, or those that it loads once."""
    puts = [op for op in nested(producer) if op.name == PUT]
    found = [source_of(forall, op) for op in puts if (op.block != producer) == streamed]
    return [
        (*w.offsets, *((*w.pages.at, w.pages.start) if w.pages is not None else ())) for w in found
    ]


def gives_numbers(op: Any) -> bool:
    """Whether an op reads numbers, or chooses some: each use need not do so again."""
    return op.name == "tensor.extract" or (op.name == "scf.if" and chooses_scalars(op))


def _write_numbers(kernel: SpecializedWriter, block: Any, numbers: Sequence[Any]) -> None:
    """Write the ops of a producer's block that give numbers. When the row of a table is known, in
    which its loops look places up, the lanes of the warp ask for all of it, a line each: so a page
    is in a near cache when the length is known. (Kernels without a producer lost by that.)"""
    s, rows = kernel.s, list(dict.fromkeys(_looked_up(kernel, block)))
    ahead = [row for _, row in rows]
    first = [op for op in numbers if any(result in ahead for result in op.results)]
    for op in first:
        kernel.write_op(op)
    for table, row in rows:
        array = kernel.arrays[table]
        last = s.sub(s.value(array.strides[0], s.index), 1)  # of the row, at least
        column = s.minimum(s.mul(kernel.threads.lane, LINE // element_bytes(array.dtype)), last)
        there = Window(None, (kernel.scalar(row), column), (), (), ())
        hopper.bring_near(kernel.memory.address(array, there, ()))
    for op in numbers:
        if op not in first:
            kernel.write_op(op)


def _looked_up(kernel: SpecializedWriter, block: Any) -> Iterator[tuple[Any, Any]]:
    """The tables with rows of numbers that are read in loops at places that these say, and the
    numbers of their rows, which are known outside."""
    for op in nested(block):
        if op.name == "tensor.extract" and op.block != block:
            table, *at = op.operands
        elif op.name == PAGED and ir.IntegerAttr(op.attributes["column"]).value == 1:
            _, table, _, *at = op.operands
            at.append(None)
        else:
            continue
        if len(at) == 2 and table in kernel.arrays and _is_outside(kernel, block, at[0]):
            yield table, at[0]


def _is_outside(kernel: SpecializedWriter, block: Any, value: Any) -> bool:
    """Whether a number is made outside the loops of a block."""
    made = defining_op(value)
    return (value.owner if made is None else made.block) in (kernel.body, block)


class Producer:
    """Writes the producer's part of a kernel."""

    def __init__(self, kernel: SpecializedWriter):
        self.kernel = kernel
        self.stretches: dict[int, OneArray] = {}  # of tensors in two arrays, in a loop

    def write_program(self, block: Any) -> None:
        """The producer's part of one program. What its loops look up, and what says how long they
        are, is asked for first: it is on its way while the first copies start."""
        numbers = [op.operation for op in block.operations if gives_numbers(op.operation)]
        queue = self.kernel.queue
        read = [op for same in queue.read.values() for op in same] if queue else []
        _write_numbers(self.kernel, block, [op for op in numbers if op not in read])
        self.write(block, numbers)

    def write(self, block: Any, written: Sequence[Any] = ()) -> None:
        """The puts and the loops of a block of the producer. What a tile's place is read from (a
        page) is read before its slot is waited for."""
        for op in block.operations:
            operation = op.operation
            if operation.name == PUT:
                self.put(operation)
            elif operation.name == "scf.for":
                self._put_all(operation)
            elif gives_numbers(operation) and operation not in written:
                self.kernel.write_op(operation)

    def _put_all(self, op: Any) -> None:
        """A loop of the producer."""
        kernel, block, rings = self.kernel, op.regions[0].blocks[0], self.kernel.rings
        groups = rings.advancing(op)
        if not groups:
            return
        puts = [o.operation for o in block.operations if o.operation.name == PUT]
        numbers = {kernel.signature.tensors.index(source_of(kernel.forall, p).tensor): p
                   for p in puts}  # fmt: skip
        twos = {n: p for n, p in numbers.items() if n in kernel.in_two}
        span = kernel.span(op)
        if twos:
            self._in_stretches(op, twos, span, groups)
        else:
            rings.bind(groups, self.iterate(op, span, groups))

    def iterate(
        self, op: Any, span: Sequence[Any], groups: Sequence[Any], begins: bool = True
    ) -> list[Any]:
        """The iterations of a loop in a span; the positions of rings behind them. `begins`: there
        may be the first one of a program."""
        kernel, block, rings = self.kernel, op.regions[0].blocks[0], self.kernel.rings
        s = kernel.s
        puts = [o.operation for o in block.operations if o.operation.name == PUT]
        loop = scf.ForOp(*span, rings.values(groups))
        with s.scope(loop.body):
            kernel.scalars[block.arguments[0]] = loop.induction_variable
            rings.bind(groups, list(loop.inner_iter_args))
            first = rings.rings[puts[0].operands[0]] if begins and len(puts) > 1 else None
            begun = rings.positions[puts[0].operands[0], 0] if first else None
            self.write(block)
            if first and begun and first.stages > 1:
                with under(s, s.less(begun.base, 1)):  # do not let prefetches compete with the
                    # tiles that the block's first wgmma waits for
                    hopper.wait_barrier(kernel.address(first.full), s.constant(0, s.i32))
            scf.YieldOp(rings.values(groups))
        return list(loop.results)

    def _in_stretches(
        self, op: Any, twos: dict[int, Any], span: Sequence[Any], groups: Sequence[Any]
    ) -> None:  # fmt: skip
        """A loop whose tiles lie in two arrays (`in_two`): a loop for each stretch of one of them,
        in which nothing is asked of a tile."""
        kernel, rings, (low, high, step) = self.kernel, self.kernel.rings, span
        s, variable = kernel.s, op.regions[0].blocks[0].arguments[0]
        begun = [low, *rings.values(groups)]
        kinds = [v.type for v in begun]
        loop = scf.WhileOp(kinds, begun)
        before, after = (r.blocks.append(*kinds) for r in loop.operation.regions)
        with s.scope(before):
            scf.ConditionOp(s.less(before.arguments[0], high), list(before.arguments))
        with s.scope(after):
            at, *positions = after.arguments
            end = high
            for number, put in twos.items():
                window, two = source_of(kernel.forall, put), kernel.in_two[number]
                there = []
                for value in (at, s.value(s.add(at, step))):
                    kernel.scalars[variable] = value
                    there.append(list(kernel.window(window).offsets))
                found = self.stretches[number] = two.enter(kernel, there[0])
                size = s.constant_of(step)
                left = found.left(s, there[1][two.dim], step if size is None else int(size))
                end = s.value(s.minimum(end, s.value(s.add(at, left))))
            rings.bind(groups, positions)
            scf.YieldOp([end, *self.iterate(op, (at, end, step), groups)])
            self.stretches.clear()
        rings.bind(groups, list(loop.results)[1:])

    def put(self, op: Any) -> None:
        """Bring a tile."""
        kernel, rings, window = self.kernel, self.kernel.rings, source_of(self.kernel.forall, op)
        s, ring = kernel.s, rings.rings[op.operands[0]]
        number = kernel.signature.tensors.index(window.tensor)
        pieces = None
        apart = in_pieces(window, kernel.forall)
        several = window.pages is not None and window.pages.size < window.shape[0]
        if apart and several:
            pieces = BoxPieces(kernel, number, window, ring)
        two, behind = kernel.in_two.get(number), None
        if two:  # what is not there, is waited for before room is
            offsets = list(kernel.window(window).offsets)
            stretch = self.stretches.get(number) or two.enter(kernel, offsets)
            stretch.place(s, offsets)
            behind = stretch.behind
        slot, parity = rings.slot(ring, rings.take((op.operands[0], 0)))
        free = s.op("arith.xori", [parity, s.constant(1, s.i32)], s.i32)
        hopper.wait_barrier(kernel.address(s.add(s.mul(slot, 8), ring.empty)), free)
        full = kernel.address(s.add(s.mul(slot, 8), ring.full))
        lane = s.value(kernel.threads.lane, s.i32)
        hopper.expect_bytes(full, ring.bytes, lane)
        kernel.memory.needs(kernel.arrays[window.tensor], L.CHUNK)
        target = kernel.address(s.add(s.mul(slot, ring.slot), ring.offset))
        if apart:
            pieces = pieces or BoxPieces(kernel, number, window, ring)
            # (with an elected lane, the producer of tiles of one page spills)
            pieces.bring(partial(self._load_piece, target, full, None if several else lane))
            return
        *rows, columns = window.shape
        kind = window.tensor.type
        inner = window.dims[-1]
        if two is None:
            offsets = list(kernel.window(window).offsets)
        tile = BoxTile(
            number, offsets, window.dims, math.prod(rows), columns, ring.panel, rounds=ring.rounds
        )
        kind = ir.RankedTensorType(kind)
        together = in_one_box(kind, window.offsets[inner], columns, ring.panel)
        if ring.shared:
            together = False
            tile, before = self._half(tile)
            moved = s.op("arith.muli", [before, s.constant(ring.row, s.i32)], s.i32)
            target = s.op("arith.addi", [target, moved], s.i32)
        for copy in kernel.boxes.copies(tile, kind, together, behind):
            place = target
            if copy.behind:
                place = s.op("arith.addi", [target, s.constant(copy.behind, s.i32)], s.i32)
            hopper.load_tile(place, copy.tensor_map, copy.where, full, lane, ring.shared)

    def _half(self, tile: BoxTile) -> tuple[BoxTile, Any]:
        """What this block brings of a tile that both of a pair get; how many rows in front of it
        the other brings."""
        s, pairs = self.kernel.s, self.kernel.pairs
        assert pairs is not None
        rows, down = tile.rows // PAIR, tile.dims[0]
        before = s.op("arith.muli", [pairs.rank, s.constant(rows, s.i32)], s.i32)
        offsets = list(tile.offsets)
        offsets[down] = s.add(offsets[down], s.op("arith.index_cast", [before], s.index))
        return replace(tile, offsets=offsets, rows=rows, apart=tile.rows), before

    def _load_piece(self, target: Any, full: Any, lane: Any, copy: Copy, behind: Any) -> None:
        """Start a copy to so many bytes behind address `target`; its bytes count on `full`."""
        s = self.kernel.s
        place = s.value(s.add(behind, copy.behind), s.i32)
        place = s.op("arith.addi", [target, place], s.i32)
        hopper.load_tile(place, copy.tensor_map, copy.where, full, lane)
