# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies between memory and tiles: any strides, ragged edges, transposing on the way.

Strides of arguments are known at run time only, so a copy picks its code then: whole vectors
where both sides are contiguous along the same dimension, blocks transposed in registers where
they are contiguous along different ones, and gathers or scatters otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.ir.bindings import arith, ir, vector


def copy(
    em: VectorEmitter,
    source: MemoryView,
    target: MemoryView,
    tile: tuple[int, ...] | None = None,
    fill: Callable[[], None] | None = None,
) -> None:
    """Copy `source` to `target` (same sizes). `tile` bounds the sizes: when all are reached,
    straight code with static trip counts runs, else `fill` first."""
    if not source.sizes:
        em.store(target, [], em.load(source, []))
        return
    sizes = [
        s if isinstance(s, int) else t for s, t in zip(source.sizes, target.sizes, strict=True)
    ]
    full: Any = True
    if tile is not None:
        for have, whole in zip(sizes, tile, strict=True):
            full = em.both(full, em.equal(have, whole))

    def straight() -> None:
        _by_strides(em, source, target, list(tile) if tile else sizes)

    def ragged() -> None:
        if fill:
            fill()
        _by_strides(em, source, target, sizes)

    em.branch(full, straight, ragged)


def _contiguous(view: MemoryView) -> int | None:
    """The dimension that is known to be contiguous, the last one if there are several."""
    units = [k for k, s in enumerate(view.strides) if isinstance(s, int) and s == 1]
    return units[-1] if units else None


def _by_strides(
    em: VectorEmitter, source: MemoryView, target: MemoryView, sizes: list[Index]
) -> None:
    rank = len(sizes)
    known, other = _contiguous(target), source
    if known is None:
        known, other = _contiguous(source), target
    if known is None:
        # nothing is known about either side: go along the last dimension
        _rows(em, source, target, sizes, rank - 1)
        return
    unit = em.equal(other.strides[known], 1)

    def same() -> None:
        one = _with_unit(source, known), _with_unit(target, known)
        _rows(em, *one, sizes, known)

    def apart() -> None:
        # the dimension along which the other side may be contiguous instead
        cross = rank - 1 if known != rank - 1 else rank - 2
        if cross < 0 or other is not source or _narrow(em, source):
            _rows(em, source, target, sizes, known)
            return
        em.branch(
            em.equal(source.strides[cross], 1),
            lambda: _transpose(em, _with_unit(source, cross), target, sizes, known, cross),
            lambda: _rows(em, source, target, sizes, known),
        )

    em.branch(unit, same, apart)


def _narrow(em: VectorEmitter, view: MemoryView) -> bool:
    """Types whose vectors the transposition has no good shuffles for."""
    return view.kind == em.i1


def _with_unit(view: MemoryView, dim: int) -> MemoryView:
    strides = tuple(1 if k == dim else s for k, s in enumerate(view.strides))
    return replace(view, strides=strides)


def _rows(
    em: VectorEmitter, source: MemoryView, target: MemoryView, sizes: list[Index], dim: int
) -> None:
    """Vectors along `dim`, with gather or scatter where a side is not contiguous."""
    others = [k for k in range(len(sizes)) if k != dim]
    extent = sizes[dim]
    units = all(isinstance(v.strides[dim], int) and v.strides[dim] == 1 for v in (source, target))
    whole = isinstance(extent, int) and extent % (2 * em.lanes) == 0
    if units and whole and source.kind == target.kind and source.kind in _halves():
        em = em.doubled()

    def row(position: list[Index]) -> None:
        where: list[Index] = [0] * len(sizes)
        for k, i in zip(others, position, strict=True):
            where[k] = i

        def move(i: Index, live: Index | None) -> None:
            where[dim] = i
            value = em.load_vector(source, where, dim, live)
            em.store_vector(target, where, dim, value, live)

        each_vector(em, sizes[dim], move)

    em.nest([(0, sizes[k], 1) for k in others], row)


def _halves() -> tuple[Any, ...]:
    return ir.F16Type.get(), ir.BF16Type.get(), ir.IntegerType.get_signless(16)


def each_vector(em: VectorEmitter, extent: Index, body: Any) -> None:
    """`body(start, live)` for every vector of `extent` elements; `live` is None in whole ones."""
    lanes = em.lanes
    if isinstance(extent, int):
        whole: Index = extent // lanes * lanes
    else:
        whole = arith.andi(extent, em.constant(-lanes))

    def one(i: Index, _: list[Any]) -> list[Any]:
        body(i, None)
        return []

    em.loop(0, whole, lanes, one)
    rest = em.sub(extent, whole)
    if isinstance(rest, int):
        if rest:
            body(whole, rest)
    else:
        some = arith.cmpi(arith.CmpIPredicate.sgt, rest, em.constant(0))
        em.branch(some, lambda: body(whole, rest))


def _transpose(
    em: VectorEmitter, source: MemoryView, target: MemoryView, sizes: list[Index], along: int,
    cross: int,
) -> None:  # fmt: skip
    """The source is contiguous along `cross`, the target along `along`."""
    others = [k for k in range(len(sizes)) if k not in (along, cross)]

    def plane(position: list[Index]) -> None:
        where: list[Index] = [0] * len(sizes)
        for k, i in zip(others, position, strict=True):
            where[k] = i
        _each_block(em, sizes[along], lambda i, rows: columns(where, i, rows))

    def columns(where: list[Index], i: Index, rows: Index | None) -> None:
        _each_block(em, sizes[cross], lambda j, live: block(where, i, rows, j, live))

    def block(
        where: list[Index], i: Index, rows: Index | None, j: Index, live: Index | None
    ) -> None:
        lines = []
        for r in range(em.lanes):
            at = list(where)
            # past the ragged edge the last line is read again: its lanes are not stored
            step = r if rows is None else em.minimum(r, em.sub(rows, 1))
            at[along], at[cross] = em.add(i, step), j
            lines.append(em.widened(em.load_vector(source, at, cross, live), target.kind))
        turned = transpose_lines(em, lines)
        for r in range(em.lanes):
            at = list(where)
            at[along], at[cross] = i, em.add(j, r)

            def put(at: list[Index] = at, line: Any = turned[r]) -> None:
                em.store_vector(target, at, along, line, rows)

            if live is None:
                put()
            elif isinstance(live, int):
                if r < live:
                    put()
            else:
                inside = arith.cmpi(arith.CmpIPredicate.slt, em.constant(r), live)
                em.branch(inside, put)

    em.nest([(0, sizes[k], 1) for k in others], plane)


def _each_block(em: VectorEmitter, extent: Index, body: Any) -> None:
    """As `each_vector`, but a run-time extent gets one masked body: blocks are long code."""
    if isinstance(extent, int):
        each_vector(em, extent, body)
        return

    def one(i: Index, _: list[Any]) -> list[Any]:
        body(i, em.sub(extent, i))
        return []

    em.loop(0, extent, em.lanes, one)


def transpose_lines(em: VectorEmitter, lines: list[Any]) -> list[Any]:
    """A square block held in vectors, transposed: log2(lanes) rounds of pairwise interleaving.

    Each round exchanges one bit of (line number, lane number).
    """
    size = len(lines)
    bit = 1
    while bit < size:
        low = [(lane & ~bit) + (size if lane & bit else 0) for lane in range(size)]
        high = [index + bit for index in low]
        turned = list(lines)
        for r in range(size):
            if not r & bit:
                a, b = lines[r], lines[r | bit]
                turned[r] = vector.shuffle(a, b, low)
                turned[r | bit] = vector.shuffle(a, b, high)
        lines = turned
        bit *= 2
    return lines
