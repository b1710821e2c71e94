# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which results of a program may take the memory of which arguments.

    o[i, j] = a[i, j] + Σ_k x[i, k] * w[k, j]          o may be a

That holds where a kernel reads an argument only at the window of the result, each element by the
one thread that computes that element of the result, and no other kernel reads it: results are
written at the end of a kernel, when all that its threads read of these elements has been read.
Of an odd number of programs in pairs two blocks run the last one, and both would add: then it does
not hold, which only a call may know.

The plan says so (`Plan.in_place`). A caller who wants it passes the argument as `out=`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neptune_mlir.analysis.layouts import iteration_of
from neptune_mlir.analysis.tiles import is_view, read_generic, tuned
from neptune_mlir.dialects.attributes import POINTS
from neptune_mlir.dialects.gpu_attributes import ITERATION, LAYOUT, VIA
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.tiling.host_plan import grid_bounds

_INSERT, _SLICE = "tensor.parallel_insert_slice", "tensor.extract_slice"


def in_place(
    function: Any, arguments: int, expressions: Mapping[Any, Any]
) -> tuple[tuple[Any, ...], ...]:
    """Pairs of a result and a tensor argument whose memory it may take, by their numbers; a third
    entry is a number that has to be even (`Plan.in_place`).

    Args:
        function: the host function of tile IR on tensors, with layouts.
        arguments: how many it has; constants come after these.
        expressions: of the launch plan, of the host function's numbers.
    """
    block = function.regions[0].blocks[0]
    returned = list(block.operations)[-1].operation
    found = []
    for number, value in enumerate(returned.operands):
        forall = defining_op(value)
        if forall is None or forall.name != "scf.forall" or POINTS.on(forall):
            continue
        inserts = [_only_insert(forall, k) for k in range(len(forall.results))]
        if any(insert is None for insert in inserts):
            continue
        insert = inserts[list(forall.results).index(value)]
        even = _even(forall, expressions)
        found += [
            (number, k, *even) for k, argument in enumerate(list(block.arguments)[:arguments])
            if argument.type == value.type and _is_read_there(argument, forall, insert)
        ]  # fmt: skip
    return tuple(found)


def _even(forall: Any, expressions: Mapping[Any, Any]) -> tuple[Any, ...]:
    """How many programs there are along the variable in which those of a pair differ."""
    if not (pairs := tuned(forall, "pairs", 0)):
        return ()
    count = grid_bounds(forall)[1][-pairs]
    return (count if isinstance(count, int) else expressions[count],)


def _only_insert(forall: Any, k: int) -> Any:
    """The op that writes a kernel's result, at the end of the kernel; None if there are others."""
    inner = forall.regions[0].blocks[0]
    first = len(inner.arguments) - len(forall.results)
    users = [use.owner.operation for use in inner.arguments[first + k].uses]
    if len(users) != 1 or users[0].name != _INSERT or is_view(users[0].operands[0], forall):
        return None
    return users[0]


def _is_read_there(argument: Any, forall: Any, insert: Any) -> bool:
    """Whether all that is read of an argument is the window that a kernel writes, by the threads
    that compute what is written."""
    made = defining_op(insert.operands[0])
    if made is not None and made.name == _SLICE:  # what is valid of a tile
        made = defining_op(made.operands[0])
    if made is None or made.name != "linalg.generic":
        return False
    users = [use.owner.operation for use in argument.uses]
    slices = [op for op in users if op.name != "tensor.dim"]
    return bool(slices) and all(
        op.name == _SLICE and op.parent == forall and _window(op, 1) == _window(insert, 2)
        and all(_is_read_by(use, made) for use in op.results[0].uses)
        for op in slices
    )  # fmt: skip


def _window(op: Any, first: int) -> tuple[Any, ...]:
    """Offsets, sizes and strides of a slice, whose own operands begin at `first`."""
    parts = ("static_offsets", "static_sizes", "static_strides")
    return *(str(op.attributes[name]) for name in parts), *list(op.operands)[first:]


def _is_read_by(use: Any, made: Any) -> bool:
    """Whether a tile is loaded to registers, each element by one thread: the one that computes the
    element of the result in the op `made`."""
    op = use.owner.operation
    if op.name == "tensor.pad":
        return not LAYOUT.on(op) and all(_is_read_by(u, made) for u in op.results[0].uses)
    if op.name != "linalg.generic" or VIA.find(op) != "registers":
        return False
    if VIA.find(made) != "registers" or ITERATION.of(op) != ITERATION.of(made):
        return False
    g, written = read_generic(op), read_generic(made)
    same = tuple(range(len(g.extents)))
    if not g.maps[use.operand_number] == g.maps[-1] == written.maps[-1] == same:
        return False
    points = iteration_of(op, g.extents)
    return all(d.dim is not None or d.size == 1 for d in (*points.lane, *points.warp))
