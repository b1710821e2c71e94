# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which dialects (and single ops) each level may hold (docs/architecture.md), as a checked table.

Tests check it, and `NEPTUNE_VERIFY=1` does in every compilation.
"""

from __future__ import annotations

import os
from typing import Any

from neptune_mlir.dialects.op_names import MULTIPROCESSORS, PAGED
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text

_HOST = frozenset({"builtin", "func", "tensor", "arith", "math"})

LEGAL: dict[str, frozenset[str]] = {
    # linalg that could not be raised stays as it is, outside the nests
    "neptune": _HOST | {"neptune", "linalg", "affine"},
    "fused": _HOST | {"neptune", "linalg", "affine"},
    "tile": _HOST | {"scf", "linalg", "affine", MULTIPROCESSORS, PAGED},
}


def check(module: Any, level: str) -> None:
    """Raise LoweringError at the first op that does not belong to `level`."""
    allowed = LEGAL[level]
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if not {op.name, op.name.partition(".")[0]} & allowed:
            found.append(op)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    if found:
        raise LoweringError(
            f"'{found[0].name}' does not belong to the level '{level}', which holds "
            + ", ".join(sorted(allowed)),
            loc=location_text(found[0].location),
        )


def check_when_asked(module: Any, level: str) -> None:
    """`check`, where NEPTUNE_VERIFY asks for it."""
    if is_asked():
        check(module, level)


def is_asked() -> bool:
    """Whether NEPTUNE_VERIFY asks for checks that a compilation can do without."""
    return os.environ.get("NEPTUNE_VERIFY", "0") not in ("", "0")
