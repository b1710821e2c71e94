# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much the programs of a call stream: padded to whole tiles, and which stream as much each.

A mask that ends a stream at a row's place makes a triangle of the programs of all rows: the last
ones stream all, the first ones next to nothing. Short ones fill what rounds of long ones leave idle
then. But a call with few rows at the end of a long stream has the last rows of a triangle alone,
and where a mask begins streams as well, nearly all programs stream the same number of points. Such
programs take rounds, as those without a mask do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import read_live
from neptune_mlir.analysis.masks import Linear, affine_part
from neptune_mlir.dialects.attributes import TILE
from neptune_mlir.dialects.nests import Values
from neptune_mlir.pipelines.product_cases import argument_of
from neptune_mlir.pipelines.short_calls import looks_at_data, stream_length
from neptune_mlir.runtime.plan import Expression

SHARE = 2  # of the longest program, that the shortest has at least
ROWS = 128  # of a tile, of the largest


@dataclass(frozen=True)
class ProgramLengths:
    """Of a fused program with one stream.

    Attributes:
        length: of the stream.
        reach: points beside as many as a tile has rows that masks leave a program; None: all.
        even: the calls whose programs stream about as much each, though a mask ends their streams;
            None: nobody knows.
        first: points of the first row's stream, where masks end streams and each row has one more
            than the row before, up to all; None: nobody knows.
        places: of rows, that a tile has; None: as many as rows.
    """

    length: Expression
    reach: int | None = None
    even: Expression | None = None
    first: Expression | None = None
    places: Expression | None = None

    @property
    def merged(self) -> ProgramLengths:
        """Of rows of several heads, whose tiles may have all places: masks leave them what any row
        streams. All are as long where the stream is one tile."""
        places = None if self.reach is None or self.first is None else self._places
        reach = None if places is None else self.reach
        one: Expression = ["le", self.length, ROWS]
        even = one if self.even is None else ["or", self.even, one]
        return replace(self, reach=reach, even=even, first=None, places=places)

    @property
    def _places(self) -> Expression:
        return ["add", ["add", self.length, 1], ["mul", -1, self.first]]

    def points(self, rows: int, size: int) -> Expression:
        """That the longest program streams, in tiles of so many rows and points."""
        tiles: Expression = ["ceildiv", self.length, size]
        if self.reach is not None:
            places = rows if self.places is None else self.places
            tiles = ["min", tiles, ["add", 1, ["ceildiv", ["add", self.reach, places], size]]]
        return ["mul", size, tiles]

    def mean(self, rows: int, size: int) -> Expression | None:
        """That programs of so many rows stream in the mean; None where nobody knows. All but the
        last end with a tile of rows, beyond which larger tiles of the stream reach by half."""
        if self.first is None:
            return None
        beside = ["add", self.first, max(0, size - rows) // 2 - 1]
        count = ["max", 1, ["ceildiv", self._places, rows]]
        before = ["add", count, -1]
        others = ["floordiv", ["mul", rows, ["mul", count, before]], 2]
        every = ["add", ["mul", before, beside], ["add", others, self.points(rows, size)]]
        return ["min", self.points(rows, size), ["ceildiv", every, count]]


def program_lengths(module: Any, stream: Any) -> ProgramLengths | None:
    """None where nobody knows how long the stream is."""
    length, values = stream_length(module), Values()
    if length is None or not TILE.on(stream.operation):
        return None
    axis, forms = stream.axis.value, affine_part(read_live(stream, values))
    ends, begins = ([f for f in forms if f.coefficient(axis) == sign] for sign in (-1, 1))
    apart = [one.plus(other) for one in begins for other in ends]
    reach = min((form.constant for form in apart if not form.atoms), default=None)
    first = None if looks_at_data(stream) else _first(ends, axis, values)
    even = None if first is None else _even(first, length, reach)
    return ProgramLengths(length, reach, even, first)


def _even(first: Expression, length: Expression, reach: int | None) -> Expression:
    """Calls whose shortest program, with the first rows, streams SHARE of the longest at least, or
    most of whose programs stream as far as masks reach."""
    even: Expression = ["le", length, ["mul", SHARE, first]]
    return even if reach is None else ["or", even, ["le", SHARE * (reach + ROWS), length]]


def _first(ends: list[Linear], axis: int, values: Values) -> Expression | None:
    """How many points the first row streams; None where nothing says so."""
    first = [_at_first_row(form.without(axis), values) for form in ends]
    if not ends or None in first:
        return None
    return functools.reduce(lambda a, b: ["min", a, b], first)


def _at_first_row(end: Linear, values: Values) -> Expression | None:
    """How many points the first row streams up to where a form ends it; None where data say it, or
    rows that follow have fewer."""
    found: Expression = 1 + end.constant
    for atom, factor in end.ordered():
        place = _place_of(atom, values)
        if place is not None:
            found = ["add", found, ["mul", factor, ["dim", *place]]]
        elif factor < 0 or atom.op not in ("index", "rem"):
            return None
    return found


def _place_of(atom: Term, values: Values) -> tuple[int, int] | None:
    """The argument and the dimension that a number of a mask is."""
    return argument_of(values[str(atom.attr)]) if atom.op == "sym" else None
