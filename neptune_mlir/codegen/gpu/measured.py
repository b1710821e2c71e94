# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops whose weights may be measured from a rounded reference (`keep-references` says which), for
one thread: what is in `distribute_exponentials`, by the ops that it is about.

Weights are written for references of any size, the factor that corrects sums is one of what the
weights are measured from, and who reads the reference behind the loop gets sums relative to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import parse_layout
from neptune_mlir.analysis.tiles import read_generic, shape_of
from neptune_mlir.codegen.gpu.compute import Held
from neptune_mlir.codegen.gpu.exponentials import (
    are_small_in_warp,
    by_any_references,
    taken_back,
    unguarded,
)
from neptune_mlir.dialects.verify_aref import RELEASE
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.transforms.gpu.keep_references import MEASURED, read_guess
from neptune_mlir.transforms.hopper.skew_loops import Skew

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter


class MeasuredLoop:
    """Writes the ops of iterations that look for their reference, and what is behind them."""

    by_rows = True  # the weights of a row do not wait for the reference of the next one

    def __init__(self, kernel: KernelWriter, loop: Any, skew: Skew, layouts: Sequence[Any]):
        self.kernel, self.s, self.skew, self.layouts = kernel, kernel.s, skew, layouts
        self.guess, self.body = read_guess(loop, skew), loop.regions[0].blocks[0]
        self.measured = MEASURED in loop.attributes
        self.delayed: list[Any] | None = []  # ops that are to be written behind the weights

    def op(self, op: Any) -> None:
        """Write an op; but the factor, and what it goes into, behind the weights: these take
        longer, and must not wait until the references of all rows are known."""
        weighing = op == self.guess.weighing
        waiting = [v for other in self.delayed or () for v in other.results]
        if not self.measured:
            self.kernel._op(op)
        elif self.delayed is not None and not weighing and (
            op == self.guess.factor or any(v in waiting for v in op.operands)
        ):  # fmt: skip
            self.delayed.append(op)
        elif weighing:
            self._weigh(op)
            delayed, self.delayed = self.delayed or [], None
            for other in delayed:
                self.op(other)
        elif op == self.guess.factor:
            self._correct(op)
        else:
            self.kernel._op(op)

    def _together(self, references: list[Any]) -> list[list[Any]]:
        """Those that one condition is for."""
        return [[g] for g in references] if self.by_rows else [references]

    def _correct(self, op: Any) -> None:
        """Write the factor."""
        s, factor = self.s, op.results[0]
        layout, small = self._layout_of(factor), None
        for rows in self._together(self._registers(self.guess.moved.results[0])):
            small = s.both(small, are_small_in_warp(s, rows))
        branch = scf.IfOp(small, [s.f32] * layout.registers, has_else=True)
        for are_small, block in ((True, branch.then_block), (False, branch.else_block)):
            with s.scope(block), self.measuring(small=are_small):
                self.kernel._op(op)
                scf.YieldOp(self._registers(factor))
        self.kernel.tiles[factor] = Held(layout, list(branch.results))

    def _weigh(self, op: Any) -> None:
        """Write the weights by references of any size."""
        s, compute, g = self.s, self.kernel.compute, read_generic(op)
        text = ir.StringAttr(op.attributes["neptune.iteration"]).value
        iteration = parse_layout(text, g.extents)
        points = compute.points(g, self.kernel.operands(g), iteration)
        difference, condition = self.guess.exponent.operands, self.guess.condition
        values, references = (list(compute.evaluate(g, points, v)) for v in difference)
        if condition is not None:  # as in the maximum; not for the weights, or it stays around
            none, live = s.constant(float("-inf"), s.f32), compute.evaluate(g, points, condition)
            values = [s.select(c, x, none) for c, x in zip(live, values, strict=True)]
        made: list[Any] = [None] * len(points)
        for rows in self._together(list(dict.fromkeys(references))):
            theirs = [r for r, reference in enumerate(references) if reference in rows]
            small = are_small_in_warp(s, [unguarded(s, reference) for reference in rows])
            weights = by_any_references(
                s, [values[r] for r in theirs], [references[r] for r in theirs], small
            )
            for r, weight in zip(theirs, weights, strict=True):
                made[r] = weight
        self.kernel.tiles[g.result] = Held(iteration.project(g.maps[-1]), made)

    def measuring(self, *, small: bool) -> AbstractContextManager[None]:
        """For ops of differences from references."""
        if not self.measured:
            return nullcontext()
        values = (self.guess.reference, self.guess.moved.results[0])
        held = [v for value in values for v in self._registers(value)]
        return self.s.measured_from(held, small=small)

    def leave(self, results: Sequence[Any], values: list[Any]) -> list[Any]:
        """Registers of all that the loop carries, behind it (`values`), as others are to see them:
        sums are made relative to the reference itself where somebody reads that as well."""
        kernel, guess, arguments = self.kernel, self.guess, list(self.body.arguments)[1:]
        at, total = guess.carried
        readers = (use.owner.operation.name for use in results[at].uses)
        if not self.measured or all(name == RELEASE for name in readers):
            return values
        kernel._bind(arguments, self.layouts, list(values))
        factors = [taken_back(self.s, g) for g in self._registers(guess.reference)]
        kernel.tiles[guess.factor.results[0]] = Held(self._layout_of(guess.reference), factors)
        for op in (guess.scaled, *self.skew.corrections):
            kernel._op(op)
        left = list(arguments)
        left[total] = guess.scaled.results[0]
        left[self.skew.carried] = read_generic(self.skew.delayed).init
        return kernel._spread(left, self.layouts)

    def _registers(self, value: Any) -> list[Any]:
        """What a thread holds of a tile."""
        return list(self.kernel.compute.registers(self.kernel.tile(value), self._layout_of(value)))

    def _layout_of(self, value: Any) -> Any:
        if isinstance(value.owner, ir.Block):
            return self.layouts[list(value.owner.arguments).index(value) - 1]
        op = value.owner.operation
        return parse_layout(ir.StringAttr(op.attributes["neptune.layout"]).value, shape_of(value))
