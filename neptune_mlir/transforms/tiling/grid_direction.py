# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which way the last variable of a grid runs: so that programs with long streams begin first.

Of a triangle whose rows stream up to the diagonal the last rows are the long ones, so the variable
runs downwards. Where streams begin at the diagonal and end where the tensor does (keys that stream
the queries which see them), the first ones are, and it runs upwards. Which of both it is follows
from how many points two programs that are neighbours stream, in tensors of some size.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import is_inside
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import made_from
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.transforms.tiling.host_plan import HostReader

SOME = 1 << 16  # the extent of a tensor


def depends_on(value: Any, variable: Any, forall: Any) -> bool:
    """Whether a scalar of a tile program depends on a variable of its grid."""
    return variable in made_from([value], lambda v: is_inside(v, forall))


def runs_upwards(forall: Any, variable: Any) -> bool:
    """Whether programs stream the less, the larger a variable of the grid is."""
    ops = (op.operation for op in forall.regions[0].blocks[0].operations)
    bounds = [tuple(op.operands)[:2] for op in ops if op.name == "scf.for"]
    if not any(depends_on(low, variable, forall) for low, _ in bounds):
        return False
    try:
        first, second = (sum(_points(b, variable, at, forall) for b in bounds) for at in (0, 1))
    except LoweringError:  # data say it
        return False
    return first > second


def _points(bounds: tuple[Any, Any], variable: Any, at: int, forall: Any) -> int:
    reader = HostReader(forall.parent)
    reader.expressions.clear()  # of arguments: what is outside of the kernel is all SOME

    def number(value: Any) -> Any:
        if value in reader.expressions:
            return reader.expressions[value]
        if value == variable:
            found = at
        elif isinstance(value, ir.BlockArgument):
            found = 0 if is_inside(value, forall) else SOME
        elif not is_inside(value, forall) and value.owner.operation.name != "arith.constant":
            found = SOME
        else:
            op = value.owner.operation
            for operand in op.operands:
                number(operand)
            reader.scalar(op, op.name)
            return reader.expressions[value]
        reader.expressions[value] = found
        return found

    low, high = (evaluate(number(v), (), ()) for v in bounds)
    return max(0, int(high) - int(low))
