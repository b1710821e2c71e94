# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `pipeline-loops`: loops in two stages become a prologue, a steady state and an epilogue.

`schedule-loops` (or a script) gives each op of a loop's body a stage and a place in an order. An
iteration of the new loop runs the ops of stage 0 for its own number and those of stage 1 for the
number before:

    for i: A(i); B(i)    ->    A(0); for i from 1: A(i), B(i-1) in the given order; B(last)

What stage 1 reads of stage 0 is carried. A chain of loops has one prologue and one epilogue: the
first iteration is that of the first loop that has one, found by branches, and each loop finishes
what the one before leaves. The epilogue runs where there was an iteration at all.

What the order is for is written as ops. Where arithmetic runs beside a late matmul,
`neptune.issue_fence` keeps it in front of the wait. Where warp groups take turns
(`neptune.turns`), `neptune.await_turn` and `neptune.give_turn` stand around the starts of an
iteration, so that one group's arithmetic runs beside the other's matmuls. An op of stage 1 that
only scales a carried tile gets `neptune.skips_ones`: factors of a running maximum's change are 1
for most of a long stream, and a warp whose factors all are skips the op. In the first iteration
they are 1 in any case: nothing was accumulated that they could repair. By the choice `beside`, so
many eighths of a matmul's instructions are issued at its start (`neptune.ahead`) where arithmetic
follows that does not need it, and the others between the elements of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis.tiles import filled_with, foralls, is_tensor, nested, tuned
from neptune_mlir.dialects.attribute_types import copy_attributes
from neptune_mlir.dialects.gpu_attributes import (
    AHEAD,
    LAYOUTS,
    MEASURED,
    ORDER,
    REFERENCES,
    SKIPS_ONES,
    STAGE,
    TURNS,
)
from neptune_mlir.dialects.op_names import (
    ADD_SLICE,
    AWAIT_TURN,
    FENCE,
    GIVE_TURN,
    RELEASE,
    START,
    WAIT,
)
from neptune_mlir.dialects.verify_matmul import started_between
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import arith, ir, linalg, location_text, scf
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.gpu.copies import Copies, captured_values
from neptune_mlir.transforms.gpu.streams import chain_of, chains_of, multiplies
from neptune_mlir.transforms.hopper.loop_graph import LoopGraph, Stages, layout_text
from neptune_mlir.transforms.hopper.schedule_loops import late_signature
from neptune_mlir.transforms.registry import register

NONE = -math.inf  # the start of a maximum


@register("pipeline-loops", "write prologue, steady state and epilogue of scheduled loops")
def pipeline_loops(module: Any) -> None:
    for forall in foralls(module):
        for chain in chains_of(forall, _is_scheduled):
            for bodies in _alike([loop for loop in chain if _is_scheduled(loop)]):
                with forall.context, bodies[0].loop.location:
                    _Pipeline(bodies, TURNS.on(forall), tuned(forall, "beside", 0)).write()


def _is_scheduled(loop: Any) -> bool:
    return any(STAGE.on(op.operation) for op in loop.regions[0].blocks[0].operations)


class _Body:
    """The body of one loop, in stages."""

    def __init__(self, loop: Any):
        self.loop, self.graph = loop, LoopGraph(loop)
        nodes = self.graph.nodes
        for op in nodes:
            if not (STAGE.on(op) and ORDER.on(op)):
                raise LoweringError(
                    f"'{op.name}' has no stage or no order, other ops of its loop have",
                    loc=location_text(op.location), hint="run schedule-loops",
                )  # fmt: skip
        stage = {op: STAGE.of(op) for op in nodes}
        self.order = sorted(nodes, key=ORDER.of)
        self.stages = Stages(self.graph, stage)
        self._check()

    def _check(self) -> None:
        """Raises LoweringError where the order breaks a dependence."""
        done: set[Any] = set()
        for op in self.order:
            stage = self.stages.stage
            if stage[op] not in (0, 1) or any(stage[x] > stage[op] for x in self.graph.needs[op]):
                raise LoweringError(
                    f"'{op.name}' is in stage {stage[op]}, and something that it reads in a later",
                    loc=location_text(op.location), hint="there are stages 0 and 1",
                )  # fmt: skip
            if not self.stages.needs(op) <= done:
                raise LoweringError(
                    f"'{op.name}' comes before something that it reads in the order of its loop",
                    loc=location_text(op.location), hint=f"change {ORDER}",
                )  # fmt: skip
            done.add(op)

    def of_stage(self, stage: int) -> list[Any]:
        return [op for op in self.order if self.stages.stage[op] == stage]


def _alike(chain: Sequence[Any]) -> list[list[_Body]]:
    """The loops of a chain, those together that follow each other and have the same late ops."""
    found: list[list[_Body]] = []
    before: Any = None
    for loop in chain:
        body = _Body(loop)
        signature = late_signature(body.stages, body.order)
        follows = found and loop in chain_of(found[-1][-1].loop)[1:2]
        if follows and signature == before:
            found[-1].append(body)
        else:
            found.append([body])
        before = signature
    return found


class _Pipeline:
    """Writes loops that carry on with each other's results."""

    def __init__(self, bodies: Sequence[_Body], turns: bool, beside: int):
        self.loops, self.turns, self.beside = [body.loop for body in bodies], turns, beside
        self.bodies = list(bodies)
        first = self.bodies[0]
        self.late, self.crossing = first.stages.late, first.stages.crossing
        self.starts = list(self.loops[0].operands)[3:]
        self.layouts = [*LAYOUTS.of(self.loops[0]), *map(layout_text, self.crossing)]
        self.stand_ins = self._stand_ins()

    def _stand_ins(self) -> dict[int, int]:
        """By a carried value that stage 1 makes and never reads, what crosses stages and takes its
        registers: it holds the start as long as no iteration ran."""
        count, found = len(self.starts), {}
        free = dict.fromkeys(range(len(self.crossing)))
        for k in [k for k in self.late if k not in self.bodies[0].stages.read]:
            for j in free:
                same = self.crossing[j].type == self.starts[k].type
                if same and self.layouts[count + j] == self.layouts[k]:
                    found[k] = j
                    del free[j]
                    break
        return found

    def write(self) -> None:
        last = self.loops[-1]
        bounds = [list(loop.operands)[:3] for loop in self.loops]
        if not any(self.bodies[0].stages.stage.values()):
            self._reorder(bounds)
            return
        with ir.InsertionPoint(last):
            i1 = ir.IntegerType.get_signless(1)
            runs = [arith.cmpi(2, low, high) for low, high, _ in bounds]  # signed, less
            blank = [_blank(v) for v in self.crossing]
            for k, j in self.stand_ins.items():
                blank[j] = self.starts[k]
            state = self._prologue(list(zip(self.bodies, bounds, runs, strict=True)), blank)
            begun = arith.constant(i1, 0)
            for body, (low, high, step), here in zip(self.bodies, bounds, runs, strict=True):
                first = arith.andi(here, arith.xori(begun, arith.constant(i1, 1)))
                low = arith.select(first, arith.addi(low, step), low)
                begun = arith.ori(begun, here)
                state = self._steady(body, (low, high, step), state)
        self._move_releases()
        with ir.InsertionPoint(self._behind()):
            count = len(self.starts)
            results = self._epilogue(self.bodies[-1], begun, state[:count], state[count:])
        for old, new in zip(last.results, results, strict=True):
            old.replace_all_uses_with(new)
        for loop in reversed(self.loops):
            loop.erase()

    # ---- the parts

    def _reorder(self, bounds: list[Any]) -> None:
        """The loops with their ops in order, where none runs late."""
        for body, old, own in zip(self.bodies, self.loops, bounds, strict=True):
            with ir.InsertionPoint(old):
                made = self._steady(body, tuple(own), list(old.operands)[3:])
            for before, after in zip(old.results, made, strict=True):
                before.replace_all_uses_with(after)
            old.erase()

    def _prologue(self, rest: list[Any], blank: list[Any]) -> list[Any]:
        """What the first iteration leaves, of the first loop that has one."""
        if not rest:
            return [*self.starts, *blank]
        (body, (low, _, _), runs), *others = rest
        types = [v.type for v in [*self.starts, *self.crossing]]
        branch = scf.IfOp(runs, types, has_else=True)
        LAYOUTS.set(branch.operation, self.layouts)
        with ir.InsertionPoint(branch.then_block):
            graph = body.graph
            arguments = dict(zip(graph.arguments, self.starts, strict=True))
            copy = Copies(body.graph.body, {graph.body.arguments[0]: low, **arguments})
            for op in body.of_stage(0):
                _write(copy, op)
            carried = [
                start if k in self.late else copy.value(v)
                for k, (start, v) in enumerate(zip(self.starts, graph.yielded, strict=True))
            ]
            scf.YieldOp([*carried, *map(copy.value, body.stages.crossing)])
        if all(filled_with(v) in (0.0, NONE) for v in self.starts if is_tensor(v)):
            _repair_nothing(branch.then_block)
        with ir.InsertionPoint(branch.else_block):
            scf.YieldOp(self._prologue(others, blank))
        _count_pending(branch.then_block)
        return list(branch.results)

    def _steady(self, body: _Body, bounds: tuple[Any, ...], state: list[Any]) -> list[Any]:
        graph, stages = body.graph, body.stages
        made = scf.ForOp(*bounds, state)
        copy_attributes(body.loop, made.operation)
        LAYOUTS.set(made.operation, self.layouts)
        with ir.InsertionPoint(made.body):
            inside = list(made.inner_iter_args)
            carried, crossing = inside[: len(self.starts)], inside[len(self.starts) :]
            given = dict(zip(graph.arguments, carried, strict=True))
            early = Copies(body.graph.body, {v: new for k, (v, new) in enumerate(given.items())
                                 if k not in self.late})  # fmt: skip
            early.values[graph.body.arguments[0]] = made.induction_variable
            late = Copies(graph.body, given | dict(zip(stages.crossing, crossing, strict=True)))
            self._write_both(body, early, late)
            yielded = [
                (late if k in self.late else early).value(v) for k, v in enumerate(graph.yielded)
            ]
            scf.YieldOp([*yielded, *map(early.value, stages.crossing)])
        _count_pending(made.body)
        if self.beside and not self.turns:
            _issue_beside(made.body, self.beside)
        return list(made.results)

    def _write_both(self, body: _Body, early: Copies, late: Copies) -> None:
        """The ops of both stages, in order."""
        graph, stage = body.graph, body.stages.stage
        starts = [op for op in body.order if op.name == START]
        fenced = True  # no arithmetic since the last start
        for op in body.order:
            if self.turns and op == starts[0]:
                ir.Operation.create(AWAIT_TURN)
            if op.name == WAIT and stage[op] == 1 and not fenced:
                ir.Operation.create(FENCE)
                fenced = True
            written = _write(late if stage[op] else early, op)
            if stage[op]:
                _mark_scaling(op, written, body)
                for k in self.late:
                    if defining_op(graph.yielded[k]) == op:
                        early.values[graph.arguments[k]] = late.value(graph.yielded[k])
            if op.name in ("linalg.generic", "scf.if"):
                fenced = False
            if op.name == START:
                fenced = True
            if self.turns and op == starts[-1]:
                ir.Operation.create(GIVE_TURN)

    def _epilogue(
        self, body: _Body, begun: Any, carried: list[Any], crossing: list[Any]
    ) -> list[Any]:
        """Stage 1 of the last iteration."""
        graph = body.graph
        branch = scf.IfOp(begun, [carried[k].type for k in self.late], has_else=True)
        LAYOUTS.set(branch.operation, [self.layouts[k] for k in self.late])
        with ir.InsertionPoint(branch.then_block):
            given = dict(zip(graph.arguments, carried, strict=True))
            given |= dict(zip(body.stages.crossing, crossing, strict=True))
            copy = Copies(graph.body, given)
            for op in body.of_stage(1):
                _mark_scaling(op, _write(copy, op), body)
            scf.YieldOp([copy.value(graph.yielded[k]) for k in self.late])
        with ir.InsertionPoint(branch.else_block):
            held = {k: crossing[j] for k, j in self.stand_ins.items()}
            scf.YieldOp([held.get(k, carried[k]) for k in self.late])
        _count_pending(branch.then_block)
        results = list(carried)
        for k, value in zip(self.late, branch.results, strict=True):
            results[k] = value
        return results

    # ---- places

    def _move_releases(self) -> None:
        """Releases between the loops of a chain go behind it: all loops stand there now."""
        last, block = self.loops[-1], self.loops[0].block
        operations = [op.operation for op in block.operations]
        between = operations[operations.index(self.loops[0]) : operations.index(last)]
        for op in reversed([op for op in between if op.name == RELEASE]):
            op.move_after(last)

    def _behind(self) -> Any:
        """The op that the epilogue stands before: tiles that only stage 0 read are released by
        then."""
        operations = [op.operation for op in self.loops[-1].block.operations]
        rest = operations[operations.index(self.loops[-1]) + 1 :]
        late = {v for op in self.bodies[-1].of_stage(1) for v in captured_values(op)}
        return next(op for op in rest if op.name != RELEASE or op.operands[0] in late)


def _write(copies: Copies, op: Any) -> Any:
    """A copy of an op, without its place in the schedule."""
    made = copies.write(op)
    STAGE.drop(made)
    ORDER.drop(made)
    return made


def _repair_nothing(block: Any) -> None:
    """Let factors be 1 that repair what was measured from a start of -inf: in a first iteration
    that is nothing, so it is 0, whatever it is multiplied by. (As written, a factor of exponentials
    waits for the new reference, has a branch for large ones, and scales a tile of zeros.) The
    weights beside it need not ask how large that reference is: that pays in many iterations."""
    operations = [op.operation for op in nested(block)]
    for op in operations:
        old, *new = REFERENCES.find(op, ())[:2] or (None,)
        if not new or filled_with(op.operands[old]) != NONE:
            continue
        for weighing in operations:
            of = REFERENCES.find(weighing, ())
            if len(of) == 1 and weighing.operands[of[0]] == op.operands[new[0]]:
                MEASURED.set(weighing, f"{MEASURED.of(weighing)} once")
        kind, (result,) = ir.F32Type.get(), op.results
        with ir.InsertionPoint(op):
            one = arith.constant(kind, 1.0)
            made = linalg.fill(one, outs=[list(op.operands)[-1]])
        result.replace_all_uses_with(made)
        op.erase()


def _blank(value: Any) -> Any:
    """What stands for a value of an iteration that there never was."""
    if not is_tensor(value):
        return arith.constant(value.type, 0)
    return ir.Operation.create("tensor.empty", results=[value.type]).results[0]


def _mark_scaling(op: Any, written: Any, body: _Body) -> None:
    """`neptune.skips_ones`, for an op that multiplies a carried tile by what crosses stages."""
    if op.name != "linalg.generic" or len(list(op.operands)) != 3:
        return
    carried = {body.graph.arguments[k] for k in body.stages.late}
    if multiplies(op, carried, set(body.stages.crossing)):
        SKIPS_ONES.set(written)


def _count_pending(block: Any) -> None:
    """Let each wait leave those matmuls running that started behind its own."""
    for op in block.operations:
        wait = op.operation
        if wait.name == WAIT:
            kind = ir.IntegerType.get_signless(64)
            later = started_between(defining_op(wait.operands[0]), wait)
            wait.attributes["pending"] = ir.IntegerAttr.get(kind, later)


def _issue_beside(block: Any, eighths: int) -> None:
    """Let matmuls issue so much at their start where arithmetic follows before another starts, or
    groups meet."""
    start = None  # which no arithmetic has followed yet
    for op in block.operations:
        operation = op.operation
        works = operation.name in ("linalg.generic", ADD_SLICE)
        if works and start is not None:
            AHEAD.set(start, eighths)
        waits = operation.name == WAIT and start is not None
        waits = waits and defining_op(operation.operands[0]) == start
        if operation.name == START:
            start = operation
        elif works or waits or operation.name in ("linalg.copy", "scf.if"):
            start = None
