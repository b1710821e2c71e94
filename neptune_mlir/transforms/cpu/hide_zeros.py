# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `hide-zeros`: in scalar code 0 times anything is 0, infinities and NaNs too; and what a mask
adds -inf to is -inf.

For the program as written, with which fused ones are compared. A fused program does not visit what
a mask leaves out, so what is there may be infinite: an input, or a square that overflows. The
program as written multiplies it by 0 and has a NaN. With this pass it has what the fused one has to
have there: what the elements make that are not left out (numerics.md).
"""

from __future__ import annotations

import math
from typing import Any

from neptune_mlir.dialects.program import functions
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.transforms.registry import register


@register("hide-zeros", "let 0 times anything be 0")
def hide_zeros(module: Any) -> None:
    products: list[Any] = []
    masked: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "arith.mulf":
            products.append(op)
        if op.name == "arith.addf":
            masked.extend((op, k) for k, value in enumerate(op.operands) if _is_mask(value))
        return ir.WalkResult.ADVANCE

    for function in functions(module):
        function.operation.walk(visit)
    for product in products:
        with ir.InsertionPoint(product), product.location:
            _hide(product)
    for total, place in masked:
        with ir.InsertionPoint(total), total.location:
            _leave_out(total, place)
    module.operation.verify()


def _hide(product: Any) -> None:
    """Each factor is 0 where the other one is."""
    a, b = product.operands
    zero = arith.constant(a.type, 0.0)
    nothing = [arith.cmpf(arith.CmpFPredicate.OEQ, factor, zero) for factor in (a, b)]
    for place, factor in ((0, a), (1, b)):
        product.operands[place] = arith.select(nothing[1 - place], zero, factor)


def _is_mask(value: Any) -> bool:
    """Whether a value is 0, or another one, where a condition holds, and else -inf."""
    select = value.owner
    if not isinstance(select, ir.Operation | ir.OpView) or select.name != "arith.select":
        return False
    cases = [case.owner for case in list(select.operands)[1:]]
    return any(
        isinstance(case, ir.Operation | ir.OpView) and case.name == "arith.constant"
        and ir.FloatAttr(case.attributes["value"]).value == -math.inf for case in cases
    )  # fmt: skip


def _leave_out(total: Any, place: int) -> None:
    """What a mask is added to is -inf where the mask is."""
    mask, value = total.operands[place], total.operands[1 - place]
    least = arith.constant(mask.type, -math.inf)
    gone = arith.cmpf(arith.CmpFPredicate.OEQ, mask, least)
    total.operands[1 - place] = arith.select(gone, least, value)
