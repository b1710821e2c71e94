# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the contractions of a kernel take of a chip at given tile sizes, and the sizes that fit.

Part of the pass `tile`. A contraction holds its accumulator in registers. A factor that the
program computes (what becomes of one product and goes into the next) stands in registers as well,
beside the product that it comes from; factors that it loads stand in shared memory, those that are
streamed once for each of two stages. What is streamed for anything but a product goes to
registers, and so does the address of each element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import FusedNest, contractions
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.targets.resources import LOADED

# Rows and streamed elements, the best first. Rows are worth more: each fragment of a streamed
# tile that a warp loads then feeds more products. Fewer rows than 16 would be padding.
SIZES = (
    (128, 64), (128, 32), (64, 64), (64, 32), (32, 64), (32, 32), (32, 16), (16, 32), (16, 16)
)  # fmt: skip
NO_STREAM = -1  # in place of a streamed axis
STAGES = 2  # tiles of the stream in shared memory at once
BYTES = {"f16": 2, "bf16": 2, "f64": 8, "i8": 1, "f8E4M3FN": 1}


@dataclass(frozen=True)
class Room:
    """What a program may take: 32-bit registers of all threads, bytes of shared memory (0: any)."""

    registers: int
    shared: int


def narrow_axes(nests: Sequence[FusedNest], deep: bool = False) -> set[int]:
    """The axes of contractions with a factor in 16 bits; `deep`: only those that they sum over, of
    f32 too."""
    found: set[int] = set()
    for nest, *factors in contractions(nests):
        if deep or any(BYTES.get(f.dtype) == 2 for f in factors):
            found |= set(nest.reduced_axes if deep else nest.loops)
    return found


def taken(
    nests: Sequence[FusedNest], extent: Mapping[int, int], stream: int, stages: int = STAGES
) -> Room:
    """What the contractions take when a tile has so many points along each axis."""

    def points(axes: frozenset[int] | Sequence[int]) -> int:
        return math.prod(extent[a] for a in axes)

    made = {nest.key for nest in nests}
    registers, shared, products = 0, {}, set()
    for nest, *both in contractions(nests):
        products.add(nest.key)
        registers += points(nest.result_axes)
        narrow = any(BYTES.get(f.dtype) == 2 for f in both)
        for f in both:
            axes = T.axes_of(f)
            size = BYTES.get(f.dtype, 4) * points(axes)
            if f.attr not in made:
                shared[f] = size * (stages if stream in axes else 1)
                continue
            registers += points(axes)
            if not narrow:  # no matrix instruction takes it from there
                shared[f] = size
    loaded = {r for nest in nests for r in nest.reads if nest.key not in products}
    streamed = [T.axes_of(r) for r in loaded if r.attr not in made and stream in T.axes_of(r)]
    registers += LOADED * sum(map(points, streamed))
    return Room(registers, sum(shared.values()))


def fitting_sizes(
    nests: Sequence[FusedNest], domain: Sequence[int], extent: Mapping[int, int],
    rows: Sequence[int], stream: int, asked: tuple[int, int], room: Room,
) -> tuple[int, int]:  # fmt: skip
    """The first of SIZES, for row axes and for the streamed axis, that fits. Where registers are
    not counted, those asked, or of 64 points: fewer of the stream, if they find no place even once.

    Args:
        domain: the extents of all axes.
        extent: points of a tile along each other axis.
        rows: the row axes.
        asked: rows and streamed elements that are settled (0: not).
    """
    if not room.registers:
        best = (asked[0] or 64, asked[1] or 64)
        here = {**extent, **dict.fromkeys(rows, best[0]), stream: best[1]}
        if overfull(nests, here, domain, stream, room):
            return asked[0], _narrowed(nests, here, stream, room)
        return asked
    best = (0, 0)
    for size in SIZES:
        best = (asked[0] or size[0], asked[1] or size[1])
        here = {**extent, **dict.fromkeys(rows, best[0]), stream: best[1]}
        needed = taken(nests, here, stream)
        if needed.registers <= room.registers and (not room.shared or needed.shared <= room.shared):
            return best
    return best[0], asked[1] or _narrowed(nests, here, stream, room)


def _narrowed(
    nests: Sequence[FusedNest], extent: Mapping[int, int], stream: int, room: Room
) -> int:
    """Fewer points of the stream where products sum over other axes beside it, and have all of
    them at each point. A quarter of shared memory is left for what lies between rows.
    """
    points, products = extent[stream], (nest for nest, *_ in contractions(nests))
    if not any(stream in n.reduced_axes and len(n.reduced_axes) > 1 for n in products):
        return points
    while points > 1 and room.shared:
        if 4 * taken(nests, {**extent, stream: points}, stream).shared <= 3 * room.shared:
            break
        points //= 2
    return points


def fewer_reduced(
    nests: Sequence[FusedNest], extent: Mapping[int, int], domain: Sequence[int],
    order: Sequence[int], room: Room,
) -> dict[int, int]:  # fmt: skip
    """The axes to cut, of those that a product without a stream sums over, so that its factors find
    a place in shared memory: in this order, and to how many points. (A quarter of it is left.)"""
    here, found = _within(extent, domain), {}
    if not overfull(nests, extent, domain, NO_STREAM, room):
        return {}
    for axis in order:
        while here[axis] > 1 and 4 * taken(nests, here, NO_STREAM).shared > 3 * room.shared:
            here[axis] = found[axis] = here[axis] // 2
    return found


def overfull(
    nests: Sequence[FusedNest], extent: Mapping[int, int], domain: Sequence[int], stream: int,
    room: Room,
) -> bool:  # fmt: skip
    """Whether tiles of so many points, as far as there are that many, find no place in shared
    memory even once: then columns, which a tile else has all of, have to be cut. (Each program of a
    part of them computes again what is computed of their rows; else there is no program.)"""
    here = _within(extent, domain)
    return 0 < room.shared < taken(nests, here, stream, stages=1).shared


def _within(extent: Mapping[int, int], domain: Sequence[int]) -> dict[int, int]:
    return {a: n if domain[a] == DYNAMIC else min(n, domain[a]) for a, n in extent.items()}
