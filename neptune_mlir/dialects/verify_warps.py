# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifiers of ops about warps (`neptune_mlir/dialects/warps.py`); see `verify`."""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.verify import Rejected, check_counts, checked, numbers_of, tensor_of


@checked
def warp_all(op: Any) -> None:
    check_counts(op, operands=1)
    _, element = tensor_of(op, op.operands[0], "the operand")
    if str(element) != "i1":
        raise Rejected(op, f"needs elements of i1, got {element}")
    if str(op.results[0].type) != "i1":
        raise Rejected(op, f"gives an i1, not {op.results[0].type}")


@checked
def join(op: Any) -> None:
    check_counts(op, operands=1)
    tensor_of(op, op.operands[0], "the operand")
    if op.results[0].type != op.operands[0].type:
        raise Rejected(op, f"joins a {op.operands[0].type} to a {op.results[0].type}")
    for distance in numbers_of(op, "distances"):
        if distance < 1 or distance & (distance - 1):
            raise Rejected(op, f"needs distances that are powers of two, got {distance}")
    if len(numbers_of(op, "warps")) % 2:
        raise Rejected(op, "needs a distance and a size for each digit of warps")


@checked
def bare(op: Any) -> None:
    check_counts(op, operands=0, results=0)
