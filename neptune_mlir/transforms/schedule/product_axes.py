# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the axes of a kernel are: to its results, to what it reads, and to its products of two
matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import FusedNest, contractions
from neptune_mlir.analysis.masks import masked_load
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import CHIP, PRODUCT
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.ir.values import module_of
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.transforms.schedule.tile_room import BYTES

BUSY = 4  # programs of a warp that keep a multiprocessor busy with loads
LOADED = 2 << 10  # bytes of a row that a program loads at once


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


def is_by_vector(nests: Sequence[FusedNest], axis: int | None) -> bool:
    """Whether all products of a kernel are of a matrix and a vector, summed along the streamed axis
    alone: memory is the bound, so they are rows that are reduced."""
    found = list(contractions(nests))
    for nest, left, right in found:
        own = T.axes_of(left) - T.axes_of(right), T.axes_of(right) - T.axes_of(left)
        if all(own) or not any(own) or nest.reduced_axes != (axis,):  # a sum of squares is none
            return False
    return bool(found)


def by_vector(
    sizes: dict[int, int], domain: Sequence[int], nests: Sequence[FusedNest],
    parallel: Sequence[int],
) -> int:  # fmt: skip
    """Notes the rows of a tile of a matrix that a vector is multiplied with: two share what they
    load of the vector, where there are enough for many programs on each multiprocessor. How many
    points it has of the sum; 0 for factors of 16 bits, of which a warp's own loads of both are
    better (bf16, 2048 x 1048576, one H200: 1340 us, in twos 2316)."""
    widest = max(BYTES.get(f.dtype, 4) for _, *both in contractions(nests) for f in both)
    if widest < 4:
        return 0
    extents = [domain[a] for a in parallel if domain[a] != 1]
    if extents and DYNAMIC not in extents and prod(extents) >= 2 * BUSY * MULTIPROCESSORS:
        row = [a for a in parallel if domain[a] != 1][-1]
        sizes[row] = 2 if domain[row] % 2 == 0 else 1
    return LOADED // widest


def is_alone(nests: Sequence[FusedNest], axis: int | None) -> bool:
    """Whether a kernel has one product, which sums over nothing but the streamed axis."""
    return [nest.reduced_axes for nest, *_ in contractions(nests)] == [(axis,)]


def is_turned(
    nests: Sequence[FusedNest], row: Sequence[int], column: int, axis: int | None
) -> bool:
    """Whether the columns of a product alone are better the rows of tiles of warp groups: the
    instruction takes a right factor of f32 only with what is summed along its rows in memory, and
    any left one, through registers. (No row of the result is reduced here.)"""
    if axis is None or len(row) != 1:
        return False
    found = list(contractions(nests))
    if len(found) != 1 or any(n.combiner and n is not found[0][0] for n in nests):
        return False
    made = {nest.key for nest in nests}
    along: dict[int, bool] = {}  # by the axis that a factor has alone
    for factor in found[0][1:]:
        axes = T.axes_of(factor)
        if factor.dtype != "f32" or factor.attr in made or not {axis} < axes:
            return False
        own = row[0] if row[0] in axes else column
        along[own] = own in axes and T.axes_of(factor.args[-1]) == {axis}
    return len(along) == 2 and along[row[0]] and not along[column]


def note_product(
    op: Any, nests: Sequence[FusedNest], row: Sequence[int], column: int | None, axis: int,
    reduced: set[int], deep: bool,
) -> None:  # fmt: skip
    """Note the axes of a product that is cut along its sum: that sums over nothing but the stream,
    or whose columns are streamed; and whether programs compute its factor of rows. (Not of one
    with another factor that they compute.)

    Where programs compute none, the copy engine brings both and makes 0 of what is beyond the sum's
    end. So the last tile is one of the same loop (`TileKernel.is_clipped`): a tile behind it would
    have slots of its own, and the loop half as many.
    """
    bodies = {nest.key: nest.body for nest in nests if nest.body is not None}
    computed = [
        f for _, *both in contractions(nests) for f in both
        if f.attr in bodies and masked_load(bodies[f.attr]) is None
    ]  # fmt: skip
    summed = sorted(reduced - {axis})
    if not row or any(row[0] not in T.axes_of(f) or deep for f in computed):
        return
    if column is not None and not deep:
        found = row[0], column, axis
    elif column is None and len(summed) == 1:
        found = row[0], axis, summed[0]
    else:
        return
    PRODUCT.set(op.operation, (*found, int(bool(computed))))


def chip_of(op: Any) -> str:
    """What the program is compiled for (`neptune.chip` of its module); "" where nobody said."""
    return CHIP.find(module_of(op), "")


def parallel_order(nests: Sequence[FusedNest], parallel: set[int]) -> list[int]:
    """Parallel axes in the order of the results' dimensions (those of the results with most
    parallel axes count most, of several the last nest's)."""
    order: list[int] = []
    for nest in sorted(reversed(nests), key=lambda n: -len(parallel & {*n.result_axes})):
        order = [a for a in nest.result_axes if a in parallel and a not in order] + order
    return order


def is_contiguous(axis: int, nests: Sequence[FusedNest]) -> bool:
    """Whether some nest reads along `axis` in a tensor's last dimension, or none reads at all. Of
    reads along several axes those along most count: a number of each row is soon read."""
    reads = [read for nest in nests for read in nest.reads if read.args]
    most = max((len(T.axes_of(read)) for read in reads), default=0)
    last = [read.args[-1] for read in reads if len(T.axes_of(read)) == most]
    return not last or any(axis in T.axes_of(position) for position in last)
