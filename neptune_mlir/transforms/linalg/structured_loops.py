# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loops of a linalg op on tensors, and the same op for a part of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.ir.bindings import arith, ir, linalg


@dataclass(frozen=True)
class Loops:
    """A linalg op on tensors, and the loops that index the dimensions of its operands.

    Attributes:
        maps: an index expression for each dimension of each operand.
        inputs: how many operands come before those that give the results their shapes.
    """

    op: Any
    maps: list[list[Any]]
    inputs: int

    @staticmethod
    def of(op: Any) -> Loops | None:
        """Those of an op, or None where it has none."""
        if not op.name.startswith("linalg.") or not op.results:
            return None
        maps = linalg.get_indexing_maps(op)
        inputs = len(op.operands) - len(op.results)
        tensors = (isinstance(v.type, ir.RankedTensorType) for v in list(op.operands)[inputs:])
        if maps is None or not all(tensors):
            return None
        return Loops(op, [list(getattr(m, "value", m).results) for m in maps], inputs)

    def reduced(self) -> list[int]:
        """The loops that no result has."""
        kept = {d for results in self.maps[self.inputs :] for e in results for d in dims_of(e)}
        found = {d for results in self.maps[: self.inputs] for e in results for d in dims_of(e)}
        return sorted(found - kept)

    def along(self, loop: int) -> list[tuple[Any, int]]:
        """The operands that a loop indexes, each with the dimension of which it does."""
        return [
            (value, dim)
            for value, results in zip(self.op.operands, self.maps, strict=True)
            for dim, e in enumerate(results)
            if loop in dims_of(e)
        ]

    def without(self, loop: int) -> list[Any]:
        """The input tensors that a loop does not index."""
        inputs = zip(list(self.op.operands)[: self.inputs], self.maps, strict=False)
        return [
            value for value, results in inputs
            if isinstance(value.type, ir.RankedTensorType)
            and not any(loop in dims_of(e) for e in results)
        ]  # fmt: skip

    def extent(self, loop: int) -> int | None:
        """The static extent of a loop, where a dimension says it."""
        for value, results in zip(self.op.operands, self.maps, strict=True):
            for dim, e in enumerate(results):
                if isinstance(e, ir.AffineDimExpr) and dims_of(e) == {loop}:
                    extent = ir.RankedTensorType(value.type).shape[dim]
                    return None if extent == DYNAMIC else extent
        return None

    def number(self, result: Any) -> int:
        """Which of the op's results a value is."""
        return next(k for k, other in enumerate(self.op.results) if other == result)

    def loop_of(self, number: int, dim: int) -> int | None:
        """The loop that a dimension of an operand is, if it is one."""
        expr = self.maps[number][dim]
        return ir.AffineDimExpr(expr).position if isinstance(expr, ir.AffineDimExpr) else None

    def rebuilt(self, operands: Sequence[Any], loop: int, offset: int) -> list[Any]:
        """The results of the op on other operands: those of its loop from `offset` on."""
        op = self.op.clone(ip=ir.InsertionPoint.current).operation
        for k, value in enumerate(operands):
            op.operands[k] = value
        for result, init in zip(op.results, operands[self.inputs :], strict=True):
            result.set_type(init.type)
        if offset:
            _move_positions(op.regions[0].blocks[0], loop, offset)
        return list(op.results)


def _move_positions(block: Any, loop: int, offset: int) -> None:
    """Positions along the loop count from where the whole loop starts."""
    for inner in list(block.operations):
        if inner.operation.name != "linalg.index" or inner.attributes["dim"].value != loop:
            continue
        position = inner.operation.results[0]
        with ir.InsertionPoint.after(inner), inner.location:
            index = ir.IndexType.get()
            start = arith.ConstantOp(index, ir.IntegerAttr.get(index, offset)).result
            moved = arith.AddIOp(position, start)
        position.replace_all_uses_except(moved.result, moved.operation)


def dims_of(expr: Any) -> set[int]:
    """The loops in an index expression."""
    if isinstance(expr, ir.AffineDimExpr):
        return {ir.AffineDimExpr(expr).position}
    if isinstance(expr, ir.AffineBinaryExpr):
        binary = ir.AffineBinaryExpr(expr)
        return dims_of(binary.lhs) | dims_of(binary.rhs)
    return set()
