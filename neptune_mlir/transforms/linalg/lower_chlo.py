# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lower-chlo`: functions of the dialect CHLO as upstream's, element by element.

JAX exports squares, error functions, arcs and hyperbolic functions as ops of CHLO, which stands
above StableHLO. The conversion of StableHLO knows none of them and leaves them.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.transforms.registry import register

# ops of `math` with the name and the types of their CHLO twin
_SAME = {
    f"chlo.{name}": f"math.{name}"
    for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "erfc", "sinh",
                 "tan")
}  # fmt: skip
_SAME["chlo.is_inf"] = "math.isinf"


@register("lower-chlo", "turn functions of CHLO into those of `math` and `arith` on tensors")
def lower_chlo(module: Any) -> None:
    """Raises InputError for an op of the dialect that has no such form."""
    found: list[Any] = []

    def collect(op: Any) -> Any:
        if op.name.startswith("chlo."):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for op in found:
        with ir.InsertionPoint(op), op.location:
            new = _lowered(op)
        op.results[0].replace_all_uses_with(new.results[0])
        op.erase()


def _lowered(op: Any) -> Any:
    types, operands = [r.type for r in op.results], list(op.operands)
    if op.name == "chlo.square":
        return ir.Operation.create("arith.mulf", results=types, operands=operands * 2)
    if op.name not in _SAME:
        raise InputError(
            f"'{op.name}' has no lowering", loc=location_text(op.location),
            hint="keep it out of the program: compile what stands before and after it",
        )  # fmt: skip
    return ir.Operation.create(_SAME[op.name], results=types, operands=operands)
