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

A kernel ahead finds the order: the rank of a sequence is the number of those that are longer (by
the number that says so, where streams are the longer, the larger it is), or as long and in front of
it. So no result depends on the order, and none changes. LANES neighbouring threads share the
comparisons of a sequence, as all programs wait for the last of them.

That kernel costs a launch, and each program a read, so they are for launches that gain: some
program can have over LONG points of the stream (or TILES tiles), there are more programs than
multiprocessors (of streams of bytes: than run at once), and no more than MOST sequences, for each
is compared with all others. A launch says so from its shapes alone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from neptune_mlir.analysis.rising import Rising
from neptune_mlir.analysis.tiles import element_of, foralls, is_inside, is_tensor, nested
from neptune_mlir.dialects.attributes import CHIP, KERNEL, OF_MASK, POINTS, TARGET, WARPS
from neptune_mlir.dialects.op_names import MULTIPROCESSORS
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import arith, ir, scf, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.resources import waiting
from neptune_mlir.transforms.gpu.points_to_kernels import THREADS
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.host_plan import grid_bounds
from neptune_mlir.transforms.tiling.slices import slice_operands

LONG, TILES = 1024, 32  # points of the longest stream of a program, or tiles of few of them
MOST = 1024  # sequences
LANES = 32  # that share the comparisons of a sequence: a part of a wave of any chip
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

    def _dimension(self) -> int | None:
        """The variable by which arguments are read that the ends of streams depend on."""
        read: set[int] = set()
        waiting = [v for loop in self.loops for v in list(loop.operands)[:2]]
        seen = set()
        while waiting:
            value = waiting.pop()
            if value in seen or value in self.variables or not is_inside(value, self.forall):
                continue
            seen.add(value)
            op = defining_op(value)
            if op is None or len(op.regions) or op.block != self.body:
                return None
            if op.name == "tensor.extract":
                source, *position = op.operands
                kind = ir.RankedTensorType(source.type)
                if defining_op(source) is not None or str(kind.element_type) != "i32":
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
        spans = [list(loop.operands)[:2] for loop in self.loops]
        if all(before[1] == after[0] for before, after in pairwise(spans)):
            spans = [[spans[0][0], spans[-1][1]]]  # each goes on where the one before ends
        parts = [
            ix.maximum(ix.sub(self._copy(high, copies), self._copy(low, copies)), 0)
            for low, high in spans
        ]
        total = parts[0]
        for part in parts[1:]:
            total = ix.add(total, part)
        return total

    def _copy(self, value: Any, copies: dict[Any, Any]) -> Any:
        if value in copies or not is_inside(value, self.forall):
            return copies.get(value, value)
        op = defining_op(value)
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
        number, index = ir.IntegerType.get_signless(32), ir.IndexType.get()
        start = tensor.empty([extent], number)
        mapping = [ir.Attribute.parse(f"#gpu.thread<linear_dim_{k}>") for k in range(2)]
        ahead = scf.ForallOp(
            [0, 0], [count, LANES], [1, 1], [start], mapping=ir.ArrayAttr.get(mapping)
        )
        operation = ahead.operation
        KERNEL.set(operation, f"{KERNEL.find(self.forall, 'kernel')}_order")
        OF_MASK.set(operation)
        POINTS.set(operation, THREADS)
        TARGET.set(operation, self.chip)
        WARPS.set(operation, THREADS // gpu_target(self.chip).wave)
        one, lane = ahead.induction_variables
        with ir.InsertionPoint(ahead.body):
            mine = ix.value(self._rank_by(at, one))
            zero, step = ix.value(0), ix.value(LANES)
            loop = scf.ForOp(zero, ix.value(extent), step, [zero])  # of all lanes alike
            with ir.InsertionPoint(loop.body):
                (before,) = loop.inner_iter_args
                other = ix.value(ix.add(loop.induction_variable, lane))
                there = ix.value(ix.minimum(other, ix.sub(extent, 1)))
                its = ix.value(self._rank_by(at, there))
                earlier = ix.where_less(other, one, ix.add(mine, -1), mine)
                more = ix.where_less(earlier, its, ix.add(before, 1), before)
                scf.YieldOp([ix.value(ix.where_less(other, extent, more, before))])
            rank = arith.index_cast(index, _sum(arith.index_cast(number, loop.results[0])))
            kind = ir.RankedTensorType.get([], number)
            own = tensor.FromElementsOp(kind, [arith.index_cast(number, one)]).result
            parallel = scf.InParallelOp()
            with ir.InsertionPoint(parallel.block):
                place = slice_operands([rank], [1])  # (the same of all lanes)
                tensor.ParallelInsertSliceOp(own, ahead.inner_iter_args[0], *place)
        return ahead.results[0]

    def _rank_by(self, at: int, one: Any) -> Index:
        """What sequence `one` is put in order by: how long its streams are in a first program, or
        the number that says so (of chunks a division is left out, for each of all pairs)."""
        others = [v for k, v in enumerate(self.variables) if k != at]
        rising = Rising(others, lambda v: not is_inside(v, self.forall))
        spans = [list(loop.operands)[:2] for loop in self.loops]
        follows = all(before[1] == after[0] for before, after in pairwise(spans))
        if follows and rising.is_longer(spans[0][0], spans[-1][1]):
            sources = {op.operands[0] for op in rising.read}
            if len(sources) == 1:
                number = tensor.extract(sources.pop(), [one])
                return ix.maximum(ix.value(arith.index_cast(ir.IndexType.get(), number)), 0)
        return self._length({**dict.fromkeys(others, ix.value(0)), self.variables[at]: one})

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


def _sum(count: Any) -> Any:
    """Of all lanes that share."""
    number = count.type
    attributes = {
        "op": ir.Attribute.parse("#gpu<all_reduce_op add>"),
        "cluster_size": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), LANES),
    }
    return ir.Operation.create(
        "gpu.subgroup_reduce", results=[number], operands=[count], attributes=attributes
    ).results[0]


def _step(loop: Any) -> int:
    """Of a loop over tiles; 1 where nobody knows it."""
    made = defining_op(loop.operands[2])
    if made is None or made.name != "arith.constant":
        return 1
    return int(ir.IntegerAttr(made.attributes["value"]).value)
