# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of maps: kernels that reduce nothing, and of GPUs those that read as memory lies.

And those of prefixes, `out[i] = reduction over j <= i of x[j]`, on GPUs: a tile has all of both
axes, and threads compute its prefixes in one pass over what they hold
(`codegen/gpu/reductions/prefixes.py`). Of short rows it has as many as give each thread some
elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.targets.chips import gpu_target, is_known
from neptune_mlir.targets.resources import scan_tile, scanned
from neptune_mlir.transforms.schedule.tile_cuts import part_of

OPERATIONS = 32  # of a map whose tile has 32 elements a thread
SQUARE = 64  # elements along each side of a tile that is read along one and written along the other
ELEMENTS = SQUARE * SQUARE // 2  # of a tile of a map whose rows are short
# Elements of a row up to which prefixes have a tile like that of other reductions, and of a tile of
# what is reduced beside them
SHORT, PART = 64, 64


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


def prefix_axes(nest: FusedNest, domain: Sequence[int]) -> tuple[int, int] | None:
    """The axis of a nest's results and the one that it reduces, where it takes in what lies before
    each result, or behind it."""
    body = nest.body
    while body is not None and body.op == "cast":
        (body,) = body.args
    if nest.combiner is None or body is None or body.op != "select" or len(nest.reduced_axes) != 1:
        return None
    (j,) = nest.reduced_axes
    condition, value, _ = body.args
    if condition.op not in ("le", "lt", "ge", "gt"):
        return None
    sides = {side.attr for side in condition.args if side.op == "index"}
    others = [axis for axis in sides - {j} if axis in nest.result_axes]
    if len(sides) != 2 or len(others) != 1 or others[0] in T.axes_of(value):
        return None
    (i,) = others
    return (i, j) if domain[i] == domain[j] != DYNAMIC else None


def prefix_tile(
    nests: Sequence[FusedNest], domain: Sequence[int], parallel: Sequence[int], chip: str
) -> list[int] | None:  # fmt: skip
    """The tile of a kernel that scans rows; None of another."""
    found = {axes for nest in nests if (axes := prefix_axes(nest, domain)) is not None}
    if len(found) != 1 or not is_known(chip):
        return None
    ((i, j),) = found
    reduced = {a for nest in nests for a in nest.reduced_axes}
    if not SHORT < domain[j] <= scanned(gpu_target(chip)):
        return None
    sizes = dict.fromkeys(range(len(domain)), 1)
    sizes |= {a: min(domain[a], PART) for a in reduced} | {i: 0, j: 0}
    rows = [a for a in parallel if a != i]
    if rows:
        sizes[rows[-1]] = 1 << max(1, scan_tile(gpu_target(chip)) // domain[j]).bit_length() - 1
    return [0 if size == domain[a] else size for a, size in sizes.items()]
