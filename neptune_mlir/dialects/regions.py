# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops in regions: finding them by name, and copying scalar code from one block into another (the
bindings have no IR mapping)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from neptune_mlir.ir.bindings import ir


def clone_scalar_code(
    block: Any,
    arguments: Mapping[Any, Any],
    special: Mapping[str, Callable[[Any], Any]] | None = None,
) -> list[Any]:
    """Clone the ops of `block` to the insertion point; returns what its terminator yields.

    Args:
        arguments: the new value of each block argument.
        special: by op name, a function from the op to the value that stands for its result;
            such ops are not cloned (where they stand in the block itself).
    """
    table = dict(arguments)
    *code, terminator = block.operations
    for op in code:
        operation = op.operation
        if special and operation.name in special:
            table[operation.results[0]] = special[operation.name](operation)
            continue
        copy = operation.clone()
        for part in _with_nested(copy):
            for k, operand in enumerate(part.operands):
                if operand in table:
                    part.operands[k] = table[operand]
        table.update(zip(operation.results, copy.results, strict=True))
    return [table.get(v, v) for v in terminator.operation.operands]


def _with_nested(op: Any) -> Iterator[Any]:
    yield op
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _with_nested(inner.operation)


def operations_named(root: Any, name: str) -> list[Any]:
    """The operations of a name, in a root and the regions in it."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == name:
            found.append(op)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return found
