# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifier of views of tensors in pages (`neptune_mlir/dialects/paged.py`); see `verify`."""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.verify import Rejected, checked, integer_of, tensor_of
from neptune_mlir.ir.bindings import ir

NO_SLOT = -1


@checked
def paged(op: Any) -> None:
    shape, element = tensor_of(op, op.operands[0], "the tensor")
    columns, numbers = tensor_of(op, op.operands[1], "the table")
    dim, slot, column, size = (
        integer_of(op, name) for name in ("dim", "slot", "column", "page_size")
    )
    if not isinstance(numbers, ir.IntegerType):
        raise Rejected(op, f"looks pages up in a table of {numbers}; it holds integers")
    if not 0 <= column < len(columns) or len(op.operands) - 3 != len(columns) - 1:
        raise Rejected(
            op, f"takes {len(columns) - 1} positions in its table beside the column, got "
            f"{len(op.operands) - 3}",
        )  # fmt: skip
    if not 0 <= dim < len(shape) or not NO_SLOT <= slot < len(shape) or dim == slot:
        raise Rejected(op, f"has no dimensions {dim} and {slot} in a tensor of rank {len(shape)}")
    if size < 1 or (slot != NO_SLOT and shape[slot] != size):
        raise Rejected(op, f"page_size {size} is not the extent of dimension {slot}")
    dynamic = ir.ShapedType.get_dynamic_size()
    rows = [dynamic if d == dim else n for d, n in enumerate(shape) if d != slot]
    wanted = ir.RankedTensorType.get(rows, element, loc=ir.Location.unknown(op.context))
    if op.results[0].type != wanted:
        raise Rejected(op, f"gives {wanted}, not {op.results[0].type}")
