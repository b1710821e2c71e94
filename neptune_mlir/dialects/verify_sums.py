# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifier of results that programs add to (`neptune_mlir/dialects/sums.py`); see `verify`."""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.op_names import AWAITED, COUNT, TURN
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
    if len(op.operands) - 2 - len(strip) not in (0, COUNT, TURN, TURN + 1):
        raise Rejected(op, f"has {len(op.operands) - 2} offsets in a strip of rank {len(strip)}")
    if op.results[0].type != op.operands[1].type:
        raise Rejected(op, f"gives {op.operands[1].type}, not {op.results[0].type}")


@checked
def await_sums(op: Any) -> None:
    shape, _ = tensor_of(op, op.operands[0], "what is awaited")
    if "size" not in op.attributes or "tile" not in op.attributes:
        raise Rejected(op, "does not say how many rows it awaits, of tiles of how many")
    size, tile = (int(op.attributes[name].value) for name in ("size", "tile"))
    if len(op.operands) != 1 + len(shape) + AWAITED:
        raise Rejected(op, f"has {len(op.operands) - 1 - AWAITED} offsets in rank {len(shape)}")
    if size < 1 or tile < 0 or (tile and size % tile and tile % size):
        raise Rejected(op, f"awaits {size} rows of tiles of {tile}")
