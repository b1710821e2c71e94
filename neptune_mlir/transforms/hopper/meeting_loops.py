# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of two programs that bring as many tiles as each other.

    program (h, n):                    both programs (h, 2 p), (h, 2 p + 1):
      for k = 0 .. whole(n)              for k = 0 .. whole(n)
      for k = whole(n) .. end(n)         for k = whole(n) .. max(end(2 p), end(2 p + 1))

A mask that ends a stream at the place of a row gives each program an end of its own. The loop in
front of the end looks at the mask, which leaves nothing of a tile behind a program's own end. Which
tiles need no mask stays with each program: the tiles are the same, in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis.tiles import is_inside, nested
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op, made_from
from neptune_mlir.transforms.tiling.grid_direction import depends_on

PAIR = 2  # programs
SCALARS = ("affine.apply", "affine.min", "affine.max")  # that say where a loop ends


def meet(forall: Any, variable: Any, blocks: Sequence[Any]) -> bool:
    """Let the loops of two programs, which differ in a variable of the grid, end where the loop of
    one of them does at last, in each of `blocks` (of the producer, of the consumers). False, and
    nothing is changed, where they do not begin at one place, or an end is not a scalar of the
    variable alone."""
    ends = [_last_end(forall, variable, block) for block in blocks]
    if any(end is None for end in ends):
        return False
    for loop in (loop for end in ends for loop in end):
        place = ir.InsertionPoint(loop)
        found = [_of_member(loop.operands[1], variable, k, forall, place) for k in range(PAIR)]
        with place, loop.location:
            d0, d1 = ir.AffineDimExpr.get(0), ir.AffineDimExpr.get(1)
            both = ir.AffineMap.get(2, 0, [d0, d1])
            end = ir.Operation.create(
                "affine.max", results=[ir.IndexType.get()], operands=found,
                attributes={"map": ir.AffineMapAttr.get(both)},
            )  # fmt: skip
        loop.operands[1] = end.result
    return True


def _last_end(forall: Any, variable: Any, block: Any) -> list[Any] | None:
    """The loop of a block whose end depends on the variable, as a list (empty: none does); None
    where other bounds do, but for those at which one loop ends and the next one begins."""
    loops = [op for op in nested(block) if op.name == "scf.for"]
    bounds = [v for loop in loops for v in list(loop.operands)[:3]]
    if not any(depends_on(v, variable, forall) for v in bounds):
        return []
    inside = any(loop.operation.block != block for loop in loops)
    joined = all(a.operands[1] == b.operands[0] for a, b in itertools.pairwise(loops))
    fixed = [loops[0].operands[0], *(loop.operands[2] for loop in loops)]
    if inside or not joined or any(depends_on(v, variable, forall) for v in fixed):
        return None
    made = made_from([loops[-1].operands[1]], lambda v: is_inside(v, forall))
    ops = [defining_op(v) for v in made if depends_on(v, variable, forall) and v != variable]
    return [loops[-1]] if all(op is not None and op.name in SCALARS for op in ops) else None


def _of_member(value: Any, variable: Any, member: int, forall: Any, place: Any) -> Any:
    """What a scalar is for a member of the pair in which a program is."""
    if value == variable:
        d0 = ir.AffineDimExpr.get(0)
        expression = ir.AffineExpr.get_floor_div(d0, PAIR) * PAIR + member
        with place, ir.Location.unknown():
            return ir.Operation.create(
                "affine.apply", results=[ir.IndexType.get()], operands=[variable],
                attributes={"map": ir.AffineMapAttr.get(ir.AffineMap.get(1, 0, [expression]))},
            ).result  # fmt: skip
    if not depends_on(value, variable, forall):
        return value
    op = defining_op(value)
    operands = [_of_member(v, variable, member, forall, place) for v in op.operands]
    copy = op.clone(ip=place).operation
    for k, operand in enumerate(operands):
        copy.operands[k] = operand
    return copy.results[0]
