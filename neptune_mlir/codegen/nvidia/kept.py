# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An iteration that keeps its reference while it can (`keep-references`), for one thread.

    if trying:  x = the first product, p = exp(x - m), sums of p
    if all sums of the warp are in range:
                m, l + sums, p
    else:       x = the first product, and what the loop says: a new m, c, l, p, corrections
    the last product

So neither x nor both kinds of p are in registers at a time. Warps decide on their own. Tries are
by small references only, where an exponential takes an operation less (`distribute_exponentials`).
On sm_90a, where the loop is skewed, the first product is one of the warp group and done in front
of the try, which takes its registers: only a warp that fails does it again, by itself (`mma.sync`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import read_generic
from neptune_mlir.codegen.gpu.compute import Held, Pieces, Splat
from neptune_mlir.codegen.gpu.exponentials import AT_LEAST, EQUAL, LESS, are_small, within
from neptune_mlir.codegen.gpu.measured import MeasuredLoop
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.transforms.gpu.keep_references import AGAIN
from neptune_mlir.transforms.hopper.skew_loops import Skew

Correct = Callable[[list[Any]], list[Any]]

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter
    from neptune_mlir.codegen.nvidia.skewed import SkewedLoops

TRY = 1  # how an iteration went (i32): whether the next one is to try
LARGEST = 2.0**14  # a sum of weights, so that each is an f16 number
LITTLE = 0.9  # factors of references that hardly move


def in_all_lanes(s: Scalars, condition: Any) -> Any:
    """Whether a condition holds for all lanes of the warp."""
    return s.chip.in_all_lanes(s, condition)


class KeptReference(MeasuredLoop):
    """What an iteration does by the old reference, and binds of it."""

    by_rows = False  # new references are rare: few registers count for more

    def _bind(self, value: Any, values: list[Any]) -> list[Any]:
        """To the first of these registers; returns the others."""
        layout = self._layout_of(value)
        self.kernel.tiles[value] = Held(layout, values[: layout.registers])
        return values[layout.registers :]

    def _try(self, operations: Sequence[Any]) -> list[Any]:
        """Write these ops by the old reference; returns the sums of weights in this tile."""
        kernel, guess = self.kernel, self.guess
        kernel.tiles[guess.moved.results[0]] = kernel.tile(guess.reference)
        kernel.tiles[guess.scaled.results[0]] = Splat(self.s.constant(0.0, self.s.f32))
        for op in operations:
            if op == guess.weighing:
                with self.measuring(small=True):
                    kernel._op(op)
            elif op not in (guess.moved, guess.factor, guess.scaled):
                kernel._op(op)
        return self._registers(guess.total.results[0])

    def _plus(self, sums: Sequence[Any]) -> list[Any]:
        s, scaled = self.s, list(self.guess.scaled.operands)
        (running,) = [v for v in scaled[:-1] if v != self.guess.factor.results[0]]
        pairs = zip(self._registers(running), sums, strict=True)
        return [s.op("arith.addf", [a, b], s.f32) for a, b in pairs]


class KeptLoop(KeptReference):
    """A loop whose iterations are each written as a whole."""

    def __init__(self, kernel: KernelWriter, loop: Any, skew: Skew, layouts: Sequence[Any]):
        super().__init__(kernel, loop, skew, layouts)
        made = [self.guess.weights, *(op.results[0] for op in self.skew.late)]
        # the weights, or what they are rounded to
        (self.factor,) = [v for v in list(self.skew.delayed.operands)[:-1] if v in made]

    def first(self, starts: Sequence[Any]) -> Any:
        """Whether (i1) the first iteration is to try: where there is a small reference from
        before."""
        start = self.kernel.tile(starts[self.guess.carried[0]])
        if isinstance(start, Splat):
            return self.s.constant(0, self.s.i1)
        layout = self.layouts[self.guess.carried[0]]
        return in_all_lanes(self.s, are_small(self.s, self.kernel.compute.registers(start, layout)))

    def write(self, tries: Any) -> Any:
        """Write an iteration that tries or not (i1); returns whether the next one is to."""
        s, kernel, guess, skew = self.s, self.kernel, self.guess, self.skew
        *inner, _ = [op.operation for op in self.body.operations]
        ahead = inner[: inner.index(skew.leading)]
        twice = [
            op for op in inner
            if op.name == "linalg.generic" and op not in (*ahead, *skew.corrections, skew.delayed)
        ]  # fmt: skip
        for op in inner:
            if op not in (*twice, *skew.corrections, skew.delayed):
                kernel._op(op)
        kind = ir.RankedTensorType(self.factor.type).element_type
        blank = self._factor(Splat(s.constant(0.0, kind)))
        corrected = read_generic(skew.delayed).init
        before = self._registers(guess.reference)
        total = self._registers(self.body.arguments[1 + skew.carried])
        none = [s.constant(0.0, s.f32)] * self._layout_of(guess.total.results[0]).registers
        trial = scf.IfOp(tries, [v.type for v in [*none, *blank.words, tries]], has_else=True)
        with s.scope(trial.then_block):
            sums = self._try(twice)
            words = self._factor().words
            scf.YieldOp([*sums, *words, in_all_lanes(s, within(s, sums, LESS, LARGEST))])
        with s.scope(trial.else_block):
            scf.YieldOp([*none, *blank.words, s.constant(0, s.i1)])
        *values, fits = trial.results
        kept = [*before, *self._plus(values[: len(none)]), *values[len(none) :], *total]
        branch = scf.IfOp(fits, [*(v.type for v in kept), s.i1], has_else=True)
        with s.scope(branch.then_block):
            scf.YieldOp([*kept, s.constant(1, s.i1)])
        with s.scope(branch.else_block):
            for op in [*twice, *skew.corrections]:
                self.op(op)
            made = [
                *self._registers(guess.moved.results[0]),
                *self._registers(guess.total.results[0]),
                *self._factor().words, *self._registers(corrected),
            ]  # fmt: skip
            scf.YieldOp([*made, self._moved_little(before)])
        *values, tries = branch.results
        values = self._bind(guess.total.results[0], self._bind(guess.moved.results[0], values))
        count = len(blank.words)
        kernel.tiles[self.factor] = blank.of(values[:count])
        self._bind(corrected, values[count:])
        kernel._op(skew.delayed)
        return tries

    def _moved_little(self, before: Sequence[Any]) -> Any:
        """Whether all rows of the warp have small references, and those that had some, like the
        old."""
        s = self.s
        stays = s.constant(1, s.i1)
        for old, factor in zip(before, self._registers(self.guess.factor.results[0]), strict=True):
            new = within(s, [old], EQUAL, float("-inf"))
            near = s.op("arith.ori", [new, within(s, [factor], AT_LEAST, LITTLE)], s.i1)
            stays = s.op("arith.andi", [stays, near], s.i1)
        small = are_small(s, self._registers(self.guess.moved.results[0]))
        return in_all_lanes(s, s.op("arith.andi", [stays, small], s.i1))

    def _factor(self, tile: Any = None) -> Pieces:
        """The weights as the last product takes them."""
        kernel, g = self.kernel, read_generic(self.skew.delayed)
        k, layout = g.inputs.index(self.factor), self._layout_of(g.result)
        return kernel.compute.pieces(
            g, kernel._oriented(g), k, tile or kernel.tile(self.factor), layout
        )


class KeptIteration(KeptReference):
    """One iteration of a skewed loop, from its scores to its weights."""

    def __init__(self, chain: SkewedLoops, loop: Any):
        super().__init__(chain.kernel, loop, chain.skews[loop], chain.layouts)
        self.leading = self.skew.leading

    def write(
        self, operations: Sequence[Any], went: Any, total: list[Any], correct: Correct
    ) -> tuple[Any, list[Any]]:
        """Bind what the guess puts out; returns how it went, and the last product's registers.

        Args:
            operations: the tile ops between the first product and what the last one waits for.
            went: how the iteration before went.
            total: registers of the last product, which is under way.
            correct: corrects them, once they are there.
        """
        s, guess = self.s, self.guess
        self.operations = operations
        if AGAIN not in self.leading.attributes:
            for op in operations:
                self.op(op)
            return s.constant(TRY, s.i32), correct(hopper.wait_products(0, total))
        self.tries = self._at_least(went, TRY)
        held = self.kernel.tile(self.leading.results[0])
        assert isinstance(held, Held)
        scores = list(held.values)
        self.before = self._registers(guess.reference)
        types = [v.type for v in [*scores, *self.before]]
        trial = scf.IfOp(self.tries, [*types, s.i1], has_else=True)
        with s.scope(trial.then_block):
            sums = self._try(operations)
            weights = self._registers(guess.weights)
            scf.YieldOp([*weights, *sums, in_all_lanes(s, self._fits(sums))])
        with s.scope(trial.else_block):
            scf.YieldOp([*scores, *self.before, s.constant(0, s.i1)])
        *values, fits = trial.results
        tried, sums = values[: len(scores)], values[len(scores) :]
        kept = [*self.before, *self._plus(sums), *tried, *total]
        branch = scf.IfOp(fits, [*(v.type for v in kept), s.i32], has_else=True)
        with s.scope(branch.then_block):
            scf.YieldOp([*kept, s.constant(TRY, s.i32)])
        with s.scope(branch.else_block):
            self._move(tried)
            made = [self._registers(value) for value in guess.outputs]
            factors = self._registers(guess.factor.results[0])
            small = are_small(s, self._registers(guess.moved.results[0]))
            little = s.op("arith.andi", [within(s, factors, AT_LEAST, LITTLE), small], s.i1)
            little = in_all_lanes(s, little)
            made.append(correct(hopper.wait_products(0, total)))
            scf.YieldOp([*(v for m in made for v in m), s.op("arith.extui", [little], s.i32)])
        *values, went = branch.results
        for value in guess.outputs:
            values = self._bind(value, values)
        return went, values

    def _fits(self, sums: Sequence[Any]) -> Any:
        """Whether this thread's weights are in range, by a reference that is small."""
        s = self.s
        small = are_small(s, self.before)
        return s.op("arith.andi", [within(s, sums, LESS, LARGEST), small], s.i1)

    def _move(self, tried: Sequence[Any]) -> None:
        """Write what the loop says."""
        kernel, s = self.kernel, self.s
        layout = self._layout_of(self.leading.results[0])
        again = scf.IfOp(self.tries, [v.type for v in tried], has_else=True)
        with s.scope(again.then_block):
            g = read_generic(self.leading)
            tiles = [*(kernel.tile(v) for v in g.inputs), kernel.tile(g.init)]
            scf.YieldOp(kernel.compute.matrix(g, kernel._oriented(g), tiles, layout).values)
        with s.scope(again.else_block):
            scf.YieldOp(list(tried))
        kernel.tiles[self.leading.results[0]] = Held(layout, list(again.results))
        for op in self.operations:
            self.op(op)

    def _at_least(self, word: Any, least: int) -> Any:
        s = self.s
        return s.op(
            "arith.cmpi", [word, s.constant(least, s.i32)], s.i1,
            predicate=ir.IntegerAttr.get(s.i64, 5),
        )  # fmt: skip
