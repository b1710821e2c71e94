# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which bodies of `linalg.generic` add a product."""

from __future__ import annotations

from typing import Any

from neptune_mlir.ir.bindings import ir


def product_operands(block: Any) -> tuple[int, int] | None:
    """Positions of a and b when the body is `yield acc + a * b` (with extf on a and b)."""
    ops = [op.operation for op in block.operations]
    if len(block.arguments) != 3 or any(
        op.name not in ("arith.extf", "arith.mulf", "arith.addf", "linalg.yield") for op in ops
    ):
        return None
    acc = block.arguments[2]

    def argument(value: Any) -> int | None:
        if not isinstance(value, ir.BlockArgument) and value.owner.operation.name == "arith.extf":
            value = value.owner.operation.operands[0]
        if isinstance(value, ir.BlockArgument) and value.owner == block and value != acc:
            return int(value.arg_number)
        return None

    total = ops[-1].operands[0]
    if isinstance(total, ir.BlockArgument) or total.owner.operation.name != "arith.addf":
        return None
    terms = list(total.owner.operation.operands)
    products = [t for t in terms if t != acc]
    if len(products) != 1 or isinstance(products[0], ir.BlockArgument):
        return None
    product = products[0].owner.operation
    if product.name != "arith.mulf":
        return None
    a, b = argument(product.operands[0]), argument(product.operands[1])
    return None if a is None or b is None or a == b else (a, b)
