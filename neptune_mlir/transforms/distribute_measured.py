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
from neptune_mlir.bindings import ir
from neptune_mlir.dialects.verify_aref import RELEASE
from neptune_mlir.transforms.distribute_compute import Held
from neptune_mlir.transforms.distribute_exponentials import by_any_references, taken_back
from neptune_mlir.transforms.keep_references import MEASURED, read_guess
from neptune_mlir.transforms.skew_loops import Skew

if TYPE_CHECKING:
    from neptune_mlir.transforms.distribute_tiles import KernelWriter


class MeasuredLoop:
    """Writes the ops of iterations that look for their reference, and what is behind them."""

    def __init__(self, kernel: KernelWriter, loop: Any, skew: Skew, layouts: Sequence[Any]):
        self.kernel, self.s, self.skew, self.layouts = kernel, kernel.s, skew, layouts
        self.guess, self.body = read_guess(loop, skew), loop.regions[0].blocks[0]
        self.measured = MEASURED in loop.attributes

    def op(self, op: Any) -> None:
        """Write an op."""
        if op == self.guess.weighing and self.measured:
            self._weigh(op)
        elif op == self.guess.factor:
            with self.measuring():
                self.kernel._op(op)
        else:
            self.kernel._op(op)

    def _weigh(self, op: Any) -> None:
        """Write the weights by references of any size."""
        compute, g, exponent = self.kernel.compute, read_generic(op), self.guess.exponent
        text = ir.StringAttr(op.attributes["neptune.iteration"]).value
        iteration = parse_layout(text, g.extents)
        points = compute.points(g, self.kernel.operands(g), iteration)
        difference, condition = exponent.operands, self.guess.condition
        values, references = (list(compute.evaluate(g, points, v)) for v in difference)
        if condition is not None:  # as in the maximum; not for the weights, or it stays around
            s, none = self.s, self.s.constant(float("-inf"), self.s.f32)
            live = compute.evaluate(g, points, condition)
            values = [s.select(c, x, none) for c, x in zip(live, values, strict=True)]
        made = by_any_references(self.s, values, references)
        self.kernel.tiles[g.result] = Held(iteration.project(g.maps[-1]), made)

    def measuring(self) -> AbstractContextManager[None]:
        """For ops of differences from references that are small, or of two references."""
        if not self.measured:
            return nullcontext()
        values = (self.guess.reference, self.guess.moved.results[0])
        return self.s.measured_from(v for value in values for v in self._registers(value))

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
