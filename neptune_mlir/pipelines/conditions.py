# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which calls the kernels of a case are for: an expression of the launch plan, by how many programs
these and the others have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.pipelines.cases import (
    ALIGNED,
    ANY_CALL,
    MERGED,
    PORTABLE,
    SMALL,
    SMALL_TILE,
    WHOLE_TOO,
    Case,
)
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
from neptune_mlir.pipelines.product_cases import Fastest
from neptune_mlir.pipelines.program_lengths import ProgramLengths
from neptune_mlir.pipelines.short_calls import VISIT_ALL, WORTH
from neptune_mlir.pipelines.simple_conditions import Simple
from neptune_mlir.runtime.plan import Expression, Plan
from neptune_mlir.targets.group_tiles import CLOSE, UNIT, launch_cycles
from neptune_mlir.targets.product_tiles import join_cycles
from neptune_mlir.targets.tuned import Choice, Shape
from neptune_mlir.transforms.schedule.group_sizes import resized
from neptune_mlir.transforms.tiling.lower_to_tiles import FEWER

FEW_POINTS = 256  # of a stream that is in one chunk, or nearly, wherever it is cut
TALL_TILES = 7, 10  # of the largest, where three groups of warps are worth theirs (measured)
ALONE = 3, 4  # of the time of two groups that one alone has to take (measured on an H200)
FEWER_TILES = 3, 4  # of those of other rows, with which merged ones are faster
NEVER = 1 << 62  # cycles: a kernel that does not serve a call
FEW_SMALL = 2  # multiprocessors at least for each small tile of a product (measured on an H200)
# Tiles of rows that a stream is as long as, where a mask ends it and two of them are a pair: of
# short ones half a tile more is much, and copies come while a program begins (measured on an H200)
LONG_PAIRS = 4
ONE_TILE = 128  # points of a stream, of the largest tile
# Rounds of tiles of so many merged rows with which they are faster there than the largest
SHORT_ROUNDS = {PORTABLE: 2, SMALL: 2}


def _if_long(case: Case, rule: Expression) -> Expression:
    """Of calls that leave multiprocessors idle, those whose stream is worth cutting."""
    return rule if case.length is None else ["and", ["lt", FEW_POINTS, case.length], rule]


def _time(case: Case, shape: Shape, choice: Choice, programs: Expression) -> Expression:
    """What so many programs take of a call, by how long they are."""
    if case.each is None:
        return launch_cycles(shape, choice, programs, paired=case.pairs > 0)
    points, mean = (of(choice.rows, choice.stream) for of in (case.each.points, case.each.mean))
    paired = case.pairs > 0
    if case.pairs == 1 and mean is not None:  # two tiles of rows stream what the longer one does
        mean = ["min", points, ["add", mean, choice.rows // 2]]
    return launch_cycles(shape, choice, programs, points, case.each.even, mean, paired)


def _of_merged(case: Case) -> ProgramLengths | None:
    """How long programs of merged rows are."""
    return None if case.each is None else case.each.merged


class Conditions:
    """Which calls the variants of a program are for, by their plans."""

    def __init__(self, plan: Plan):
        """`plan`: of the program for any call."""
        self._plan, self._simple = plan, Simple()
        self._fewest: Expression = programs_of(plan)  # of plain rows, by any of their tiles
        self._small: Expression | None = None  # by the smallest of these
        # of merged rows, the tiles of the first variant, and which calls it is for
        self._largest: tuple[Expression, Expression] | None = None
        self._cut: dict[int, Expression] = {}  # by rows of a tile: the tiles of streams in chunks
        self._many = False  # whether there are chunks for many rows
        self._fastest: Fastest | None = None  # of the kernels of a product
        self._one_row: Expression | None = None  # calls with one row that have kernels
        self._least: Expression | None = None  # cycles of what serves a call, where rounds decide
        # by rows and whether these are merged: which calls a stream in chunks is for, its grid
        self._chunks: dict[tuple[int, bool], tuple[Expression, Sequence[Expression]]] = {}

    def known(self, cases: Sequence[Case]) -> dict[int, Expression]:
        """The calls of those that need no kernel to say so, by their numbers."""
        found = {}
        for number, case in enumerate(cases):
            when = self._by_time(case) if case.is_by_time else case.condition
            if when is not None and (case.is_by_time or case.is_known):
                found[number] = self._simple.of(when)
        return found

    def of(self, case: Case, variant: Plan) -> Expression | None:
        """The calls that are to take a variant (None: no call); of merged rows the largest tiles
        come first, and those of streams in chunks before those of whole ones."""
        return self._simple.of(self._of(case, variant))

    def _of(self, case: Case, variant: Plan) -> Expression | None:
        if case.is_by_time:
            return self._by_time(case)
        if case.given:
            counted, (chunks, *_) = self._counted(case)
            as_many = ["and", ["le", case.given, chunks], ["le", chunks, case.given]]
            return None if counted is None else ["and", counted, as_many]
        if case.visited is not None and not case.merged:
            visits = visits_of(case.visited, variant)
            if case.blocks > 1:  # for streams of one tile
                visits = ["ceildiv", visits, case.blocks]
                visits = ["select", ["le", case.visited, 1], visits, NEVER]
            short: Expression = ["le", visits, WORTH]
            if self._one_row is not None:  # whose kernels in front take less than a round of tiles
                short = ["select", self._one_row, 0, short]
            own = case.knob == VISIT_ALL or case.blocks > 1
            return short if own else ["and", short, few(case, self._plan, variant)]
        if not case.schedule or case.exact:
            if not case.schedule:
                self._fewest = ["min", self._fewest, programs_of(variant)]
                self._small = programs_of(variant) if case.is_few else self._small
                if case.knob == ALIGNED:  # serves any call that has such rows
                    self._least = None
            rounds = self._rounds(case, variant) if case.tiles else None
            if case.condition is None:
                return few(case, self._plan, variant, rounds)
            return case.condition if rounds is None else ["and", case.condition, rounds]
        key = case.rows, case.merged
        if case.schedule == "streamed":
            large = case.rows >= PORTABLE
            rule = (self._whole if large else self._in_one_chunk)(case, variant)
            return self._or_one_tile(case, variant, self._if_not_short(case, rule))
        launch = in_parts(variant)
        tiles = points_of(launch.grid[1:])
        if case.spare:
            return self._spare(tiles)
        rule = self._cut_rule(case, tiles, launch.grid[0])
        self._chunks[key] = rule, launch.grid
        self._one_row = rule if case.rows == 1 else self._one_row
        if case.product is None and case.rows >= PORTABLE:
            rule = ["and", rule, ["lt", 1, launch.grid[0]]]  # else there is nothing to join
        return self._if_tall_sooner(case, tiles, rule)

    def _cut_rule(self, case: Case, tiles: Expression, chunks: Expression) -> Expression:
        """Which calls a stream in so many chunks is for, by how many tiles of rows these have."""
        if case.product is not None:
            self._cut[case.rows] = tiles
            return self._by_time(case, chunks)
        self._many |= case.by_model
        if not case.merged and case.rows >= PORTABLE and case.tiles and self._least is not None:
            return self._sooner_joined(case, tiles)
        rule = self._merged(case, tiles) if case.merged else self._in_chunks(case, tiles)
        return self._if_not_short(case, self._left(case, tiles, rule))

    def _left(self, case: Case, tiles: Expression, rule: Expression) -> Expression:
        """Of the calls of a `rule`, those that warp groups leave to small tiles: of which they have
        a tile for less than a quarter of the multiprocessors (tiles between: where these do not
        keep them busy)."""
        if not case.yields or case.rows == PORTABLE:
            return rule
        if case.rows > SMALL:
            return ["and", rule, is_idle(tiles, BUSY_FEW)]
        _, (chunks, *large) = self._chunks.get((PORTABLE, case.merged or case.rows == 1), (0, [0]))
        if not large:
            return rule
        left = ["lt", ["mul", 4, points_of(large)], ["multiprocessors"]]
        left = left if case.yields == WHOLE_TOO else ["or", left, ["le", chunks, 1]]
        if case.merged and case.tiles and case.tiles[1][0].loads:  # of rows that are none, too
            count = points_of(large)
            left = ["or", left, ["and", ["lt", ["multiprocessors"], count], is_idle(count)]]
        if case.length is not None:  # a program takes about as long as it waits
            at_once = ["le", tiles, ["mul", SHORT_ROUNDS[SMALL], ["multiprocessors"]]]
            each = _of_merged(case) if case.merged else None
            points = case.length if each is None else each.points(case.rows, SMALL_TILE)
            left = ["or", left, ["and", ["le", points, ONE_TILE], at_once]]
        return ["and", rule, left]

    def _if_not_short(self, case: Case, rule: Any) -> Any:
        """Of the calls of a `rule` for large tiles of merged rows, not those whose stream is one
        tile where all programs of the smallest plain ones run at once."""
        known = case.condition is not None or case.length is None or self._small is None
        if rule is None or known or case.wide or not (case.merged and case.rows >= PORTABLE):
            return rule
        many = ["lt", ["mul", 2, ["multiprocessors"]], self._small]
        return ["and", rule, ["or", ["lt", ONE_TILE, case.length], many]]

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
        if self._small is not None:
            at_once = ["and", at_once, ["lt", programs_of(variant), self._small]]
        if case.rows == PORTABLE and case.tiles and self._least is not None:
            at_once = ["and", at_once, self._no_later(case, programs_of(variant))]
        short = ["and", ["le", case.length, ONE_TILE], ["and", self._largest[1], at_once]]
        return short if rule is None else ["or", rule, short]

    def _rounds(self, case: Case, variant: Plan) -> Expression:
        """Calls for which the rounds of taller tiles take no longer than those of any before, or
        those of other tiles less."""
        (shape, own), (_, other) = case.tiles
        time = _time(case, shape, own, programs_of(variant))
        if self._least is None:
            alone = replace(case, knob="")
            self._least = _time(alone, shape, other, programs_of(self._plan))
        less, more = sorted(CLOSE, reverse=own.rows < other.rows)
        if own.rows == other.rows:
            less = more
        condition = case.condition
        if case.pairs and shape.triangle:
            less, more = CLOSE
            if case.pairs == 1 and case.each is not None:
                condition = ["le", LONG_PAIRS * own.rows, case.each.length]
        rule = ["le", ["mul", less, time], ["mul", more, self._least]]
        if condition is not case.condition:
            rule = ["and", condition, rule]
        if condition is not None:
            time = ["select", condition, time, NEVER]
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
          no more than multiprocessors, where that program leaves seven eighths of them idle, and no
          large ones are cut for many rows. Of plain products they hold all rows, or are few where
          programs compute the factor;
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
            quarter = ["le", ["mul", 4, tiles], chip]
            return ["or", quarter, ["le", tiles, whole]] if case.yields else quarter
        if rows == 1:
            fewer: Expression = ["lt", tiles, whole]
            return fewer if case.condition is None else ["and", case.condition, fewer]
        idle = _if_long(case, ["and", ["le", ["mul", 8, whole], chip], ["le", tiles, chip]])
        some: Expression = ["le", tiles, whole]
        some = some if self._many else ["or", some, idle]
        if self._fastest is not None:
            held = ["le", self._fastest.rows, rows]
            if self._fastest.computed:  # else a kernel more is in front of the chunks
                held = ["or", held, ["le", ["mul", FEW_SMALL, tiles], chip]]
            return ["and", some, held]
        if {PORTABLE, 2 * PORTABLE} <= set(larger):  # with twice as many columns
            return ["and", some, ["le", tiles, ["mul", 2, larger[PORTABLE]]]]
        return some

    def _sooner_joined(self, case: Case, tiles: Expression) -> Expression:
        """Calls for which chunks of large tiles of plain rows, a multiprocessor each, are joined
        before anything else that serves them is over. (Their number is long to say.)"""
        less, more = CLOSE if case.by_model else (1, 1)
        several: Expression = ["le", ["mul", 2, tiles], ["multiprocessors"]]
        time = ["select", several, self._joined_time(case, tiles), NEVER]
        sooner: Expression = ["le", ["mul", more, time], ["mul", less, self._least]]
        self._least = ["min", self._least, time]
        return sooner

    def _merged(self, case: Case, tiles: Expression) -> Expression:
        """Where it takes a kernel more to merge rows, no calls whose programs visit few tiles."""
        rule = self._fewer(case, tiles)
        if case.visited is None:
            return rule
        return ["and", rule, ["lt", WORTH, visits_of(case.visited, self._plan)]]

    def _fewer(self, case: Case, tiles: Expression) -> Expression:
        """The largest tiles: no more than half of what the program for any call has, or FEWER_TILES
        of what plain rows have with any tiles, or so few that they leave three quarters of the
        multiprocessors idle, and are over before plain rows when their chunks are joined; where the
        program for any call has the same tiles, so few that it does not keep the multiprocessors
        busy. (All calls, where their rows are known.) Smaller ones: no more than these, so that
        each holds all rows. Of results wider than an instruction, that program is as good where it
        keeps the multiprocessors busy: a warp of few rows computes with a tile for longer than the
        next one is on its way."""
        whole = programs_of(self._plan)
        if self._largest is None:
            fewer = ["le", ["mul", FEWER_TILES[1], tiles], ["mul", FEWER_TILES[0], self._fewest]]
            half = ["or", ["le", ["mul", 2, tiles], whole], fewer]
            few = tiles if self._is_modelled(case) else ["mul", 4, tiles]
            idle = _if_long(case, ["le", few, ["multiprocessors"]])
            rule = ["or", half, self._if_sooner_joined(case, tiles, idle)]
            rule = is_idle(tiles) if tiles == whole else self._or_sooner(case, tiles, rule)
            rule = self._if_no_later(case, tiles, rule)
            self._largest = tiles, case.condition or rule
            return self._largest[1]
        largest, rule = self._largest
        if case.rows > MERGED[0]:
            rule = self._or_sooner(case, tiles, rule)
            less, more = TALL_TILES
            fewer = ["le", ["mul", more, tiles], ["mul", less, largest]]
            return case.condition or ["and", fewer, rule]
        fits: Expression = ["le", tiles, largest]
        large = case.rows >= PORTABLE
        busy = case.wide and largest == whole
        fits = ["and", fits, rule] if busy else fits
        if not large:
            return case.condition or fits
        fits = self._or_alone_sooner(case, tiles, fits)
        return case.condition or self._if_no_later(case, tiles, fits)

    def _or_alone_sooner(self, case: Case, tiles: Expression, rule: Expression) -> Expression:
        """Beside the calls of a `rule` for smaller tiles of merged rows, those of the largest in
        which as many smaller ones as hold all rows, with a multiprocessor each, are over sooner:
        these stream twice as much, of what few programs read."""
        each = _of_merged(case)
        if case.rows >= MERGED[0] or not case.tiles or each is None or self._largest is None:
            return rule
        largest, taken = self._largest
        own, tall = (
            self._merged_time(replace(case, knob=f"rows:{n}"), count)
            for n, count in ((case.rows, tiles), (MERGED[0], largest))
        )
        tall = ["min", tall, self._joined_time(replace(case, knob=f"rows:{MERGED[0]}"), largest)]
        less, more = ALONE
        sooner: Expression = ["le", ["mul", more, own], ["mul", less, tall]]
        sooner = ["and", ["le", tiles, ["multiprocessors"]], sooner]
        shape, _ = case.tiles[1]
        if shape.triangle or shape.marks:
            sooner = ["and", each.even, sooner]
        return ["or", rule, ["and", taken, sooner]]

    def _if_tall_sooner(self, case: Case, tiles: Expression, rule: Expression) -> Expression:
        """Of the calls of a `rule` for chunks of merged rows, those of three groups that are joined
        before those of two."""
        tall = case.merged and case.rows > MERGED[0] and self._is_modelled(case)
        if not tall or self._largest is None:
            return rule
        two = self._joined_time(replace(case, knob=f"rows:{MERGED[0]}"), self._largest[0])
        return ["and", rule, ["le", self._joined_time(case, tiles), two]]

    def _is_modelled(self, case: Case) -> bool:
        """Whether the model says how long chunks of merged rows take."""
        each = _of_merged(case)
        known = case.tiles and each is not None and each.reach is None and self._least is not None
        return bool(known and not (case.tiles[1][0].band or case.tiles[1][0].marks))

    def _if_sooner_joined(self, case: Case, tiles: Expression, rule: Expression) -> Expression:
        """Of the calls of a `rule`, those for which chunks of so many tiles of merged rows, a
        multiprocessor each, are joined before the programs of plain rows are over."""
        each = _of_merged(case)
        if not case.tiles or each is None or self._least is None:
            return rule
        return ["and", rule, ["le", self._joined_time(case, tiles), self._least]]

    def _joined_time(self, case: Case, tiles: Expression, chunks: Expression = None) -> Expression:
        """What chunks of so many tiles of rows take, and their join; of as many `chunks` as give a
        multiprocessor to each, where nobody says."""
        each = _of_merged(case) if case.merged else case.each
        assert each is not None
        shape, other = case.tiles[1]
        choice = resized(shape, other, case.rows, 0)
        if chunks is None:
            chunks = ["max", 1, ["floordiv", ["multiprocessors"], ["max", 1, tiles]]]
        points = ["ceildiv", each.points(choice.rows, choice.stream), chunks]
        mean = None if case.merged else each.mean(choice.rows, choice.stream)
        mean = None if mean is None else ["ceildiv", mean, chunks]
        even = ANY_CALL if mean is None else each.even
        programs = ["mul", chunks, tiles]
        time = launch_cycles(shape, choice, programs, points, even, mean)
        return ["add", time, ["mul", UNIT, join_cycles(programs, choice.rows * shape.width)]]

    def _if_no_later(self, case: Case, tiles: Expression, rule: Expression) -> Expression:
        """Of the calls of a `rule`, where masks leave rows a part of the stream between two ends,
        those for which merged rows, of which a tile streams what any row does, are not over
        later."""
        known = case.tiles and case.each is not None and self._least is not None
        if not known or case.each is None or case.each.reach is None:
            return rule
        no_later = self._no_later(case, tiles)
        return ["and", rule, ["or", ["le", case.each.length, ONE_TILE], no_later]]

    def _no_later(self, case: Case, tiles: Expression) -> Expression:
        """Calls for which so many tiles of merged rows are not over later than plain rows."""
        less, more = CLOSE
        return ["le", ["mul", less, self._merged_time(case, tiles)], ["mul", more, self._least]]

    def _merged_time(self, case: Case, tiles: Expression) -> Expression:
        """What so many tiles of merged rows take."""
        shape, other = case.tiles[1]
        of_merged = replace(case, each=_of_merged(case))
        return _time(of_merged, shape, resized(shape, other, case.rows, 0), tiles)

    def _or_sooner(self, case: Case, tiles: Expression, rule: Expression) -> Expression:
        """Beside the calls of a `rule`, those for which the rounds of so many tiles of merged rows
        are over before those of plain rows, where a stream is longer than a tile. (Where masks end
        streams, a tile with rows of two heads streams as much as the longest: no calls but those
        whose programs are as long.)"""
        if not case.tiles or self._least is None:
            return rule
        shape, _ = case.tiles[1]
        masked = shape.triangle or shape.marks
        even = case.each.even if case.each else None
        if masked and even is None:
            return rule
        less, more = CLOSE
        sooner = ["le", ["mul", more, self._merged_time(case, tiles)], ["mul", less, self._least]]
        if case.length is not None:
            sooner = ["and", ["lt", ONE_TILE, case.length], sooner]
        return ["or", rule, ["and", even, sooner] if masked else sooner]

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
        multiprocessors busy, or one chunk is the best number, or chunks are not joined sooner than
        the whole stream is over."""
        tiles = programs_of(variant)
        rule = self._merged(case, tiles)
        part, whole = BUSY_FEW
        idle: Expression = ["le", ["mul", part, places_of(tiles)], ["mul", whole, tiles]]
        found = self._chunks.get((case.rows, True))
        if found:
            rule, (chunks, *_) = found
            idle = ["or", idle, ["le", chunks, 1]]
            if case.tiles and _of_merged(case) is not None:
                joined = self._joined_time(case, tiles, ["max", 1, chunks])
                idle = ["or", idle, ["le", self._merged_time(case, tiles), joined]]
        return ["and", self._or_rounds_of_tall(case, tiles, rule), idle]

    def _or_rounds_of_tall(self, case: Case, tiles: Expression, rule: Any) -> Any:
        """Beside the calls of a `rule` for three groups of merged rows, those of the largest tiles
        of two whose rounds take longer. (Where masks end streams, calls whose programs are as long
        as each other, as all are whose stream is one tile.)"""
        each = _of_merged(case)
        if case.rows <= MERGED[0] or not case.tiles or each is None or self._largest is None:
            return rule
        shape, other = case.tiles[1]
        largest, taken = self._largest
        own, two = (
            _time(replace(case, each=each), shape, resized(shape, other, n, 0), count)
            for n, count in ((case.rows, tiles), (MERGED[0], largest))
        )
        less, more = CLOSE
        sooner: Expression = ["le", ["mul", more, own], ["mul", less, two]]
        if shape.triangle or shape.marks:
            sooner = ["and", each.even, sooner]
        return ["or", rule, ["and", taken, sooner]]
