# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SSA values, what they are computed from, and where operations lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from neptune_mlir.ir.bindings import ir


def defining_op(value: Any) -> Any | None:
    """The operation that makes `value`; None for a block argument."""
    return None if isinstance(value, ir.BlockArgument) else value.owner.operation


def made_from(values: Iterable[Any], enters: Callable[[Any], bool] = lambda _: True) -> set[Any]:
    """These values and all that they are computed from; of a value that `enters` is false of, not
    what it is computed from. A walk without recursion: chains of scalars are long."""
    pending = list(values)
    found = set(pending)
    while pending:
        value = pending.pop()
        if isinstance(value.owner, ir.Block) or not enters(value):
            continue
        for operand in value.owner.operands:
            if operand not in found:
                found.add(operand)
                pending.append(operand)
    return found


def module_of(op: Any) -> Any:
    """The operation in which `op` lies and that lies in no other."""
    op = op.operation
    while op.parent is not None:
        op = op.parent
    return op
