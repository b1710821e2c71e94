# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of rows that are read along the axis that is reduced: how many rows, how many elements.

A program has whole rows, or what divides them: ROW elements, or fewer where registers are few. On
chips where a row may have a program of many warps (`row_warps`) a row that is read again once it
was reduced is held whole, up to 8 ROW elements (3 ROW beside functions; longer ones have tiles of
2 ROW), and rows that nothing divides take ROW_TILES by their length. Streams that are cut into
chunks have tiles of a row, and ROW elements of it; where rows are reduced together, of as many as
have ROW elements. An axis that arrays do not lie along is held whole beside as many columns as give
2 ROW elements (`columns_beside`). A row that all results share (a table in which
each of them looks something up) is no stream of data: a tile has SHARED elements of it, and as many
results as there is room for.

Where only a call knows the length, kernels for several lengths stand side by side
(`pipelines/cases.py`). Rows of whole chunks of 16 bytes (`assume-chunks`) are moved 16 bytes at a
time: there a row that is read again has one tile, the last reads of which come from near caches,
and a row that is read once has small tiles, so that many programs load while others compute. For
rows of up to 4096 elements (of whole chunks: 2048, and over 3072) there are kernels beside these in
which one tile has a whole row (SHORT_ROWS): no loops, one load, and masks; of rows of whole chunks
that are read once each is a warp's. Beside products such kernels
(PRODUCT_ROWS) stand in the same program (`neptune.shorter`). Of rows of up to SHORT_ROW
elements lanes have some of their own, or few share one: a tile has as many as they have at once.
Where the length is known, each of such rows that are read once is a warp's (WARP_ROWS): all of it
is under way at once, and nothing is joined. Rows
that are moved element by element have 8192 in a tile where they are read again with few arrays
beside them (LONG_ROW_TILES). So have long rows of any kind where a call has few (`most_few`):
programs of 128 threads keep little on its way. All tables were measured on an H200.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.analysis.tiles import element_bytes, is_multiple
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.targets.chips import gpu_target, is_known
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.targets.resources import WARPS, kept_row_warps, row_lanes
from neptune_mlir.targets.row_model import RowForm, RowWork, best, held_elements
from neptune_mlir.targets.warp_groups import CHUNK
from neptune_mlir.transforms.schedule.wishes import Wishes

ROW = 4096  # elements of a tile of rows: 32 registers of each of 128 threads
SHARED = 32  # elements of a tile of a row that all results share: then each thread has a result
WARP_ROW = 1024  # elements of a tile of rows for each warp
# from which length of a row on a tile has so many rows and elements of each
ROW_TILES = ((3072, 1, ROW), (512, 1, 1024), (0, 4, 256))
LONG_ROW_TILES = ((8192, 1, 2 * ROW), *ROW_TILES)  # as LONGEST_TILES
# the same for rows of whole chunks: those that are read again, and those that are read once
AGAIN_TILES = ((4097, 1, 2 * ROW), (2049, 1, ROW), (513, 1, 1024), (0, 4, 256))
ONCE_TILES = ((0, 1, ROW // 2),)  # of rows that are not held
# The largest tile of rows; of tiles over half of it: more warps wait for each other more often
PART, PART_WARPS = 8 * ROW, 16
# without functions, and with few arrays beside the rows
LONGEST_TILES = ((PART + 1, 1, PART), (12289, 1, 16384), (8193, 1, 12288))
FEW_ARRAYS = 2
SHORT_ROW = 256  # elements of rows of which each thread has some, or what it shares with few
NEVER, AGAIN, ALWAYS = range(3)  # which rows: none, those that are read again, all


class ShortRows(NamedTuple):
    """Of a tile that has all of each of its rows: how many (0: by lanes), which rows take it that
    are moved element by element, and which of whole chunks, these from what length on."""

    rows: int
    single: int
    chunks: int
    least: int = 0


# by their length: powers of two, and 3/4 of some. Tiles of one load are better than loops for rows
# of whole chunks that are read again, but not where these have 1024 elements, or nearly.
SHORT_ROWS = {
    64: ShortRows(0, NEVER, ALWAYS),
    128: ShortRows(0, ALWAYS, ALWAYS),
    SHORT_ROW: ShortRows(0, ALWAYS, ALWAYS),
    384: ShortRows(8, ALWAYS, NEVER),
    512: ShortRows(8, ALWAYS, AGAIN),
    768: ShortRows(4, ALWAYS, AGAIN),
    1024: ShortRows(4, ALWAYS, NEVER),
    3 * 512: ShortRows(1, NEVER, AGAIN, least=1024),
    ROW // 2: ShortRows(1, AGAIN, AGAIN, least=1024),
    3072: ShortRows(1, AGAIN, NEVER),
    ROW: ShortRows(1, AGAIN, AGAIN, least=3072),
    2 * ROW: ShortRows(1, NEVER, AGAIN, least=6144),
}
LONGEST = max(SHORT_ROWS)
MOST_BESIDE, LEAST_BESIDE = 256, 32  # columns of a tile that has all of what lies across them
ACROSS = 64  # elements across MOST_BESIDE columns that are moved one by one, of a tile
THREADS = 128  # of a program that reduces a tile of ROW elements
BYTES = 16  # of a chunk
LEAST_CHUNK = CHUNK // 2  # elements of 32 bits in 16 bytes
# From FEW_FROM elements on: of a tile where a call has no more rows than multiprocessors, and where
# it has up to FEW times as many: of rows that are read once, by whether their length is known, and
# of those that are moved one by one
FEW_ROW, FEW_FROM = (0, 16384, 8192), 8192
FEW_KNOWN, FEW_UNKNOWN, FEW_SINGLE = 4, 8, 2
PRODUCT_ROW = 1024  # rows that products sum over count as so long where only a call knows
# Those of them that are read again have a kernel for up to so many elements each, and one for more
PRODUCT_ROWS = 1024, ROW // 2, ROW
# Rows of whole chunks that are read again are kept in shared memory from so many elements on: with
# functions, and without. Where only a call knows the length, kernels are for up to so many, and
# more than some.
KEPT_WITH_FUNCTIONS, KEPT_FROM = 2 * ROW, 8 * ROW
KEPT_ROWS = {
    4 * ROW: 3 * ROW, 5 * ROW: 4 * ROW, 8 * ROW: 5 * ROW, 14 * ROW: 8 * ROW, 16 * ROW: 14 * ROW,
    20 * ROW: 16 * ROW, 27 * ROW: 20 * ROW,
}  # fmt: skip
# Rows of whole chunks that are read once have kernels for up to so many elements, and more than
# some. From LARGE on calls with few rows are left to what is said of these above; up to FEW_MOST
# those with up to FEW_ONCE by multiprocessor have kernels of their own, where the model says so.
ONCE_ROWS = (3072, ROW, 6144, 2 * ROW, 3 * ROW, 4 * ROW, 5 * ROW, 8 * ROW)
LEAST_ONCE = dict(zip(ONCE_ROWS, (ROW // 2, *ONCE_ROWS), strict=False))
FEW_ONCE, FEW_MOST, LARGE = 16, 2 * ROW, 4 * ROW
FEW_ROWS = 4  # by multiprocessor, of the calls that FEW_ONCE is for
FUNCTIONS = {"exp", "log", "tanh", "sin", "cos", "erf"}

Tiles = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class RowCalls:
    """The calls that a tile is for: rows of at least `length`, and whether these are few; of `most`
    elements at most (0: any); `held` as of the pass `tile`; whether rows are `cut` into chunks; of
    a `chip`."""

    held: int
    length: int
    few: int
    most: int
    cut: bool
    chip: str = ""


def row_tile(
    op: Any, nests: Sequence[FusedNest], axis: int, calls: RowCalls
) -> tuple[int, int, Sequence[int]]:
    """Rows and elements along an axis of a tile that reads a row once, or seldom (0, 0: by another
    rule), and from which lengths on others are better, where a stream can say so."""
    extent, streamed, chip = list(op.domain)[axis], isinstance(op, N.StreamOp), calls.chip
    wide = _is_wide(chip)
    along = [r for nest in nests for r in nest.reads if axis in T.axes_of(r)]
    if (extent == DYNAMIC and not wide) or not all(axis in T.axes_of(r.args[-1]) for r in along):
        return 0, 0, ()
    if along and extent == DYNAMIC and all(T.axes_of(r) == {axis} for r in along):
        return ROW // SHARED, SHARED, ()
    if calls.cut:
        if not wide:
            return 0, 0, ()
        short = 0 < extent <= ROW
        return (ROW >> (extent - 1).bit_length(), extent, ()) if short else (1, ROW, ())
    most = min(ROW, 1 << (calls.held // 6).bit_length() - 1) if calls.held else ROW
    if extent == DYNAMIC:
        tiles = _tiles(op, nests, axis)
        if rows := _rows_of_call(op, nests, axis, calls):
            return rows, calls.most, ()
        starts = [start for start, *_ in tiles[-2::-1]] or [FEW_FROM]
        starts = starts if streamed and not calls.length else []
        if calls.few:
            return 1, FEW_ROW[calls.few], starts
        rows, elements = _of_length(tiles, calls.length)
        if not streamed:  # nothing is kept but a number for each row
            rows = max(rows, ROW // elements)
        return rows, min(most, elements) if most < ROW else elements, starts
    long = wide and extent >= FEW_FROM
    large = calls.few and extent > LARGE and not is_read_again(nests, axis)
    if wide and not large and (rows := _whole_rows(op, nests, axis, calls, most)):
        few = long and bool(kept_warps(op, nests, axis, calls, extent))  # may be cut
        few |= streamed and 2 * extent > PART and not is_single(_tiles(op, nests, axis))
        return rows, extent, [FEW_FROM] if few else ()
    if long and calls.few:
        return 1, FEW_ROW[calls.few], ()
    starts = [FEW_FROM] if long and streamed and not calls.length else []
    again = wide and most == ROW and is_read_again(nests, axis)  # near caches have what was read
    elements = math.gcd(extent, 2 * ROW if again else most)
    if again and extent % PART == 0 and not _has_functions(nests, axis):
        elements = PART  # so that caches hold the rows of all programs
    tables = _tiles(op, nests, axis)
    if elements <= 256 and wide and not (again and not is_single(tables)):
        # the last tile is not full
        rows, elements = _of_length(tables if is_single(tables) else ROW_TILES, extent)
        # programs of a few short rows begin more often than they load
        full = ROW if not streamed else rows * elements
        rows = max(rows, full // (1 << (extent - 1).bit_length()))
        return rows, min(most, elements) if most < ROW else elements, starts
    if wide and streamed and elements < min(extent, most):  # as where only a call knows the length
        rows, elements = _of_length(tables, extent)
        return rows, min(most, elements) if most < ROW else elements, starts
    return (max(1, most // elements), elements, starts) if elements > 256 else (0, 0, ())


def _rows_of_call(op: Any, nests: Sequence[FusedNest], axis: int, calls: RowCalls) -> int:
    """Rows, whose length only a call knows, of a tile that has all of each, `most` elements at
    most; 0: a tile has not."""
    tiles, again, most = _tiles(op, nests, axis), is_read_again(nests, axis), calls.most
    if most in (KEPT_ROWS if again else ONCE_ROWS) and kept_warps(op, nests, axis, calls, most):
        return 1  # of few rows, too
    if form := form_of(op, nests, axis, calls, most):
        served = not calls.few and _is_served(op, nests, axis, calls, form)
        return form.rows if (most in SHORT_ROWS or most in ONCE_ROWS) and not served else 0
    if most not in SHORT_ROWS or not _is_held(tiles, most, again):
        return 0
    return SHORT_ROWS[most].rows or _short_rows(op, nests, axis, calls.chip, most)


def _whole_rows(op: Any, nests: Sequence[FusedNest], axis: int, calls: RowCalls, most: int) -> int:
    """Rows of a known length of a tile that has all of each; 0: a tile has not."""
    extent, streamed = op.domain[axis], isinstance(op, N.StreamOp)
    if streamed and _is_short(op, nests, axis, extent):
        return _short_rows(op, nests, axis, calls.chip, extent)
    if kept_warps(op, nests, axis, calls, extent):
        return 1
    if form := form_of(op, nests, axis, calls, extent):
        return form.rows
    if 256 < extent <= _whole_row(nests, axis):
        return max(1, most // (1 << (extent - 1).bit_length()))
    single = streamed and is_single(_tiles(op, nests, axis)) and not is_read_again(nests, axis)
    return int(single and ROW < extent < 2 * ROW)  # element by element: all of them at once


def columns_beside(
    op: Any, nests: Sequence[FusedNest], axis: int | None, inner: int, chip: str, cut: bool = False
) -> tuple[int, int]:
    """Elements along a streamed axis that arrays do not lie along, and how many columns a tile has
    beside them (0, 0: by another rule).

    What is read again once it was reduced (a norm over channels) is held whole. Of what is read
    once each thread has 16 bytes of a row, so that threads share no sum; but where these would be
    few programs, and their rows are not `cut` into chunks, threads share sums. Those that are moved
    one by one have larger tiles, and more warps: programs have much under way, and few rounds.
    """
    if axis is None or not is_known(chip) or gpu_target(chip).row_warps * WARP_ROW <= ROW:
        return 0, 0
    extent, columns = list(op.domain)[axis], list(op.domain)[inner]
    if extent == DYNAMIC:
        return 0, 0
    if is_read_again(nests, axis):
        beside = 2 * ROW // (1 << (extent - 1).bit_length())
        return (extent, min(beside, MOST_BESIDE)) if beside >= LEAST_BESIDE else (0, 0)
    reads = [r for nest in nests for r in nest.reads if {axis, inner} <= T.axes_of(r)]
    chunk = 16 // max((element_bytes(r.dtype) for r in reads), default=16)
    beside = THREADS * chunk
    if columns % chunk and columns >= MOST_BESIDE and extent % ACROSS == 0:
        return ACROSS, MOST_BESIDE
    if columns < beside or columns % chunk:
        return 0, 0
    others = math.prod(n for a, n in enumerate(op.domain) if a not in (axis, inner))
    while not cut and beside > ACROSS and columns // beside * others < MULTIPROCESSORS // 2:
        beside //= 2
    return ROW // beside, beside


def _short_rows(op: Any, nests: Sequence[FusedNest], axis: int, chip: str, most: int) -> int:
    """Rows of a tile that has all of each, up to `most` elements: of whole chunks as many as its
    lanes have at once (`row_lanes`), of others, and of longer rows than SHORT_ROW, twice as many:
    one is on its way while lanes sum up the other."""
    made = {nest.key for nest in nests}
    read = {r for nest in nests for r in nest.reads if axis in T.axes_of(r) and r.attr not in made}
    size = max((element_bytes(r.dtype) for r in read), default=1)
    chunk = BYTES // size if is_multiple(_extent(op, axis), BYTES // size) else 1
    lanes = row_lanes(gpu_target(chip), most, chunk, _shares_vectors(nests, axis))
    return THREADS // lanes * (1 if chunk > 1 and most <= SHORT_ROW else 2)


def row_warps(
    op: Any, nests: Sequence[FusedNest], axis: int, rows: int, elements: int, calls: RowCalls
) -> int:
    """Warps of a program with a tile of so many rows and elements, for these calls; 0: by what it
    holds."""
    if not (isinstance(op, N.StreamOp) and elements):
        return 0
    extent, most = op.domain[axis], calls.most
    if elements in (extent, most) and _is_short(op, nests, axis, elements):
        return WARPS
    whole = elements in (extent, most)
    form = form_of(op, nests, axis, calls, elements) if whole else None
    if form and form.rows == rows:
        return form.warps
    if elements == most and _tiles(op, nests, axis) is ONCE_TILES:
        return WARPS if most in ONCE_ROWS else min(rows, WARPS)
    if is_read_again(nests, axis):
        return PART_WARPS if 2 * elements > PART else 0
    return WARPS if is_single(_tiles(op, nests, axis)) and extent == elements > ROW else 0


def form_of(
    op: Any, nests: Sequence[FusedNest], axis: int, calls: RowCalls, elements: int
) -> RowForm | None:
    """Rows and warps of programs that have all of each row, up to so many elements, of whole
    chunks; None where nothing was measured: short rows, and those that are read again in a loop, or
    with functions and vectors beside them."""
    if not (isinstance(op, N.StreamOp) and _is_wide(calls.chip)) or elements <= SHORT_ROW:
        return None
    again, sizes = is_read_again(nests, axis), _sizes(op, nests, axis)
    known = op.domain[axis] == elements
    functions = again and _has_functions(nests, axis)
    if functions and _shares_vectors(nests, axis):
        return None
    if calls.cut or not sizes or elements > 8 * ROW:
        return None
    if again and not known and LONGEST < elements < KEPT_FROM:
        return None
    keeps = not (again and _reduces_vectors(nests, axis))
    sums = max(1, _sums(nests, axis))
    row = RowWork(sum(sizes), BYTES // min(sizes), again, sums, keeps, functions)
    return best(gpu_target(calls.chip), row, elements, _rows(op, axis, calls))


def _is_served(
    op: Any, nests: Sequence[FusedNest], axis: int, calls: RowCalls, form: RowForm
) -> bool:
    """Whether kernels for rows of the next length serve these calls as well: threads have as many
    elements."""
    most = calls.most
    longer = min((n for n in SHORT_ROWS if n > most), default=0)
    if most not in SHORT_ROWS or not longer or SHORT_ROWS[longer].least > SHORT_ROWS[most].least:
        return False
    chunk = BYTES // min(_sizes(op, nests, axis))
    same = held_elements(form, chunk, most) == held_elements(form, chunk, longer)
    return same and form == form_of(op, nests, axis, replace(calls, most=longer), longer)


def of_few(op: Any, nests: Sequence[FusedNest], axis: int, chip: str) -> dict[int, int]:
    """Lengths of kernels for any rows of up to so many elements, and more than some, of which
    programs take another form where a call has few rows."""
    many, few = (RowCalls(0, 0, few, 1, False, chip) for few in (0, 1))
    lengths = LEAST_ONCE
    if is_read_again(nests, axis):
        known = sorted(SHORT_ROWS)
        lengths = dict(zip(known[1:], known, strict=False))
    return {
        n: least for n, least in lengths.items() if n <= FEW_MOST
        and form_of(op, nests, axis, many, n) != form_of(op, nests, axis, few, n)
    }  # fmt: skip


def _rows(op: Any, axis: int, calls: RowCalls) -> int:
    """How many rows the calls have that a tile is for; 0: many, or any."""
    others = [n for a, n in enumerate(op.domain) if a != axis]
    if DYNAMIC not in others:
        return math.prod(others)
    return MULTIPROCESSORS * (FEW_ROWS if calls.most else calls.few) if calls.few else 0


def _is_wide(chip: str) -> bool:
    """Whether a row may have a program of many warps."""
    return is_known(chip) and gpu_target(chip).row_warps * WARP_ROW > ROW


def _sizes(op: Any, nests: Sequence[FusedNest], axis: int) -> list[int]:
    """Bytes of an element of each array that rows lie in; none where these are not all of whole
    chunks of 16 bytes, or lie along other axes, too."""
    made = {nest.key for nest in nests}
    reads = [r for nest in nests for r in nest.reads if r.attr not in made]
    along = [r for r in reads if axis in T.axes_of(r) and len(T.axes_of(r)) > 1]
    sizes = {r.attr: element_bytes(r.dtype) for r in along}
    whole = all(is_multiple(_extent(op, axis), BYTES // n) for n in sizes.values())
    return list(sizes.values()) if whole else []


def kept_warps(
    op: Any, nests: Sequence[FusedNest], axis: int, calls: RowCalls, elements: int
) -> int:
    """Warps of a program that keeps rows of up to so many elements in shared memory, all of each in
    a tile (`stashed.py`); 0: it does not."""
    if not (isinstance(op, N.StreamOp) and is_known(calls.chip)):
        return 0
    if form := form_of(op, nests, axis, calls, elements):
        return form.warps if form.kept else 0
    again, functions = is_read_again(nests, axis), _has_functions(nests, axis)
    if not again or elements < (KEPT_WITH_FUNCTIONS if functions else KEPT_FROM):
        return 0
    if elements <= _whole_row(nests, axis) and _reduces_vectors(nests, axis):
        return 0
    sizes = _sizes(op, nests, axis)
    size = sum(sizes) * elements
    return kept_row_warps(gpu_target(calls.chip), size, functions) if sizes else 0


def _shares_vectors(nests: Sequence[FusedNest], axis: int) -> bool:
    """Whether vectors lie beside rows, which all rows share (scales of a norm)."""
    made = {nest.key for nest in nests}
    return any(T.axes_of(r) == {axis} and r.attr not in made for n in nests for r in n.reads)


def _reduces_vectors(nests: Sequence[FusedNest], axis: int) -> bool:
    """Whether each pass over a row reads what all rows share beside it (scales of a normalisation
    that is reduced): registers have both for all passes."""
    made, entered = {nest.key for nest in nests}, set[Any]()
    for nest in reversed(nests):  # what enters a sum, and what that is made of
        if axis in nest.own_axes or nest.key in entered:
            entered |= {r.attr for r in nest.reads if r.attr in made}
            if any(T.axes_of(r) == {axis} and r.attr not in made for r in nest.reads):
                return True
    return False


def most_few(op: Any, nests: Sequence[FusedNest], axis: int) -> int:
    """Up to how many rows by multiprocessor there are tiles of FEW_ROW for: more than one where
    other tiles keep too little on its way, small ones of rows that are read once, and those of ROW
    elements that are moved one by one."""
    tiles = _tiles(op, nests, axis)
    if tiles is ONCE_TILES:
        return FEW_UNKNOWN if op.domain[axis] == DYNAMIC else FEW_KNOWN
    return FEW_SINGLE if tiles[0][2] == ROW and is_single(tiles) else 1


def is_single(tiles: Tiles) -> bool:
    """Whether rows are moved element by element."""
    return tiles in (ROW_TILES, LONG_ROW_TILES)


def _is_short(op: Any, nests: Sequence[FusedNest], axis: int, elements: int) -> bool:
    """Whether few lanes share a row of so many elements: one of known length that is read once, of
    whole chunks, may be twice as long."""
    once = op.domain[axis] == elements <= 2 * SHORT_ROW and _tiles(op, nests, axis) is ONCE_TILES
    return elements <= SHORT_ROW or once


def _is_held(tiles: Tiles, most: int, again: bool) -> bool:
    """Whether rows of so many elements, or fewer, are better off in a tile with masks than in
    loops."""
    short, single = SHORT_ROWS[most], is_single(tiles)
    held = short.single if single else short.chunks
    return held == ALWAYS or (held == AGAIN and (again if single else tiles is not ONCE_TILES))


def _of_length(tiles: Tiles, length: int) -> tuple[int, int]:
    return next((rows, elements) for start, rows, elements in tiles if start <= length)


def _extent(op: Any, axis: int) -> Any:
    """A number, or the value that a call gives."""
    operands = iter(op.operation.operands)
    return [next(operands) if n == DYNAMIC else n for n in op.domain][axis]


def _tiles(op: Any, nests: Sequence[FusedNest], axis: int) -> Tiles:
    """By length, of rows whose length only a call knows."""
    arrays = {r.attr for nest in nests for r in nest.reads if axis in T.axes_of(r)}
    again = is_read_again(nests, axis)
    if not is_multiple(_extent(op, axis), LEAST_CHUNK):
        few = isinstance(op, N.StreamOp) and again and len(arrays) <= FEW_ARRAYS
        return LONG_ROW_TILES if few else ROW_TILES
    if isinstance(op, N.StreamOp) and not again:
        return ONCE_TILES
    if _has_functions(nests, axis) or len(arrays) > FEW_ARRAYS:
        return AGAIN_TILES
    return (*LONGEST_TILES, *AGAIN_TILES)


def rows_beside(
    nests: Sequence[FusedNest], axis: int, extent: int, wishes: Wishes
) -> tuple[Sequence[int], int]:
    """Of rows beside products up to which lengths kernels of their own have all of one in a tile,
    and the least length that counts for the others (0: any)."""
    if wishes.length or not wishes.beside_products:
        return (), wishes.length
    if extent == DYNAMIC and is_read_again(nests, axis):
        return PRODUCT_ROWS, PRODUCT_ROWS[-1] + 1
    return (), PRODUCT_ROW


def is_read_again(nests: Sequence[FusedNest], axis: int) -> bool:
    """Whether rows are read again once they were reduced: a result has their elements."""
    return any(axis in nest.result_axes and not nest.in_body for nest in nests)


def _has_functions(nests: Sequence[FusedNest], axis: int) -> bool:
    terms = {t for nest in nests if nest.body is not None for t in T.walk(nest.body)}
    return any(t.op in FUNCTIONS and axis in T.axes_of(t) for t in terms)


def _sums(nests: Sequence[FusedNest], axis: int) -> int:
    """How many reductions read a row."""
    return sum(axis in nest.own_axes for nest in nests)


def _whole_row(nests: Sequence[FusedNest], axis: int) -> int:
    """The longest row that is held whole: one that is read again once it was reduced, longer where
    a thread holds no results of functions beside its elements."""
    if not is_read_again(nests, axis):
        return 0
    return 3 * ROW if _has_functions(nests, axis) else 8 * ROW
