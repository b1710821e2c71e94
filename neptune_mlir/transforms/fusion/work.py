# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much more work nests do in one loop nest than each in its own: counts of points, no times.

A program holds one tile of every axis that is cut into programs. A member that lacks such an axis
is computed again for each of its tiles: beside a product with 4096 columns the sum of a norm costs
64 passes over rows that the product reads 4096 times, which is nothing; a second product with other
columns costs 64 products.

Axes that all members have are rows, cut at no cost. The others are columns: where a program can
hold all of them (COLUMNS) they are not cut.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from neptune_mlir.algebra import terms as T
from neptune_mlir.dialects.nests import DYNAMIC, Nest

COLUMNS = 512  # accumulators, side by side, that a program holds for a row (see the pass `tile`)
TILE = 64  # of columns that are cut
UNKNOWN = 1024  # what an extent counts that only a call knows
ROW = 4096  # elements that a program reads at once along the last dimension of an array
MOST = 1.5  # times the work of the nests on their own that is still worth one pass


@dataclass(frozen=True)
class Work:
    """The fused axes that a nest runs over, those that its result keeps, and those of them that
    number its products: all of its operands have them."""

    loops: frozenset[int]
    result: frozenset[int]
    numbers: frozenset[int]


def stacked(
    members: Sequence[Work], inner: Sequence[Work], sizes: Mapping[int, int], stream: int
) -> bool:
    """Whether a program would hold a stack of products, for a member reduces an axis that numbers
    them (the heads of P V under a projection): none of them has a tile then. A loop over that axis
    has one of them at a time, if nothing else of its elements is reduced (a sum over a batch)."""
    reduced = frozenset().union(*(m.loops - m.result for m in members))
    return any(
        any(sizes[a] != 1 for a in m.numbers & reduced)
        and bool((m.result if stream in m.numbers else m.numbers) & reduced - {stream})
        for m in inner
    )


def repetition(
    running: Sequence[Work], inner: Sequence[Work], sizes: Mapping[int, int], stream: int
) -> float:
    """The work of members in one loop nest, in multiples of their work in nests of their own.

    Args:
        running, inner: reductions that are carried through the loop, and that are computed in it.
        sizes: extents of the fused axes, DYNAMIC where only a call knows.
        stream: the axis of the loop.
    """
    extent = {a: UNKNOWN if n == DYNAMIC else n for a, n in sizes.items()}
    members = [*running, *inner]
    rows = frozenset.intersection(*(m.loops for m in members))
    columns = [m.result - rows - {stream} for m in running]
    held = sum(prod(extent[a] for a in own) for own in columns if own)
    cut = frozenset().union(*columns) if held > COLUMNS else frozenset()

    def points(member: Work) -> int:
        return prod(extent[a] for a in member.loops)

    def times(member: Work) -> int:
        return prod(-(-extent[a] // TILE) for a in cut - member.loops)

    return sum(points(m) * times(m) for m in members) / max(1, sum(map(points, members)))


def pieces(nest: Nest, loop: int, made: Container[str]) -> int:
    """Into how many pieces a reduced loop over arrays can be cut, each of which is read as it lies
    in memory. 0 for all loops where matrices are multiplied, or what other nests have `made` is
    reduced: there the first loop is as good as any."""
    reads = [r for r in T.reads(nest.body) if r.args and r.attr not in made]
    axes = [T.axes_of(r) for r in reads]
    if not any(loop in a for a in axes) or any(a - b and b - a for a in axes for b in axes):
        return 0
    size = UNKNOWN if nest.domain[loop] == DYNAMIC else nest.domain[loop]
    along = any(loop in T.axes_of(r.args[-1]) for r in reads)
    return -(-size // ROW) if along else size
