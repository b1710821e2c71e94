# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f32 tiles by AMX, which multiplies bf16 numbers (`tile_pairs`): each factor is the
sum of three of those, exactly.

A number is rounded to 8 bits, and so is what that leaves, and what is left then has 7 bits. Of the
nine products of parts six are made. The other three are below 2^-24 of the product of the numbers,
as much as one rounding of f32, and mostly far below. An instruction adds 32 products from 0 before
it adds to the sum, so sums are rounded less often than by multiply-adds.

Parts must be normal: denormal ones count for zeros. So numbers are at least 2^-103 (or 0), and
finite after the first rounding. What is said of least magnitudes and of larger left factors holds
here as there; what does not fit is multiplied in f32. So is what few rows read: packing costs more
than it saves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.pairs.tile_amx import PackedRows
from neptune_mlir.codegen.cpu.pairs.tile_left import Left
from neptune_mlir.codegen.cpu.pairs.tile_magnitudes import (
    EXPONENT,
    bits_of,
    integer,
    least_with,
    most_with,
    spanned,
)
from neptune_mlir.codegen.cpu.pairs.tile_routines import call, flat, rows
from neptune_mlir.codegen.cpu.pairs.tile_small_weights import enlarged
from neptune_mlir.codegen.cpu.scratch import Scratch, Slot
from neptune_mlir.codegen.cpu.tile_contract import TileContraction
from neptune_mlir.codegen.cpu.tile_copy import transpose_lines
from neptune_mlir.ir.bindings import arith, ir, vector

PARTS = 3
# which parts of both factors are multiplied: each step changes one of them
ORDER = ((0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0))
LEAST = 1 + 23  # the least exponent of a number whose parts are normal
MOST = 254  # and one that may become infinite when it is rounded
# Packing a right factor takes as long as a tenth of the products of so many rows; with half as many
# in a tile nothing was gained by it.
ROWS = 256
MANY_ROWS = ROWS // 2  # of those, so many have to be there
_DEPTH = 32  # products that an instruction adds


@dataclass(frozen=True)
class FactorParts:
    """A factor in parts, and what it spans: the least magnitude (less 1) and the largest."""

    packed: PackedRows
    least: Any
    most: Any


def suits(c: TileContraction) -> bool:
    """Whether a product is one of f32 tiles that lie well for this."""
    g, f32 = c.generic, ir.F32Type.get()
    if c.kind != f32 or len(g.extents) != 3 or sum(g.reduced) != 1 or len(c.rows) != 1:
        return False
    (m,), k = c.rows, g.reduced.index(True)
    for o in (c.a, c.b):
        if o.view is None or o.view.kind != f32 or o.casts or not isinstance(o.view.slot, Slot):
            return False
        if len(o.index) != 2 or not o.uses(k):
            return False
    assert c.b.view is not None
    if c.b.view.offset != 0 or c.b.view.sizes != c.b.view.slot.shape:
        return False
    whole = g.extents[m] % 16 == 0 and g.extents[c.v] % 16 == 0 and g.extents[k] % _DEPTH == 0
    whole = whole and g.extents[m] >= ROWS
    return whole and c.c.position_of(c.v) == len(c.c.index) - 1


def is_read_whole(c: TileContraction) -> bool:
    """Whether a left factor may be packed where its tile is loaded."""
    view, k = c.a.view, c.generic.reduced.index(True)
    return view is not None and view.kind == ir.F32Type.get() and c.a.position_of(k) == 1


def split(em: VectorEmitter, value: Any) -> list[Any]:
    """The parts of a vector, as words whose upper halves are bf16 numbers."""
    words = em.vector_type(integer(32))
    found = []
    for _ in range(PARTS - 1):
        near = arith.addi(bits_of(em, value, 32), em.constant(1 << 15, words))
        found.append(arith.andi(near, em.constant(-1 << 16, words)))
        value = arith.subf(value, arith.bitcast(value.type, found[-1]))
    return [*found, bits_of(em, value, 32)]


def in_range(em: VectorEmitter, factor: FactorParts) -> Any:
    """Whether all parts of a factor are normal and finite."""
    kind = factor.least.type
    above = arith.cmpi(arith.CmpIPredicate.uge, factor.least,
                       em.constant(LEAST << EXPONENT, kind))  # fmt: skip
    below = arith.cmpi(arith.CmpIPredicate.ult, factor.most, em.constant(MOST << EXPONENT, kind))
    return em.both(above, below)


# --- packing


def _allocate(make: Callable[..., MemoryView], shape: tuple[int, int], width: int) -> PackedRows:
    """Memory for parts, in one piece: `make` may give the same for the same shape."""
    whole = make(integer(width), (PARTS * shape[0], shape[1]), 1)
    return PackedRows(replace(whole, sizes=shape), shape[0] * int(whole.strides[0]))


def _store(
    em: VectorEmitter, made: list[Any], width: int, at: list[Index], lines: list[Any]
) -> None:
    base, offset, stride, apart = made
    for k, line in enumerate(lines):
        view = rows(base, em.add(offset, em.mul(apart, k)), stride, width)
        em.store_vector(view, at, 1, line)


def pack_right(em: VectorEmitter, c: TileContraction, scratch: Scratch) -> FactorParts:
    """Words `[k / 2][n]` of the right factor; it spans nothing where few rows read it."""
    k, n = c.generic.reduced.index(True), c.v
    depth, columns = c.generic.extents[k], c.generic.extents[n]
    made = _allocate(scratch.allocate, (depth // 2, columns), 32)
    view, live, turned = c.b.view, c.live_rows(em), c.b.position_of(k) == 1
    assert view is not None
    fixed = view.strides[1] == 1
    arguments = [flat(view), view.offset, *view.strides, *made.arguments(em, [0, 0]), depth // 2,
                 columns]  # fmt: skip

    def body(em: VectorEmitter, given: list[Any]) -> list[Any]:
        source = _source(given, fixed)
        make = _right_turned if turned else _right
        return make(em, source, given[4:8], given[8], given[9])

    name = f"parts_right{'_turned' * turned}{'_strided' * (not fixed)}"
    word = integer(32)

    def pack() -> list[Any]:
        return call(em, name, arguments, [word] * 2, body)

    zero = em.constant(0, word)
    if isinstance(live, int):
        least, most = pack() if live >= MANY_ROWS else [zero, zero]
    else:
        many = arith.cmpi(arith.CmpIPredicate.sge, live, em.constant(MANY_ROWS))
        least, most = em.choose(many, pack, lambda: [zero, zero], [word] * 2)
    return FactorParts(made, least, most)


def _source(given: list[Any], fixed: bool) -> MemoryView:
    view = rows(*given[:3])
    return view if fixed else replace(view, strides=(given[2], given[3]))


def _right(
    em: VectorEmitter, source: MemoryView, made: list[Any], depth: Any, columns: Any
) -> list[Any]:
    def one(at: list[Index], found: list[Any]) -> list[Any]:
        pair = [em.load_vector(source, [em.add(em.mul(at[0], 2), r), at[1]], 1) for r in (0, 1)]
        _store(em, made, 32, at, _words(em, pair))
        return _with(em, pair, found)

    return spanned(em, [(depth, 1), (columns, em.lanes)], one)


def _right_turned(
    em: VectorEmitter, source: MemoryView, made: list[Any], depth: Any, columns: Any
) -> list[Any]:
    lanes = em.lanes

    def block(at: list[Index], found: list[Any]) -> list[Any]:
        lines = [em.load_vector(source, [em.add(at[0], r), em.mul(at[1], 2)], 1)
                 for r in range(lanes)]  # fmt: skip
        lines = transpose_lines(em, lines)
        for r in range(lanes // 2):
            pair = lines[2 * r : 2 * r + 2]
            _store(em, made, 32, [em.add(at[1], r), at[0]], _words(em, pair))
            found = _with(em, pair, found)
        return found

    return spanned(em, [(columns, lanes), (depth, lanes // 2)], block)


def pack_tile(
    em: VectorEmitter, c: TileContraction, tile: MemoryView, scratch: Scratch
) -> FactorParts:
    """A left factor in parts, where its tile is loaded. Rows past the last that there is are read
    where the product has no end of them (they are zeros then)."""
    (m,) = c.rows
    most, depth = tile.slot.shape
    made = _allocate(scratch.allocate, (most, depth), 16)
    ends = c.generic.live and c.generic.live[m] is not None
    extents = [0, tile.sizes[0] if ends else most, depth, depth]
    return FactorParts(made, *_pack_left(em, tile, made, extents, False, False))


def pack_strip(
    em: VectorEmitter, c: TileContraction, wanted: Any, live: Index, scratch: Scratch
) -> FactorParts:
    """A strip of a left factor in parts, at the places that it is read at, if that is wanted."""
    g, (m,) = c.generic, c.rows
    shape = g.extents[m], g.extents[g.reduced.index(True)]
    made = _allocate(scratch.once, shape, 16)
    offset = em.sub(made.rows.offset, em.mul(g.lows[m], made.rows.strides[0]))
    made = replace(made, rows=replace(made.rows, offset=offset))
    zero = em.constant(0, integer(32))
    found = em.choose(wanted, lambda: pack_left(em, Left(em, c, live), made),
                      lambda: [zero, zero], [integer(32)] * 2)  # fmt: skip
    return FactorParts(made, *found)


def pack_left(em: VectorEmitter, left: Left, made: PackedRows, larger: bool = False) -> list[Any]:
    """Halves of words `[m][k]` of a left factor, or of one `enlarged`; what it spans itself."""
    extents = [left.low, left.live, left.depth, left.ends]
    return _pack_left(em, left.view, made, extents, left.turned, larger)


def _pack_left(
    em: VectorEmitter, view: MemoryView, made: PackedRows, extents: list[Index], turned: bool,
    larger: bool,
) -> list[Any]:  # fmt: skip
    fixed = view.strides[1] == 1
    first = [0, extents[0]] if turned else [extents[0], 0]
    source = em.shifted(view, first)
    arguments = [flat(view), source.offset, *view.strides, *made.arguments(em, [extents[0], 0]),
                 *extents[1:]]  # fmt: skip

    def body(em: VectorEmitter, given: list[Any]) -> list[Any]:
        def change(value: Any) -> Any:
            return enlarged(em, value) if larger else value

        make = _left_turned if turned else _left
        return make(em, _source(given, fixed), given[4:8], given[8:], change)

    name = f"parts_left{'_turned' * turned}{'_strided' * (not fixed)}{'_larger' * larger}"
    return call(em, name, arguments, [integer(32)] * 2, body)


Change = Callable[[Any], Any]


def _left(
    em: VectorEmitter, source: MemoryView, made: list[Any], ends: list[Any], change: Change
) -> list[Any]:
    def one(at: list[Index], found: list[Any]) -> list[Any]:
        pair = [em.load_vector(source, [at[0], em.add(at[1], n)], 1) for n in (0, em.lanes)]
        _store(em, made, 16, at, _halves(em, [change(value) for value in pair]))
        return _with(em, pair, found)

    return spanned(em, [(ends[0], 1), (ends[1], 2 * em.lanes)], one)


def _left_turned(
    em: VectorEmitter, source: MemoryView, made: list[Any], ends: list[Any], change: Change
) -> list[Any]:
    lanes = em.lanes

    def row(k: Index, column: Index) -> Any:
        """Of those along the summed axis; zeros past its end, where it holds anything."""
        value = em.load_vector(source, [k, column], 1)
        inside = arith.cmpi(arith.CmpIPredicate.slt, k, ends[2])
        return arith.select(inside, value, em.constant(0.0, value.type))

    def block(at: list[Index], found: list[Any]) -> list[Any]:
        lines = [
            transpose_lines(em, [row(em.add(at[1], r), at[0]) for r in range(n, n + lanes)])
            for n in (0, lanes)
        ]
        for r, pair in enumerate(zip(*lines, strict=True)):
            changed = [change(value) for value in pair]
            _store(em, made, 16, [em.add(at[0], r), at[1]], _halves(em, changed))
            found = _with(em, list(pair), found)
        return found

    return spanned(em, [(ends[0], lanes), (ends[1], 2 * lanes)], block)


def _words(em: VectorEmitter, pair: list[Any]) -> list[Any]:
    """FactorParts of two vectors, as words that have one of each."""
    return [
        arith.ori(arith.shrui(low, em.constant(16, low.type)), high)
        for low, high in zip(*(split(em, value) for value in pair), strict=True)
    ]


def _halves(em: VectorEmitter, pair: list[Any]) -> list[Any]:
    """FactorParts of two vectors, the second behind the first, in 16 bits each."""
    upper = list(range(1, 4 * em.lanes, 2))
    return [
        vector.shuffle(*(bits_of(em.doubled(), part, 16) for part in parts), upper)
        for parts in zip(*(split(em, value) for value in pair), strict=True)
    ]


def _with(em: VectorEmitter, values: list[Any], found: list[Any]) -> list[Any]:
    least, most = found
    for value in values:
        bits = bits_of(em, value, 32)
        least, most = least_with(em, bits, least), most_with(em, bits, most)
    return [least, most]
