# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of bf16 pairs (`tile_pairs`) whose left factor has small numbers: it is multiplied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.scratch import Scratch
from neptune_mlir.codegen.cpu.tile_contract import TileContraction
from neptune_mlir.codegen.cpu.tile_magnitudes import (
    EXPONENT,
    NORMAL,
    bits_of,
    exponent,
    folded,
    integer,
    most_with,
)
from neptune_mlir.ir.bindings import arith, ir, llvm

_MANY = 64  # what the left factor is 2 to the power of larger
_INFINITE = (1 << 8) - 1  # that of what is no number


def rounded(em: VectorEmitter, value: Any) -> Any:
    """f32 numbers as the bits of bf16 ones, by the instruction beside `dot`: the nearest, and zeros
    for what is denormal (which goes another way)."""
    name = f"llvm.x86.avx512bf16.cvtneps2bf16.{value.type.element_type.width * em.lanes}"
    made = llvm.call_intrinsic(em.vector_type(ir.BF16Type.get()), name, [value])
    return llvm.bitcast(em.vector_type(integer(16)), made)


def fits_enlarged(em: VectorEmitter, c: TileContraction, right: MemoryView, live: Index) -> Any:
    """Whether the left factor stays in range 2^_MANY times as large, and so do all sums."""
    g = c.generic
    (m,), k = c.rows, g.reduced.index(True)
    assert c.a.view is not None
    source = em.shifted(c.a.view, [g.lows[m], 0])

    def of_left(position: list[Index], found: Any, lanes: int | None) -> Any:
        return most_with(em, bits_of(em, em.load_vector(source, position, 1, lanes), 32), found)

    def of_right(position: list[Index], found: Any, lanes: int | None) -> Any:
        return most_with(em, em.load_vector(right, position, 1, lanes), found)

    ranges: list[tuple[Index, int]] = [(live, 1), (g.extents[k], em.lanes)]
    left = exponent(em, folded(em, ranges, of_left, 32, largest=True))
    words = [(right.sizes[0], 1), (right.sizes[1], em.lanes)]
    other = exponent(em, folded(em, words, of_right, largest=True))
    # products are below 2^(left + other - 2 * 127 + 2), and there are as many as the sum has
    most = 127 + 2 * 127 - 2 - _MANY - g.extents[k].bit_length()
    finite = arith.cmpi(arith.CmpIPredicate.ult, other, em.constant(_INFINITE, other.type))
    in_range = arith.cmpi(arith.CmpIPredicate.ult, left, em.constant(_INFINITE - _MANY, left.type))
    together = arith.addi(left, other)
    fits = arith.cmpi(arith.CmpIPredicate.ule, together, em.constant(most, together.type))
    return em.both(fits, em.both(finite, in_range))


def enlarge(em: VectorEmitter, c: TileContraction, made: MemoryView, live: Index) -> None:
    """The left factor 2^_MANY times as large, as halves of words where `_left` had it.

    A multiplication that reads a denormal number takes Intel's cores 150 cycles, so the bits of a
    small number are taken for the integer that they are, of 2^-149.
    """
    g = c.generic
    (m,), k = c.rows, g.reduced.index(True)
    assert c.a.view is not None
    source = em.shifted(c.a.view, [g.lows[m], 0])
    made = em.shifted(made, [g.lows[m], 0])
    words = em.vector_type(integer(32))

    def one(position: list[Index]) -> None:
        ends = position[1] if isinstance(position[1], int) else None
        lanes = g.extents[k] - ends if ends is not None else em.lanes
        value = em.load_vector(source, position, 1, min(lanes, em.lanes))
        bits = bits_of(em, value, 32)
        size = arith.andi(bits, em.constant((1 << 31) - 1, words))
        sign = arith.xori(bits, size)
        shift = em.constant(_MANY << EXPONENT, words)
        normal = arith.bitcast(value.type, arith.addi(size, shift))
        step = em.constant(2.0 ** (_MANY - 149), value.type)
        small = arith.mulf(arith.sitofp(value.type, size), step)
        least = em.constant(NORMAL << EXPONENT, words)
        is_small = arith.cmpi(arith.CmpIPredicate.ult, size, least)
        larger = arith.ori(bits_of(em, arith.select(is_small, small, normal), 32), sign)
        em.store_vector(made, position, 1, rounded(em, arith.bitcast(value.type, larger)))

    whole = g.extents[k] // em.lanes * em.lanes
    em.nest([(0, live, 1), (0, whole, em.lanes)], one)
    if whole < g.extents[k]:
        em.nest([(0, live, 1)], lambda position: one([*position, whole]))


def sums_apart(scratch: Scratch, c: TileContraction) -> MemoryView:
    """Where sums of a factor that is larger are made, to be written as those of the product."""
    g, em = c.generic, scratch.em
    axes = [e.position for e in c.c.index]
    made = scratch.once(c.kind, tuple(g.extents[d] for d in axes), len(axes) - 1)
    first: Index = 0
    for d, stride in zip(axes, made.strides, strict=True):
        first = em.add(first, em.mul(g.lows[d], stride))
    return replace(made, offset=em.sub(made.offset, first))


def add_reduced(
    em: VectorEmitter, c: TileContraction, made: TileContraction, start: Any, live: Index
) -> None:  # fmt: skip
    """Add sums of a factor that is larger to those of the product, or (`start`) put them there."""
    g = c.generic
    (m,) = c.rows
    assert c.c.view is not None and made.c.view is not None
    step = em.constant(2.0**-_MANY, em.vector_type(c.kind))

    def one(position: list[Index]) -> None:
        at = {m: em.add(position[0], g.lows[m]), c.v: em.add(position[1], g.lows[c.v])}
        where = [at[e.position] for e in c.c.index]
        inner = len(where) - 1
        value = arith.mulf(em.load_vector(made.c.view, where, inner), step)
        if start is None:
            value = arith.addf(em.load_vector(c.c.view, where, inner), value)
        em.store_vector(c.c.view, where, inner, value)

    em.nest([(0, live, 1), (0, g.extents[c.v], em.lanes)], one)
