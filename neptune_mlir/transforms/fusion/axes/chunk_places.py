# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where an extremum lies is found in chunks of columns, each of which is read once.

    m = max_j x[j]                          p_g = max_e x[g, e]
    i = min_j (x[j] = m ? j : n)     ->     q_g = min_e (x[g, e] = p_g ? g b + e : n)
                                            m = max_g p_g    i = min_g (p_g = m ? q_g : n)

An extremum that grows tells nothing of the place that was found before, so one pass over all of x
does not make both: x is read twice. Rows that lie along j are held by a program, columns are not. A
chunk of b elements of many columns is a tile that a program holds. Where the program as written
takes an x that is no number for the extremum, so does a chunk whose extremum is none: those keep
such numbers.

Part of `inline-maps`, for GPUs.
"""

from __future__ import annotations

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

SIZES = range(16, 64 + 1)  # elements of a chunk: a tile has many columns beside them
EXTREMA = ("max", "min")
CONDITION = "i1"
PLACE = "i32"  # of an axis that a program knows, whatever the type of the result


@dataclass(frozen=True)
class _ColumnExtremum:
    """The nests of an extremum and of its place, by the loops of the second: what both read, the
    loop along which they reduce, the read of the extremum, and whether what is no number counts."""

    extremum: str
    place: str
    element: Term
    loop: int
    chunk: int
    read: Term
    odd: bool


def chunk_places(function: Any) -> None:
    program = NestProgram(function)
    for key, nest in program.nests.items():
        found = _places_of(program, key, nest)
        if found is not None:
            _write(program, found)
            return chunk_places(function)


def _places_of(program: NestProgram, key: str, nest: Nest) -> _ColumnExtremum | None:
    body = nest.body
    if nest.kind != "reduce" or nest.combiner not in EXTREMA or body.op != "select":
        return None
    condition, place, none = body.args
    if len(nest.reduced_axes) != 1 or DYNAMIC in nest.domain or APART.on(nest.op.operation):
        return None
    (loop,) = nest.reduced_axes
    if place is not T.make("cast", T.index(loop), dtype=place.dtype) or not none.is_const:
        return None
    found = _compared(program, condition)
    if found is None:
        return None
    element, read, odd = found
    across = positions(element) or not all(_is_across(r, loop) for r in T.reads(element))
    if across or not reduces_same(program.nests[read.attr], read, element, nest):
        return None
    chunk = chunk_of(program, element, loop, nest.domain[loop], SIZES)
    if not chunk or chunk == nest.domain[loop]:
        return None
    return _ColumnExtremum(read.attr, key, element, loop, chunk, read, odd)


def _compared(program: NestProgram, condition: Term) -> tuple[Term, Term, bool] | None:
    """What is compared with an extremum, the read of it, and whether what is no number counts."""
    parts = condition.args if condition.op == "or" else (condition,)
    same = [p for p in parts if p.op == "eq"]
    others = [p for p in parts if p.op != "eq"]
    if len(same) != 1 or len(others) > 1:
        return None
    for element, read in (same[0].args, same[0].args[::-1]):
        nest = program.nests.get(read.attr) if read.op == "read" else None
        if nest is not None and nest.kind == "reduce" and nest.combiner in EXTREMA:
            if others and others[0] is not T.make("ne", element, element, dtype=CONDITION):
                return None
            return element, read, bool(others)
    return None


def _is_across(read: Term, loop: int) -> bool:
    """Whether a read runs along another loop, and along this one by its position alone."""
    along = [i for i in read.args if loop in i.axes]
    return along == [T.index(loop)] and loop not in read.args[-1].axes and not lookups(read)


def _write(program: NestProgram, m: _ColumnExtremum) -> None:
    """Both of chunks, at the place of the extremum, and what joins them."""
    place, extremum = program.nests[m.place], program.nests[m.extremum]
    inner, values = len(place.domain), program.values  # the loop within a chunk
    domain = [*place.domain, m.chunk]
    domain[m.loop] //= m.chunk  # it goes over chunks
    loops = [T.index(k).attr for k in place.result_axes]
    none = T.const(place.body.args[2].value, PLACE)
    with ir.InsertionPoint(extremum.op), extremum.location:
        element = in_chunks(program, m.element, m.loop, m.chunk, inner)
        kept = [m.loop, *loops]
        parts = build_reduce(values, extremum.combiner, element, domain, (), kept)
        own = T.read(values.key(parts, "parts"), *map(T.index, kept), dtype=element.dtype)
        size = T.const(m.chunk, "index")
        at = T.make("add", T.make("mul", T.index(m.loop), size), T.index(inner))
        body = T.make("select", _condition(m, element, own), T.make("cast", at, dtype=PLACE), none)
        places = build_reduce(values, place.combiner, body, domain, (), kept)
        found = T.read(values.key(places, "places"), *map(T.index, kept), dtype=PLACE)
        # as the extremum has its dimensions
        order = [place.result_axes.index(i.attr) + 1 for i in m.read.args]
        by_loop = {k: T.index(n) for n, k in enumerate(kept)}
        own, found = (T.rename_axes(t, by_loop) for t in (own, found))
        shape = [domain[k] for k in kept]
        made = build_reduce(values, extremum.combiner, own, shape, (), order)
        APART.set(made.owner, "chunks are programs")
    program.replace(m.extremum, made)
    place = program.nests[m.place]
    with ir.InsertionPoint(place.op), place.location:
        whole = T.rename_axes(m.read, by_loop)
        body = T.make("select", _condition(m, own, whole), found, none)
        body = T.make("cast", body, dtype=place.dtype)
        made = build_reduce(values, place.combiner, body, shape, (), range(1, len(kept)))
        APART.set(made.owner, "chunks are programs")
    program.replace(m.place, made)


def _condition(m: _ColumnExtremum, element: Term, extremum: Term) -> Term:
    same = T.make("eq", element, extremum, dtype=CONDITION)
    odd = T.make("ne", element, element, dtype=CONDITION)
    return T.make("or", same, odd, dtype=CONDITION) if m.odd else same
