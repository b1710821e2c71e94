# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`tile`: choose a tile size for every axis of every kernel (`neptune.tile`).

A size of 0 leaves an axis uncut. Sizes that a schedule has set already stay. The default rule
looks at the part that an axis plays, never at what the program is for:

* the streamed axis: 64 with a contraction in the kernel, 256 without; 1 where it numbers products
  (all operands have it: a gradient that is summed over a batch);
* other reduced axes: uncut when static and at most 512 (256 for warp groups where columns are
  streamed); else 64, or 256 when the kernel has neither a contraction nor a contiguous parallel
  axis; a chunk axis is never cut; those of a contraction alone are cut until its factors fit what
  the target says (`shared`);
* parallel axes of a contraction: those that both operands share, 1; of the others the last
  is a column, uncut in a stream when static and at most 512 (cutting it would repeat what the
  rows share), else 64; of those that its partner has the last is rows, 64. Columns of other
  contractions of these rows are like it, all others 1;
* where the target says what a program may hold (`held`), rows and the streamed axis of a
  contraction take the first sizes of `tile_room.py` that fit; where it says what shared memory has
  alone (`shared`), a tile that has no place there even once has fewer points of the stream;
* where the target says so, a stream without a contraction takes whole rows, or what divides them,
  if it reads along these: a tile of ROW elements, or fewer where registers are few. On chips where
  a row may have a program of many warps (`row_warps`), so does a reduction alone; a row that is
  read again after it was reduced is held whole; and rows that nothing divides, or whose length only
  a call knows, have a tile by that length (`row_tiles.py`);
* on GPUs, where a nest takes in what lies before each of its results, or behind: all of both axes
  (`map_tiles.py`);
* parallel axes without a contraction: outside a stream (on GPUs also in one that reads do not run
  along) the last, when reads run along it, is uncut if static and at most 256, else 256 (in a join
  of more than FEW_CHUNKS, whose number is known at run time, `columns`); the last of the rest 16;
  all others 1;
* on GPUs a map of more than 32 operations has fewer rows: a thread spells all of its elements; one
  whose programs trade parts with another device has one: it is small, and waits for what is far;
* on CPUs, where streams along rows have a least `length`: LONG_TILE elements of one row
  (`stream_tiles.py`);
* without a contraction rows, then the streamed axis and other reduced ones are cut until a tile
  has TILE_WORDS, or fewer where registers do not hold these (`words`);
* an axis that is also read modulo a constant (pages), or by which a number is looked up: what
  divides both, so that a tile lies in one page; on GPUs tiles of a stream lie in several small
  pages (`page_sizes.py`);
* an axis that is also read divided by a constant: 1, a streamed one what divides the constant. But
  where the target asks for at least so many rows (`least`), and the rows of a contraction would be
  one, they are the points of that axis that read the same; without such an axis the one row is
  padded. The axes that such a target leaves uncut are padded to multiples of it in contractions of
  16-bit tensors; for warp groups those that contractions sum over, to what an instruction takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import FusedNest, contractions, nests_of
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import (
    FEW_ROWS,
    MEETS,
    ONE_TILE,
    TILE,
    TILE_FEW,
)
from neptune_mlir.dialects.nests import DYNAMIC, Values
from neptune_mlir.dialects.program import functions
from neptune_mlir.errors import ScheduleError, UsageError
from neptune_mlir.ir.bindings import location_text
from neptune_mlir.targets import group_tiles, warp_groups
from neptune_mlir.transforms.fusion.privatize import small_joins
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.schedule import group_sizes
from neptune_mlir.transforms.schedule.aligned_factors import align_factors
from neptune_mlir.transforms.schedule.join_tiles import chunks_of, fit_join
from neptune_mlir.transforms.schedule.like_tiles import like_readers
from neptune_mlir.transforms.schedule.map_tiles import (
    SQUARE,
    crossed_axes,
    map_rows,
    prefix_tile,
    within_quotients,
)
from neptune_mlir.transforms.schedule.page_sizes import size_across_pages
from neptune_mlir.transforms.schedule.product_axes import (
    by_vector,
    chip_of,
    free_axes,
    is_alone,
    is_by_vector,
    is_contiguous,
    is_turned,
    looped_axis,
    note_product,
    parallel_order,
    product_parts,
    shared_axes,
)
from neptune_mlir.transforms.schedule.row_tiles import ACROSS, columns_beside
from neptune_mlir.transforms.schedule.stream_tiles import (
    WHOLE_COLUMN,
    is_uncut,
    long_rows,
    sizes_for_groups,
)
from neptune_mlir.transforms.schedule.tile_cuts import (
    at_most,
    cut_to,
    divisors,
    equal_quotients,
    part_of,
    power_of_2,
    tiles_beside,
    within_pages,
)
from neptune_mlir.transforms.schedule.tile_room import (
    Room,
    fewer_reduced,
    fitting_sizes,
    narrow_axes,
    overfull,
)
from neptune_mlir.transforms.schedule.wishes import Wishes

WHOLE_REDUCED = 512
WHOLE_PARALLEL = 256
COLUMNS = (64, 32, 16)  # of a tile that does not have all
TILE_WORDS = (1 << 16, 4096)  # of a streamed tile without products: on CPUs, on GPUs
SHARING = 4  # rows of a tile that a row beside them is loaded for once
# Rows of a tile for calls with few: of a product that a program computes well; of the smallest one;
# one, beside those that share its operand.
FEW = (64, 16, 1)


@register("tile", "choose tile sizes for streams, globals and lone nests")
def tile(
    module: Any, *, sizes: str = "", rows: int = 0, stream: int = 0, columns: int = 0,
    held: int = 0, shared: int = 0, least: int = 0, warp_groups: int = 0, length: int = 0,
    few: int = 0, products: int = 0, aligned: int = 0, chunks: int = 0, product_rows: int = 0,
    product_stream: int = 0, product_columns: int = 0, most: int = 0, words: int = 0, nest: int = 0,
) -> None:  # fmt: skip
    """
    Args:
        nest: of this kernel of a function alone, the first is 1; 0: of all that have no sizes yet.
        sizes: all sizes of every stream, `1x1x64x64x0x0`.
        rows: instead of the rule's size for row axes.
        stream: instead of the rule's size for streamed axes.
        columns: instead of the rule's size for the contiguous axis of a join of many chunks.
        held: 32-bit registers, of all threads, that products of a program may take.
        shared: KiB of shared memory that the tiles of a program may take.
        least: rows of a product that cost the target as much as one.
        warp_groups: 1 for sizes that suit warp groups of 64 rows each (`specialize-warps`). A
            stream gets `neptune.longer`, the lengths from which on others would be better.
        few: 1 for such sizes where a launch has few programs, 2 where their streams are short too.
        length: the least extent of streamed axes that such sizes are for, where only a call says.
        products: instead of the rule's sizes for rows and streamed axes of streams with products.
        aligned: 1 if rows whose length only a call knows begin at multiples of 16 bytes. Warp
            groups have tiles of them brought by the copy engine. (`neptune.alignable`: it helps.)
        chunks: 1 where streams are cut into chunks behind this.
        product_rows: as `rows`, of streams with products alone; `product_stream`, as `stream`.
        product_columns: instead of the rule's columns of a tile of warp groups, where it cuts them.
        most: the greatest extent of streamed axes that sizes are for, where only a call says and
            there is no product; 0: there is none. One tile has all of such a stream.
        words: of a tile without products, instead of TILE_WORDS.
    """
    wishes = Wishes(
        rows, stream, columns, held, shared, least, warp_groups, length, few, products, aligned,
        chunks, product_rows, product_stream, product_columns, most, words,
    )  # fmt: skip
    given = _parse_sizes(sizes)
    for function in functions(module):
        if warp_groups and not nest:
            align_factors(function, kernel_ops(function))
        values, kernels = Values(), kernel_ops(function)
        read = [nests_of(op, values) for op in kernels]
        products = [op for op, nests in zip(kernels, read, strict=True) if free_axes(nests)]
        for number, (op, nests) in enumerate(zip(kernels, read, strict=True), start=1):
            wishes = replace(wishes, beside_products=any(other is not op for other in products))
            if TILE.on(op.operation) or nest not in (0, number):
                continue
            is_stream = isinstance(op, N.StreamOp)
            chosen = given if given and is_stream else default_tile(op, nests, wishes)
            if len(chosen) != len(list(op.domain)):
                raise ScheduleError(
                    f"{len(chosen)} tile sizes for {len(list(op.domain))} axes",
                    loc=location_text(op.operation.location),
                )
            TILE.set(op.operation, chosen)
            any_number = isinstance(op, N.GlobalOp) and op.domain[0] == DYNAMIC
            joins = small_joins(op.domain) if any_number else {}
            few = [(n, replace(wishes, columns=c)) for n, c in joins.items() if n < chosen[0]]
            if few:
                TILE_FEW.set(op.operation, [default_tile(op, nests, w, n) for n, w in few])
        if kernels and all(TILE.on(op.operation) for op in kernels) and chip_of(kernels[0]):
            like_readers(kernels, values)


def _parse_sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split("x")] if text else []
    except ValueError:
        sizes = [-1]
    if min(sizes, default=0) < 0:
        raise UsageError(f"tile sizes are written 1x64x0, one per axis, not '{text}'")
    return sizes


def kernel_ops(function: Any) -> list[Any]:
    """The ops of a function that carry tile sizes: streams, globals and lone nests."""
    found = []
    for op in function.regions[0].blocks[0].operations:
        view = op.operation.opview
        if isinstance(view, N.PrivateOp):
            view = view.body.blocks[0].operations[0].operation.opview
        if isinstance(view, N.StreamOp | N.GlobalOp | N.MapOp | N.ReduceOp | N.AccumulateOp):
            found.append(view)
    return found


def default_tile(
    op: Any, nests: Sequence[FusedNest], wishes: Wishes, chunks: int = 0
) -> list[int]:
    """The tile sizes that the default rule gives a kernel; of a join, for `chunks` at most."""
    axis = looped_axis(op, nests, bool(wishes.held or wishes.warp_groups))
    if axis in shared_axes(nests):
        wishes = replace(wishes, stream=wishes.stream or 1)
    domain, reduced = list(op.domain), {a for nest in nests for a in nest.own_axes}
    parallel = parallel_order(nests, {*range(len(domain))} - reduced - {axis})
    if scanned := prefix_tile(nests, domain, parallel, chip_of(op)):
        return scanned
    free = _free(op, nests, axis)
    wishes, rows, stream = wishes.of(bool(free) and axis is not None)
    is_map = bool(chip_of(op)) and not reduced and axis is None
    if is_map:
        parallel = [a for a in parallel if domain[a] != 1] or parallel
    inner = _inner(op, parallel, nests, axis) if not free else None
    most = 0  # elements of a tile of rows that are read once
    sizes = dict.fromkeys(range(len(domain)), 1)
    panel = group_sizes.panel_of(nests) if free and wishes.warp_groups else 64
    part = panel if free or inner is not None else 256
    sizes |= _reduced_sizes(op, reduced, part, chunks)
    row: list[int] = []
    column = None
    if free:
        ends = [a for a in parallel if a in free]
        row, column, stream = _product_tile(op, nests, wishes, ends, (rows, stream), sizes)
    else:
        stream, most = _row_sizes(sizes, op, nests, parallel, axis, reduced, wishes)
    if inner is not None:
        across, beside = 0, 0
        if not stream:
            cut = bool(wishes.chunks)
            across, beside = columns_beside(op, nests, axis, inner, chip_of(op), cut)
        stream, most = (across, power_of_2(across) * beside) if beside else (stream, most)
        if axis is None and chip_of(op) and isinstance(op, N.ReduceOp):
            beside, most = _alone_across(op, nests, reduced, inner, sizes)
        width = beside or WHOLE_PARALLEL
        sizes[inner] = 0 if at_most(domain[inner], width) else width
        if isinstance(op, N.GlobalOp):
            fit_join(sizes, op, parallel, inner, nests, wishes, bool(chip_of(op)))
    divided = divisors(nests)
    pieces = is_map and inner in divided
    within = within_quotients(inner, sizes, domain, divided, parallel) if pieces else {}
    sizes.update(dict.fromkeys(divided, 1) | within)
    across = None  # the axis whose tiles lie in several pages
    if axis is not None:
        sizes[axis], across = _stream_size(op, nests, axis, stream, bool(wishes.warp_groups))
    chosen = {a: _clip(sizes[a], domain[a]) for a in range(len(domain))}
    if not free:
        order = [*parallel[::-1], *_outer_first(reduced | ({axis} - {None}), nests)]
        limit = max(wishes.words or TILE_WORDS[bool(chip_of(op))], most) // _words(nests)
        chosen |= cut_to(limit, order, chosen, domain, tiles_beside(op, nests), divided)
    elif row:
        shared = {a: n for a, n in divided.items() if a in parallel}
        chosen |= _few_rows(op, nests, row[0], shared, wishes)
    chosen |= _whole_pieces(nests, domain, chosen, wishes)
    if wishes.warp_groups and column is not None and is_alone(nests, axis):
        chosen[column] = warp_groups.whole_width(chosen[column], domain[column])
    return _said_whole(op, axis, within_pages(chosen, nests, domain, across), wishes.most)


def _said_whole(op: Any, axis: int | None, sizes: list[int], most: int) -> list[int]:
    """The sizes. A stream that was to be in one tile is not said to be where what is looked up for
    each tile cut it."""
    if axis is not None and ONE_TILE.on(op.operation):
        whole = most if list(op.domain)[axis] == DYNAMIC else list(op.domain)[axis]
        if 0 < sizes[axis] < whole:
            ONE_TILE.drop(op.operation)
    return sizes


def _product_tile(
    op: Any, nests: Sequence[FusedNest], wishes: Wishes, ends: Sequence[int],
    asked: tuple[int, int], sizes: dict[int, int],
) -> tuple[list[int], int | None, int]:  # fmt: skip
    """Notes the sizes of the axes that one operand of some product has alone. Those of rows, that
    of columns, and the points of the stream.

    Args:
        ends: these axes, in the results' order.
        asked: rows and points of the stream, 0 for the rule's.
    """
    (rows, stream), domain, cut = asked, list(op.domain), 64  # columns
    axis = looped_axis(op, nests, bool(wishes.held or wishes.warp_groups))
    row, column, more = _ends(nests, domain, ends, axis, wishes)
    whole = {a for a in more if axis is not None and at_most(domain[a], WHOLE_COLUMN)}
    uncut = axis is not None and is_uncut(column, domain)
    if wishes.warp_groups and axis is not None and rows in group_sizes.ROWS:
        rows, stream, cut, shape = sizes_for_groups(op, nests, wishes, column if uncut else None)
        reduced, deep = {a for nest in nests for a in nest.own_axes}, shape.depth > 1
        note_product(op, nests, row, column, axis, reduced, deep)
        uncut = uncut and (deep or at_most(domain[column], cut))
        if group_tiles.is_deep(shape):
            sizes.update(dict.fromkeys(reduced - {axis}, group_tiles.panel(shape)))
    elif axis is not None and (wishes.held or wishes.shared):
        columns = {} if column is None else {column: domain[column] if uncut else 64}
        rest = {a: sizes[a] or domain[a] for a in sizes} | columns
        rest |= {a: domain[a] if a in whole else 64 for a in more}
        room = Room(wishes.held, wishes.shared << 10)
        rows, stream = fitting_sizes(nests, domain, rest, row, axis, (rows, stream), room)
        rest |= {**dict.fromkeys(row, rows), axis: stream}
        if column is not None and overfull(nests, rest, domain, axis, room):
            narrow = [{**rest, column: n} for n in COLUMNS]
            fits = (n for n in narrow if not overfull(nests, n, domain, axis, room))
            uncut, cut = False, next(fits, narrow[0])[column]
    across = {} if column is None else {column: 0 if uncut else cut}
    sizes.update(dict.fromkeys(row, rows or 64) | across)
    sizes.update((a, 0 if a in whole else cut) for a in more)
    if axis is None and wishes.shared:
        here = {a: n or domain[a] for a, n in sizes.items()}
        order = _outer_first({a for nest in nests for a in nest.reduced_axes}, nests)
        room = Room(0, wishes.shared << 10)
        sizes.update(fewer_reduced(nests, here, domain, order, room))
    return row, column, stream


def _free(op: Any, nests: Sequence[FusedNest], axis: int | None) -> set[int]:
    """The axes that one operand of some product has alone; none where chips take products for rows
    that are reduced."""
    return set() if chip_of(op) and is_by_vector(nests, axis) else free_axes(nests)


def _ends(
    nests: Sequence[FusedNest], domain: Sequence[int], ends: Sequence[int], axis: int | None,
    wishes: Wishes,
) -> tuple[list[int], int | None, list[int]]:  # fmt: skip
    """Of the axes that one operand has alone: those of rows, that of columns, others of columns."""
    column = ends[-1] if len(ends) > 1 or axis is None else None
    row, more = product_parts(ends, column, nests, domain)
    if wishes.warp_groups and column is not None and is_turned(nests, row, column, axis):
        return [column], row[0], more
    return row, column, more


def _row_sizes(
    sizes: dict[int, int], op: Any, nests: Sequence[FusedNest], parallel: Sequence[int],
    axis: int | None, reduced: set[int], wishes: Wishes,
) -> tuple[int, int]:  # fmt: skip
    """Set the sizes of rows, and of what they lie along, of a kernel without products; returns that
    of the streamed axis (0: by the rule) and how many elements a tile may have for it."""
    rows, stream, most = wishes.rows, wishes.stream, 0
    is_map = chip_of(op) and not reduced and axis is None
    if is_map and (crossed := crossed_axes(nests, parallel)):
        sizes.update(dict.fromkeys(crossed, SQUARE))
        return stream, most
    if chip_of(op) and not (rows or stream) and is_by_vector(nests, axis):
        if points := by_vector(sizes, list(op.domain), nests, parallel):
            return points, most
    if found := long_rows(op, nests, reduced, wishes):
        along, rows, sizes[along] = found
        whole = sizes[along] if op.domain[along] == DYNAMIC else min(sizes[along], op.domain[along])
        stream, most = sizes[along], power_of_2(rows * whole)
        if axis not in (along, None):  # as many of the rows that are reduced together
            stream, rows = _rows_together(nests, axis, along, rows, sizes), 1
    rows = rows or (1 if _meets(op) else map_rows(nests, bool(chip_of(op))))
    sizes.update(dict.fromkeys(parallel[-1:], rows))
    return stream, most


def _rows_together(
    nests: Sequence[FusedNest], axis: int, along: int, rows: int, sizes: dict[int, int]
) -> int:
    """How many rows a tile has that are reduced together; SHARING, and fewer elements of each (set
    in `sizes`), where they are read beside a row that all of them share."""
    reads = [T.axes_of(r) for nest in nests for r in nest.reads if along in T.axes_of(r)]
    if rows == 1 and any(axis not in axes for axes in reads):
        sizes[along] = max(1, sizes[along] // SHARING)
        return SHARING
    return rows


def _reduced_sizes(op: Any, reduced: set[int], part: int, chunks: int) -> dict[int, int]:
    """How much of each reduced axis a tile has, 0 being all: `part` where it is long, and of a join
    `chunks` or what it has."""
    sizes = {a: 0 if at_most(op.domain[a], WHOLE_REDUCED) else part for a in reduced}
    if isinstance(op, N.GlobalOp) and 0 in reduced:
        sizes[0] = chunks or chunks_of(op)
    return sizes


def _stream_size(
    op: Any, nests: Sequence[FusedNest], axis: int, asked: int, boxed: bool
) -> tuple[int, int | None]:  # fmt: skip
    """The size of tiles along the streamed axis, and the axis if they lie in several pages.

    Args:
        asked: 0 for nothing.
        boxed: the copy engine brings tiles.
    """
    free = _free(op, nests, axis)
    size = asked or (64 if free else equal_quotients(axis, nests) or 256)
    across = size_across_pages(op, nests, axis, size, boxed) if free else 0
    return (across, axis) if across else (part_of(divisors(nests).get(axis), size), None)


def _inner(
    op: Any, parallel: list[int], nests: Sequence[FusedNest], axis: int | None
) -> int | None:
    """The parallel axis that reads run along, taken off the list; of streams on GPUs, where they
    do not run along the stream too."""
    streams = axis is not None and (not chip_of(op) or is_contiguous(axis, nests))
    found = parallel and not streams and is_contiguous(parallel[-1], nests)
    return parallel.pop() if found else None


def _alone_across(
    op: Any, nests: Sequence[FusedNest], reduced: set[int], inner: int, sizes: dict[int, int]
) -> tuple[int, int]:
    """Columns of a tile of a reduction alone, and how many elements it may have (0: by the rule).
    One that has all of what lies across them, and few elements of it, has as many as it has room
    for; columns that are moved one by one are as in a stream."""
    if not any(sizes[a] for a in reduced):
        whole = math.prod(op.domain[a] for a in reduced)
        width = 1 << (TILE_WORDS[True] // _words(nests) // max(1, whole)).bit_length() >> 1
        return (width, 0) if COLUMNS[0] <= width < WHOLE_PARALLEL else (0, 0)
    (axis, *more) = reduced
    across, beside = columns_beside(op, nests, axis, inner, chip_of(op))
    return (beside, across * beside) if across == ACROSS and not more else (0, 0)


def _words(nests: Sequence[FusedNest]) -> int:
    """32-bit words of the widest element that a kernel computes."""
    return 2 if {nest.dtype for nest in nests} & {"f64", "i64", "index"} else 1


def _outer_first(axes: set[int], nests: Sequence[FusedNest]) -> list[int]:
    """Those that reads run along last."""
    return sorted(axes, key=lambda a: (is_contiguous(a, nests), a))


def _meets(op: Any) -> bool:
    """Whether it is in a function whose programs trade parts with another device."""
    return bool(MEETS.find(op.operation.parent, ()))


def _whole_pieces(
    nests: Sequence[FusedNest], domain: Sequence[int], chosen: dict[int, int], wishes: Wishes
) -> dict[int, int]:
    """Tile sizes that are multiples of what an instruction takes, for axes that are not cut and do
    not divide by it. (Those of warp groups take any width that the copy engine does.)"""
    unit = warp_groups.DEEP if wishes.warp_groups else wishes.least
    axes = narrow_axes(nests, deep=bool(wishes.warp_groups)) if unit else set()
    uncut = [a for a in axes if not chosen[a] and domain[a] > 1]
    return {a: -(-domain[a] // unit) * unit for a in uncut if domain[a] % unit}


def _few_rows(
    op: Any, nests: Sequence[FusedNest], row: int, shared: dict[int, int], wishes: Wishes
) -> dict[int, int]:
    """The tile that gives a product of one row, along `row`, more of them. Where only a call says
    how many rows there are, a stream gets a note of sizes for calls with few; of larger ones too
    where products sum over it alone (no program repeats work) or not (numbers of rows are joined,
    of known rows too). `shared`: axes of which so many points read the same operand. As many as fit
    the rows of instructions become rows; else the one row is padded to the least.
    """
    extent, least = op.domain[row], wishes.least
    if isinstance(op, N.StreamOp) and not wishes.rows:
        summed, streamed = [{*n.reduced_axes} for n, *_ in contractions(nests)], op.axis.value
        numbers = all(streamed not in axes for axes in summed)
        large = (2 * FEW[0],) if numbers or all(x <= {streamed} for x in summed) else ()
        if extent == DYNAMIC or (summed and numbers and extent > 2 * FEW[0]):
            FEW_ROWS.set(op.operation, (*large, *FEW) if extent == DYNAMIC else large)
    if not least or 1 not in (extent, wishes.rows):
        return {}
    best, points = row, 1
    for axis, count in shared.items():
        fits = (d for d in range(1, 65) if count % d == 0 and (d <= least or d % least == 0))
        most = max(fits, default=1)
        if most > points:
            best, points = axis, most
    return {best: points if points > 1 else least}


def _clip(size: int, extent: int) -> int:
    """A static axis that fits one tile is not cut."""
    return 0 if extent != DYNAMIC and extent <= size else size
