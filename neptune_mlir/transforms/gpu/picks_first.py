# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `picks-first`: what one position of a loaded tile gives is taken before all else is summed.

    max of x                              sum over j of where(j == v, x, 0)
    sum of exp(x - max)             ->    max of x
    sum over j of where(j == v, x, 0)     sum of exp(x - max)

A thread takes its element out of the words that it loaded
(`codegen/gpu/reductions/picked.py`). As the last of three sums that kept these words beside the
widened elements: the loss over rows of 512 had 80 registers, and a third fewer programs on a
multiprocessor.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.body_forms import picked_of
from neptune_mlir.analysis.tiles import (
    foralls,
    is_blank,
    load_window,
    nested,
    read_generic,
    reduction_of,
)
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register


@register("picks-first", "take what one position of a loaded tile gives before all else is summed")
def picks_first(module: Any) -> None:
    for forall in foralls(module):
        for op in list(nested(forall.regions[0].blocks[0])):
            if op.name == "linalg.generic" and _picks_from_memory(op, forall):
                _move_up(op)


def _picks_from_memory(op: Any, forall: Any) -> bool:
    g = read_generic(op)
    found = reduction_of(g) if g.reduced else None
    pick = picked_of(g, *found) if found else None
    if pick is None:
        return False
    along = (v for v, loops in zip(g.inputs, g.maps, strict=False) if pick.loop in loops)
    return all(is_blank(v) or load_window(v, forall) is not None for v in along)


def _move_up(op: Any) -> None:
    """Move an op behind the last one of its block that makes what it reads."""
    captured = (v for o in op.regions[0].blocks[0].operations for v in o.operation.operands)
    needed = {defining_op(v) for v in (*op.operands, *captured)}
    before = [o.operation for o in op.block.operations]
    before = before[: before.index(op)]
    last = max((k for k, o in enumerate(before) if o in needed), default=-1)
    if last + 1 < len(before):
        op.move_before(before[last + 1])
