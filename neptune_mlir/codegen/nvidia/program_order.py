# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order in which resident blocks take programs.

As in any kernel the last variable of the grid runs fastest, so that neighbours share what they
stream, and so that long programs begin first (`grid_direction`). Two kinds of grids have orders of
their own.

* Where the bounds of a streamed loop depend on that variable (a triangle), programs differ in
  length, and blocks that get a long one last keep the others waiting: 3 to 14% where a block runs 8
  to 16 programs. So the last programs of a launch, two for each block, come longest first, whatever
  the other variables are ("longest processing time first"). For all programs that order would be
  worse: neighbours share nothing then, and memory is the bound. How many are right depends on how
  long the shortest ones are: a launch whose caller knows says it (`in_two`, `runtime.shards`).
* Where one load of a loop depends on the last variable and another on the one before (a matrix
  product), neighbours share one of two operands. Programs come in panels of PANEL points of the
  last variable: those that run at once then make a square, nearly, which needs the least of both;
  and what a panel needs of one operand stays in the L2 cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.codegen.nvidia.producer import streamed_offsets
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.tiling.grid_direction import depends_on, runs_upwards

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

SORTED = 2  # programs for each block, at the end of a launch
PANEL = 16  # points


def order_of(kernel: SpecializedWriter) -> LongestFirst | Panels | None:
    """The order of a kernel; None for that of the numbers.

    Blocks that do not stay have an order where they share multiprocessors: those are for launches
    of few programs, of which a multiprocessor is to get a long one and a short one.
    """
    if not (kernel.resident or kernel.blocks > 1) or len(kernel.bounds) < 2:
        return None
    *_, other, last = list(kernel.body.arguments)[: len(kernel.bounds)]
    if lengths_differ(kernel):
        return LongestFirst(kernel, runs_upwards(kernel.forall, last) and not kernel.in_two)
    loads = [
        [any(depends_on(v, variable, kernel.forall) for v in offsets if not isinstance(v, int))
         for variable in (other, last)]
        for offsets in streamed_offsets(kernel.forall, kernel.producer)
    ]  # fmt: skip
    return Panels(kernel) if [True, False] in loads and [False, True] in loads else None


def lengths_differ(kernel: SpecializedWriter) -> bool:
    """Whether a loop of a program is as long as the last variable of the grid says."""
    last = list(kernel.body.arguments)[len(kernel.bounds) - 1]
    loops = [op.operation for op in kernel.producer.operations if op.operation.name == "scf.for"]
    return any(
        depends_on(v, last, kernel.forall) for loop in loops for v in list(loop.operands)[:2]
    )


class LongestFirst:
    """The last programs of a launch come longest first.

    Args:
        upwards: those of the first rows are the long ones, not those of the last.
    """

    def __init__(self, kernel: SpecializedWriter, upwards: bool = False):
        self.bounds, s = kernel.bounds, kernel.s
        self.upwards = upwards
        self.s = s
        blocks = self._blocks()
        *others, rows = kernel.bounds
        count = s.value(1)
        for bound in others:
            count = s.value(s.mul(count, bound))
        wanted = s.op("arith.ceildivui", [s.value(s.mul(blocks, SORTED)), rows], s.index)
        for two in list(kernel.in_two.values())[:1]:
            told = s.value(two.last)
            wanted = s.select(s.less(0, told), told, s.value(wanted))
        self.last = s.value(s.minimum(wanted, count))  # points of the other variables
        self.before = s.value(s.sub(count, self.last))

    def place(self, number: Any) -> tuple[Any, Any]:
        """Of a program: the grid's last variable, and the number of the others' point."""
        s, rows = self.s, self.bounds[-1]
        point = s.op("arith.divui", [number, rows], s.index)
        inside = s.op("arith.remui", [number, rows], s.index)
        late = s.value(s.sub(number, s.mul(self.before, rows)))
        shift = s.op("arith.divui", [late, self.last], s.index)
        late = s.value(s.sub(late, s.mul(shift, self.last)))
        early = s.less(point, self.before)
        row = s.select(early, inside, shift)
        point = s.select(early, point, s.value(s.add(self.before, late)))
        return s.value(row if self.upwards else s.sub(s.sub(rows, 1), row)), point

    def _blocks(self) -> Any:
        dimension = ir.Attribute.parse("#gpu<dim x>")
        return self.s.op("gpu.grid_dim", [], self.s.index, dimension=dimension)


class Panels:
    """The last two variables run in panels of the last one."""

    def __init__(self, kernel: SpecializedWriter):
        self.bounds, self.s = kernel.bounds, kernel.s

    def place(self, number: Any) -> tuple[Any, Any]:
        """As that of `LongestFirst`."""
        s, (*_, columns, rows) = self.s, self.bounds
        matrix = s.value(s.mul(columns, rows))
        first = s.op("arith.divui", [number, matrix], s.index)
        rest = s.value(s.sub(number, s.mul(first, matrix)))
        size = s.value(s.mul(columns, PANEL))
        panel = s.op("arith.divui", [rest, size], s.index)
        rest = s.value(s.sub(rest, s.mul(panel, size)))
        start = s.value(s.mul(panel, PANEL))
        width = s.value(s.minimum(s.value(s.sub(rows, start)), PANEL))
        column = s.op("arith.divui", [rest, width], s.index)
        row = s.value(s.add(start, s.value(s.sub(rest, s.mul(column, width)))))
        return row, s.value(s.add(s.mul(first, columns), column))
