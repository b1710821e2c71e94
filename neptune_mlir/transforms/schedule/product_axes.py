# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the axes of a kernel are to its products of two matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import FusedNest, contractions
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import PRODUCT


def looped_axis(op: Any, nests: Sequence[FusedNest], roomy: bool) -> int | None:
    """The axis that a program's loop runs over: the streamed one, and of a product of two matrices
    alone, where the target says what a program may hold (`roomy`), the one that it sums over."""
    if isinstance(op, N.StreamOp):
        return int(op.axis.value)
    if isinstance(op, N.ReduceOp) and roomy:
        reduced = {a for nest in nests for a in nest.reduced_axes}
        if len(reduced) == 1 and len(free_axes(nests)) > 1:
            return reduced.pop()
    return None


def free_axes(nests: Sequence[FusedNest]) -> set[int]:
    """The axes that only one operand of some contraction has."""
    free: set[int] = set()
    for nest, left, right in contractions(nests):
        free |= (T.axes_of(left) ^ T.axes_of(right)) & set(nest.result_axes)
    return free


def shared_axes(nests: Sequence[FusedNest]) -> set[int]:
    """The axes that both operands of every contraction have, and its result: these number
    products."""
    both = [
        T.axes_of(left) & T.axes_of(right) & set(nest.result_axes)
        for nest, left, right in contractions(nests)
    ]
    return set(frozenset.intersection(*both)) if both else set()


def product_parts(
    ends: Sequence[int], column: int | None, nests: Sequence[FusedNest], domain: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Which axis of a contraction's operands gives its rows, if any, and which others are columns
    of other contractions of these rows.

    The row is the last, of more than one point, that the other operand has and not the column's.
    """
    rest = [a for a in ends if a != column]
    theirs: set[int] = set()
    across: set[int] = set()
    for _, *both in contractions(nests):
        for mine, other in (both, both[::-1]):
            if column in T.axes_of(mine):
                theirs |= T.axes_of(mine)
                across |= T.axes_of(other) - T.axes_of(mine)
    candidates = [a for a in rest if a in across] or rest
    row = ([a for a in candidates if domain[a] != 1] or candidates)[-1:]
    return row, [a for a in rest if a not in (*candidates, *theirs)]


def note_product(
    op: Any, row: Sequence[int], column: int | None, axis: int, reduced: set[int], deep: bool
) -> None:
    """Note the axes of a product that is cut along its sum: that sums over nothing but the stream,
    or whose columns are streamed."""
    summed = sorted(reduced - {axis})
    if row and column is not None and not deep:
        PRODUCT.set(op.operation, (row[0], column, axis))
    elif row and column is None and len(summed) == 1:
        PRODUCT.set(op.operation, (row[0], axis, summed[0]))
