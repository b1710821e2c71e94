# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of maps: kernels that reduce nothing, and of GPUs those that read as memory lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.transforms.schedule.tile_cuts import part_of

OPERATIONS = 32  # of a map whose tile has 32 elements a thread
SQUARE = 64  # elements along each side of a tile that is read along one and written along the other
ELEMENTS = SQUARE * SQUARE // 2  # of a tile of a map whose rows are short


def map_rows(nests: Sequence[FusedNest], on_chip: bool) -> int:
    """Rows of a kernel without a contraction."""
    if not on_chip or any(nest.combiner for nest in nests):
        return 16
    bodies = [nest.body for nest in nests if nest.body is not None]
    operations = sum(not n.is_leaf for body in bodies for n in T.walk(body))
    return 1 << max(1, 16 * OPERATIONS // max(operations, OPERATIONS)).bit_length() - 1


def crossed_axes(nests: Sequence[FusedNest], parallel: Sequence[int]) -> tuple[int, ...]:
    """The axes along which a map writes and reads, where these are two: a tile has whole sectors of
    memory along both. None else."""
    if len(nests) != 1 or len(parallel) < 2:
        return ()
    reads = [r for r in nests[0].reads if len(T.axes_of(r)) > 1]
    along = {frozenset(T.axes_of(r.args[-1])) for r in reads}
    crossing = next(iter(along)) & {*parallel[:-1]} if len(along) == 1 else set()
    return (parallel[-1], *crossing) if len(crossing) == 1 else ()


def within_quotients(
    inner: int, sizes: Mapping[int, int], domain: Sequence[int], divided: Mapping[int, int],
    parallel: Sequence[int],
) -> dict[int, int]:  # fmt: skip
    """Of a map that reads along the axis `inner`, and elsewhere at that divided by a constant: a
    tile lies within a quotient, and has rows that make up for the rest."""
    found = {inner: part_of(divided[inner], sizes[inner] or domain[inner])}
    if parallel and parallel[-1] not in divided:
        found[parallel[-1]] = max(sizes[parallel[-1]], ELEMENTS // found[inner])
    return found
