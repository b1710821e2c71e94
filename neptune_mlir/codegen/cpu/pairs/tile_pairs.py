# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of bf16 tiles by instructions that multiply pairs: `c += a0 * b0 + a1 * b1`.

The sum runs along pairs of neighbours. Both factors are packed for that: the left one row by row
(`[m][k]`, pairs along k lie side by side), the right one as `[k / 2][n][2]`, once for each tile
that is loaded and not for each strip of rows. Packed numbers are read as 32-bit words.

Two instructions take these layouts. `vdpbf16ps` multiplies a word that is the same in all lanes by
a vector of them. AMX multiplies 16 rows of 16 words by 16 x 16 words.

Both take denormal numbers for zeros, and both make zeros of denormal results. So the packing finds
the least magnitude of each factor that is not 0. Where the product of both is at least 2^-102, all
that may be lost, 2^-126 a step, is less than half a last place of any product.

Weights far from the largest are smaller than that. Where the other factor has no denormal number,
a left factor of f32 is packed 2^64 times as large then (`tile_small_weights`): none of it is
denormal, and what may be lost of a step is 2^-126 of sums as large, so 2^-190, where f32 has no
number between 0 and 2^-149. These sums must stay below 2^127, which the largest magnitudes decide.
Other tiles, and there are few, take the code for f32. (All terms of a sum may be 0: what is
denormal by then may become 0.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.pairs import tile_amx
from neptune_mlir.codegen.cpu.pairs.tile_amx import BLOCK, TILE, whole_depth
from neptune_mlir.codegen.cpu.pairs.tile_left import Left, rounded
from neptune_mlir.codegen.cpu.pairs.tile_magnitudes import (
    NORMAL,
    at_least,
    exponent,
    folded,
    integer,
    least_with,
)
from neptune_mlir.codegen.cpu.pairs.tile_small_weights import Larger, enlarged, multiply_larger
from neptune_mlir.codegen.cpu.scratch import Scratch, Slot
from neptune_mlir.codegen.cpu.tile_contract import Blocks, TileContraction
from neptune_mlir.codegen.cpu.tile_copy import transpose_lines
from neptune_mlir.codegen.cpu.tile_ops import TileGeneric, TileOperand, copied_once
from neptune_mlir.ir.bindings import arith, ir, llvm, vector

_APART = 2 * 127 - 102  # what both exponents have together where the product is 2^-102


@dataclass(frozen=True)
class Packed:
    """The right factor of a product, in words `[k / 2][n]`, and its least magnitude (an i32: the
    bits of an f32, less 1)."""

    words: MemoryView
    least: Any


@dataclass(frozen=True)
class Factors:
    """The packed right factor, and the least magnitude of the left one if it is known."""

    right: Packed
    least: Any


def suits(c: TileContraction) -> bool:
    """Whether pairs of bf16 numbers are what a product multiplies, and its tiles lie well."""
    g, (left, right) = c.generic, (c.a, c.b)
    bf16, f32 = ir.BF16Type.get(), ir.F32Type.get()
    if c.kind != f32 or len(g.extents) != 3 or sum(g.reduced) != 1 or len(c.rows) != 1:
        return False
    (m,), k = c.rows, g.reduced.index(True)
    for o, kinds in ((left, (bf16, f32)), (right, (bf16,))):
        narrow = o.view is not None and (o.view.kind == bf16 or bf16 in o.casts)
        if not narrow or o.view.kind not in kinds or not isinstance(o.view.slot, Slot):
            return False
        if len(o.index) != 2 or not o.uses(k):
            return False
    if right.view.offset != 0 or right.view.sizes != right.view.slot.shape:
        return False
    whole = g.extents[m] % TILE == 0 and g.extents[c.v] % TILE == 0 and g.extents[k] % 2 == 0
    # what is packed by the copy of another tile has no room for zeros
    full = g.extents[k] == whole_depth(g.extents[k])
    whole = whole and (full or right.position_of(k) == 1)
    turned = left.position_of(k) == 0 and full and left.view.kind == f32
    lies = turned or left.position_of(k) == 1
    return whole and lies and c.c.position_of(c.v) == len(c.c.index) - 1


class PairProducts:
    """The products of a kernel that are done so. `how`: by "tiles" of AMX, by "dots" of vectors,
    or "none"."""

    def __init__(self, em: VectorEmitter, how: str):
        self.em, self.how = em, how
        self._packed: dict[Any, Packed] = {}
        self._left: set[Any] = set()  # tiles that are left factors as they are loaded
        self._least: dict[Any, tuple[Any, Any]] = {}  # their least magnitudes, and in which block

    def takes(self, c: TileContraction | None) -> bool:
        return c is not None and self.how != "none" and suits(c)

    def note(self, c: TileContraction) -> None:
        """One that is taken, before tiles are loaded."""
        if c.a.view is not None and c.a.view.kind == ir.BF16Type.get() and copied_once(c.a.scalar):
            self._left.add(c.a.view.slot)

    def loaded(self, tile: MemoryView, scratch: Scratch) -> None:
        """A tile has been copied: the least magnitude in it is found here, and not in each step of
        a loop that reads it."""
        if tile.slot in self._left and tile.offset == 0 and tile.sizes[1] == tile.slot.shape[1]:
            least = _least_of(self.em, scratch.words(tile), tile.sizes[0])
            self._least[tile.slot] = least, ir.InsertionPoint.current.block

    def _known(self, c: TileContraction) -> Any:
        """The least magnitude of a left factor, where it was found before."""
        assert c.a.view is not None
        least, place = self._least.get(c.a.view.slot, (None, None))
        block = ir.InsertionPoint.current.block
        while least is not None and block != place:
            owner = block.owner.operation
            if owner.name == "func.func":
                return None
            block = owner.block
        return least

    def pack(self, products: list[TileContraction], written: set[Any], scratch: Scratch) -> int:
        """Pack right factors, in front of the loop over strips that writes these tiles. How many
        rows a strip had better have."""
        packed = False
        for c in products:
            if self.takes(c) and c.b.view is not None and c.b.view.slot not in written:
                self._packed[c.generic.op] = _pack_right(self.em, c, scratch)
                packed = True
        return BLOCK * TILE if packed and self.how == "tiles" else TILE

    def multiply(
        self, c: TileContraction, start: Any, scratch: Scratch, otherwise: Callable[..., None]
    ) -> None:
        packed = self._packed.get(c.generic.op)
        if packed is None or not (start is None or _is_zero(start)):
            otherwise()
        else:
            factors = Factors(packed, self._known(c))
            seldom = partial(otherwise, seldom=True)
            _multiply(self.em, c, factors, scratch, start, self.how == "tiles", seldom)

    def finish(self, first: Any, last: Any, scratch: Scratch) -> None:
        """Between these two ops of a kernel, tiles have their sizes."""
        if self.how == "tiles" and self._packed:
            with ir.InsertionPoint(first):
                tile_amx.configure(self.em, scratch)
            with ir.InsertionPoint(last):
                tile_amx.release()


def _pack_right(em: VectorEmitter, c: TileContraction, scratch: Scratch) -> Packed:
    """Words of the right factor, whose tile is whole."""
    k, n = c.generic.reduced.index(True), c.v
    depth, columns = c.generic.extents[k], c.generic.extents[n]
    assert c.b.view is not None
    made = scratch.allocate(integer(32), (whole_depth(depth) // 2, columns), 1)
    words = scratch.words(c.b.view)
    turned = c.b.position_of(k) == 1

    def block(position: list[Index], least: Any, live: int | None) -> Any:
        if turned:  # pairs lie side by side in rows of the other axis; zeros fill the last tile
            lines = [em.load_vector(words, [em.add(position[0], r), position[1]], 1, live)
                     for r in range(em.lanes)]  # fmt: skip
            for line in lines:
                least = least_with(em, line, least)
            for r, line in enumerate(transpose_lines(em, lines)):
                em.store_vector(made, [em.add(position[1], r), position[0]], 1, line)
            return least
        low, high = (
            vector.load(em.vector_type(integer(16)), narrow.base, [
                em.value(em.address(narrow, [em.add(em.mul(position[0], 2), r), position[1]]))
            ]) for r in (0, 1)
        )  # fmt: skip
        both = em.vector_type(integer(32))
        line = arith.ori(arith.extui(both, low),
                         arith.shli(arith.extui(both, high), em.constant(16, both)))  # fmt: skip
        em.store_vector(made, position, 1, line)
        return least_with(em, line, least)

    narrow = scratch.halves(c.b.view)
    ranges = [(columns, em.lanes), (depth // 2, em.lanes)] if turned else [
        (depth // 2, 1), (columns, em.lanes)
    ]  # fmt: skip
    return Packed(made, folded(em, ranges, block))


def _multiply(
    em: VectorEmitter, c: TileContraction, factors: Factors, scratch: Scratch, start: Any,
    tiles: bool, otherwise: Callable[[], None],
) -> None:  # fmt: skip
    """Emit the product; `otherwise` emits it in f32. `start`: what the output begins as."""
    live = c.live_rows(em)
    left, least = _left(em, c, factors.least, live, scratch)
    right = factors.right.words
    ends = [at_least(em, exponent(em, x), NORMAL) for x in (least, factors.right.least)]
    plain = em.both(_far(em, least, factors.right.least), em.both(*ends))

    def pairs(c: TileContraction) -> None:
        if tiles:
            tile_amx.multiply(em, c, left, right, start)
        else:
            _by_words(em, c, scratch.words(left), right, start)

    def pack_larger() -> None:
        Left(em, c, live).pack(left, lambda value: rounded(em, enlarged(em, value)))

    if c.a.view is None or c.a.view.kind != ir.F32Type.get():
        em.branch(plain, lambda: pairs(c), otherwise)
    else:
        larger = Larger(ends[1], right, pack_larger)
        multiply_larger(em, c, scratch, start, plain, larger, pairs, otherwise)


def _far(em: VectorEmitter, left: Any, right: Any) -> Any:
    """Whether products of numbers of these least magnitudes are far from denormal ones."""
    return at_least(em, arith.addi(exponent(em, left), exponent(em, right)), _APART)


def _left(
    em: VectorEmitter, c: TileContraction, least: Any, live: Index, scratch: Scratch
) -> tuple[MemoryView, Any]:
    """The left factor as halves of words, at the places that it is read at, and the least magnitude
    in its rows. Rows past the last live one hold anything: they are not looked at."""
    g, o = c.generic, c.a
    (m,), k = c.rows, g.reduced.index(True)
    assert o.view is not None
    narrow, depth = o.view.kind == ir.BF16Type.get(), whole_depth(g.extents[k])
    if narrow and least is None:
        least = _least_of(em, em.shifted(scratch.words(o.view), [g.lows[m], 0]), live)
    if narrow and g.extents[k] == depth:
        return scratch.halves(o.view), least
    made = scratch.once(integer(16), (g.extents[m], depth), 1)
    first = em.mul(g.lows[m], made.strides[0])
    made = replace(made, offset=em.sub(made.offset, first))
    rows = (g.lows[m], em.add(g.lows[m], live), 1)
    if not narrow:
        least = Left(em, c, live).pack(made, lambda value: rounded(em, value))
    else:
        _copy_rows(em, scratch.halves(o.view), made, g.extents[k], rows)
    for column in range(-(-g.extents[k] // em.lanes) * em.lanes, depth, em.lanes):
        zeros = em.constant(0, em.vector_type(integer(16)))
        em.nest([rows], partial(_store_at, em, made, column, zeros))
    return made, least


def _copy_rows(
    em: VectorEmitter, source: MemoryView, made: MemoryView, extent: int,
    rows: tuple[Index, Index, int],
) -> None:  # fmt: skip
    """Copy so many elements of rows, and zeros up to a whole vector."""

    def copy(position: list[Index], lanes: int | None = None) -> None:
        em.store_vector(made, position, 1, em.load_vector(source, position, 1, lanes))

    whole = extent // em.lanes * em.lanes
    em.nest([rows, (0, whole, em.lanes)], copy)
    if whole < extent:
        em.nest([rows], lambda position: copy([*position, whole], extent - whole))


def _store_at(
    em: VectorEmitter, view: MemoryView, column: int, value: Any, position: list[Index]
) -> None:
    em.store_vector(view, [*position, column], 1, value)


def _least_of(em: VectorEmitter, words: MemoryView, rows: Index) -> Any:
    """The least magnitude in rows of words."""

    def one(position: list[Index], found: Any, live: int | None) -> Any:
        return least_with(em, em.load_vector(words, position, 1, live), found)

    return folded(em, [(rows, 1), (words.sizes[1], em.lanes)], one)


# --- products


class _PairBlocks(Blocks):
    """Blocks of sums where a summed element is a pair: words of both factors."""

    def column(self, b: MemoryView, where: list[Index], dim: int, live: int | None) -> Any:
        return self.em.load_vector(b, where, dim, live)

    def added(self, scalar: Any, column: Any, total: Any) -> Any:
        return dot(scalar, column, total)


def dot(left: Any, right: Any, total: Any) -> Any:
    """total + the products of pairs, lane by lane."""
    lanes = total.type.shape[0]
    pairs = ir.VectorType.get([2 * lanes], ir.BF16Type.get())
    arguments = [total, llvm.bitcast(pairs, left), llvm.bitcast(pairs, right)]
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    return llvm.call_intrinsic(total.type, name, arguments)


def _by_words(
    em: VectorEmitter, c: TileContraction, left: MemoryView, right: MemoryView, start: Any
) -> None:
    g = c.generic
    (m,), k = c.rows, g.reduced.index(True)
    extents = [n // 2 if d == k else n for d, n in enumerate(g.extents)]
    generic: TileGeneric = replace(g, extents=extents)
    a = TileOperand(left, None, _index(m, k))
    b = TileOperand(right, None, _index(k, c.v))
    _PairBlocks(em, replace(c, generic=generic, a=a, b=b), start).run()


def _index(*loops: int) -> list[Any]:
    return [ir.AffineDimExpr.get(d) for d in loops]


def _is_zero(value: Any) -> bool:
    """Whether a scalar is the constant 0."""
    owner = None if isinstance(value, ir.BlockArgument) else value.owner
    if owner is None or owner.operation.name != "arith.constant":
        return False
    found = owner.operation.attributes["value"]
    return isinstance(found, ir.FloatAttr) and ir.FloatAttr(found).value == 0.0
