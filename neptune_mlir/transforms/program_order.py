# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order in which resident blocks take programs whose lengths differ.

As in any kernel the last variable of the grid runs fastest, so that neighbours share what they
stream, and downwards. Where the bounds of a streamed loop depend on that variable (a triangle),
programs differ in length, and blocks that get a long one last keep the others waiting: 3 to 14%
where a block runs 8 to 16 programs. So the last programs of a launch, two for each block, come
longest first, whatever the other variables are ("longest processing time first"). For all programs
that order would be worse: neighbours share nothing then, and memory is the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import is_inside
from neptune_mlir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.transforms.distribute_hopper import SpecializedWriter

SORTED = 2  # programs for each block, at the end of a launch


class ProgramOrder:
    """The order of one kernel. `sorts`: whether the last programs have one of their own."""

    def __init__(self, kernel: SpecializedWriter):
        self.kernel, s = kernel, kernel.s
        self.s = s
        self.sorts = kernel.resident and len(kernel.bounds) > 1 and self._is_triangle()
        if not self.sorts:
            return
        blocks = self._blocks()
        *others, rows = kernel.bounds
        count = s.value(1)
        for bound in others:
            count = s.value(s.mul(count, bound))
        wanted = s.op("arith.ceildivui", [s.value(s.mul(blocks, SORTED)), rows], s.index)
        self.last = s.value(s.minimum(wanted, count))  # points of the other variables
        self.before = s.value(s.sub(count, self.last))

    def place(self, number: Any) -> tuple[Any, Any]:
        """Of a program: the grid's last variable, and the number of the others' point."""
        s, rows = self.s, self.kernel.bounds[-1]
        point = s.op("arith.divui", [number, rows], s.index)
        inside = s.op("arith.remui", [number, rows], s.index)
        late = s.value(s.sub(number, s.mul(self.before, rows)))
        shift = s.op("arith.divui", [late, self.last], s.index)
        late = s.value(s.sub(late, s.mul(shift, self.last)))
        early = s.less(point, self.before)
        row = s.select(early, inside, shift)
        point = s.select(early, point, s.value(s.add(self.before, late)))
        return s.value(s.sub(s.sub(rows, 1), row)), point

    def _blocks(self) -> Any:
        dimension = ir.Attribute.parse("#gpu<dim x>")
        return self.s.op("gpu.grid_dim", [], self.s.index, dimension=dimension)

    def _is_triangle(self) -> bool:
        kernel = self.kernel
        variable = list(kernel.body.arguments)[len(kernel.bounds) - 1]
        loops = [loop for loop in kernel.signatures if loop is not None]
        return any(self._reads(v, variable) for loop in loops for v in list(loop.operands)[:2])

    def _reads(self, value: Any, variable: Any) -> bool:
        """Whether a scalar of the tile program depends on a variable of the grid."""
        if value == variable:
            return True
        if isinstance(value.owner, ir.Block) or not is_inside(value, self.kernel.forall):
            return False
        return any(self._reads(v, variable) for v in value.owner.operands)
