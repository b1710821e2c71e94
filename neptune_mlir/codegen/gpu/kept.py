# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An iteration that keeps its reference while it can (`keep-references`), for one thread.

    if trying:  x = the first product, p = exp(x - m), sums of p
    if all sums of the warp are in range:
                m, l + sums, p
    else:       x = the first product, and what the loop says: a new m, c, l, p, corrections
    the last product

So neither x nor both kinds of p are in registers at a time. Warps decide on their own. Tries are
by small references only, where an exponential takes an operation less (`exponentials`). Loops of
specialised warps are rewritten by `lazy-rescaling` instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import Layout, layout_of
from neptune_mlir.analysis.tiles import read_generic, shape_of
from neptune_mlir.codegen.gpu.exponentials import AT_LEAST, EQUAL, LESS, are_small, within
from neptune_mlir.codegen.gpu.measured import MeasuredOp
from neptune_mlir.codegen.gpu.tile_forms import Held, Pieces, Splat
from neptune_mlir.dialects.gpu_attributes import MEASURED
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.transforms.gpu.keep_references import LITTLE, largest_sum, read_guess
from neptune_mlir.transforms.gpu.streams import read_accumulation

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter


class KeptLoop:
    """A loop whose iterations are each written as a whole."""

    def __init__(self, kernel: KernelWriter, loop: Any, layouts: Sequence[Any]):
        self.kernel, self.s, self.layouts = kernel, kernel.s, layouts
        self.parts = read_accumulation(loop)
        self.guess, self.body = read_guess(loop, self.parts), loop.regions[0].blocks[0]
        made = [self.guess.weights, *(op.results[0] for op in self.parts.late)]
        # the weights, or what they are rounded to
        (self.factor,) = [v for v in list(self.parts.delayed.operands)[:-1] if v in made]

    def first(self, starts: Sequence[Any]) -> Any:
        """Whether (i1) the first iteration is to try: where there is a small reference from
        before."""
        start = self.kernel.tile(starts[self.guess.carried[0]])
        if isinstance(start, Splat):
            return self.s.constant(0, self.s.i1)
        layout = self.layouts[self.guess.carried[0]]
        references = self.kernel.compute.registers(start, layout)
        return self.s.chip.in_all_lanes(self.s, are_small(self.s, _of_rows(references, layout)))

    def write(self, tries: Any) -> Any:
        """Write an iteration that tries or not (i1); returns whether the next one is to."""
        s, kernel, guess, parts = self.s, self.kernel, self.guess, self.parts
        *inner, _ = [op.operation for op in self.body.operations]
        ahead = inner[: inner.index(parts.leading)]
        twice = [
            op for op in inner
            if op.name == "linalg.generic" and op not in (*ahead, *parts.corrections, parts.delayed)
        ]  # fmt: skip
        for op in inner:
            if op not in (*twice, *parts.corrections, parts.delayed):
                kernel.write_op(op)
        kind = ir.RankedTensorType(self.factor.type).element_type
        blank = self._factor(Splat(s.constant(0.0, kind)))
        corrected = read_generic(parts.delayed).init
        before = self._registers(guess.reference)
        total = self._registers(self.body.arguments[1 + parts.carried])
        none = [s.constant(0.0, s.f32)] * self._layout_of(guess.total.results[0]).registers
        trial = scf.IfOp(tries, [v.type for v in [*none, *blank.words, tries]], has_else=True)
        with s.scope(trial.then_block):
            sums = self._try(twice)
            words = self._factor().words
            most = largest_sum(guess.weights)
            scf.YieldOp([*sums, *words, s.chip.in_all_lanes(s, within(s, sums, LESS, most))])
        with s.scope(trial.else_block):
            scf.YieldOp([*none, *blank.words, s.constant(0, s.i1)])
        *values, fits = trial.results
        kept = [*before, *self._plus(values[: len(none)]), *values[len(none) :], *total]
        branch = scf.IfOp(fits, [*(v.type for v in kept), s.i1], has_else=True)
        with s.scope(branch.then_block):
            scf.YieldOp([*kept, s.constant(1, s.i1)])
        with s.scope(branch.else_block):
            for op in [*twice, *parts.corrections]:
                kernel.write_op(op)
            made = [
                *self._registers(guess.moved.results[0]),
                *self._registers(guess.total.results[0]),
                *self._factor().words, *self._registers(corrected),
            ]  # fmt: skip
            scf.YieldOp([*made, self._moved_little(before)])
        *values, tries = branch.results
        values = self.bind(guess.total.results[0], self.bind(guess.moved.results[0], values))
        count = len(blank.words)
        kernel.tiles[self.factor] = blank.of(values[:count])
        self.bind(corrected, values[count:])
        kernel.write_op(parts.delayed)
        return tries

    def bind(self, value: Any, values: list[Any]) -> list[Any]:
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
            if op == guess.weighing and MEASURED.on(op):
                MeasuredOp(kernel, op, "small").write()
            elif op not in (guess.moved, guess.factor, guess.scaled):
                kernel.write_op(op)
        return self._registers(guess.total.results[0])

    def _plus(self, sums: Sequence[Any]) -> list[Any]:
        s, scaled = self.s, list(self.guess.scaled.operands)
        (running,) = [v for v in scaled[:-1] if v != self.guess.factor.results[0]]
        pairs = zip(self._registers(running), sums, strict=True)
        return [s.op("arith.addf", [a, b], s.f32) for a, b in pairs]

    def _registers(self, value: Any) -> list[Any]:
        """What a thread holds of a tile."""
        return list(self.kernel.compute.registers(self.kernel.tile(value), self._layout_of(value)))

    def _layout_of(self, value: Any) -> Any:
        if isinstance(value.owner, ir.Block):
            return self.layouts[list(value.owner.arguments).index(value) - 1]
        op = value.owner.operation
        return layout_of(op, shape_of(value))

    def _moved_little(self, before: Sequence[Any]) -> Any:
        """Whether all rows of the warp have small references, and those that had some, like the
        old."""
        s = self.s
        stays = s.constant(1, s.i1)
        for old, factor in zip(before, self._registers(self.guess.factor.results[0]), strict=True):
            new = within(s, [old], EQUAL, float("-inf"))
            near = s.op("arith.ori", [new, within(s, [factor], AT_LEAST, LITTLE)], s.i1)
            stays = s.op("arith.andi", [stays, near], s.i1)
        moved = self.guess.moved.results[0]
        small = are_small(s, _of_rows(self._registers(moved), self._layout_of(moved)))
        return s.chip.in_all_lanes(s, s.op("arith.andi", [stays, small], s.i1))

    def _factor(self, tile: Any = None) -> Pieces:
        """The weights as the last product takes them."""
        kernel, g = self.kernel, read_generic(self.parts.delayed)
        k, layout = g.inputs.index(self.factor), self._layout_of(g.result)
        return kernel.compute.pieces(
            g, kernel.oriented(g), k, tile or kernel.tile(self.factor), layout
        )


def _of_rows(registers: Sequence[Any], layout: Layout) -> list[Any]:
    """Those of registers that hold something of a row."""
    return [v for r, v in enumerate(registers) if r not in layout.missing]
