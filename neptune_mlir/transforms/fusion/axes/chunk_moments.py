# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Means and squares of deviations over several axes, or over the rows of a product, are made of
those of chunks of one.

    s = Σ x                              p_g = Σ_e x          q_g = Σ_e (x - p_g / b)²
    v = Σ (x - s / n)²          ->       s = Σ_g p_g          v = Σ_g q_g + b (p_g / b - s / n)²

In one pass over all of x a mean and what deviates from it are repaired at each tile, and squares
that overflow on the way are a NaN where the program as written has a number. A chunk is a tile that
a program holds: it reads x once and computes both as they are written. Chunks of b elements have n
together. The other axes of the reduction are those of a batch, say, in a norm over channels. Beside
a chunk of rows a tile has many columns.

Part of `inline-maps`, for GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import lookups, positions
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import APART
from neptune_mlir.dialects.nests import DYNAMIC, Nest, build_reduce
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.axes.chunks import chunk_of, in_chunks, reduces_same

SIZES = range(1024, 4096 + 1)  # elements of a chunk
ROWS = range(16, 64 + 1)  # of one that has columns beside them
RowsOf = Callable[[NestProgram, Nest], int | None]


@dataclass(frozen=True)
class _Moments:
    """The nests of a sum and of squared deviations, by the loops of the second: what both read, the
    loop that chunks are of, and the factor that makes a mean of the sum."""

    total: str
    squares: str
    element: Term
    last: int
    chunk: int
    factor: float


def chunk_moments(function: Any, rows_of: RowsOf | None = None) -> None:
    """`rows_of`: moments over rows, of which it says the loop of a nest; else over several axes."""
    program = NestProgram(function)
    for key, nest in program.nests.items():
        found = _moments_of(program, key, nest, rows_of)
        if found is not None:
            _write(program, found)
            return chunk_moments(function, rows_of)


def _moments_of(
    program: NestProgram, key: str, nest: Nest, rows_of: RowsOf | None
) -> _Moments | None:
    body = nest.body
    if nest.kind != "reduce" or nest.combiner != "add" or body.op != "mul":
        return None
    if (len(nest.reduced_axes) < 2) != (rows_of is not None) or DYNAMIC in nest.domain:
        return None
    deviation, other = body.args
    if deviation is not other or deviation.op != "sub":
        return None
    element, mean = deviation.args
    found = _factor_of(mean)
    last = rows_of(program, nest) if rows_of else _last_of(nest, element)
    if found is None or last is None or APART.on(nest.op.operation):
        return None
    read, factor = found
    total = program.nests.get(read.attr)
    chunk = chunk_of(program, element, last, nest.domain[last], ROWS if rows_of else SIZES)
    count = math.prod(nest.domain[k] for k in nest.reduced_axes)
    if not chunk or total is None or not math.isclose(factor * count, 1.0, rel_tol=1e-6):
        return None
    same = total.combiner == "add" and reduces_same(total, read, element, nest)
    return _Moments(read.attr, key, element, last, chunk, factor) if same else None


def _factor_of(mean: Term) -> tuple[Term, float] | None:
    """The sum that a mean is made of, and by what it is multiplied."""
    if mean.op not in ("mul", "div"):
        return None
    a, b = mean.args if mean.args[1].is_const else mean.args[::-1]
    if a.op != "read" or not b.is_const or (mean.op == "div" and mean.args[1] is not b):
        return None
    return a, 1.0 / b.value if mean.op == "div" else float(b.value)


def _last_of(nest: Nest, element: Term) -> int | None:
    """The reduced loop along which all that varies along reduced ones is read last, alone."""
    reduced = {*nest.reduced_axes}
    reads = [r for r in T.reads(element) if r.axes & reduced]
    last = {r.args[-1] for r in reads if r.args}
    if len(last) != 1 or (loop := next(iter(last))).op != "index" or loop.attr not in reduced:
        return None
    alone = all(not lookups(r) and all(loop.attr not in i.axes for i in r.args[:-1]) for r in reads)
    return loop.attr if alone and loop.attr not in positions(element) else None


def _write(program: NestProgram, m: _Moments) -> None:
    squares, total = program.nests[m.squares], program.nests[m.total]
    chunks = squares.domain[m.last] // m.chunk
    outer = [k for k in squares.reduced_axes if k != m.last] + [m.last]
    ends = {k for r in T.reads(m.element) if m.last in r.axes for k in r.args[-1].axes}
    across = not ends.isdisjoint(squares.result_axes)  # arrays lie along what is kept
    inner = m.last + 1 if across else len(squares.domain)  # the loop within a chunk
    domain = [*squares.domain[:inner], m.chunk, *squares.domain[inner:]]
    domain[m.last] = chunks
    own_loops = [*outer, *squares.result_axes] if across else [*squares.result_axes, *outer]
    kept = [k + (k >= inner) for k in own_loops]
    place = {k: T.index(n) for n, k in enumerate(own_loops)}
    size = T.const(float(m.chunk), squares.dtype)
    values = program.values
    with ir.InsertionPoint(total.op), total.location:
        element = in_chunks(program, m.element, m.last, m.chunk, inner)
        sums = build_reduce(values, "add", element, domain, (), kept)
        own = T.read(values.key(sums, "sums"), *map(T.index, kept), dtype=total.dtype)
        deviation = T.make("sub", element, T.make("div", own, size))
        square = T.make("mul", deviation, deviation)
        deviations = build_reduce(values, "add", square, domain, (), kept)
        for part in (sums, deviations):
            APART.set(part.owner, "chunks are programs")
        shape, results = [domain[k] for k in kept], [*map(own_loops.index, squares.result_axes)]
        at = [place[k] for k in own_loops]
        own = T.read(own.attr, *at, dtype=total.dtype)
        # as the sum has its dimensions
        order = [own_loops.index(i) for i in _places_of(program, m)]
        made = build_reduce(values, "add", own, shape, (), order)
        APART.set(made.owner, "chunks are programs")
    program.replace(m.total, made)
    squares = program.nests[m.squares]
    with ir.InsertionPoint(squares.op), squares.location:
        mean = T.rename_axes(squares.body.args[0].args[1], place)
        rest = T.read(values.key(deviations, "deviations"), *at, dtype=squares.dtype)
        off = T.make("sub", T.make("div", own, size), mean)
        body = T.make("add", rest, T.make("mul", size, T.make("mul", off, off)))
        made = build_reduce(values, "add", body, shape, (), results)
        APART.set(made.owner, "chunks are programs")
    program.replace(m.squares, made)


def _places_of(program: NestProgram, m: _Moments) -> list[int]:
    """The loops of the squares that the dimensions of the sum are."""
    mean = program.nests[m.squares].body.args[0].args[1]
    (read,) = T.reads(mean)
    return [i.attr for i in read.args]
