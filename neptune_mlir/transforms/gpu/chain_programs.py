# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `chain-programs`: blocks stay and run programs whose first copies are under way before.

    program p:  copy tiles 0, 1; for j: wait, copy tile j + 2, compute      (twice the latency of
    program q:  copy tiles 0, 1; for j: wait, copy tile j + 2, compute       memory between them)

    ->  a block:  copy tiles 0, 1 of p;  for j of p: wait, copy tile j + 2 of p, or of what comes
                  behind p, compute;     for j of q: ...

A program that takes another's place on a multiprocessor asks for its number of keys, for the table,
and then for its first tiles: waits one behind the other, in which nothing of it is on its way. A
block that stays knows its next program one program ahead, and the last iterations of one copy the
first tiles of the next. Which program comes next is asked of a counter (`codegen.nvidia.program_queue`).

A kernel has the mark (`neptune.resident`) where the choice `resident` says so, and where the copies
of all its loops can be one stream: their tiles are of the same tensors and take the same places in
shared memory, and nothing that bounds them is made of tiles.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import foralls, is_inside, load_window, nested, tuned
from neptune_mlir.dialects.attributes import (
    CONSUMERS,
    LAYOUT,
    MEETS,
    POINTS,
    RESIDENT,
    STAGES,
)
from neptune_mlir.dialects.op_names import AWAIT_SUMS
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register

_LOADS = ("tensor.pad", "tensor.extract_slice")


@register("chain-programs", "have blocks run program after program, and copy ahead of these")
def chain_programs(module: Any) -> None:
    for forall in foralls(module):
        apart = CONSUMERS.on(forall) or POINTS.on(forall) or _awaits(forall)
        apart = apart or tuned(forall, "stash", 0)  # copies of its own, between those of loops
        meets = forall.parent.name == "func.func" and MEETS.on(forall.parent)
        if tuned(forall, "resident", 0) and not apart and not meets and chained_loops(forall):
            RESIDENT.set(forall)


def _awaits(forall: Any) -> bool:
    body = forall.regions[0].blocks[0]
    return any(op.operation.name == AWAIT_SUMS for op in body.operations)


def chained_loops(forall: Any) -> list[Any]:
    """The loops of a program whose copies can be one stream; none if there is another loop."""
    body = forall.regions[0].blocks[0]
    loops = [op.operation for op in body.operations if op.operation.name == "scf.for"]
    inner = [op for loop in loops for op in nested(loop.regions[0].blocks[0])]
    if not loops or any(op.name == "scf.for" for op in inner):
        return []
    if len({STAGES.find(loop, 0) for loop in loops}) > 1 or STAGES.find(loops[0], 0) < 2:
        return []
    steps = {_number(loop.operands[2]) for loop in loops}
    copies = {_copies(loop, forall) for loop in loops}
    one = len(steps) == 1 and None not in steps and len(copies) == 1 and () not in copies
    one = one and main_loop(loops, forall) is not None
    return loops if one and not _reads_results(forall, loops) else []


def main_loop(loops: list[Any], forall: Any) -> Any:
    """The one without masks, all of whose tiles exist; None if there is none, or are several."""
    found = []
    for loop in loops:
        loads = staged_loads(loop.regions[0].blocks[0], forall)
        windows = [load_window(op.results[0], forall) for op in loads]
        if all(w is not None and all(v is None for v in w.valid) for w in windows):
            found.append(loop)
    return found[0] if len(found) == 1 else None


def staged_loads(block: Any, forall: Any) -> list[Any]:
    """The loads of a block (not of loops in it) that have a place in shared memory."""
    found = []
    for op in (x.operation for x in block.operations):
        if op.name in _LOADS and LAYOUT.on(op) and LAYOUT.of(op).startswith("shared"):
            if load_window(op.results[0], forall) is not None:
                found.append(op)
    return found


def _copies(loop: Any, forall: Any) -> tuple[Any, ...]:
    loads = staged_loads(loop.regions[0].blocks[0], forall)
    windows = [load_window(op.results[0], forall) for op in loads]
    return tuple(
        (w.tensor, w.dims, w.shape, LAYOUT.of(op))
        for op, w in zip(loads, windows, strict=True) if w is not None
    )  # fmt: skip


def _reads_results(forall: Any, loops: list[Any]) -> bool:
    """Whether what bounds a loop, or a number that is read in front of one, is made of tiles."""
    waiting = [v for loop in loops for v in list(loop.operands)[:2]]
    while waiting:
        value = waiting.pop()
        op = defining_op(value)
        if op is None or not is_inside(value, forall):
            continue
        if op.name == "tensor.extract":
            waiting += list(op.operands)[1:]
            if is_inside(op.operands[0], forall):
                return True
        elif op.name in ("scf.for", "linalg.generic"):
            return True
        else:
            waiting += op.operands
    return False


def _number(value: Any) -> int | None:
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return None
    return int(op.attributes["value"].value)
