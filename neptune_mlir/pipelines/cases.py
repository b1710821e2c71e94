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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import contractions, multiplies_matrices, nests_of
from neptune_mlir.analysis.masks import masked_load
from neptune_mlir.analysis.tile_axes import extents_of
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import ALIGNABLE, FEW_ROWS, TILE
from neptune_mlir.dialects.nests import DYNAMIC, Values
from neptune_mlir.dialects.program import functions, streams
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines.grids import (
    BUSY_FEW,
    few,
    in_parts,
    is_idle,
    places_of,
    points_of,
    programs_of,
    visits_of,
)
from neptune_mlir.pipelines.product_cases import AHEAD as FACTOR_AHEAD
from neptune_mlir.pipelines.product_cases import CUT_SUM, Fastest, argument_of, tiles_worth
from neptune_mlir.pipelines.short_calls import (
    VISIT_ALL,
    WORTH,
    looks_at_data,
    stream_length,
    visited,
)
from neptune_mlir.runtime.plan import Expression, Plan
from neptune_mlir.targets import warp_groups
from neptune_mlir.targets.group_tiles import CLOSE, launch_cycles
from neptune_mlir.targets.product_tiles import Product, ProductTile
from neptune_mlir.targets.tuned import Choice, Shape
from neptune_mlir.transforms.schedule.cut_rows import cut_streams
from neptune_mlir.transforms.schedule.tile import kernel_ops
from neptune_mlir.transforms.schedule.tile_room import BYTES
from neptune_mlir.transforms.tiling.lower_to_tiles import FEWER

SHORT_PART = 2  # tiles of rows, and of a stream, of a part that is short
SMALL = 16  # rows of the smallest product
SMALL_TILE = 64  # points of a stream
MERGED = (128, 64, 32, 16)  # rows of tiles of merged rows: each holds all rows of some calls
PORTABLE = 64  # of these, the most that programs have which warps cannot share
ANY_CALL = ["le", 1, ["multiprocessors"]]  # that can do without copies
ALIGNED = "aligned:1"
PLAIN_TILES = "cut:0"  # of rows, wherever parts of these begin
IN_CHUNKS = {"ahead": "ahead_private"}  # schedules that cut streams; for all others `private`
AHEAD = {"streamed": "scaled_ahead"}  # and those that store factors which they scale
LINE = 128  # bytes of memory that come at once
NO_PRODUCTS = -1  # in place of the rows of a tile, of streams without products
FEWER_TILES = 3, 4  # of those of other rows, with which merged ones are faster
GIVEN = 16, 32  # chunks of one sequence, or of a few, most often
ONE_TILE = 128  # points of a stream, of the largest tile
# Rounds of tiles of so many merged rows with which they are faster there than the largest
SHORT_ROUNDS = {PORTABLE: 2, SMALL: 1}


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
        yields: whole streams are better where these keep the multiprocessors busy (`yielding`).
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
    yields: bool = False

    @property
    def rows(self) -> int:
        """Of a tile, for calls with few rows; NO_PRODUCTS: those of a stream without products."""
        name, _, number = self.knob.partition(";")[0].partition(":")
        return int(number) if name == "rows" else NO_PRODUCTS

    @property
    def is_known(self) -> bool:
        """Whether the calls are known before the kernel is."""
        known = self.condition is not None and (not self.schedule or self.exact)
        return known and not self.tiles

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
        return self.merged and large and not self.given


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


def part_of_tile(module: Any) -> tuple[Case, ...]:
    """Calls whose streams have no more points than a small tile, of a fused program that multiplies
    matrices in larger ones: what is empty of a tile takes time and registers as the rest does."""
    length = stream_length(module)
    if length is None or isinstance(length, int):
        return ()
    (stream,) = streams(module)
    size = TILE.of(stream.operation)[stream.axis.value]
    if size <= SMALL_TILE or not streams_products(stream):
        return ()
    return (Case(f"stream:{SMALL_TILE}", ["le", length, SMALL_TILE]),)


def few_tiles(module: Any, few: str = "") -> tuple[Case, ...]:
    """Calls whose programs visit few tiles, of a fused program that would look for live ones
    before; `few`: a knob for launches of few programs."""
    most = visited(module)
    if most is None or not looks_at_data(streams(module)[0]):
        return ()
    knobs = (VISIT_ALL, f"{VISIT_ALL};{few}") if few else (VISIT_ALL,)
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
    cases = [
        Case(f"rows:{n}", schedule=schedule, merged=True, wide=wide)
        for n in MERGED
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


def streams_products(stream: Any) -> bool:
    """Whether matrices are multiplied in a stream."""
    return multiplies_matrices(nests_of(stream, Values()))


def streams_bytes(module: Any) -> bool:
    """Whether each product of a fused program loads elements of 8 bits along its stream, and no
    others there."""
    widths = set()
    for stream in streams(module):
        nests = nests_of(stream, Values())
        made = {nest.key for nest in nests if nest.body is None or masked_load(nest.body) is None}
        for _, *factors in contractions(nests):
            along = [f for f in factors if stream.axis.value in T.axes_of(f)]
            widths |= {BYTES.get(f.dtype, 4) for f in along if f.attr not in made}
            widths |= set() if any(f.attr not in made for f in along) else {0}
    return widths == {1}


def streams_parts_of_lines(module: Any) -> bool:
    """Whether rows that a product loads along its stream end within their second line of memory.
    (Others were not measured.)"""
    for stream in streams(module):
        nests = nests_of(stream, Values())
        made = {nest.key for nest in nests if nest.body is None or masked_load(nest.body) is None}
        for _, *factors in contractions(nests):
            for f in factors:
                along = f.attr not in made and f.args and stream.axis.value in T.axes_of(f)
                extents = [stream.domain[a] for a in T.axes_of(f.args[-1])] if along else []
                if any(LINE < n * BYTES.get(f.dtype, 4) < 2 * LINE for n in extents):
                    return True
    return False


def yielding(cases: Sequence[Case], odd: bool) -> tuple[Case, ...]:
    """Cases of which small tiles are left to whole streams of warp groups, where these keep the
    multiprocessors busy: of merged rows, and where rows are parts of lines (`odd`), so that warps
    copy pieces of them."""
    small = (0 < case.rows < PORTABLE for case in cases)
    return tuple(
        replace(case, yields=is_small and (odd or (case.merged and case.rows > SMALL)))
        for case, is_small in zip(cases, small, strict=True)
    )


class Conditions:
    """Which calls the variants of a program are for, by their plans."""

    def __init__(self, plan: Plan):
        """`plan`: of the program for any call."""
        self._plan = plan
        self._fewest: Expression = programs_of(plan)  # of plain rows, by any of their tiles
        # of merged rows, the tiles of the first variant, and which calls it is for
        self._largest: tuple[Expression, Expression] | None = None
        self._cut: dict[int, Expression] = {}  # by rows of a tile: the tiles of streams in chunks
        self._fastest: Fastest | None = None  # of the kernels of a product
        self._least: Expression | None = None  # cycles of what serves a call, where rounds decide
        # by rows and whether these are merged: which calls a stream in chunks is for, its grid
        self._chunks: dict[tuple[int, bool], tuple[Expression, Sequence[Expression]]] = {}

    def of(self, case: Case, variant: Plan) -> Expression | None:
        """The calls that are to take a variant (None: no call); of merged rows the largest tiles
        come first, and those of streams in chunks before those of whole ones."""
        if case.product is not None and not case.cuts:
            return self._by_time(case)
        if case.given:
            counted, (chunks, *_) = self._counted(case)
            as_many = ["and", ["le", case.given, chunks], ["le", chunks, case.given]]
            return None if counted is None else ["and", counted, as_many]
        if case.visited is not None and not case.merged:
            short: Expression = ["le", visits_of(case.visited, variant), WORTH]
            own = case.knob == VISIT_ALL
            return short if own else ["and", short, few(case, self._plan, variant)]
        if not case.schedule or case.exact:
            if not case.schedule:
                self._fewest = ["min", self._fewest, programs_of(variant)]
            rounds = self._rounds(case, variant) if case.tiles else None
            if case.condition is None:
                return few(case, self._plan, variant, rounds)
            return case.condition if rounds is None else ["and", case.condition, rounds]
        key = case.rows, case.merged
        if case.schedule == "streamed":
            whole = self._whole if case.rows >= PORTABLE else self._in_one_chunk
            return self._or_one_tile(case, variant, whole(case, variant))
        launch = in_parts(variant)
        tiles = points_of(launch.grid[1:])
        if case.spare:
            return self._spare(tiles)
        if case.product is not None:
            self._cut[case.rows] = tiles
            rule = self._by_time(case, launch.grid[0])
        else:
            rule = self._merged(case, tiles) if case.merged else self._in_chunks(case, tiles)
            if not case.merged and 2 * PORTABLE in self._cut and case.rows >= PORTABLE:
                rule = ["and", rule, ["lt", 1, launch.grid[0]]]  # else there is nothing to join
            rule = ["and", rule, is_idle(tiles, BUSY_FEW)] if case.yields else rule
        self._chunks[key] = rule, launch.grid
        return rule

    def _or_one_tile(
        self, case: Case, variant: Plan, rule: Expression | None
    ) -> Expression | None:
        """Beside the calls of a `rule`, those with merged rows whose stream is one tile: a program
        takes about as long as it waits, less for a small tile."""
        rounds = SHORT_ROUNDS.get(case.rows, 0)
        known = case.condition is not None or case.length is None or self._largest is None
        if not case.merged or known or case.wide or not rounds:
            return rule
        assert self._largest is not None
        at_once = ["le", programs_of(variant), ["mul", rounds, ["multiprocessors"]]]
        short = ["and", ["le", case.length, ONE_TILE], ["and", self._largest[1], at_once]]
        return short if rule is None else ["or", rule, short]

    def _rounds(self, case: Case, variant: Plan) -> Expression:
        """Calls for which the rounds of taller tiles take no longer than those of any before, or
        those of other tiles less."""
        (shape, own), (_, other) = case.tiles
        time = launch_cycles(shape, own, programs_of(variant))
        if self._least is None:
            self._least = launch_cycles(shape, other, programs_of(self._plan))
        less, more = sorted(CLOSE, reverse=own.rows < other.rows)
        rule = ["le", ["mul", less, time], ["mul", more, self._least]]
        self._least = ["min", self._least, time]
        return rule

    def _by_time(self, case: Case, chunks: Expression | None = None) -> Expression:
        """Calls of a product for which a tile is faster than all before it."""
        assert case.product is not None and case.tile is not None
        if self._fastest is None:
            self._fastest = Fastest(case.product)
        return self._fastest.when(case.tile, chunks, case.is_ahead)

    def _in_one_chunk(self, case: Case, variant: Plan) -> Expression | None:
        """Calls whose stream would be cut into one chunk, where its tiles are the same."""
        rule, (chunks, *tiles) = self._counted(case)
        if rule is None or points_of(tiles) != points_of(variant.launches[-1].grid):
            return None
        return ["and", rule, ["le", chunks, 1]]

    def _counted(self, case: Case) -> tuple[Expression | None, Sequence[Expression]]:
        """Which calls a stream in chunks of such tiles is for, and its grid (chunks first)."""
        own: tuple[Expression | None, Sequence[Expression]] = (None, (0,))
        if not case.merged and any(x.kernel.endswith(FEWER) for x in self._plan.launches):
            own = ANY_CALL, in_parts(self._plan).grid  # of the program for any call
        return self._chunks.get((case.rows, case.merged), own)

    def _in_chunks(self, case: Case, tiles: Expression) -> Expression:
        """Calls whose stream is to be cut, by how many tiles of rows they have (and of columns):

        * the largest tiles: where these leave half of the multiprocessors idle, or are those of the
          program for any call, and do not keep them busy; where there are none, three quarters;
        * those of half as many rows: where they hold all rows, and are no more than
          multiprocessors;
        * small ones: no more than the program for any call has, so nothing is loaded more often; or
          no more than multiprocessors, where that program leaves seven eighths of them idle. Of
          plain products they hold all rows;
        * one row beside those that share its operand: fewer than the program for any call has, and
          what the case says (beside merged rows a call has one row).
        """
        rows, larger = case.rows, self._cut.copy()
        self._cut[rows] = tiles
        whole, chip = programs_of(self._plan), ["multiprocessors"]
        if rows > PORTABLE:
            return is_idle(tiles) if tiles == whole else ["le", ["mul", 2, tiles], chip]
        if rows > SMALL:
            if 2 * PORTABLE in larger:
                return ["and", ["le", tiles, larger[2 * PORTABLE]], ["le", tiles, chip]]
            return ["le", ["mul", 4, tiles], chip]
        if rows == 1:
            fewer: Expression = ["lt", tiles, whole]
            return fewer if case.condition is None else ["and", case.condition, fewer]
        idle = ["and", ["le", ["mul", 8, whole], chip], ["le", tiles, chip]]
        some = ["or", ["le", tiles, whole], idle]
        if self._fastest is not None:
            return ["and", some, ["le", self._fastest.rows, rows]]
        if {PORTABLE, 2 * PORTABLE} <= set(larger):  # with twice as many columns
            return ["and", some, ["le", tiles, ["mul", 2, larger[PORTABLE]]]]
        return some

    def _merged(self, case: Case, tiles: Expression) -> Expression:
        """Where it takes a kernel more to merge rows, no calls whose programs visit few tiles."""
        rule = self._fewer(case, tiles)
        if case.visited is None:
            return rule
        return ["and", rule, ["lt", WORTH, visits_of(case.visited, self._plan)]]

    def _fewer(self, case: Case, tiles: Expression) -> Expression:
        """The largest tiles: no more than half of what the program for any call has, or FEWER_TILES
        of what plain rows have with any tiles, or so few that they leave three quarters of the
        multiprocessors idle; where the program for any call has the same tiles, so few that it does
        not keep the multiprocessors busy. (All calls, where their rows are known.) Smaller ones: no
        more than these, so that each holds all rows. Of results wider than an instruction, that
        program is as good where it keeps the multiprocessors busy: a warp of few rows computes with
        a tile for longer than the next one is on its way."""
        whole = programs_of(self._plan)
        if self._largest is None:
            fewer = ["le", ["mul", FEWER_TILES[1], tiles], ["mul", FEWER_TILES[0], self._fewest]]
            half = ["or", ["le", ["mul", 2, tiles], whole], fewer]
            rule = ["or", half, ["le", ["mul", 4, tiles], ["multiprocessors"]]]
            rule = is_idle(tiles) if tiles == whole else rule
            self._largest = tiles, case.condition or rule
            return self._largest[1]
        largest, rule = self._largest
        fits: Expression = ["le", tiles, largest]
        busy = case.wide and largest == whole
        return case.condition or (["and", fits, rule] if busy else fits)

    def _spare(self, tiles: Expression) -> Expression | None:
        """Calls of which larger tiles are cut into so few chunks that in as many the programs of
        these have a multiprocessor each."""
        found = (found for (_, merged), found in self._chunks.items() if merged)
        rule, (chunks, *larger) = next(found, (None, (0,)))
        if rule is None:
            return None
        more = ["and", ["lt", 1, chunks], ["lt", points_of(larger), tiles]]
        return ["and", rule, ["and", more, ["le", ["mul", chunks, tiles], ["multiprocessors"]]]]

    def _whole(self, case: Case, variant: Plan) -> Expression:
        """Calls for tiles of merged rows whose stream is not cut: where these keep the
        multiprocessors busy, or one chunk is the best number."""
        tiles = programs_of(variant)
        rule = self._merged(case, tiles)
        part, whole = BUSY_FEW
        idle: Expression = ["le", ["mul", part, places_of(tiles)], ["mul", whole, tiles]]
        found = self._chunks.get((case.rows, True))
        if found:
            rule, (chunks, *_) = found
            idle = ["or", idle, ["le", chunks, 1]]
        return ["and", rule, idle]
