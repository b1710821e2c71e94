# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops whose weights are measured from a rounded reference (`keep-references` marks them), for one
thread: what is in `exponentials`, op by op.

`neptune.references` are the operands of an op that are references, the last one that which its
result is measured from. One of them: the op makes weights. Two: it makes the factor from one to
the other. `neptune.measured` says what is known of them:

* `small`: all of them are;
* `rows`: any may be large; each row has a condition of its own, so that the weights of a row do not
  wait for the reference of the next one;
* `warp`: as `rows`, with one condition for all rows of the warp, which takes fewer registers;
* `rows once`, `warp once`: these, in an iteration that runs once, where to ask costs more than an
  operation an element;
* `back`: the result is what a sum has to be multiplied by, to be relative to the reference itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import iteration_of, layout_of
from neptune_mlir.analysis.tiles import read_generic, shape_of
from neptune_mlir.codegen.gpu.exponentials import (
    are_small_in_warp,
    by_any_references,
    by_differences,
    taken_back,
    unguarded,
)
from neptune_mlir.codegen.gpu.tile_forms import Held, Splat
from neptune_mlir.dialects.gpu_attributes import MEASURED, REFERENCES
from neptune_mlir.ir.bindings import scf
from neptune_mlir.transforms.gpu.keep_references import condition_of, exponent_of

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter


class MeasuredOp:
    """Writes one marked op; `mode` in place of what the op says."""

    def __init__(self, kernel: KernelWriter, op: Any, mode: str = ""):
        self.kernel, self.s, self.op = kernel, kernel.s, op
        self.mode, *once = (mode or MEASURED.of(op)).split()
        self.once = bool(once)
        self.references = [self._registers(op.operands[k]) for k in REFERENCES.of(op)]

    def write(self) -> None:
        if self.mode == "small":
            self._by_plain_code(small=True)
        elif self.mode == "back":
            held = self.kernel.tile(self.op.operands[REFERENCES.of(self.op)[-1]])
            self.bind([taken_back(self.s, g) for g in self._values(held)])
        elif len(self.references) == 2:
            self._correct()
        else:
            self._weigh()

    def _by_plain_code(self, *, small: bool) -> None:
        held = [v for registers in self.references for v in registers]
        with self.s.measured_from(held, small=small):
            self.kernel.write_generic(self.op)

    def bind(self, values: list[Any]) -> None:
        result = self.op.results[0]
        layout = layout_of(self.op, shape_of(result))
        self.kernel.tiles[result] = Held(layout, values)

    def _together(self, references: list[Any]) -> list[list[Any]]:
        """Those that one condition is for."""
        return [[g] for g in references] if self.mode == "rows" else [references]

    def _correct(self) -> None:
        """Write the factor."""
        s, small = self.s, None
        for rows in self._together(self.references[-1]):
            small = s.both(small, are_small_in_warp(s, rows))
        result = self.op.results[0]
        layout = layout_of(self.op, shape_of(result))
        branch = scf.IfOp(small, [s.f32] * layout.registers, has_else=True)
        for are_small, block in ((True, branch.then_block), (False, branch.else_block)):
            with s.scope(block):
                self._by_plain_code(small=are_small)
                scf.YieldOp(self.kernel.compute.registers(self.kernel.tile(result), layout))
        self.bind(list(branch.results))

    def _weigh(self) -> None:
        """Write the weights by references of any size."""
        s, compute, g = self.s, self.kernel.compute, read_generic(self.op)
        iteration = iteration_of(self.op, g.extents)
        point = compute.points(g, self.kernel.operands(g), iteration)
        points = list(map(point, range(iteration.registers)))
        difference, condition = exponent_of(self.op).operands, condition_of(self.op)
        values, references = (list(compute.evaluate(g, points, v)) for v in difference)
        if condition is not None:  # as in the maximum; not for the weights, or it stays around
            none, live = s.constant(float("-inf"), s.f32), compute.evaluate(g, points, condition)
            values = [s.select(c, x, none) for c, x in zip(live, values, strict=True)]
        made: list[Any] = list(values)  # of registers that hold no element, anything
        held = [r for r in range(len(points)) if r not in iteration.missing]
        for rows in self._together(list(dict.fromkeys(references[r] for r in held))):
            theirs = [r for r in held if references[r] in rows]
            pairs = [values[r] for r in theirs], [references[r] for r in theirs]
            weights = by_differences(s, *pairs) if self.once else None
            if weights is None:
                small = are_small_in_warp(s, [unguarded(s, reference) for reference in rows])
                weights = by_any_references(s, *pairs, small)
            for r, weight in zip(theirs, weights, strict=True):
                made[r] = weight
        self.kernel.tiles[g.result] = Held(iteration.project(g.maps[-1]), made)

    def _registers(self, value: Any) -> list[Any]:
        """What a thread holds of the references or factors of rows that exist."""
        tile = self.kernel.tile(value)
        missing = tile.layout.missing if isinstance(tile, Held) else ()
        return [v for r, v in enumerate(self._values(tile)) if r not in missing]

    def _values(self, tile: Any) -> list[Any]:
        if isinstance(tile, Splat):
            return [tile.value]
        assert isinstance(tile, Held)
        return list(tile.values)
