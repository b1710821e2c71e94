# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifier of results that programs add to (`neptune_mlir/dialects/sums.py`); see `verify`."""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.op_names import TURN
from neptune_mlir.dialects.verify import Rejected, checked, tensor_of
from neptune_mlir.ir.bindings import ir


@checked
def add_slice(op: Any) -> None:
    tile, element = tensor_of(op, op.operands[0], "the tile")
    strip, held = tensor_of(op, op.operands[1], "the strip")
    if len(tile) != len(strip) or element != held:
        raise Rejected(op, f"adds {op.operands[0].type} to {op.operands[1].type}")
    if not isinstance(element, ir.FloatType):
        raise Rejected(op, f"adds elements of {element}; they are floats")
    if len(op.operands) - 2 not in (len(strip), len(strip) + TURN):
        raise Rejected(op, f"has {len(op.operands) - 2} offsets in a strip of rank {len(strip)}")
    if op.results[0].type != op.operands[1].type:
        raise Rejected(op, f"gives {op.operands[1].type}, not {op.results[0].type}")
