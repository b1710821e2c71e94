# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `copies-to-linalg`: every `memref.copy` becomes a `linalg.copy`.

Upstream lowers a copy between strided arrays to a call of a runtime library that we do not have.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.ir.bindings import ir, linalg
from neptune_mlir.transforms.registry import register


@register("copies-to-linalg", "turn memref.copy into linalg.copy")
def copies_to_linalg(module: Any) -> None:
    copies: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "memref.copy":
            copies.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in copies:
        with ir.InsertionPoint(op), op.location:
            linalg.copy(op.operands[0], outs=[op.operands[1]])
        op.erase()
