# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of streams for calls of some length: rows that are read once or seldom, and what warp
groups take.

The stream gets a note of what later passes are to know, and of the lengths from which on other
tiles are better: kernels for these stand side by side (`pipelines/cases.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.analysis.fused_nests import FusedNest, nests_of
from neptune_mlir.analysis.tiles import multiple_of, note_choices, tuned
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import ALIGNABLE, LONGER, LONGER_FEW, ONE_TILE, SHORTER
from neptune_mlir.dialects.nests import DYNAMIC, Values
from neptune_mlir.targets import group_tiles, warp_groups
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.targets.tuned import Choice, Shape
from neptune_mlir.transforms.schedule import group_sizes
from neptune_mlir.transforms.schedule.map_tiles import map_rows
from neptune_mlir.transforms.schedule.product_axes import (
    chip_of,
    free_axes,
    is_contiguous,
    looped_axis,
    parallel_order,
)
from neptune_mlir.transforms.schedule.row_tiles import (
    FEW_FROM,
    RowCalls,
    is_read_again,
    kept_warps,
    most_few,
    row_tile,
    row_warps,
    rows_beside,
)
from neptune_mlir.transforms.schedule.tile_cuts import at_most
from neptune_mlir.transforms.schedule.wishes import Wishes

WHOLE_COLUMN = 512
LONG_TILE = 1024  # elements of one row, on CPUs: sums are folded and corrected once for so many


def long_rows(
    op: Any, nests: Sequence[FusedNest], reduced: set[int], wishes: Wishes
) -> tuple[int, int, int] | None:
    """The axis that rows lie along, of a stream or of a reduction alone, and rows and elements of a
    tile that reads them once or seldom; None: by the rule. Notes for which calls others are better.
    """
    streamed = isinstance(op, N.StreamOp)
    along = [a for a in sorted(reduced) if is_contiguous(a, nests)]
    alone = len(nests) == len(along) == 1 and not isinstance(op, N.GlobalOp)
    asked = streamed and (wishes.rows or wishes.stream)
    cut = bool(wishes.chunks) and streamed and not wishes.beside_products
    ruled = wishes.held or wishes.warp_groups or wishes.product_rows or (cut and chip_of(op))
    if streamed and _is_held(op, op.axis.value, nests, list(op.domain), wishes):
        ONE_TILE.set(op.operation)
        return op.axis.value, wishes.rows or map_rows(nests, bool(chip_of(op))), wishes.most
    if streamed and not (asked or chip_of(op)) and wishes.length:
        return (op.axis.value, 1, LONG_TILE) if is_contiguous(op.axis.value, nests) else None
    if asked or not ruled or not (streamed or alone):
        return None
    axis = op.axis.value if streamed else along[0]
    axis = along[0] if along and axis not in along else axis  # of several that are reduced
    beside, length = rows_beside(nests, axis, op.domain[axis], wishes)
    few = wishes.few if wishes.length or wishes.most else 0
    asked_for = RowCalls(wishes.held, length, few, wishes.most, cut, chip_of(op))
    rows, elements, starts = row_tile(op, nests, axis, asked_for)
    if wishes.most and elements == wishes.most and op.domain[axis] == DYNAMIC:
        ONE_TILE.set(op.operation)
    if elements and streamed and is_read_again(nests, axis):
        note_choices(op.operation, {"ahead": MULTIPROCESSORS})
    elif elements and streamed:  # what is read once is not kept for others
        note_choices(op.operation, {"once": 1})
    if elements and beside and streamed and axis == op.axis.value:
        SHORTER.set(op.operation, beside)
    kept = elements in (op.domain[axis], wishes.most) and rows == 1
    kept_by = kept and kept_warps(op, nests, axis, asked_for, elements)
    if kept_by:
        note_choices(op.operation, {"warps": kept_by, "stash": 1})
    elif warps := row_warps(op, nests, axis, rows, elements, asked_for):
        note_choices(op.operation, {"warps": warps})
    if starts and axis == looped_axis(op, nests, True):
        if op.domain[axis] == DYNAMIC:
            _note_lengths(op, starts)
        LONGER_FEW.set(op.operation, [FEW_FROM, most_few(op, nests, axis)])
    return (axis, rows, elements) if elements else None


def _is_held(
    op: Any, axis: int, nests: Sequence[FusedNest], domain: Sequence[int], wishes: Wishes
) -> bool:
    """Whether one tile is to have all of a streamed axis on a CPU (on chips: `long_rows`)."""
    if not wishes.most or wishes.stream or chip_of(op):
        return False
    fits = domain[axis] == DYNAMIC or domain[axis] <= wishes.most
    return fits and is_contiguous(axis, nests)


def sizes_for_groups(
    op: Any, nests: Sequence[FusedNest], wishes: Wishes, column: int | None
) -> tuple[int, int, int, Shape]:
    """For warp groups, a tile's rows, points of the stream and columns, and what the stream is
    like; notes what later passes are to know. `column` is uncut."""
    domain, axis = list(op.domain), looped_axis(op, nests, True)
    assert axis is not None
    aligned = group_sizes.shape_of(nests, domain, axis, column, aligned=True)
    shape = aligned
    if not wishes.aligned:
        shape = group_sizes.shape_of(nests, domain, axis, column, whole=_whole_axes(op))
    if aligned != shape:
        ALIGNABLE.set(op.operation)
    known, chip = domain[axis] != DYNAMIC, chip_of(op)
    length = domain[axis] if known else wishes.length
    choice = group_sizes.choose(chip, shape, length, 0 if wishes.rows else wishes.few)
    asked = wishes.rows, wishes.stream, wishes.product_columns
    choice = group_sizes.resized(shape, choice, *asked, chunks=bool(wishes.chunks))
    if tuned(op.operation, "adder", 0):  # said by `join-streams`
        choice = replace(choice, adder=tuned(op.operation, "adder", 0))
    if more := choice.beyond_sizes() | ({"boxes": 1 + wishes.aligned} if shape.boxes else {}):
        note_choices(op.operation, more)
    if not known and not wishes.length and not wishes.few:
        starts = {n for s in (shape, aligned) for n in group_sizes.lengths(chip, s)}
        _note_lengths(op, sorted(starts))
    cut = choice.columns or group_tiles.columns(shape)
    return choice.rows, choice.stream, cut, shape


def _whole_axes(op: Any) -> set[int]:
    """The axes of a stream whose extents only a call knows, in whole chunks for these calls."""
    dynamic = [a for a, extent in enumerate(op.domain) if extent == DYNAMIC]
    extents = zip(dynamic, op.extents, strict=True)
    return {a for a, extent in extents if multiple_of(extent) % warp_groups.CHUNK == 0}


def is_uncut(column: int | None, domain: Sequence[int]) -> bool:
    """Whether a program of a stream has all columns."""
    return column is not None and at_most(domain[column], WHOLE_COLUMN)


def group_choice(
    stream: Any, least: int = 0, few: int = 0, rows: int = 0
) -> tuple[Shape, Choice] | None:
    """What a stream of `least` points or more is like, and what warp groups take for it (`few`,
    `rows`: as asked for); None without products of rows and uncut columns."""
    nests, domain, axis = nests_of(stream, Values()), list(stream.domain), stream.axis.value
    reduced = {a for nest in nests for a in nest.own_axes}
    parallel = parallel_order(nests, {*range(len(domain))} - reduced - {axis})
    free = free_axes(nests)
    ends = [a for a in parallel if a in free]
    if len(ends) < 2 or not is_uncut(ends[-1], domain):
        return None
    shape = group_sizes.shape_of(nests, domain, axis, ends[-1], whole=_whole_axes(stream))
    length = domain[axis] if domain[axis] != DYNAMIC else least
    choice = group_sizes.choose(chip_of(stream), shape, length, few)
    return shape, group_sizes.resized(shape, choice, rows, 0)


def _note_lengths(op: Any, lengths: Sequence[int]) -> None:
    if lengths:
        LONGER.set(op.operation, lengths)
