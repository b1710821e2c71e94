# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An iteration that keeps its reference while it can (`keep-references`), for a thread of sm_90a.

    if trying:  p = exp(x - m), sums of p
    if all sums of the warp are in range:
                m, l + sums, p
    else:       where p was tried, the first product once more (it gave its registers to p);
                then what the loop says: a new m, c, l, p, and the last product corrected

Warps decide on their own, so this product is not one of the warp group: each warp reads its
factors from shared memory and multiplies by itself (`mma.sync`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import read_generic
from neptune_mlir.bindings import ir, scf
from neptune_mlir.codegen import hopper
from neptune_mlir.transforms.distribute_compute import Held, Splat
from neptune_mlir.transforms.distribute_scalars import Scalars
from neptune_mlir.transforms.keep_references import read_guess

Correct = Callable[[list[Any]], list[Any]]

if TYPE_CHECKING:
    from neptune_mlir.transforms.distribute_skewed import SkewedLoops

TRY = 1  # how an iteration went (i32): whether the next one is to try
LARGEST = 2.0**14  # a sum of weights, so that each is an f16 number
LITTLE = 0.9  # factors of references that hardly move

EQUAL, _AT_LEAST, _LESS, _UNEQUAL = 1, 3, 4, 6  # ordered comparisons of floats


def within(s: Scalars, values: Sequence[Any], predicate: int, bound: float) -> Any:
    """Whether all values compare so with a bound (an ordered comparison of `arith.cmpf`)."""
    found = None
    for value in values:
        here = s.op(
            "arith.cmpf", [value, s.constant(bound, s.f32)], s.i1,
            predicate=ir.IntegerAttr.get(s.i64, predicate),
            fastmath=ir.Attribute.parse("#arith.fastmath<none>"),
        )  # fmt: skip
        found = here if found is None else s.op("arith.andi", [found, here], s.i1)
    return found


def in_all_lanes(s: Scalars, condition: Any) -> Any:
    """Whether a condition holds for all lanes of the warp."""
    word = s.op("arith.extui", [condition], s.i32)
    return s.op("arith.trunci", [hopper.every_lane(word)], s.i1)


class KeptReference:
    """Writes one iteration of a loop, from its scores to its weights."""

    def __init__(self, chain: SkewedLoops, loop: Any):
        self.chain, self.guess = chain, read_guess(loop, chain.skews[loop])
        self.kernel, self.s = chain.kernel, chain.s
        self.leading = chain.skews[loop].leading

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
        self.operations, self.tries = operations, self._at_least(went, TRY)
        held = self.kernel.tile(self.leading.results[0])
        assert isinstance(held, Held)
        scores = list(held.values)
        self.before = self._registers(guess.reference)
        types = [v.type for v in [*scores, *self.before]]
        trial = scf.IfOp(self.tries, [*types, s.i1], has_else=True)
        with s.scope(trial.then_block):
            weights, sums = self._try()
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
            little = in_all_lanes(s, within(s, factors, _AT_LEAST, LITTLE))
            made.append(correct(hopper.wait_products(0, total)))
            scf.YieldOp([*(v for m in made for v in m), s.op("arith.extui", [little], s.i32)])
        *values, went = branch.results
        for value in guess.outputs:
            values = self._bind(value, values)
        return went, values

    def _bind(self, value: Any, values: list[Any]) -> list[Any]:
        """To the first of these registers; returns the others."""
        layout = self.chain._layout_of(value)
        self.kernel.tiles[value] = Held(layout, values[: layout.registers])
        return values[layout.registers :]

    def _try(self) -> tuple[list[Any], list[Any]]:
        """Weights by the old reference, and their sums in this tile."""
        kernel, guess = self.kernel, self.guess
        kernel.tiles[guess.moved.results[0]] = kernel.tile(guess.reference)
        kernel.tiles[guess.scaled.results[0]] = Splat(self.s.constant(0.0, self.s.f32))
        for op in self.operations:
            if op not in (guess.moved, guess.factor, guess.scaled):
                kernel._op(op)
        return self._registers(guess.weights), self._registers(guess.total.results[0])

    def _fits(self, sums: Sequence[Any]) -> Any:
        """Whether this thread's weights are in range, by a reference that there is."""
        s = self.s
        some = within(s, self.before, _UNEQUAL, float("-inf"))
        return s.op("arith.andi", [within(s, sums, _LESS, LARGEST), some], s.i1)

    def _plus(self, sums: Sequence[Any]) -> list[Any]:
        s, scaled = self.s, list(self.guess.scaled.operands)
        (running,) = [v for v in scaled[:-1] if v != self.guess.factor.results[0]]
        pairs = zip(self._registers(running), sums, strict=True)
        return [s.op("arith.addf", [a, b], s.f32) for a, b in pairs]

    def _move(self, tried: Sequence[Any]) -> None:
        """Write what the loop says."""
        kernel, s = self.kernel, self.s
        layout = self.chain._layout(self.leading)
        again = scf.IfOp(self.tries, [v.type for v in tried], has_else=True)
        with s.scope(again.then_block):
            g = read_generic(self.leading)
            tiles = [*(kernel.tile(v) for v in g.inputs), kernel.tile(g.init)]
            scf.YieldOp(kernel.consumer.by_warp(g, kernel._oriented(g), tiles, layout).values)
        with s.scope(again.else_block):
            scf.YieldOp(list(tried))
        kernel.tiles[self.leading.results[0]] = Held(layout, list(again.results))
        for op in self.operations:
            kernel._op(op)

    def _at_least(self, word: Any, least: int) -> Any:
        s = self.s
        return s.op(
            "arith.cmpi", [word, s.constant(least, s.i32)], s.i1,
            predicate=ir.IntegerAttr.get(s.i64, 5),
        )  # fmt: skip

    def _registers(self, value: Any) -> list[Any]:
        return self.chain._registers(value)
