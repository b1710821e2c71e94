# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `sums-in-fragments`: what programs add up lies in memory as registers hold it (sm_90a).

An accumulator that a program adds to a result in memory has pairs of 8 rows in a warp. By rows, an
instruction would touch 8 of these by 32 bytes, or the tile would go through shared memory, which
all products of an iteration read as well. Sums do not care where an element lies, as long as each
program says the same: so such a result is marked, and has the order of `analysis.fragments`. Then
each thread adds 16 bytes at once, and a warp 512 in order. Kernels that read the result find its
elements there.

A warp issues in order, and memory takes 512 bytes at a time: what stands behind such adds waits for
them. Where that is half of another product's instructions (choice `early`), the tile goes through
shared memory, and the copy engine adds it. (Head dim 128: 4 and 13% slower so, 64: 2% faster.)
Where another warp adds (choice `adder`), nothing stands behind: it reads what lies there in order.

A result qualifies if it starts as what a kernel wrote of whole tiles, so that nothing of a tile is
beyond its end, if it is added to by accumulators with 16 rows a warp alone, and if all that read it
are elementwise kernels without consumers, which ask `Memory.address` for each element.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.fragments import COLUMNS, ROWS
from neptune_mlir.analysis.layouts import layout_of
from neptune_mlir.analysis.tiles import (
    added_at,
    foralls,
    multiple_of,
    nested,
    read_generic,
    shape_of,
    slice_parts,
    strip_slice,
    tuned,
)
from neptune_mlir.dialects.attributes import TARGET
from neptune_mlir.dialects.gpu_attributes import CONSUMERS, IN_FRAGMENTS, WHOLE
from neptune_mlir.dialects.op_names import ADD_SLICE, AWAIT_SUMS
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.nvidia import nvidia
from neptune_mlir.targets.warp_groups import GROUP_WARPS
from neptune_mlir.transforms.registry import register


@register("sums-in-fragments", "let what programs add up lie in memory as registers hold it")
def sums_in_fragments(module: Any) -> None:
    for forall in foralls(module):
        if not CONSUMERS.on(forall):
            continue
        if tuned(forall, "early", 0) and not tuned(forall, "adder", 0):
            continue
        added: dict[int, list[Any]] = {}
        for op in nested(forall.regions[0].blocks[0]):
            if op.name == ADD_SLICE:
                added.setdefault(_result_of(op, forall), []).append(op)
        chosen = [k for k, ops in added.items() if _qualifies(forall, k, ops)]
        if chosen:
            IN_FRAGMENTS.set(forall, chosen)


def _result_of(op: Any, forall: Any) -> int:
    """The number of the result that an `add_slice` adds to."""
    body = forall.regions[0].blocks[0]
    argument = strip_slice(op.operands[1]).operands[0]
    return int(argument.arg_number) - len(body.arguments) + len(forall.results)


def _qualifies(forall: Any, number: int, added: list[Any]) -> bool:
    start = list(forall.operands)[len(forall.operands) - len(forall.results) + number]
    kind, made = ir.RankedTensorType(start.type), defining_op(start)
    if kind.rank < 2 or str(kind.element_type) != "f32" or kind.is_dynamic_dim(kind.rank - 1):
        return False
    if made is None or made.name != "scf.forall" or kind.shape[-1] % COLUMNS:
        return False
    whole = all(_is_whole(op, kind.rank) and _is_in_strips(op, forall) for op in added)
    readers = [use.owner.operation for use in forall.results[number].uses]
    return whole and all(_is_elementwise(op) for op in readers if op.name != AWAIT_SUMS)


def _is_whole(op: Any, rank: int) -> bool:
    """Whether what is added is rows by whole columns of a result, and there is room for all."""
    width = shape_of(op.operands[0])[1]
    offsets, sizes, dims = slice_parts(strip_slice(op.operands[1]))
    *_, column = added_at(op)
    return bool(
        WHOLE.on(op) and tuple(dims) == (rank - 2, rank - 1) and multiple_of(column) == 0
        and offsets[rank - 2] == 0 and offsets[rank - 1] == 0 and sizes[rank - 1] == width
    )  # fmt: skip


def _is_in_strips(op: Any, forall: Any) -> bool:
    """Whether a tile is an accumulator of which each warp has 16 rows, all columns or those of its
    group."""
    value, warps = op.operands[0], GROUP_WARPS * CONSUMERS.of(forall)
    shape, made = shape_of(value), defining_op(value)
    if made is None or shape[0] % ROWS or warps % (shape[0] // ROWS):
        return False
    along = shape[0] // ROWS
    layout = layout_of(made, shape)
    grid = L.WarpGrid(along, warps // along, warps)
    instruction = nvidia(TARGET.of(forall)).matrix[0]  # any of them: accumulators are alike
    return shape[1] % (COLUMNS * grid.n) == 0 and bool(
        layout == L.accumulator(shape, 0, 1, grid, instruction)
    )


def _is_elementwise(op: Any) -> bool:
    """Whether an op that reads a result outside of its kernel is a slice of an elementwise kernel
    without consumers."""
    around = op.parent
    if op.name != "tensor.extract_slice" or around.name != "scf.forall" or CONSUMERS.on(around):
        return False
    return all(map(_computes_alone, _users(op)))


def _computes_alone(user: Any) -> bool:
    if user.name == "tensor.pad":
        return all(map(_computes_alone, _users(user)))
    return user.name == "linalg.generic" and not read_generic(user).reduced


def _users(op: Any) -> list[Any]:
    return [use.owner.operation for use in op.results[0].uses]
