# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `reorder-sums`: scalar loops that add up floats go through their elements in another order.

For the program as written, with which fused ones are compared: nothing says in which order a sum
adds up its elements, and a program that is exact in one order only is so by luck
(`algebra/numerics/orders.py`). `order` is the number of one; 0 changes nothing. A loop adds up
where its only store is of a sum of floats, at a place that the loop's index does not choose.
Nor does anything say whether a product is rounded before it is added: odd orders let it be a part
of one fused multiply-add.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra.numerics.orders import PARTS, way_of
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.transforms.registry import register

_CONTRACTED = ("arith.addf", "arith.subf", "arith.mulf")


@register("reorder-sums", "let scalar loops that add up floats take another order")
def reorder_sums(module: Any, *, order: int = 0) -> None:
    loops: list[Any] = []
    contract = ir.Attribute.parse("#arith.fastmath<contract>", module.context)

    def visit(op: Any) -> Any:
        if op.name == "scf.for" and _adds_up(op):
            loops.append(op)
        elif op.name in _CONTRACTED and order % 2:
            op.attributes["fastmath"] = contract
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for number, loop in enumerate(loops):
        start, back = way_of(number, order)
        if start or back:
            _turn(loop, start, back)


def _adds_up(loop: Any) -> bool:
    stores: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "memref.store":
            stores.append(op)
        return ir.WalkResult.ADVANCE

    loop.operation.walk(visit)
    if len(stores) != 1 or len(loop.operation.results):
        return False
    value, _, *places = stores[0].operands
    is_sum = isinstance(value.owner, ir.Operation | ir.OpView) and value.owner.name == "arith.addf"
    index = loop.regions[0].blocks[0].arguments[0]
    return is_sum and not any(_depends(place, index) for place in places)


def _depends(value: Any, index: Any) -> bool:
    if value == index:
        return True
    owner = value.owner
    return not isinstance(owner, ir.Block) and any(_depends(v, index) for v in owner.operands)


def _turn(loop: Any, start: int, back: bool) -> None:
    """Element k of [low, high) is read where k was: behind `start` parts of the length, round the
    end, from there on forwards or backwards."""
    body = loop.regions[0].blocks[0]
    index, (low, high, step) = body.arguments[0], list(loop.operands)[:3]
    uses = [(use.owner, use.operand_number) for use in index.uses]
    with ir.InsertionPoint.at_block_begin(body), loop.location:
        kind = index.type
        length = arith.subi(high, low)
        parts, many = (arith.constant(kind, n) for n in (start, PARTS))
        steps = arith.divui(length, step)
        shift = arith.muli(arith.divui(arith.muli(steps, parts), many), step)
        at = arith.subi(arith.subi(high, step), index) if back else arith.subi(index, low)
        moved = arith.remui(arith.addi(at, shift), length)
        place = arith.addi(moved, low)
    for owner, number in uses:
        owner.operands[number] = place
