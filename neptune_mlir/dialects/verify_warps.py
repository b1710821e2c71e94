# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifiers of ops about warps (`neptune_mlir/dialects/warps.py`); see `verify`."""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.verify import _check, _count, _i64s, _Rejected, _tensor


@_check
def warp_all(op: Any) -> None:
    _count(op, operands=1)
    _, element = _tensor(op, op.operands[0], "the operand")
    if str(element) != "i1":
        raise _Rejected(op, f"needs elements of i1, got {element}")
    if str(op.results[0].type) != "i1":
        raise _Rejected(op, f"gives an i1, not {op.results[0].type}")


@_check
def join(op: Any) -> None:
    _count(op, operands=1)
    _tensor(op, op.operands[0], "the operand")
    if op.results[0].type != op.operands[0].type:
        raise _Rejected(op, f"joins a {op.operands[0].type} to a {op.results[0].type}")
    for distance in _i64s(op, "distances"):
        if distance < 1 or distance & (distance - 1):
            raise _Rejected(op, f"needs distances that are powers of two, got {distance}")


@_check
def bare(op: Any) -> None:
    _count(op, operands=0, results=0)
