# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which tiles of the streamed axis a program visits, and which of them need no mask.

Each affine condition `c*j + rest >= 0` of `live` is projected over the program's tile box:
with the largest value of `rest` it bounds the tiles that hold a live point (exists), with the
smallest it bounds the tiles whose points are all live (for all).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.masks import Linear
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import arith

_SIGNED_AT_LEAST = 5  # predicate of arith.cmpi


@dataclass(frozen=True)
class Range:
    """Tiles from `start` to `stop`, where `known` forms are >= 0; `full`: every position exists;
    `single`: it is one tile, wherever that stands."""

    start: Index
    stop: Index
    full: bool
    known: Sequence[Linear] = field(default=())
    single: bool = False

    def is_single_step(self, size: int) -> bool:
        """Whether it is known to be one step of `size`."""
        static = ix.is_static(self.start) and ix.is_static(self.stop)
        return static and 0 < self.stop - self.start <= size

    def last_tile(self, size: int) -> Index:
        """Where the last tile begins, of some."""
        more = ix.sub(ix.round_up(ix.sub(self.stop, self.start), size), size)
        return ix.add(self.start, more)


Box = Callable[[Term], tuple[Index, Index]]  # smallest and largest value of an atom


def tail_ranges(extent: Index, size: int, split: bool, known: Linear) -> list[Range]:
    """All of an axis; with `split` the ragged tail is apart. `known`: positions exist."""
    if ix.is_static(extent) and extent % size == 0:
        return [Range(0, extent, True, [known])]
    if not split:
        return [Range(0, extent, False)]
    middle = ix.round_down(extent, size)
    return [Range(0, middle, True, [known]), Range(middle, extent, False)]


def live_ranges(
    start: Index, stop: Index, size: int, axis: int, live: Sequence[Linear], box: Box,
    *, divides: bool, exists: Linear, from_end: bool = False, anywhere: bool = False,
    rows: Sequence[Linear] = (),
) -> list[Range]:  # fmt: skip
    """The tiles between `start` and `stop` that may hold a live point: partial, full, partial, or
    with `from_end` partial, partial, full.

    Args:
        start: a multiple of the tile size.
        stop: a multiple of the tile size unless it is the extent.
        live: forms that are all >= 0 at live points.
        box: the range of an atom over the program's tile.
        divides: whether all tiles up to `stop` are whole.
        exists: the form `extent - 1 - position`.
        from_end: begin with the partial tiles where `live` ends the stream.
        anywhere: tiles are counted from the first live point, wherever that is.
        rows: forms of the program's rows alone, of which some are >= 0: full tiles have all.
    """
    lows, highs, low_full, high_full, some = [], [], [], [], []
    every = [_extremes(form, box)[0] for form in rows]
    begins, ends = False, False  # inside of a tile
    for form in live:
        c, rest = form.coefficient(axis), form.without(axis)
        least, most = _extremes(rest, box)
        if c > 0:
            lows.append(ix.ceildiv(ix.scale(most, -1), c))
            low_full.append(ix.ceildiv(ix.scale(least, -1), c))
            begins |= not _between_tiles(form, axis, size, box)
        elif c < 0:
            highs.append(ix.add(ix.floordiv(most, -c), 1))
            high_full.append(ix.add(ix.floordiv(least, -c), 1))
            ends |= not _between_tiles(form, axis, size, box)
        else:
            some.append(most)
            every.append(least)
    first = ix.maximum(start, *(low if anywhere else ix.round_down(low, size) for low in lows))
    base = first if anywhere else 0

    def between(position: Index, rounded: Callable[[Index, int], Index]) -> Index:
        return ix.add(rounded(ix.sub(position, base), size), base)

    last = ix.maximum(first, ix.minimum(stop, *highs))
    if some:
        last = _where(_all_nonnegative(some), last, first)
    full_from = first
    if begins:
        end = last if anywhere else ix.round_up(last, size)  # so that tiles begin at multiples
        full_from = ix.minimum(end, ix.maximum(first, *(between(n, ix.round_up) for n in low_full)))
    full_to = ix.maximum(full_from, between(ix.minimum(stop, *high_full), ix.round_down))
    if every:
        condition = _all_nonnegative(every)
        full_from = _where(condition, full_from, first)
        full_to = _where(condition, full_to, first)
    ranges = [Range(first, full_from, False)] if begins else []
    ranges.append(Range(full_from, full_to, True, [*live, *rows, exists]))
    if ends or some or rows or not divides:  # (`begun` without `ends` made gradients spill)
        begun = [f for f in live if f.coefficient(axis) > 0 and ends and not every]
        ranges.insert(0 if from_end and ends else len(ranges), Range(full_to, last, False, begun))
    return ranges


def live_span(
    stop: Index, size: int, axis: int, live: Sequence[Linear], box: Box
) -> tuple[Index, Index]:
    """Where the live points before `stop` begin, at a boundary of tiles, and end; equal where there
    are none. `live`, `box`: as of `live_ranges`."""
    lows, highs = [], []
    for form in live:
        c, rest = form.coefficient(axis), form.without(axis)
        most = _extremes(rest, box)[1]
        if c > 0:
            lows.append(ix.round_down(ix.ceildiv(ix.scale(most, -1), c), size))
        elif c < 0:
            highs.append(ix.add(ix.floordiv(most, -c), 1))
    first = ix.maximum(0, *lows) if lows else 0
    return first, ix.maximum(first, ix.minimum(stop, *highs))


def _between_tiles(form: Linear, axis: int, size: int, box: Box) -> bool:
    """Whether a form turns 0 at a boundary of tiles of an axis: each of them lies on one side."""
    c, rest = form.coefficient(axis), form.without(axis)
    offset = rest.constant if c > 0 else rest.constant + 1
    if abs(c) != 1 or any(n % size for n in (offset, *(n for _, n in rest.atoms))):
        return False
    ranges = [box(atom) for atom, _ in rest.ordered()]
    return all(low is high or (ix.is_static(low) and low == high) for low, high in ranges)


def _extremes(form: Linear, box: Box) -> tuple[Index, Index]:
    """The smallest and the largest value of a form over the box of its atoms."""
    least, most = [], []
    for atom, c in form.ordered():
        low, high = box(atom)
        least.append((low if c > 0 else high, c))
        most.append((high if c > 0 else low, c))
    return ix.weighted_sum(least, form.constant), ix.weighted_sum(most, form.constant)


def _all_nonnegative(indices: Sequence[Index]) -> Index | bool:
    least = ix.minimum(*indices)
    if ix.is_static(least):
        return bool(least >= 0)
    return arith.CmpIOp(_SIGNED_AT_LEAST, least, ix.value(0)).result


def _where(condition: Index | bool, yes: Index, no: Index) -> Index:
    if isinstance(condition, bool):
        return yes if condition else no
    if ix.is_static(yes) and yes == no:
        return yes
    return arith.SelectOp(condition, ix.value(yes), ix.value(no)).result
