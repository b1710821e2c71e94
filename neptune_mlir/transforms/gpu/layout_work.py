# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much there is to do in a kernel: what `assign-layouts` chooses warps by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.body_forms import Prefix, extents_held
from neptune_mlir.analysis.tiles import (
    Contraction,
    Generic,
    element_bytes,
    element_of,
    is_tensor,
    load_window,
    read_contraction,
    shape_of,
)
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.gpu import GpuTarget
from neptune_mlir.targets.resources import WARPS, row_lanes

LEAST = 16  # elements along each side of an instruction's result
SECTOR = 32  # bytes that memory gives at once


@dataclass(frozen=True)
class MatrixProduct:
    """On matrix instructions: whether a loop has it, and whether programs add up what it is."""

    rows: int
    columns: int
    streamed: bool
    adds: bool


def has_products(generics: Sequence[Generic]) -> bool:
    return any(map(read_contraction, generics))


def sums_rows(generics: Sequence[Generic]) -> bool:
    """Whether a kernel reduces along rows (last loops) alone."""
    reduced = {(k, len(g.extents) - 1) for g in generics for k in g.reduced}
    return not has_products(generics) and all(k == last for k, last in reduced)


def _reads_columns(generics: Sequence[Generic]) -> bool:
    """Whether something beside a tile has an element for each of its columns (last loops)."""
    return any(
        loops == (len(g.extents) - 1,) and g.is_read(k) and len(g.extents) > 1
        for g in generics for k, loops in enumerate(g.maps[:-1])
    )  # fmt: skip


def of_rows(
    generics: Sequence[Generic], shape: Sequence[int], vector: int, target: GpuTarget, warps: int
) -> tuple[bool, tuple[int, int] | None]:
    """Whether warps are to have rows of their own, and the dimension of rows with how many lanes
    are side by side along it: lanes have rows of their own (`row_lanes`) where warps have more.
    (Where nothing is reduced, and columns have numbers of their own, a thread has few columns.)"""
    if not any(g.reduced for g in generics) and _reads_columns(generics):
        return False, None
    apart = sums_rows(generics)
    if not apart or len(shape) != 2 or target.row_warps <= WARPS:
        return apart, None
    rows = 1 << max(0, (shape[0] // warps).bit_length() - 1)  # of a warp
    lanes = row_lanes(target, shape[1], vector, _reads_vectors(generics))
    beside = min(rows, target.wave // lanes)
    return apart, (0, beside) if beside > 1 else None


def _reads_vectors(generics: Sequence[Generic]) -> bool:
    """Whether vectors that all rows share lie along them (scales of a norm)."""
    return any(
        len(g.extents) == 2 and g.is_read(k) and tuple(loops) == (1,)
        for g in generics for k, loops in enumerate(g.maps[:-1]) if is_tensor(g.inputs[k])
    )  # fmt: skip


def work_of(generics: Sequence[Generic]) -> tuple[int, int]:
    """What a kernel without matrix instructions holds, in 32-bit words, or the points that it sums;
    and the elements of its tile of rows (0 where there are products)."""
    points = max((math.prod(extents_held(g)) for g in generics), default=0)
    if has_products(generics):  # each point is one step of them
        return points, 0
    return max(map(words_held, generics), default=0), points


def words_held(g: Generic) -> int:
    """32-bit words of the largest value of an elementwise op or a reduction, in registers: a
    layout has a power of two of points along each dimension."""
    widest = max((element_bytes(element_of(v)) for v in g.inputs if is_tensor(v)), default=4)
    return max(1, widest // 4) * math.prod(1 << (n - 1).bit_length() for n in extents_held(g))


def held_in(generics: Sequence[Generic], matrix: Mapping[Any, Contraction], loop: Any) -> int:
    """Accumulator elements of the products in a loop (of few rows, an instruction's)."""
    body = loop.regions[0].blocks[0]
    return sum(
        max(LEAST, g.extents[p.m]) * max(LEAST, g.extents[p.n])
        for g in generics
        if g.op.block == body and (p := matrix.get(g.result)) is not None
    )


def loaded_in(
    generics: Sequence[Generic], matrix: Mapping[Any, Contraction], loop: Any,
    is_loaded: Callable[[Any], bool],
) -> int:  # fmt: skip
    """32-bit words of the tiles that the products of a loop load."""
    body = loop.regions[0].blocks[0]
    loads = {
        v: math.prod(shape_of(v)) * element_bytes(element_of(v)) // 4
        for g in generics
        if g.op.block == body and g.result in matrix
        for v in g.inputs
        if is_loaded(v) and defining_op(v).block == body
    }
    return sum(loads.values())


def access_of(g: Generic, forall: Any) -> int:
    """Neighbouring elements that one access to memory may take, of what a generic loads along its
    last loop."""
    widths = [
        L.access_width(window, element_bytes(element_of(value)))
        for value, loops in zip(g.inputs, g.maps, strict=False)
        if loops and loops[-1] == len(g.extents) - 1
        and (window := load_window(value, forall)) is not None
    ]  # fmt: skip
    return max(widths, default=L.CHUNK)


def crossing_of(g: Generic, forall: Any) -> tuple[int, int] | None:
    """The loops along which the result of an elementwise op lies in memory, and all that it loads,
    where these are two."""
    if g.reduced or len(g.extents) < 2 or len(g.maps[-1]) != len(g.extents):
        return None
    loads = {
        at[-1] for value, at in zip(g.inputs, g.maps, strict=False)
        if len(at) == len(g.extents) and load_window(value, forall) is not None
    }  # fmt: skip
    to = g.maps[-1][-1]
    return (to, loads.pop()) if len(loads) == 1 and to not in loads else None


def crossed(g: Generic, loops: tuple[int, int], lanes: int, warps: int) -> L.Layout:
    """Which points a thread has where elements are loaded along one of two `loops` and stored along
    the other (`crossing_of`): lanes share sectors of both, and each stores 16 bytes at once."""
    size = element_bytes(element_of(g.result))
    order = [*(k for k in range(len(g.extents)) if k not in loops), loops[1], loops[0]]
    across = len(order) - 2, min(SECTOR // size, lanes // 2)
    return _in_order(g, order, lanes, warps, vector=L.CHUNK // size, across=across)


def sums_vectors(g: Generic, threads: int) -> bool:
    """Whether nothing that a reduction reads has all of its loops, and it has a result for each
    thread: lanes that shared a result would load no less, and exchange what each reduced."""
    whole = any(len(loops) == len(g.extents) for loops in g.maps[:-1])
    return bool(g.reduced) and not whole and math.prod(shape_of(g.result)) >= threads


def by_results(g: Generic, lanes: int, warps: int) -> L.Layout:
    """Which points a thread has that reduces by itself."""
    kept = [k for k in range(len(g.extents)) if k not in g.reduced]
    return _in_order(g, [*g.reduced, *kept], lanes, warps)


def by_prefixes(g: Generic, prefix: Prefix, lanes: int, warps: int, vector: int) -> L.Layout:
    """Which points a thread has of what a prefix goes through: neighbouring lanes have neighbouring
    runs of `vector` elements, and a warp all that lies between its first and its last."""
    along, extent = prefix.other, g.extents[prefix.other]
    run = vector if extent % vector == 0 else 1
    beside = min(lanes, 1 << (-(-extent // run) - 1).bit_length())  # lanes of a row
    lane, warp, done = [L.digit(along, beside, run)], [], dict.fromkeys(range(len(g.extents)), 1)
    rows = [k for k in range(len(g.extents)) if k not in (prefix.own, along)]
    left, free = lanes // beside, warps
    for k in reversed(rows):
        size = min(left, 1 << g.extents[k].bit_length() - 1)
        lane.append(L.digit(k, size, 1))
        left, done[k] = left // size, size
        size = min(free, 1 << (g.extents[k] // size).bit_length() - 1)
        warp.append(L.digit(k, size, done[k]))
        free, done[k] = free // size, done[k] * size
    blocks = -(-extent // (run * beside))
    share = min(free, 1 << (blocks - 1).bit_length())  # warps of a row
    blocks = -(-blocks // share)
    warp.append(L.digit(along, share, run * beside * blocks))
    reg = [L.digit(along, run, 1), L.digit(along, blocks, run * beside)]
    reg += [L.digit(k, -(-g.extents[k] // done[k]), done[k]) for k in rows]
    lane.append(L.digit(None, left))
    warp.append(L.digit(None, free // share))
    parts = (tuple(d for d in part if d.size > 1) for part in (reg, lane, warp))
    return L.Layout(g.extents, *parts)


def _in_order(
    g: Generic, order: Sequence[int], lanes: int, warps: int, **options: Any
) -> L.Layout:
    """`blocked` of the loops in another order."""
    made = L.blocked([g.extents[k] for k in order], lanes, warps, **options)
    return made.project([order.index(k) for k in range(len(order))])


def dims_of(layout: L.Layout) -> tuple[int, ...]:
    return tuple(range(len(layout.shape)))
