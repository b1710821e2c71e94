# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `positions-ahead`: numbers that tiles decide, and that place loads, from a kernel ahead.

    scf.forall (%t, %h) {                  %e = scf.forall (%t) {
      %low = least of a tile of rows         %low = least of a tile of rows
      %at = tensor.extract %low[]            insert %low into %e[%t] }
      scf.for %j = %at to ...        ->    scf.forall (%t, %h) {
        load at %j                           %at = tensor.extract %e[%t]
                                             scf.for %j = %at to ...

A producer of specialised warps has no tiles of its own: it computes positions from loop variables
and from elements of tensors that are there when the kernel begins. Where the bounds of a stream
are the extrema of a vector of its rows (`ragged_attention`: the first and the last key of the
sequences in a tile of queries), they are found here once for each tile of rows, not in each
program.

A number qualifies if it is made of what the kernel reads and of the program's position alone.
All of a kernel are found by one kernel ahead of it, with a program for each position along the
axes of the grid that they depend on.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import foralls, is_inside
from neptune_mlir.dialects.attributes import KERNEL, OF_MASK
from neptune_mlir.ir.bindings import ir, scf, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.host_plan import captured, grid_bounds, nested_in
from neptune_mlir.transforms.tiling.slices import slice_operands

_PURE = ("linalg.", "arith.", "affine.", "tensor.")


@register("positions-ahead", "find numbers that tiles decide and that place loads in kernels ahead")
def positions_ahead(module: Any) -> None:
    for forall in foralls(module):
        if not OF_MASK.on(forall):
            with module.context, forall.location:
                _ahead(forall)


def _ahead(forall: Any) -> None:
    """Move what one kernel can have from a kernel ahead of it."""
    found: dict[Any, list[Any]] = {}  # a number's op -> what makes its tile, in order
    for op in [op.operation for op in forall.regions[0].blocks[0].operations]:
        if op.name == "tensor.extract" and len(op.operands) == 1 and _places(op.results[0]):
            made = _makers(op.operands[0], forall)
            if made:
                found[op] = made
    if not found:
        return
    variables = list(forall.regions[0].blocks[0].arguments)
    used = set(captured([op for made in found.values() for op in made]))
    dims = [d for d, v in enumerate(variables) if v in used]
    bounds = grid_bounds(forall.opview)[1]
    extents = [bounds[d] for d in dims]
    tiles = [op.operands[0] for op in found]
    unique = list(dict.fromkeys(tiles))
    with ir.InsertionPoint(forall):
        starts = [
            tensor.empty(extents, ir.RankedTensorType(tile.type).element_type) for tile in unique
        ]
        results = _kernel(forall, extents, dims, unique, list(found.values()), starts)
    for op, tile in zip(found, tiles, strict=True):
        with ir.InsertionPoint(op):
            at = [variables[d] for d in dims]
            number = tensor.ExtractOp(results[unique.index(tile)], at).result
        op.results[0].replace_all_uses_with(number)
        op.erase()
    for op in _backwards([op for made in found.values() for op in made]):
        if not any(True for v in op.results for _ in v.uses):
            op.erase()


def _backwards(made: list[Any]) -> list[Any]:
    """Ops of one block, each once, those behind first."""
    own = set(made)
    block = made[0].block
    return [op.operation for op in reversed(list(block.operations)) if op.operation in own]


def _kernel(
    forall: Any, extents: list[Any], dims: list[int], tiles: list[Any], made: list[list[Any]],
    starts: list[Any],
) -> list[Any]:  # fmt: skip
    """Emit the kernel ahead; returns its results, a number for each of its programs."""
    bounds = extents or [1]
    mapping = [ir.Attribute.parse(f"#gpu.block<linear_dim_{k}>") for k in range(len(bounds))]
    ahead = scf.ForallOp(
        [0] * len(bounds), bounds, [1] * len(bounds), starts, mapping=ir.ArrayAttr.get(mapping)
    )
    KERNEL.set(ahead.operation, f"{KERNEL.find(forall, 'kernel')}_positions")
    OF_MASK.set(ahead.operation)
    variables = list(forall.regions[0].blocks[0].arguments)
    ids = list(ahead.induction_variables)[: len(dims)]
    copies = {variables[d]: v for d, v in zip(dims, ids, strict=True)}
    with ir.InsertionPoint(ahead.body):
        for op in reversed(_backwards([op for ops in made for op in ops])):
            copy = op.clone()
            for inner in [copy, *nested_in(copy)]:
                for k, operand in enumerate(inner.operands):
                    inner.operands[k] = copies.get(operand, operand)
            copies.update(zip(op.results, copy.results, strict=True))
        parallel = scf.InParallelOp()
        with ir.InsertionPoint(parallel.block):
            for tile, out in zip(tiles, ahead.inner_iter_args, strict=True):
                place = slice_operands(ids, [1] * len(ids))
                tensor.ParallelInsertSliceOp(copies[tile], out, *place)
    return list(ahead.results)


def _places(value: Any) -> bool:
    """Whether a number bounds a loop or says where a slice begins, itself or through others."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in ("scf.for", "tensor.extract_slice"):
            return True
        if op.name.startswith(("arith.", "affine.")) and any(map(_places, op.results)):
            return True
    return False


def _makers(value: Any, forall: Any) -> list[Any] | None:
    """The ops of a kernel that make a tile; None if some of them needs more than what is there
    when the kernel begins, and the program's position."""
    body = forall.regions[0].blocks[0]
    positions = list(body.arguments)[: len(body.arguments) - len(forall.results)]
    made: dict[Any, None] = {}
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if one in positions or not is_inside(one, forall):
            continue
        op = defining_op(one)
        if op is None or op.block != body or not op.name.startswith(_PURE):
            return None
        if op not in made:
            made[op] = None
            waiting += captured([op])
    if not any(op.name == "linalg.generic" for op in made):
        return None  # no tile decides it
    return list(made)


