# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a span of a loop is the longer, the larger a number is that was read from a tensor.

`None` where nobody knows; then whoever asks has to compute the span. What does not depend on the
number counts as not negative: extents, and numbers of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

_AFFINE = ("affine.apply", "affine.min", "affine.max")
_KEPT = ("arith.index_cast", "arith.extsi", "arith.trunci")
_SUMS = ("arith.addi", "arith.minsi", "arith.maxsi")
_DIVISIONS = ("arith.divui", "arith.divsi", "arith.floordivsi", "arith.ceildivsi")
_DIVIDED = (ir.AffineFloorDivExpr, ir.AffineCeilDivExpr)

NO, YES, ZERO = 0, 1, -1  # does not depend on the number, rises with it (or stays), is 0
Trend = int | None


class Rising:
    """How values follow a number that is read: the element of one tensor at one place."""

    def __init__(self, zeros: Iterable[Any], is_outside: Callable[[Any], bool]):
        """`zeros`: values that count as 0. `is_outside`: whether a value does not depend on what is
        read."""
        self._known: dict[Any, Trend] = dict.fromkeys(zeros, ZERO)
        self._is_outside = is_outside
        self.read: set[Any] = set()  # the ops that read the number

    def is_longer(self, low: Any, high: Any) -> bool:
        """Whether what lies between two values is the longer, the larger the number is."""
        return self.trend(low) in (NO, ZERO) and self.trend(high) == YES

    def trend(self, value: Any) -> Trend:
        if value not in self._known:
            self._known[value] = NO if self._is_outside(value) else self._found(value)
        return self._known[value]

    def _found(self, value: Any) -> Trend:
        op = defining_op(value)
        if op is None:
            return None
        if op.name == "tensor.extract":
            self.read.add(op)
            return YES
        of = [self.trend(operand) for operand in op.operands]
        if op.name == "arith.constant":
            return ZERO if _constant(op) == 0 else NO
        if op.name in _AFFINE:
            affine = ir.AffineMapAttr(op.attributes["map"]).value
            return _together([_of_expression(e, affine.n_dims, of) for e in affine.results])
        if op.name in _KEPT or op.name in _SUMS:
            return _together(of)
        if op.name == "arith.muli":
            return ZERO if ZERO in of else _together(of)
        if op.name in _DIVISIONS:
            return of[0] if of[1] in (NO, ZERO) else None
        return NO if all(t in (NO, ZERO) for t in of) else None


def _constant(op: Any) -> int | None:
    attribute = op.attributes["value"]
    return ir.IntegerAttr(attribute).value if isinstance(attribute, ir.IntegerAttr) else None


def _together(trends: Sequence[Trend]) -> Trend:
    if any(t is None for t in trends):
        return None
    if YES in trends:
        return YES
    return ZERO if trends and all(t == ZERO for t in trends) else NO


def _of_expression(expression: Any, dims: int, of: Sequence[Trend]) -> Trend:
    if isinstance(expression, ir.AffineConstantExpr):
        return ZERO if expression.value == 0 else NO
    if isinstance(expression, ir.AffineDimExpr):
        return of[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return of[dims + expression.position]
    left, right = (_of_expression(e, dims, of) for e in (expression.lhs, expression.rhs))
    if isinstance(expression, ir.AffineAddExpr):
        return _together([left, right])
    if isinstance(expression, ir.AffineMulExpr):
        if ZERO in (left, right):
            return ZERO
        falls = isinstance(expression.rhs, ir.AffineConstantExpr) and expression.rhs.value < 0
        return _together([left, right]) if not falls or left == NO else None
    if isinstance(expression, _DIVIDED):
        return left if right in (NO, ZERO) else None
    return NO if left in (NO, ZERO) and right in (NO, ZERO) else None
