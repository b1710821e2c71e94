# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which elements are those of this thread, and code that only some threads run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis.layouts import Digit, Layout
from neptune_mlir.codegen.gpu.scalars import Index, Scalars
from neptune_mlir.ir.bindings import ir, scf


class Threads:
    """The positions of this thread: which lane, which warp, which element of a layout."""

    def __init__(self, scalars: Scalars, lanes: int, warps: int, number: Any = None):
        self.s = scalars
        self.lanes, self.warps = lanes, warps
        self.count = lanes * warps
        dimension = ir.Attribute.parse("#gpu<dim x>")
        self.id = number or scalars.op("gpu.thread_id", [], scalars.index, dimension=dimension)
        self.lane = scalars.mod(self.id, lanes)
        self.warp = scalars.div(self.id, lanes)

    def digits(self, part: Sequence[Digit], number: Index, dim: int) -> Index:
        """Position along `dim` that the digits of a lane or warp number give."""
        total: Index = 0
        distance = 1
        for k, d in enumerate(part):
            if d.dim == dim:
                value = self.s.div(number, distance)
                if k + 1 < len(part):
                    value = self.s.mod(value, d.size)
                total = self.s.add(total, self.s.mul(value, d.stride))
            distance *= d.size
        return total

    def base(self, layout: Layout) -> list[Index]:
        """Position of register 0 of this thread."""
        return [
            self.s.add(
                self.digits(layout.warp, self.warp, d), self.digits(layout.lane, self.lane, d)
            )
            for d in range(len(layout.shape))
        ]

    def existing(self, layout: Layout) -> list[list[Index]]:
        """As `positions`, but the last one that exists for those that are padding."""
        limits = layout.shape if layout.padded else [None] * len(layout.shape)

        def inside(position: list[Index]) -> list[Index]:
            pairs = zip(position, limits, strict=True)
            return [p if n is None else self.s.minimum(p, n - 1) for p, n in pairs]

        return [inside(position) for position in self.positions(layout)]

    def positions(self, layout: Layout) -> list[list[Index]]:
        """Position of every register of this thread."""
        base = self.base(layout)
        return [
            [self.s.add(b, int(o)) for b, o in zip(base, offset, strict=True)]
            for offset in layout.offsets(layout.reg)
        ]


class under:
    """`with under(s, condition):` emits under a condition; None is always true."""

    def __init__(self, scalars: Scalars, condition: Any):
        self.s, self.condition = scalars, condition

    def __enter__(self) -> None:
        if self.condition is None:
            return
        self.op = scf.IfOp(self.condition)
        self.context = self.s.scope(self.op.then_block)
        self.context.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.condition is None:
            return
        if error[0] is None:
            scf.YieldOp([])
        self.context.__exit__(*error)
