# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `add-in-order`: programs that add to one result read, add and write it, one by one.

    %s1 = neptune.add_slice %tile, %s0[%at]
    ->
    %old = tensor.extract_slice %s0[%at] [sizes of %tile]
    %new = linalg.generic { %old + %tile }
    %s1 = tensor.insert_slice %new into %s0[%at]

On a CPU one thread runs the programs that add to the same elements (`neptune.in_order`, which
`lower-to-tiles` set), in the order of their numbers, so the bits of the sum are always the same.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import added_at
from neptune_mlir.dialects.op_names import ADD_SLICE
from neptune_mlir.dialects.program import functions
from neptune_mlir.dialects.regions import operations_named
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import arith, ir, linalg, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.slices import extract_slice, slice_operands


@register("add-in-order", "let programs read, add to and write the result that they share")
def add_in_order(module: Any) -> None:
    for function in functions(module):
        for op in list(operations_named(function.operation, ADD_SLICE)):
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(_added(*op.operands[:2], *added_at(op)))
            op.erase()


def _added(tile: Any, strip: Any, *at: Any) -> Any:
    kind = ir.RankedTensorType(tile.type)
    at = tuple(map(_index, at))
    sizes = [_inside(tile, strip, d, place) for d, place in enumerate(at)]
    tile = extract_slice(tile, [0] * kind.rank, sizes, range(kind.rank))
    old = extract_slice(strip, at, sizes, range(kind.rank))
    access = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    loops = [ir.Attribute.parse("#linalg.iterator_type<parallel>")] * kind.rank
    op = linalg.GenericOp(
        [old.type], [tile], [old], ir.ArrayAttr.get([access] * 2), ir.ArrayAttr.get(loops)
    )
    block = op.regions[0].blocks.append(*[kind.element_type] * 2, arg_locs=[op.location] * 2)
    with ir.InsertionPoint(block):
        linalg.YieldOp([arith.addf(block.arguments[1], block.arguments[0])])
    return tensor.InsertSliceOp(op.results[0], strip, *slice_operands(at, sizes)).result


def _index(value: Any) -> Index:
    made = defining_op(value)
    constant = made is not None and made.name == "arith.constant"
    return ir.IntegerAttr(made.attributes["value"]).value if constant else value


def _inside(tile: Any, strip: Any, dim: int, at: Index) -> Index:
    """How much of a tile lies in front of the end of the strip."""

    def extent(value: Any) -> Index:
        kind = ir.RankedTensorType(value.type)
        return tensor.dim(value, ix.value(dim)) if kind.is_dynamic_dim(dim) else kind.shape[dim]

    return ix.minimum(extent(tile), ix.sub(extent(strip), at))
