# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of bf16 pairs (`tile_pairs`) whose left factor has small numbers: it is multiplied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.pairs.tile_left import Left
from neptune_mlir.codegen.cpu.pairs.tile_magnitudes import (
    EXPONENT,
    NORMAL,
    bits_of,
    exponent,
    folded,
    integer,
    most_with,
)
from neptune_mlir.codegen.cpu.scratch import Scratch
from neptune_mlir.codegen.cpu.tile_contract import TileContraction
from neptune_mlir.ir.bindings import arith

_MANY = 64  # what the left factor is 2 to the power of larger
_INFINITE = (1 << 8) - 1  # that of what is no number


def fits_enlarged(em: VectorEmitter, c: TileContraction, right: MemoryView, live: Index) -> Any:
    """Whether the left factor stays in range 2^_MANY times as large, and so do all sums."""
    g = c.generic
    k = g.reduced.index(True)

    def of_right(position: list[Index], found: Any, lanes: int | None) -> Any:
        return most_with(em, em.load_vector(right, position, 1, lanes), found)

    left = exponent(em, Left(em, c, live).largest())
    words = [(right.sizes[0], 1), (right.sizes[1], em.lanes)]
    other = exponent(em, folded(em, words, of_right, largest=True))
    # products are below 2^(left + other - 2 * 127 + 2), and there are as many as the sum has
    most = 127 + 2 * 127 - 2 - _MANY - g.extents[k].bit_length()
    finite = arith.cmpi(arith.CmpIPredicate.ult, other, em.constant(_INFINITE, other.type))
    in_range = arith.cmpi(arith.CmpIPredicate.ult, left, em.constant(_INFINITE - _MANY, left.type))
    together = arith.addi(left, other)
    fits = arith.cmpi(arith.CmpIPredicate.ule, together, em.constant(most, together.type))
    return em.both(fits, em.both(finite, in_range))


def enlarged(em: VectorEmitter, value: Any) -> Any:
    """Numbers of the left factor 2^_MANY times as large.

    A multiplication that reads a denormal number takes Intel's cores 150 cycles, so the bits of a
    small number are taken for the integer that they are, of 2^-149.
    """
    words = em.vector_type(integer(32))
    bits = bits_of(em, value, 32)
    size = arith.andi(bits, em.constant((1 << 31) - 1, words))
    sign = arith.xori(bits, size)
    normal = arith.bitcast(value.type, arith.addi(size, em.constant(_MANY << EXPONENT, words)))
    step = em.constant(2.0 ** (_MANY - 149), value.type)
    small = arith.mulf(arith.sitofp(value.type, size), step)
    least = em.constant(NORMAL << EXPONENT, words)
    is_small = arith.cmpi(arith.CmpIPredicate.ult, size, least)
    larger = arith.ori(bits_of(em, arith.select(is_small, small, normal), 32), sign)
    return arith.bitcast(value.type, larger)


@dataclass(frozen=True)
class Larger:
    """A product whose left factor may be larger: whether the right one allows that, its words, and
    what packs the left one so."""

    allowed: Any
    right: MemoryView
    pack: Callable[[], None]


def multiply_larger(
    em: VectorEmitter, c: TileContraction, scratch: Scratch, start: Any, plain: Any,
    larger: Larger, pairs: Callable[[TileContraction], None], otherwise: Callable[[], None],
) -> None:  # fmt: skip
    """Multiply by `pairs`: where `plain` holds as it is packed, else with a larger left factor if
    that helps, else `otherwise`."""
    live = c.live_rows(em)
    # one product for both: its sums go elsewhere where they are larger
    reduced = sums_apart(scratch, c)
    always, never = (em.constant(answer, em.i1) for answer in (True, False))

    def grown() -> list[Any]:
        fits = fits_enlarged(em, c, larger.right, live)

        def pack() -> None:
            larger.pack()
            if start is None:
                clear(em, c, reduced, live)

        em.branch(fits, pack)
        return [fits]

    (fits,) = em.choose(
        plain, lambda: [always], lambda: em.choose(larger.allowed, grown, lambda: [never])
    )

    def multiply() -> None:
        assert c.c.view is not None
        pairs(replace(c, c=replace(c.c, view=em.either_view(plain, c.c.view, reduced))))
        em.branch(em.negation(plain), lambda: add_reduced(em, c, reduced, start, live))

    em.branch(fits, multiply, otherwise)


def sums_apart(scratch: Scratch, c: TileContraction) -> MemoryView:
    """Where sums of a factor that is larger are made, to be written as those of the product."""
    g, em = c.generic, scratch.em
    axes = [e.position for e in c.c.index]
    made = scratch.once(c.kind, tuple(g.extents[d] for d in axes), len(axes) - 1)
    first: Index = 0
    for d, stride in zip(axes, made.strides, strict=True):
        first = em.add(first, em.mul(g.lows[d], stride))
    return replace(made, offset=em.sub(made.offset, first))


def clear(em: VectorEmitter, c: TileContraction, made: MemoryView, live: Index) -> None:
    """Let sums of a factor that is larger begin as 0."""
    zero = em.constant(0.0, em.vector_type(c.kind))
    em.nest(_rows_and_vectors(em, c, live), lambda position: _store(em, c, made, position, zero))


def add_reduced(
    em: VectorEmitter, c: TileContraction, made: MemoryView, start: Any, live: Index
) -> None:  # fmt: skip
    """Add sums of a factor that is larger to those of the product, or (`start`) put them there."""
    assert c.c.view is not None
    view = c.c.view
    step = em.constant(2.0**-_MANY, em.vector_type(c.kind))

    def one(position: list[Index]) -> None:
        where = _place(em, c, position)
        value = arith.mulf(em.load_vector(made, where, len(where) - 1), step)
        if start is None:
            value = arith.addf(em.load_vector(view, where, len(where) - 1), value)
        _store(em, c, view, position, value)

    em.nest(_rows_and_vectors(em, c, live), one)


def _rows_and_vectors(
    em: VectorEmitter, c: TileContraction, live: Index
) -> list[tuple[Index, Index, int]]:
    return [(0, live, 1), (0, c.generic.extents[c.v], em.lanes)]


def _place(em: VectorEmitter, c: TileContraction, position: list[Index]) -> list[Index]:
    g, (m,) = c.generic, c.rows
    at = {m: em.add(position[0], g.lows[m]), c.v: em.add(position[1], g.lows[c.v])}
    return [at[e.position] for e in c.c.index]


def _store(
    em: VectorEmitter, c: TileContraction, view: MemoryView, position: list[Index], value: Any
) -> None:
    where = _place(em, c, position)
    em.store_vector(view, where, len(where) - 1, value)
