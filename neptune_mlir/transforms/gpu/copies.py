# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies of ops of tile IR that read other values than the ops themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neptune_mlir.analysis.tiles import is_blank, is_inside
from neptune_mlir.ir.values import defining_op

_SCALARS = ("arith.", "affine.")


def is_free(op: Any) -> bool:
    """Whether an op is made again where it is read: scalar arithmetic or a blank tile."""
    return op.name.startswith(_SCALARS) or (len(op.results) == 1 and is_blank(op.results[0]))


def captured_values(op: Any) -> list[Any]:
    """The values that an op reads, its regions included, but for those made in its regions."""
    found = dict.fromkeys(op.operands)

    def visit(inner: Any) -> None:
        for region in inner.regions:
            for block in region.blocks:
                for nested in block.operations:
                    reads = (v for v in nested.operation.operands if not is_inside(v, op))
                    found.update(dict.fromkeys(reads))
                    visit(nested.operation)

    visit(op)
    return list(found)


class Copies:
    """Writes copies of ops of one block, at the insertion point.

    Args:
        block: that of the ops.
        values: what copies read in place of values of the block.
    """

    def __init__(self, block: Any, values: Mapping[Any, Any]):
        self.block, self.values = block, dict(values)

    def value(self, value: Any) -> Any:
        """What stands for a value here; index arithmetic and blank tiles are made again."""
        made = defining_op(value)
        if value in self.values:
            return self.values[value]
        if made is None or made.block != self.block or not is_free(made):
            return value
        self.write(made)
        return self.values[value]

    def write(self, op: Any) -> Any:
        """A copy of an op; what stands for its results from now on are those of the copy."""
        known = {v: self.value(v) for v in captured_values(op)}
        copy = op.clone().operation
        for inner in [copy, *_inside(copy)]:
            for k, operand in enumerate(inner.operands):
                if operand in known:
                    inner.operands[k] = known[operand]
        self.values.update(zip(op.results, copy.results, strict=True))
        return copy


def _inside(op: Any) -> list[Any]:
    found = []
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                found += [inner.operation, *_inside(inner.operation)]
    return found
