# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernel variants selected at launch (multi-versioning).

* Long streams, and rows: `pipelines/long_streams.py`. Tiles that are taller for these are not where
  smaller ones make rounds that are soon over (`Case.than`).
* Aligned rows (`neptune.alignable`): where tensors that hold something for each score have rows
  whose length only a call knows, and these are aligned to 16 bytes. Such a call needs no copy of
  the tensor, which the image asks for (`alignment`); other calls take the rest.
* Part of a tile: where streams have no more points than a small tile, tiles are small.
* Few programs: where a launch would leave half of the chip idle, smaller tiles make more; yet
  smaller ones where streams are short.
* Short parts: where tiles of rows begin with a sequence (`cut-rows`), and sequences and their keys
  have no more than two tiles in the mean, or there is one, tiles are those of one row of rows.
* Few rows (`neptune.few_rows`): where tiles of fewer rows leave most of the chip idle or hold all
  rows of a call, memory is the bound, and the stream is cut into chunks (schedule `private`); so it
  is in large tiles that do not keep the chip busy, where numbers of rows are joined.
* Few programs of many rows (`few_programs`): the same with the largest tiles, where the model says
  that chunks are joined before whole streams are over.
* Merged rows (`merge-rows`): where rows lie along two axes, and a call has few along each. The
  tiles are as small as they can be without reading anything more often.
* Idle multiprocessors (`Case.spare`): where results are wide, so that chunks of large tiles cost
  much and are few, small tiles read streams more often and have a multiprocessor each.
* As many chunks (`Case.given`): a program and a join that know how many there are.
* Few tiles (`short_calls`): where programs visit so few that no kernel looks for live ones before.
* Least rows (`Way.rows`): on CPUs, where a call has so few that a product by blocks does not pay.
* Short streams (`Way.lengths`): on CPUs, where a vector along a row would be mostly empty.

The program is made once more for each case, and the bundle holds these images (for CPUs
`variants`) with a condition (`when`) that the runtime looks at.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.analysis.fused_nests import nests_of
from neptune_mlir.analysis.tile_axes import extents_of
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import ALIGNABLE, FEW_ROWS, TILE
from neptune_mlir.dialects.nests import DYNAMIC, Values
from neptune_mlir.dialects.program import functions, streams
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines.product_cases import AHEAD as FACTOR_AHEAD
from neptune_mlir.pipelines.product_cases import CUT_SUM, argument_of, tiles_worth
from neptune_mlir.pipelines.program_lengths import ProgramLengths
from neptune_mlir.pipelines.short_calls import (
    VISIT_ALL,
    looks_at_data,
    stream_length,
    visited,
)
from neptune_mlir.pipelines.simple_conditions import TRUE
from neptune_mlir.pipelines.streamed_factors import streams_bytes, streams_products
from neptune_mlir.runtime.plan import Expression
from neptune_mlir.targets import warp_groups
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.targets.group_tiles import is_deep, is_plain, most_stream
from neptune_mlir.targets.product_tiles import Product, ProductTile
from neptune_mlir.targets.tuned import Choice, Shape
from neptune_mlir.transforms.schedule.cut_rows import cut_streams
from neptune_mlir.transforms.schedule.tile import kernel_ops

SHORT_PART = 2  # tiles of rows, and of a stream, of a part that is short
SMALL = 16  # rows of the smallest product
SMALL_TILE = 64  # points of a stream
MERGED = (128, 64, 32, 16)  # rows of tiles of merged rows: each holds all rows of some calls
LINE = 128  # bytes of memory that come at once
NARROW = LINE + LINE // 4  # bytes of rows, up to which a warp alone keeps up (measured on an H200)
TALL = 192  # rows of those that hold all where MERGED[0] do not: three groups share what they load
TALL_POINTS = 80  # of the stream that their tiles have at least (measured on an H200)
PORTABLE = 64  # of these, the most that programs have which warps cannot share
ANY_CALL = TRUE  # that can do without copies
ALIGNED = "aligned:1"
PLAIN_TILES = "cut:0"  # of rows, wherever parts of these begin
IN_CHUNKS = {"ahead": "ahead_private"}  # schedules that cut streams; for all others `private`
AHEAD = {"streamed": "scaled_ahead"}  # and those that store factors which they scale
WHOLE_TOO = 2
NO_PRODUCTS = -1  # in place of the rows of a tile, of streams without products
GIVEN = 16, 32  # chunks of one sequence, or of a few, most often


@dataclass(frozen=True)
class Case:
    """Some calls of a program.

    Attributes:
        knob: of the schedule, for kernels that suit these calls.
        condition: which calls they are, an expression of the launch plan; None: those that `few`
            says, from the rest.
        short: of these, those with short streams alone.
        length: of the stream (`stream_length`).
        blocks: how many of them are to share a multiprocessor (`blocks_of`).
        schedule: in place of the program's own ("": that).
        merged: the program has two axes of rows as one (`merge-rows`).
        exact: the condition says all, whatever the schedule.
        product: that the program ends with, of kernels that are chosen by its `tile`.
        wide: results are wider than an instruction of warp groups.
        spare: tiles are smaller than they need be, for calls that leave multiprocessors idle.
        given: chunks, for calls that the same tiles would cut into as many: a join that knows its
            parts, and a program that knows them, are done sooner.
        visited: tiles that a program for any call visits at most, where the kernels are for calls
            that visit few (VISIT_ALL), or for others (`merged`).
        tiles: of warp groups, where rounds decide as well: that of these kernels, and that of those
            for any call, of which each says what its stream is like.
        each: how long programs are (`program_lengths`).
        yields: small tiles are left to warp groups: where these cut their streams, or (WHOLE_TOO)
            have enough tiles; large ones are for calls that small ones leave, too (`yielding`).
        by_model: rows are many: which calls are over sooner in chunks is what the model says alone.
    """

    knob: str
    condition: Expression | None = None
    short: bool = False
    length: Expression | None = None
    blocks: int = 1
    schedule: str = ""
    merged: bool = False
    exact: bool = False
    product: Product | None = None
    tile: ProductTile | None = None
    wide: bool = False
    spare: bool = False
    given: int = 0
    visited: Expression | None = None
    tiles: Sequence[tuple[Shape, Choice]] = ()
    each: ProgramLengths | None = None
    yields: int = 0
    by_model: bool = False

    @property
    def rows(self) -> int:
        """Of a tile, for calls with few rows; NO_PRODUCTS: those of a stream without products."""
        name, _, number = self.knob.partition(";")[0].partition(":")
        return int(number) if name == "rows" else NO_PRODUCTS

    @property
    def pairs(self) -> int:
        """Of programs that bring tiles for each other: the variable of the grid in which these
        differ, from the last one; 0: programs are alone."""
        name, _, number = self.knob.partition(":")
        return int(number) if name == "pairs" else 0

    @property
    def is_few(self) -> bool:
        """Whether it is one of the way's own for launches of few programs (`Way.few`)."""
        return not self.schedule and self.condition is None and self.visited is None

    @property
    def is_known(self) -> bool:
        """Whether the calls are known before the kernel is."""
        known = self.condition is not None and (not self.schedule or self.exact)
        return known and not self.tiles

    @property
    def is_by_time(self) -> bool:
        """Whether its calls are those for which the tile of a product takes less time than others,
        which is known before the kernel is, too."""
        return self.product is not None and not self.cuts

    @property
    def cuts(self) -> bool:
        """Whether its schedule cuts streams into chunks."""
        return self.schedule not in ("", "streamed", *AHEAD.values())

    @property
    def is_ahead(self) -> bool:
        """Whether its schedule stores factors that the program's own computes where it multiplies
        them."""
        return self.schedule in AHEAD.values()

    @property
    def is_for_portable(self) -> bool:
        """Whether only programs need it that warps cannot share: these have larger tiles."""
        large = self.rows == PORTABLE and self.schedule == "private"
        return self.merged and large and not (self.given or self.yields)


def short_parts(module: Any) -> tuple[Case, ...]:
    """Calls whose rows are cut into short parts (`cut-rows`), or into one, of a fused program with
    one stream.

    Of tiles that begin with a part many are partly filled there, or empty. Without cuts a tile has
    several parts and visits the streamed elements of all, which are few.
    """
    cut = cut_streams(module)
    length = stream_length(module)
    if len(cut) != 1 or length is None or isinstance(length, int):
        return ()
    (op, (axis, argument)) = cut[0]
    stream = op.opview
    place = argument_of(extents_of(stream)[axis])
    if place is None:
        return ()
    sizes, parts = TILE.of(op), ["dim", argument, 0]
    rows, streamed = (
        ["le", n, ["mul", SHORT_PART * sizes[k], parts]]
        for n, k in ((["dim", *place], axis), (length, stream.axis.value))
    )
    return (Case(PLAIN_TILES, ["or", ["le", parts, 2], ["and", rows, streamed]]),)


def few_tiles(module: Any, few: Sequence[str] = ()) -> tuple[Case, ...]:
    """Calls whose programs visit few tiles, of a fused program that would look for live ones
    before; `few`: knobs for launches of few programs, and for short streams."""
    most = visited(module)
    if most is None or not looks_at_data(streams(module)[0]):
        return ()
    knobs = (VISIT_ALL, *(f"{VISIT_ALL};{knob}" for knob in few))
    return tuple(Case(knob, visited=most) for knob in knobs)


def is_alignable(module: Any) -> bool:
    """Whether the `tile` pass noted that kernels for aligned rows are better."""
    return any(ALIGNABLE.on(stream.operation) for stream in streams(module))


def aligned(others: Sequence[Case]) -> tuple[Case, ...]:
    """Calls whose tensors have aligned rows: any, and of others those."""
    return (Case(ALIGNED, ANY_CALL), *(replace(c, knob=f"{c.knob};{ALIGNED}") for c in others))


def product_tiles(product: Product, schedule: str) -> tuple[Case, ...]:
    """Calls that other tiles of a product are the fastest for, by a schedule."""
    made = []
    for how, tile in tiles_worth(product):
        if how == CUT_SUM:
            continue
        knobs = f"rows:{tile.rows};stream:{tile.columns}" if product.streamed else tile.knobs
        other = AHEAD.get(schedule) if how == FACTOR_AHEAD else ""
        if other is not None:
            made.append(Case(knobs, schedule=other, product=product, tile=tile))
    return tuple(made)


def cut_products(product: Product, schedule: str, others: Sequence[Case]) -> tuple[Case, ...]:
    """Calls that sums in chunks are the fastest for, then `others` that are for fewer rows than
    such tiles have; all of them, where a program runs through the columns of its rows."""
    if product.streamed and schedule == "streamed":
        return tuple(others)
    other = IN_CHUNKS.get(schedule, "private")
    made = [
        Case(f"rows:{tile.rows}", schedule=other, product=product, tile=tile)
        for how, tile in tiles_worth(product) if how == CUT_SUM
    ]  # fmt: skip
    return (*made, *(case for case in others if case.rows < PORTABLE))


def few_rows(module: Any, schedule: str) -> tuple[Case, ...]:
    """Calls with few rows of a fused program, by a schedule, whose rows only a call knows: it ends
    with the only stream whose rows are noted."""
    last = [kernel_ops(function)[-1:] for function in functions(module)]
    noted = [s for s in streams(module) if FEW_ROWS.on(s.operation)]
    if len(noted) != 1 or last != [noted]:
        return ()
    rows = FEW_ROWS.of(noted[0].operation)
    cut = [Case(f"rows:{n}", schedule=IN_CHUNKS.get(schedule, "private")) for n in rows]
    return _and_whole(cut)


def few_programs(module: Any, few: Sequence[Case], shape: Shape | None) -> tuple[Case, ...]:
    """Calls of which few programs have many rows, of a fused program with one stream, whose tiles
    are of a `shape`: the largest tiles in chunks, before those that are for `few` rows. (Not of
    programs that always keep more than half of the multiprocessors busy, or of which nobody knows
    how much of a stream masks leave.)"""
    if shape is None or not few or is_plain(shape) or is_deep(shape) or shape.band or shape.marks:
        return tuple(few)
    (stream,) = streams(module)
    sizes, axis = TILE.of(stream.operation), stream.axis.value
    grid = ((n, size) for k, (n, size) in enumerate(zip(stream.domain, sizes, strict=True))
            if k != axis and size and n != DYNAMIC)  # fmt: skip
    if 2 * math.prod(-(-n // size) for n, size in grid) > MULTIPROCESSORS:
        return tuple(few)
    return (Case(f"rows:{MERGED[0]}", schedule=few[0].schedule, by_model=True), *few)


def one_row(module: Any) -> tuple[Case, ...]:
    """Calls with one row of a fused program whose rows only a call knows: beside those that share
    its operand, where merged rows would take a kernel more."""
    found = [s for s in streams(module) if FEW_ROWS.on(s.operation)]
    place = _rows_place(found[0]) if len(found) == 1 else None
    if place is None:
        return ()
    return _and_whole([Case("rows:1", ["le", ["dim", *place], 1], schedule="private")])


def _and_whole(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Cases whose streams are cut, each that is for small tiles followed by one for calls where one
    chunk is the best number: these have nothing to join."""
    found = []
    for case in cases:
        small = case.schedule == "private" and case.rows <= SMALL
        found += [case, replace(case, schedule="streamed")] if small else [case]
    return tuple(found)


def known_chunks(module: Any) -> tuple[Case, ...]:
    """Calls of a program whose stream is cut into as many chunks as a call decides, that have one:
    they need no join. Streams of 8 bits have other tiles in chunks: calls of the most chunks that
    long streams have."""
    found = streams(module)
    if len(found) != 1 or not streams_products(found[0]):
        return ()
    around = found[0].operation.parent.opview
    if not isinstance(around, N.PrivateOp) or around.chunks.value != DYNAMIC:
        return ()
    if streams_bytes(module):
        return (Case(f"chunks:{GIVEN[-1]}", given=GIVEN[-1]),)
    return (Case(f"rows:{SMALL}", schedule="streamed"),)


def merged_rows(module: Any, rows: int) -> tuple[Case, ...]:
    """Calls with few rows along each of two axes that are one (0: a call knows how many)."""
    kinds = [kind for f in functions(module) for kind in f.type.results]
    wide = any(
        kind.rank and kind.shape[-1] > warp_groups.WIDEST
        for kind in kinds if isinstance(kind, bindings.ir.RankedTensorType)
    )  # fmt: skip
    fewer = not rows or -(-rows // TALL) < -(-rows // MERGED[0])
    sizes = (MERGED[0], TALL, *MERGED[1:]) if fewer and not wide else MERGED
    cases = [
        Case(f"rows:{n}", schedule=schedule, merged=True, wide=wide)
        for n in sizes
        for schedule in ("private", "streamed")
        if schedule == "private" or n >= PORTABLE or n <= SMALL
    ]  # not cut: tiles of warp groups, and the smallest
    if wide:  # their parts are large; smaller tiles that hold all rows of a call come behind it
        place = next(k for k, case in enumerate(cases) if case.rows == PORTABLE)
        cases[place + 1 : place + 1] = [
            replace(cases[place], knob=f"rows:{PORTABLE};chunks:{n}", given=n) for n in GIVEN
        ]
        place = next(k for k, case in enumerate(cases) if case.rows < PORTABLE)
        some = Case(f"rows:{SMALL}", schedule="private", merged=True, wide=True, spare=True)
        cases.insert(place, some)
    if rows:
        least = min((n for n in MERGED if n >= rows), default=MERGED[0])
        large = least >= PORTABLE
        taken = (
            c for c in cases
            if (large if c.spare else c.rows == least or (large and c.rows >= PORTABLE))
            and (wide or c.rows >= least or c.is_for_portable)  # not tiles of which a call has more
        )  # fmt: skip
        cases = [replace(c, condition=ANY_CALL) for c in taken]
    return tuple(cases)


def least_rows(module: Any, limits: Sequence[tuple[int, str]]) -> tuple[Case, ...]:
    """Calls with few rows, of a fused program that has one stream, with products, whose rows only
    a call knows: the only axis but the stream that is cut in tiles of more than one point."""
    found = streams(module)
    if not limits or len(found) != 1 or not TILE.on(found[0].operation):
        return ()
    if any(nest.spreads for nest in nests_of(found[0], Values())):
        return ()  # two streams, joined: one of them has other rows
    place = _rows_place(found[0]) if streams_products(found[0]) else None
    if place is None:
        return ()
    return tuple(Case(knob, ["le", ["dim", *place], most]) for most, knob in limits)


def _rows_place(stream: Any) -> tuple[int, int] | None:
    """The argument and the dimension that say how many rows a stream has, where only a call knows:
    the extent of the only axis but the streamed one that is cut in tiles of more than one point."""
    dynamic = [k for k, extent in enumerate(stream.domain) if extent == DYNAMIC]
    rows = [k for k in dynamic if TILE.of(stream.operation)[k] > 1 and k != stream.axis.value]
    if len(rows) != 1:
        return None
    return argument_of(list(stream.extents)[dynamic.index(rows[0])])


def short_streams(module: Any, limits: Sequence[tuple[int, str, int]]) -> tuple[Case, ...]:
    """Calls of a program without products whose stream has `most` points, and `more` than some."""
    length = stream_length(module) if limits else None
    if length is None or streams_products(streams(module)[0]):
        return ()
    if isinstance(length, int):
        return tuple(Case(knob) for most, knob, more in limits if more < length <= most)
    fits = ((knob, more, ["le", length, most]) for most, knob, more in limits)
    return tuple(Case(k, ["and", ["lt", m, length], fit] if m else fit) for k, m, fit in fits)


def has_tall_tiles(shape: Shape) -> bool:
    """Whether three groups of warps are worth it for merged rows: by the points of their tiles."""
    return most_stream(shape, TALL) >= TALL_POINTS


def yielding(cases: Sequence[Case], row_bytes: Collection[int]) -> tuple[Case, ...]:
    """Cases of which small tiles are left to warp groups, where these have enough of theirs.

    A warp alone keeps up with memory where rows are one or two whole lines: there the smallest
    tiles are left nothing. (Nor are those of wide results, whose large tiles groups share.) Else no
    tiles between are worth it.
    """
    lines = all(n % LINE == 0 and n <= 2 * LINE for n in row_bytes)
    narrow = all(n <= NARROW for n in row_bytes)
    found = []
    for case in cases:
        between = case.merged and SMALL < case.rows < PORTABLE
        if lines or case.wide:
            found.append(replace(case, yields=int(between)))
        elif not between:
            is_small = 0 < case.rows <= PORTABLE
            found.append(replace(case, yields=is_small * (1 if narrow else WHOLE_TOO)))
    return tuple(found)
