# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `equal-extents`: note which run-time extents of the arguments must agree.

Two arguments that nests read at the same loop position must be equally long there. What the
program leaves to run time (`?`) is checked by the runtime at each call, from the function's
attribute `neptune.equal_dims`: groups `[argument, dimension, factor, ...]`, where the products
of extent and factor must be equal. (A factor over 1 comes from reads such as `h floordiv 4`.)
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.attributes import EQUAL_DIMS
from neptune_mlir.dialects.op_names import MAP, READ, REDUCE
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.registry import register


@register("equal-extents", "note which run-time extents of the arguments must agree")
def equal_extents(module: Any) -> None:
    for function in module.body.operations:
        if function.operation.name == "func.func" and len(function.regions[0].blocks):
            groups = _groups(function.regions[0].blocks[0])
            if groups:
                EQUAL_DIMS.set(function.operation, groups)


def _groups(block: Any) -> list[list[int]]:
    # A node is a loop of a nest or a dimension of a tensor; its parent is equally long.
    parents: dict[Any, Any] = {}

    def root(node: Any) -> Any:
        while parents.get(node, node) != node:
            node = parents[node]
        return node

    def unite(a: Any, b: Any) -> None:
        parents[root(a)] = root(b)

    scaled: list[tuple[Any, Any, int]] = []  # loop, dimension of a tensor, divisor
    for number, op in enumerate(block.operations):
        if op.operation.name not in (MAP, REDUCE):
            continue
        for k, loop in enumerate(op.operation.attributes["result_axes"]):
            unite((number, int(loop)), (op.operation.results[0], k))
        for region in op.operation.regions:
            for inner in (i for b in region.blocks for i in b.operations):
                if inner.operation.name != READ:
                    continue
                indexing = ir.AffineMapAttr(inner.operation.attributes["map"]).value
                for k, e in enumerate(indexing.results):
                    dimension = (inner.operation.operands[0], k)
                    if isinstance(e, ir.AffineDimExpr):
                        unite((number, e.position), dimension)
                    elif isinstance(e, ir.AffineFloorDivExpr):
                        loop, divisor = e.lhs.position, e.rhs.value
                        scaled.append(((number, loop), dimension, divisor))
    members: dict[Any, dict[tuple[int, int, int], None]] = {}
    places = [
        (argument, k)
        for argument in block.arguments
        if isinstance(argument.type, ir.RankedTensorType)
        for k in range(argument.type.rank)
    ]
    for argument, k in places:
        members.setdefault(root((argument, k)), {})[argument.arg_number, k, 1] = None
    for loop, dimension, divisor in scaled:
        for argument, k in places:
            if root((argument, k)) == root(dimension):
                entry = (argument.arg_number, k, divisor)
                members.setdefault(root(loop), {})[entry] = None
    return [
        [number for entry in group for number in entry]
        for group in members.values()
        if len(group) > 1 and any(_dynamic(block, a, k) for a, k, _ in group)
    ]


def _dynamic(block: Any, argument: int, k: int) -> bool:
    return bool(block.arguments[argument].type.is_dynamic_dim(k))
