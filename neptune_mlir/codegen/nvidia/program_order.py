# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order in which resident blocks take programs.

As in any kernel the last variable of the grid runs fastest, so that neighbours share what they
stream, and so that long programs begin first (`grid_direction`). Three kinds of grids have orders
of their own.

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
* Where programs add to a result in turns (`transforms.tiling.in_turns`), they come in the order of
  these, the last ones first, and neighbours are of different results. Under a triangle the last
  ones are short, and begin where their own rows do: each comes to a tile an iteration behind the
  one before it, and nobody waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import adds_in_turns
from neptune_mlir.codegen.nvidia.producer import loaded_offsets
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.tiling.grid_direction import depends_on, runs_upwards

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

SORTED = 2  # programs for each block, at the end of a launch
PANEL = 16  # points


def order_of(kernel: SpecializedWriter) -> LongestFirst | Panels | SideBySide | None:
    """The order of a kernel; None for that of the numbers.

    Blocks that do not stay have an order where they share multiprocessors: those are for launches
    of few programs, of which a multiprocessor is to get a long one and a short one.
    """
    if adds_in_turns(kernel.forall):
        return SideBySide(kernel)
    if not (kernel.resident or kernel.blocks > 1) or len(kernel.bounds) < 2:
        return None
    *_, other, last = list(kernel.body.arguments)[: len(kernel.bounds)]
    loops = [op.operation for op in kernel.producer.operations if op.operation.name == "scf.for"]
    if any(depends_on(v, last, kernel.forall) for loop in loops for v in list(loop.operands)[:2]):
        return LongestFirst(kernel, runs_upwards(kernel.forall, last) and not kernel.in_two)
    loads = [
        [any(depends_on(v, variable, kernel.forall) for v in offsets if not isinstance(v, int))
         for variable in (other, last)]
        for offsets in loaded_offsets(kernel.forall, kernel.producer, streamed=True)
    ]  # fmt: skip
    return Panels(kernel) if [True, False] in loads and [False, True] in loads else None


class _Places:
    """Places for the numbers of programs."""

    def __init__(self, kernel: SpecializedWriter):
        self.bounds, self.s = kernel.bounds, kernel.s

    def _blocks(self) -> Any:
        dimension = ir.Attribute.parse("#gpu<dim x>")
        return self.s.op("gpu.grid_dim", [], self.s.index, dimension=dimension)

    def _points(self) -> Any:
        """How many points all variables but the last have."""
        s, count = self.s, self.s.value(1)
        for bound in self.bounds[:-1]:
            count = s.value(s.mul(count, bound))
        return count

    def _in_panels(self, number: Any, columns: Any, rows: Any, size: Any) -> tuple[Any, Any]:
        """Row and column of the place of that number in a matrix whose places are numbered in
        panels of `size` rows."""
        s = self.s
        whole = s.value(s.mul(columns, size))
        panel = s.op("arith.divui", [number, whole], s.index)
        rest = s.value(s.sub(number, s.mul(panel, whole)))
        start = s.value(s.mul(panel, size))
        width = s.value(s.minimum(s.value(s.sub(rows, start)), size))
        column = s.op("arith.divui", [rest, width], s.index)
        return s.value(s.add(start, s.value(s.sub(rest, s.mul(column, width))))), column


class LongestFirst(_Places):
    """The last programs of a launch come longest first.

    Args:
        upwards: those of the first rows are the long ones, not those of the last.
    """

    def __init__(self, kernel: SpecializedWriter, upwards: bool = False):
        super().__init__(kernel)
        self.upwards, s = upwards, kernel.s
        count = self._points()
        blocks = s.value(s.mul(self._blocks(), SORTED))
        wanted = s.op("arith.ceildivui", [blocks, kernel.bounds[-1]], s.index)
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


class Panels(_Places):
    """The last two variables run in panels of the last one."""

    def place(self, number: Any) -> tuple[Any, Any]:
        """As that of `LongestFirst`."""
        s, (*_, columns, rows) = self.s, self.bounds
        matrix = s.value(s.mul(columns, rows))
        first = s.op("arith.divui", [number, matrix], s.index)
        rest = s.value(s.sub(number, s.mul(first, matrix)))
        row, column = self._in_panels(rest, columns, rows, s.value(PANEL))
        return row, s.value(s.add(s.mul(first, columns), column))


class SideBySide(_Places):
    """The last variable runs downwards, for as many points of the others as fill the chip side by
    side: programs that wait for each other do not begin at once, but one by one."""

    def place(self, number: Any) -> tuple[Any, Any]:
        """As that of `LongestFirst`."""
        s, rows = self.s, self.bounds[-1]
        together = s.op("arith.ceildivui", [self._blocks(), s.value(rows)], s.index)
        point, turn = self._in_panels(number, rows, self._points(), together)
        return s.value(s.sub(s.sub(rows, 1), turn)), point
