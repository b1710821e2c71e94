# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A chain of skewed loops (`skew-loops`) as the code of a consumer thread of sm_90a.

The first iteration of the chain runs before any loop, without a product to finish; each further
one finishes that of the iteration before; the last product is finished behind the chain. Where
warp groups take turns (`neptune.turns`), a group issues its products only when the one before it
has issued its own, so that one group's arithmetic runs beside the other's products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import parse_layout
from neptune_mlir.analysis.tiles import is_blank, is_inside, owner, read_generic, shape_of
from neptune_mlir.codegen.gpu.compute import Held, Splat
from neptune_mlir.codegen.gpu.exponentials import EQUAL, within
from neptune_mlir.codegen.gpu.measured import MeasuredLoop
from neptune_mlir.codegen.gpu.memory import under
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.kept import TRY, KeptIteration, in_all_lanes
from neptune_mlir.dialects.verify_aref import GET, RELEASE
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.transforms.gpu.keep_references import KEEPS, MEASURED
from neptune_mlir.transforms.hopper.skew_loops import Skew, read_skew

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

FIRST_TURN = 2  # the named barrier of the first group's turn


@dataclass(frozen=True)
class Fragments:
    """A left factor as a thread's words, 4 for each 16 of the reduced axis."""

    words: list[Any]


@dataclass
class State:
    """Between two iterations: what the loops carry (the tile that the delayed product is to be
    added to before its corrections), what the corrections read, the product's left factor, and
    how the iteration went where it may keep its reference."""

    carried: list[Any]
    handed: list[Any]
    words: list[Any]
    went: list[Any]

    @property
    def all(self) -> list[Any]:
        return [*self.carried, *self.handed, *self.words, *self.went]


class SkewedLoops:
    """Writes one chain."""

    def __init__(self, kernel: SpecializedWriter, loops: Sequence[Any]):
        self.kernel, self.s, self.loops = kernel, kernel.s, list(loops)
        self.skews = {loop: read_skew(loop) for loop in loops}
        self.key = kernel.signatures[loops[0]]
        self.starts = list(loops[0].operands)[3:]
        self.layouts = kernel._carried_layouts(loops[0], self.starts)
        # types of what the corrections read, register by register
        self.keeps, self.measured = (name in loops[0].attributes for name in (KEEPS, MEASURED))
        self.handed = [
            ir.RankedTensorType(value.type).element_type
            for value in self.skews[loops[0]].handed
            for _ in range(self._layout_of(value).registers)
            if not self.keeps
        ]

    def write(self) -> None:
        kernel, s = self.kernel, self.s
        bounds = {x: [kernel.scalar(v) for v in list(x.operands)[:3]] for x in self.loops}
        runs = {loop: s.less(low, high) for loop, (low, high, _) in bounds.items()}
        count = s.value(kernel.counts[self.key])
        self.turn = take_turns(kernel)
        nothing = [s.constant(0.0, kind) for kind in self.handed]
        went = [s.constant(TRY, s.i32)] if self.keeps else []
        start = State(kernel._spread(self.starts, self.layouts), nothing, self._no_words(), went)
        state = self._first(self.loops, bounds, runs, start, count)
        begun: Any = None  # whether an earlier loop had the first iteration
        for loop in self.loops:
            low, high, step = bounds[loop]
            second = s.op("arith.addi", [low, step], s.index)
            ours = runs[loop] if begun is None else s.both(runs[loop], self._not(begun))
            begun = runs[loop] if begun is None else s.op("arith.ori", [begun, runs[loop]], s.i1)
            low = s.select(ours, second, low)
            count = s.select(ours, s.value(s.add(count, 1)), count)
            state, count = self._loop(loop, (low, high, step), state, count)
        kernel.release_after(self.loops[-1])  # what only first products read
        state = self._last(begun, state, count)
        kernel.counts[self.key] = count
        results, last = list(state.carried), self.loops[-1]
        if self.measured:
            results = self._measured(last).leave(list(last.results), results)
        kernel._bind_results(last, self.layouts, results)

    def _measured(self, loop: Any) -> MeasuredLoop:
        return MeasuredLoop(self.kernel, loop, self.skews[loop], self.layouts)

    def _not(self, condition: Any) -> Any:
        s = self.s
        return s.op("arith.xori", [condition, s.constant(1, s.i1)], s.i1)

    def _no_words(self) -> list[Any]:
        product = read_generic(self.skews[self.loops[0]].delayed)
        a = shape_of(product.inputs[self.kernel._oriented(product).a])
        words = a[0] * a[1] // 2 // (self.kernel.warps * self.kernel.target.wave)
        return [self.s.constant(0, self.s.i32)] * words

    # ---- the parts

    def _first(
        self, loops: Sequence[Any], bounds: Any, runs: Any, start: State, count: Any
    ) -> State:
        """The first iteration, of the first loop that has one."""
        if not loops:
            return start
        s, (loop, *rest) = self.s, loops
        branch = scf.IfOp(runs[loop], [v.type for v in start.all], has_else=True)
        with s.scope(branch.then_block):
            state = self._iteration(loop, bounds[loop][0], start, count, pending=False)
            scf.YieldOp(state.all)
        with s.scope(branch.else_block):
            scf.YieldOp(self._first(rest, bounds, runs, start, count).all)
        return self._split(branch.results)

    def _loop(self, loop: Any, bounds: Any, state: State, count: Any) -> tuple[State, Any]:
        made = scf.ForOp(*bounds, [*state.all, count])
        with self.s.scope(made.body):
            *inside, here = made.inner_iter_args
            after = self._iteration(
                loop, made.induction_variable, self._split(inside), here, pending=True
            )
            scf.YieldOp([*after.all, self.s.value(self.s.add(here, 1))])
        *results, count = made.results
        return self._split(results), count

    def _last(self, begun: Any, state: State, count: Any) -> State:
        """Finish the product of the last iteration, if there was one."""
        s = self.s
        branch = scf.IfOp(begun, [v.type for v in state.carried], has_else=True)
        loop = self.loops[-1]
        with s.scope(branch.then_block):
            self._bind_arguments(loop, None, state)
            self._correct(loop, state)
            values = self._issue_delayed(loop, state, count)
            values = hopper.wait_products(0, values)
            self._release_delayed(loop, count)
            scf.YieldOp(self._with_sum(loop, state, values).carried)
        with s.scope(branch.else_block):
            scf.YieldOp(state.carried)
        return State(list(branch.results), state.handed, state.words, state.went)

    def _split(self, values: Sequence[Any]) -> State:
        values = list(values)
        went = len(values) - int(self.keeps)
        words = went - len(self._no_words())
        handed = words - len(self.handed)
        return State(values[:handed], values[handed:words], values[words:went], values[went:])

    # ---- one iteration

    def _iteration(
        self, loop: Any, position: Any, state: State, count: Any, *, pending: bool
    ) -> State:
        """Everything but the delayed product, which `pending` says is there to finish."""
        kernel, skew = self.kernel, self.skews[loop]
        body = loop.regions[0].blocks[0]
        self._bind_arguments(loop, position, state)
        *inner, end = [op.operation for op in body.operations]
        ahead = 0 if skew.leading is None else inner.index(skew.leading)
        later = [*skew.products, *skew.late, *skew.corrections]
        self._write_ops([op for op in inner[:ahead] if op not in later], skew, count)
        made = None
        if skew.leading is not None:
            made = self._issue_leading(skew, count, taking_turn=pending)
        total: list[Any] = []
        if pending:
            self._correct(loop, state)  # beside the leading product
            if skew.leading is None:
                self._take_turn()
            total = self._issue_delayed(loop, state, count)
            if self.turn is not None:
                hopper.give_turn(self.turn[1], 2 * self.kernel.group_threads)
        if made is not None:
            layout, values = made
            kernel.tiles[skew.leading.results[0]] = Held(
                layout, hopper.wait_products(int(pending), values)
            )
        rest = [op for op in inner[ahead:] if op not in later]
        went = state.went
        if pending and self.keeps:
            tiles = [op for op in rest if op.name not in (GET, RELEASE)]
            kept, total = KeptIteration(self, loop).write(
                tiles, went[0], total, partial(self._corrected, loop)
            )
            went = [kept]
            self._release_leading(skew, count)  # not before: it may have been needed again
        else:
            self._release_leading(skew, count)
            write = self._measured(loop).op if self.measured else kernel._op
            self._write_ops(rest, skew, count, write)
            if self.keeps:
                start = body.arguments[1 + skew.carried]
                before = self._registers_as(start, self.layouts[skew.carried])
                state = self._with_sum(loop, state, self._corrected(loop, before))
                self._bind_arguments(loop, position, state)
        if pending:
            kernel.pass_gate()
            state = self._with_sum(loop, state, hopper.wait_products(0, total))
            self._release_delayed(loop, count)
            self._bind_arguments(loop, position, state)
        words = self._left_factor(skew)
        yielded = list(end.operands)
        yielded[skew.carried] = body.arguments[1 + skew.carried]
        handed = [v for value in skew.handed if not self.keeps for v in self._registers(value)]
        return State(kernel._spread(yielded, self.layouts), handed, words, went)

    def _left_factor(self, skew: Skew) -> list[Any]:
        """The words of the delayed product's left factor."""
        kernel, g = self.kernel, read_generic(skew.delayed)
        for op in skew.late:
            kernel._op(op)
        product = kernel._oriented(g)
        factor = kernel.tile(g.inputs[product.a])
        return list(kernel.consumer.fragments(g, product, factor, self._layout(skew.delayed)))

    def _take_turn(self) -> None:
        if self.turn is not None:
            hopper.await_turn(self.turn[0], 2 * self.kernel.group_threads)

    def _release_leading(self, skew: Skew, count: Any) -> None:
        if skew.leading is not None:
            for value in self._loads_of(skew.leading):
                self.kernel._release(value, count)

    def _registers(self, value: Any) -> list[Any]:
        """What a thread holds of a tile."""
        return self._registers_as(value, self._layout_of(value))

    def _registers_as(self, value: Any, layout: Any) -> list[Any]:
        return list(self.kernel.compute.registers(self.kernel.tile(value), layout))

    def _correct(self, loop: Any, state: State) -> None:
        """What the delayed product of the iteration before is to be added to.

        Factors of a running maximum's change are 1 for most of a long stream: a warp whose factors
        all are skips the multiplications. Who keeps references has corrected it already.
        """
        s, skew = self.s, self.skews[loop]
        kernel, start = self.kernel, loop.regions[0].blocks[0].arguments[1 + skew.carried]
        before, result = kernel.tile(start), read_generic(skew.delayed).init
        if self.keeps:
            kernel.tiles[result] = before
            return
        if not skew.scales or any(v.type != s.f32 for v in state.handed):
            self._write_corrections(loop, state)
            return
        assert isinstance(before, Held)
        skips = in_all_lanes(s, within(s, state.handed, EQUAL, 1.0))
        branch = scf.IfOp(skips, [v.type for v in before.values], has_else=True)
        with s.scope(branch.then_block):
            scf.YieldOp(before.values)
        with s.scope(branch.else_block):
            self._write_corrections(loop, state)
            scf.YieldOp(kernel.compute.registers(kernel.tile(result), before.layout))
        kernel.tiles[result] = Held(before.layout, list(branch.results))

    def _write_corrections(self, loop: Any, state: State) -> None:
        kernel, skew = self.kernel, self.skews[loop]
        values = list(state.handed)
        for value in skew.handed:
            layout = self._layout_of(value)
            kernel.tiles[value] = Held(layout, [values.pop(0) for _ in range(layout.registers)])
        self._correct_by_tiles(loop)

    def _correct_by_tiles(self, loop: Any) -> None:
        """Write the corrections; what they read is there as tiles."""
        for op in self.skews[loop].corrections:
            for value in op.operands:
                if is_blank(value) and is_inside(value, loop):
                    self.kernel._op(value.owner.operation)
            self.kernel._op(op)

    def _corrected(self, loop: Any, values: list[Any]) -> list[Any]:
        """Registers of the carried tile, corrected by what this iteration made."""
        kernel, skew = self.kernel, self.skews[loop]
        layout: Any = self.layouts[skew.carried]
        kernel.tiles[loop.regions[0].blocks[0].arguments[1 + skew.carried]] = Held(layout, values)
        self._correct_by_tiles(loop)
        return self._registers_as(read_generic(skew.delayed).init, layout)

    def _bind_arguments(self, loop: Any, position: Any, state: State) -> None:
        body = loop.regions[0].blocks[0]
        if position is not None:
            self.kernel.scalars[body.arguments[0]] = position
        self.kernel._bind(body.arguments[1:], self.layouts, list(state.carried))

    def _issue_leading(self, skew: Skew, count: Any, taking_turn: bool) -> Any:
        kernel = self.kernel
        g = read_generic(skew.leading)
        for value in self._loads_of(skew.leading):
            kernel._await(value, count)
        if taking_turn:
            self._take_turn()
        tiles = [*(kernel.tile(v) for v in g.inputs), kernel.tile(g.init)]
        layout = self._layout(skew.leading)
        return layout, kernel.consumer.issue(g, kernel._oriented(g), tiles, layout)

    def _issue_delayed(self, loop: Any, state: State, count: Any) -> list[Any]:
        """Start the delayed product of the iteration before the one with number `count`."""
        kernel, skew = self.kernel, self.skews[loop]
        g = read_generic(skew.delayed)
        product = kernel._oriented(g)
        (value,) = self._loads_of(skew.delayed)
        kernel._await(value, self._before(count))
        tiles: list[Any] = [Splat(None)] * 3
        tiles[product.a] = Fragments(state.words)
        tiles[product.b] = kernel.tile(value)
        tiles[2] = kernel.tile(g.init)
        return kernel.consumer.issue(g, product, tiles, self._layout(skew.delayed))

    def _release_delayed(self, loop: Any, count: Any) -> None:
        (value,) = self._loads_of(self.skews[loop].delayed)
        self.kernel._release(value, self._before(count))

    def _with_sum(self, loop: Any, state: State, values: Sequence[Any]) -> State:
        """The state with the delayed product's values in place of what it was added to."""
        at = self.skews[loop].carried
        before = sum(self._width(layout) for layout in self.layouts[:at])
        carried = list(state.carried)
        carried[before : before + len(values)] = values
        return State(carried, state.handed, state.words, state.went)

    def _width(self, layout: Any) -> int:
        if layout is None:
            return 1
        return int(getattr(layout, "registers", 0))  # views are carried by name

    # ---- small things

    def _layout(self, op: Any) -> Any:
        text = ir.StringAttr(op.attributes["neptune.layout"]).value
        return parse_layout(text, shape_of(op.results[0]))

    def _layout_of(self, value: Any) -> Any:
        """Of a tile that the loop makes or carries."""
        if not isinstance(value.owner, ir.Block):
            return self._layout(value.owner.operation)
        return self.layouts[list(value.owner.arguments).index(value) - 1]

    def _loads_of(self, op: Any) -> list[Any]:
        """The tiles that it gets from rings in its own loop."""
        made = [(v, owner(v)) for v in op.operands]
        return [v for v, o in made if o is not None and o.name == GET and o.block == op.block]

    def _write_ops(
        self, operations: Sequence[Any], skew: Skew, count: Any,
        write: Callable[[Any], None] | None = None,
    ) -> None:  # fmt: skip
        """Write ops of an iteration; what the products get, they get and release themselves."""
        write = write or self.kernel._op
        theirs = [v for op in skew.products for v in self._loads_of(op)]
        for op in operations:
            if op.name == GET and op.results[0] not in theirs:
                self.kernel._await(op.results[0], count)
            elif op.name == RELEASE and op.operands[0] not in theirs:
                self.kernel._release(op.operands[0], count)
            elif op.name not in (GET, RELEASE):
                write(op)

    def _before(self, count: Any) -> Any:
        return self.s.value(self.s.sub(count, 1))


def take_turns(kernel: SpecializedWriter) -> tuple[Any, Any] | None:
    """The barriers of this group's turn and of the next one's, where groups take turns.

    Between chains one turn is always given and not taken: at first, by the last group to the
    first.
    """
    if "neptune.turns" not in kernel.forall.attributes or kernel.groups == 1:
        return None
    if kernel.turn is None:
        s, group = kernel.s, kernel.consumer.group
        mine = s.op("arith.addi", [group, s.constant(FIRST_TURN, s.i32)], s.i32)
        after = s.op("arith.addi", [mine, s.constant(1, s.i32)], s.i32)
        last = s.op("arith.cmpi", [group, s.constant(kernel.groups - 1, s.i32)], s.i1,
                    predicate=ir.IntegerAttr.get(s.i64, 0))  # fmt: skip
        first = s.constant(FIRST_TURN, s.i32)
        with under(s, last):
            hopper.give_turn(first, 2 * kernel.group_threads)
        kernel.turn = mine, s.select(last, first, after)
    return kernel.turn
