# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `longest-first`: programs whose streams data end come longest first.

    scf.forall (%c, %b, %h) in (%C, %B, %H) {      %o = 0 .. %B, longest first
      %n = tensor.extract %lengths[%b]      ->     scf.forall (%c, %b, %h) in (%C, %B, %H) {
      scf.for %j = ... to f(%n, %c) {                %at = %c * %B + %b
        ... }                                        %b' = %o[%at / %C], %c' = %at mod %C
    }                                                ... as before, of %b' and %c'

A launch is over when its last program is. Where a number that is read from an argument says how
long the stream of a program is (the lengths of sequences), nobody knows ahead which programs are
long; where one of them begins last, it keeps all others waiting. In the order of their lengths the
last ones are short ("longest processing time first"). All chunks of a sequence stand together.

A kernel ahead finds the order, a thread for each sequence: its rank is the number of those that are
longer, or as long and in front of it. So no result depends on the order, and none changes.

Programs that stay on their multiprocessors and take others from a queue have an order already, in
which neighbours share what they stream, and the last of which are sorted by the grid's last
variable (`program_order`). Where kernels ahead found how long the stream of each point of that
variable is (tiles of ragged rows), the points are put in order, shortest first, for it runs down:

    %t' = order[%t]

There may be many of them, so a program finds the rank of one, its threads side by side.

That kernel costs a launch, and each program a read, so they are for launches that gain: some
program can have over LONG points of the stream (or TILES tiles), there are more programs than
multiprocessors (of streams of bytes: than run at once), and no more than MOST sequences, for each
is compared with all others. A launch says so from its shapes alone.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import element_of, foralls, is_inside, is_tensor, nested, owner
from neptune_mlir.dialects.attributes import (
    CHIP,
    KERNEL,
    OF_MASK,
    POINTS,
    RESIDENT,
    TARGET,
    WARPS,
)  # fmt: skip
from neptune_mlir.dialects.op_names import MULTIPROCESSORS
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import arith, ir, linalg, scf, tensor
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.resources import waiting
from neptune_mlir.transforms.gpu.points_to_kernels import THREADS
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.host_plan import grid_bounds
from neptune_mlir.transforms.tiling.slices import Tile, extract_slice, pad, slice_operands

LONG, TILES = 1024, 32  # points of the longest stream of a program, or tiles of few of them
MOST = 256  # sequences
ROUNDS = 8  # programs for each multiprocessor that stay: of launches that tiles are sorted for
SIDE = 128  # tiles that a program compares its own with at a time
LARGEST = 2**31 - 1  # what a number of 32 bits can say


@register("longest-first", "have the programs begin first whose streams data make longest")
def longest_first(module: Any) -> None:
    chip = CHIP.find(module.operation, "")
    if not chip or gpu_target(chip).dies > 1:  # (these give each die a section of the programs)
        return
    for forall in foralls(module):
        if not OF_MASK.on(forall):
            with module.context, forall.location:
                _Launch(forall, chip).put_in_order()


class _Launch:
    """One kernel, and which variable of its grid says how long its streams are."""

    def __init__(self, forall: Any, chip: str):
        self.forall = forall
        self.chip = chip
        self.body = forall.regions[0].blocks[0]
        self.bounds = grid_bounds(forall.opview)[1]
        self.variables = list(self.body.arguments)[: len(self.bounds)]
        self.loops = [op.operation for op in self.body.operations if op.operation.name == "scf.for"]

    def put_in_order(self) -> None:
        stays, last = RESIDENT.on(self.forall), len(self.variables) - 1
        if stays and last and self._dimension(found=True) == last:
            self._sort_tiles(last)
            return
        at = self._dimension()
        if at is None:
            return
        with ir.InsertionPoint(self.forall):
            extent = self.bounds[at]
            count = self._worth(extent)
            order = self._order(at, count)
        first = self.body.operations[0]
        uses = {v: list(v.uses) for v in self.variables[: at + 1]}
        with ir.InsertionPoint(first):
            found = self._places(at, order, count)
        for variable, value in zip(self.variables, found, strict=False):
            for use in uses[variable]:
                use.owner.operation.operands[use.operand_number] = value

    def _dimension(self, found: bool = False) -> int | None:
        """The variable by which arguments are read that the ends of streams depend on; `found`:
        or what kernels ahead made."""
        read: set[int] = set()
        waiting = [v for loop in self.loops for v in list(loop.operands)[:2]]
        seen = set()
        while waiting:
            value = waiting.pop()
            if value in seen or value in self.variables or not is_inside(value, self.forall):
                continue
            seen.add(value)
            op = owner(value)
            if op is None or len(op.regions) or op.block != self.body:
                return None
            if op.name == "tensor.extract":
                source, *position = op.operands
                kind = ir.RankedTensorType(source.type)
                made = owner(source)
                there = made is None or (found and made.name == "scf.forall")
                if not there or str(kind.element_type) != "i32":
                    return None
                if len(position) != 1 or position[0] not in self.variables:
                    return None
                read.add(self.variables.index(position[0]))
            elif any(map(is_tensor, op.operands)):
                return None
            else:
                waiting += op.operands
        return read.pop() if len(read) == 1 else None

    def _length(self, numbers: dict[Any, Any]) -> Index:
        """Points of the streams of a program, at the insertion point. `numbers`: what stands for
        the grid's variables; an element that is read stands for itself where it has a place."""
        copies = dict(numbers)
        parts = [
            ix.maximum(ix.sub(self._copy(high, copies), self._copy(low, copies)), 0)
            for low, high in (list(loop.operands)[:2] for loop in self.loops)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = ix.add(total, part)
        return total

    def _copy(self, value: Any, copies: dict[Any, Any]) -> Any:
        if value in copies or not is_inside(value, self.forall):
            return copies.get(value, value)
        op = owner(value)
        if op.name == "tensor.extract" and op.operands[1] not in copies:
            kind = value.type
            copies[value] = arith.constant(kind, ir.IntegerAttr.get(kind, LARGEST))
            return copies[value]
        operands = [self._copy(operand, copies) for operand in op.operands]
        made = op.clone()
        for k, operand in enumerate(operands):
            made.operands[k] = operand
        copies[value] = made.results[0]
        return copies[value]

    def _worth(self, extent: Index) -> Index:
        """How many sequences to put in order: all, or none."""
        zero = ix.value(0)
        at = self._dimension()
        longest = self._length({v: zero for k, v in enumerate(self.variables) if k != at})
        step = min(_step(loop) for loop in self.loops)
        programs: Index = 1
        for bound in self.bounds:
            programs = ix.mul(programs, bound)
        chip = ir.Operation.create(MULTIPROCESSORS, results=[ir.IndexType.get()]).results[0]
        found = ix.where_less(ix.scale(chip, self._at_once()), programs, extent, 0)
        found = ix.where_less(min(LONG, TILES * step), longest, found, 0)
        return ix.where_less(1, extent, ix.where_less(extent, MOST + 1, found, 0), 0)

    def _at_once(self) -> int:
        """Programs of a multiprocessor that run at once: of streams of bytes, whose programs are
        alike but for their lengths, so many; one of others."""
        inside = (op for loop in self.loops for op in nested(loop.regions[0].blocks[0]))
        tiles = [v for op in inside for v in op.results if is_tensor(v)]
        return waiting(8)[0] if any(element_of(v) == "i8" for v in tiles) else 1

    def _order(self, at: int, count: Index) -> Any:
        """Emit the kernel ahead; returns the numbers of the sequences, longest first."""
        extent = self.bounds[at]
        number = ir.IntegerType.get_signless(32)
        start = tensor.empty([extent], number)
        mapping = [ir.Attribute.parse("#gpu.thread<linear_dim_0>")]
        ahead = scf.ForallOp([0], [count], [1], [start], mapping=ir.ArrayAttr.get(mapping))
        operation = ahead.operation
        KERNEL.set(operation, f"{KERNEL.find(self.forall, 'kernel')}_order")
        OF_MASK.set(operation)
        POINTS.set(operation, THREADS)
        TARGET.set(operation, self.chip)
        WARPS.set(operation, THREADS // gpu_target(self.chip).wave)
        (one,) = ahead.induction_variables
        with ir.InsertionPoint(ahead.body):
            zero, step = ix.value(0), ix.value(1)
            others = {v: zero for k, v in enumerate(self.variables) if k != at}
            mine = ix.value(self._length({**others, self.variables[at]: one}))
            loop = scf.ForOp(zero, ix.value(extent), step, [zero])
            with ir.InsertionPoint(loop.body):
                other, (before,) = loop.induction_variable, loop.inner_iter_args
                its = ix.value(self._length({**others, self.variables[at]: other}))
                earlier = ix.where_less(other, one, ix.add(mine, -1), mine)
                scf.YieldOp([ix.value(ix.where_less(earlier, its, ix.add(before, 1), before))])
            kind = ir.RankedTensorType.get([], number)
            own = tensor.FromElementsOp(kind, [arith.index_cast(number, one)]).result
            parallel = scf.InParallelOp()
            with ir.InsertionPoint(parallel.block):
                place = slice_operands([loop.results[0]], [1])
                tensor.ParallelInsertSliceOp(own, ahead.inner_iter_args[0], *place)
        return ahead.results[0]

    def _sort_tiles(self, last: int) -> None:
        """Put the points of the grid's last variable in order."""
        variable, extent = self.variables[last], self.bounds[last]
        uses = list(variable.uses)
        with ir.InsertionPoint(self.forall):
            programs: Index = 1
            for bound in self.bounds:
                programs = ix.mul(programs, bound)
            chip = ir.Operation.create(MULTIPROCESSORS, results=[ir.IndexType.get()]).results[0]
            count = ix.where_less(ix.scale(chip, ROUNDS), programs, extent, 0)
            order = self._ranks(last, count)
        with ir.InsertionPoint(self.body.operations[0]):
            sorted_ = arith.CmpIOp(arith.CmpIPredicate.slt, ix.value(0), ix.value(count)).result
            place = tensor.extract(order, [variable])
            place = arith.index_cast(ir.IndexType.get(), place)
            tile = arith.SelectOp(sorted_, place, variable).result
        for use in uses:
            use.owner.operation.operands[use.operand_number] = tile

    def _ranks(self, at: int, count: Index) -> Any:
        """Emit the kernel ahead; returns the points of a variable of the grid, shortest first."""
        number, index = ir.IntegerType.get_signless(32), ir.IndexType.get()
        extent = self.bounds[at]
        start = tensor.empty([extent], number)
        mapping = [ir.Attribute.parse("#gpu.block<linear_dim_0>")]
        ahead = scf.ForallOp([0], [count], [1], [start], mapping=ir.ArrayAttr.get(mapping))
        KERNEL.set(ahead.operation, f"{KERNEL.find(self.forall, 'kernel')}_order")
        OF_MASK.set(ahead.operation)
        (one,) = ahead.induction_variables
        reads = self._reads()
        with ir.InsertionPoint(ahead.body):
            zero = {v: ix.value(0) for k, v in enumerate(self.variables) if k != at}
            mine = ix.value(self._length({**zero, self.variables[at]: one}))
            none = arith.constant(number, ir.IntegerAttr.get(number, 0))
            sum_ = linalg.fill(none, outs=[tensor.empty([], number)])
            loop = scf.ForOp(ix.value(0), ix.value(extent), ix.value(SIDE), [sum_])
            with ir.InsertionPoint(loop.body):
                first = loop.induction_variable
                valid = ix.minimum(SIDE, ix.sub(extent, first))
                tile = Tile(SIDE, first, valid)
                tiles = [
                    pad(extract_slice(read.operands[0], [first], [valid], [0]), [tile])
                    for read in reads
                ]
                made = self._count(at, mine, one, first, reads, tiles, loop.inner_iter_args[0])
                scf.YieldOp([made])
            rank = arith.index_cast(index, tensor.extract(loop.results[0], []))
            own = arith.index_cast(number, one)
            own = linalg.fill(own, outs=[tensor.empty([], number)])
            parallel = scf.InParallelOp()
            with ir.InsertionPoint(parallel.block):
                place = slice_operands([rank], [1])
                tensor.ParallelInsertSliceOp(own, ahead.inner_iter_args[0], *place)
        return ahead.results[0]

    def _count(
        self, at: int, mine: Any, one: Any, first: Any, reads: list[Any], tiles: list[Any],
        before: Any,
    ) -> Any:  # fmt: skip
        """Emit the sum, over a tile of points, of those in front of one."""
        d = ir.AffineDimExpr.get(0)
        maps = [ir.AffineMap.get(1, 0, [d])] * len(tiles) + [ir.AffineMap.get(1, 0, [])]
        made = linalg.GenericOp(
            [before.type], tiles, [before],
            ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<reduction>")]),
        )  # fmt: skip
        number = ir.IntegerType.get_signless(32)
        block = made.regions[0].blocks.append(*[number] * (len(tiles) + 1))
        with ir.InsertionPoint(block):
            *elements, found = block.arguments
            other = ix.value(ix.add(first, linalg.IndexOp(0).result))
            zero = {v: ix.value(0) for k, v in enumerate(self.variables) if k != at}
            known = {read.results[0]: x for read, x in zip(reads, elements, strict=True)}
            its = self._length({**zero, self.variables[at]: other, **known})
            # (the later of two that are as long stands behind the other)
            limit = ix.where_less(other, one, ix.add(mine, 1), mine)
            more = ix.where_less(its, limit, 1, 0)
            more = ix.where_less(other, self.bounds[at], more, 0)
            linalg.YieldOp([arith.addi(found, arith.index_cast(number, ix.value(more)))])
        return made.results[0]

    def _reads(self) -> list[Any]:
        """The ops that read what says how long the streams are."""
        found: dict[Any, None] = {}
        waiting = [v for loop in self.loops for v in list(loop.operands)[:2]]
        while waiting:
            value = waiting.pop()
            if value in self.variables or not is_inside(value, self.forall):
                continue
            op = owner(value)
            if op.name == "tensor.extract":
                found[op] = None
            else:
                waiting += op.operands
        return list(found)

    def _places(self, at: int, order: Any, count: Index) -> list[Any]:
        """In the kernel: what its variables up to `at` are instead."""
        index = ir.IndexType.get()
        sorted_ = arith.CmpIOp(arith.CmpIPredicate.slt, ix.value(0), ix.value(count)).result
        made = scf.IfOp(sorted_, [index] * (at + 1), has_else=True)
        with ir.InsertionPoint(made.then_block):
            number: Index = 0  # in the order in which programs begin; a grid's last runs downwards
            for k, variable in enumerate(self.variables[: at + 1]):
                down = k + 1 == len(self.bounds)
                place = ix.sub(ix.sub(self.bounds[k], 1), variable) if down else variable
                number = ix.add(ix.mul(number, self.bounds[k]), place)
            found: list[Any] = []
            for bound in reversed(self.bounds[:at]):
                rest = ix.floordiv(number, bound)
                found.insert(0, ix.value(ix.sub(number, ix.mul(rest, bound))))
                number = rest
            first = tensor.extract(order, [ix.value(number)])
            scf.YieldOp([*found, arith.index_cast(index, first)])
        with ir.InsertionPoint(made.else_block):
            scf.YieldOp(self.variables[: at + 1])
        return list(made.results)


def _step(loop: Any) -> int:
    """Of a loop over tiles; 1 where nobody knows it."""
    made = owner(loop.operands[2])
    if made is None or made.name != "arith.constant":
        return 1
    return int(ir.IntegerAttr(made.attributes["value"]).value)
