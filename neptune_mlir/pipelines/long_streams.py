# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernel variants for long streams.

The `tile` pass notes from which lengths on other sizes are better (`neptune.longer`), where the
length is an extent of an argument. Rows without products have other tiles where they are few, too,
and few of them are cut into chunks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.analysis.fused_nests import nests_of
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import LONGER, LONGER_FEW, TILE
from neptune_mlir.dialects.nests import DYNAMIC, Values
from neptune_mlir.dialects.program import functions, streams
from neptune_mlir.pipelines.cases import ANY_CALL, SMALL_TILE, Case
from neptune_mlir.pipelines.grids import points_of
from neptune_mlir.pipelines.product_cases import argument_of
from neptune_mlir.pipelines.program_lengths import program_lengths
from neptune_mlir.pipelines.short_calls import stream_length
from neptune_mlir.pipelines.streamed_factors import streams_bytes, streams_products
from neptune_mlir.pipelines.ways import Way
from neptune_mlir.runtime.plan import Expression
from neptune_mlir.targets import tuned
from neptune_mlir.targets.group_tiles import GROUP_ROWS
from neptune_mlir.targets.tuned import Choice, Shape
from neptune_mlir.transforms.registry import collect_remarks
from neptune_mlir.transforms.schedule.product_axes import chip_of
from neptune_mlir.transforms.schedule.row_tiles import (
    FEW_ONCE,
    FEW_UNKNOWN,
    LARGE,
    ONCE_ROWS,
    is_read_again,
    of_few,
)
from neptune_mlir.transforms.schedule.stream_tiles import group_choice
from neptune_mlir.transforms.schedule.tile import kernel_ops

# Rows without products are cut from LONG_ROW elements on, where they are no more than
# multiprocessors, or three times as many if read again: programs of whole rows end far apart.
LONG_ROW, FEW_AGAIN = 1 << 15, 3


def longer(module: Any) -> tuple[Case, ...]:
    """Calls with long streams, as the `tile` pass noted of a fused program that has one."""
    length = stream_length(module)
    if length is None:
        return ()
    (stream,) = streams(module)
    lengths = LONGER.find(stream.operation, ())
    each = program_lengths(module, stream) if lengths else None
    found = [
        Case(f"length:{n}", ["le", n, length], tiles=tiles_of(stream, least=n), each=each)
        for n in lengths
    ]
    noted, rows = LONGER_FEW.find(stream.operation), _rows_of(stream)
    if noted and rows is not None:
        start, most = noted
        more = [(2, most)] if most > 1 else []
        for few, count in [*more, (1, 1)]:  # the last image that serves a call counts
            rule = ["and", ["le", start, length], ["le", rows, ["mul", count, ["multiprocessors"]]]]
            found.append(Case(f"length:{start};few:{few}", rule))
    return tuple(found)


def short_and_few(module: Any, short: Sequence[Case]) -> tuple[Case, ...]:
    """Of calls with short streams (`short_streams`), those that have few rows, if other programs
    are better for these."""
    found, length = streams(module), stream_length(module)
    rows = _rows_of(found[0]) if length is not None else None
    if rows is None:
        return ()
    nests, axis = nests_of(found[0], Values()), found[0].axis.value
    few = ["le", rows, ["mul", FEW_ONCE, ["multiprocessors"]]]
    others = of_few(found[0], nests, axis, chip_of(found[0]))
    there = {case.knob for case in short}
    return tuple(
        Case(f"most:{n};few:1", ["and", few, ["and", ["lt", least, length], ["le", length, n]]])
        for n, least in others.items()
        if f"most:{n}" in there
    )


def for_many(module: Any, short: Sequence[Case]) -> Sequence[Case]:
    """Calls with short streams (`short_streams`), but of large rows that are read once those with
    few rows: their tiles are smaller, and there are kernels for them (`longer`)."""
    found, length = streams(module), stream_length(module)
    rows = _rows_of(found[0]) if length is not None else None
    if rows is None or is_read_again(nests_of(found[0], Values()), found[0].axis.value):
        return short
    many = ["lt", ["mul", FEW_UNKNOWN, ["multiprocessors"]], rows]
    large = {f"most:{n}" for n in ONCE_ROWS if n > LARGE}
    return [
        replace(case, condition=["and", case.condition, many]) if case.knob in large else case
        for case in short
    ]  # fmt: skip


def smaller(module: Any) -> tuple[Case, ...]:
    """Calls of a program whose tiles are for three groups, with whatever length, that are over
    sooner in the rounds of tiles for two."""
    length, rows = stream_length(module), GROUP_ROWS * 2
    if length is None:
        return ()
    (stream,) = streams(module)
    tiles = tiles_of(stream, rows=rows)
    if not tiles or tiles[1][1].rows <= rows:
        return ()
    each = program_lengths(module, stream)
    return (Case(f"rows:{rows}", ["lt", SMALL_TILE, length], tiles=tiles, each=each),)


def part_of_tile(module: Any, alone: bool) -> tuple[Case, ...]:
    """Calls whose streams have no more points than a small tile, of a fused program that multiplies
    matrices in larger ones: what is empty of a tile takes time and registers as the rest does. Of
    one kernel (`alone`) of warp groups, those that are over sooner with small tiles: for what the
    last tile lacks, or masks leave of tiles."""
    length = stream_length(module)
    if length is None or isinstance(length, int):
        return ()
    (stream,) = streams(module)
    size = TILE.of(stream.operation)[stream.axis.value]
    if size <= SMALL_TILE or not streams_products(stream):
        return ()
    knob, tiles = f"stream:{SMALL_TILE}", tiles_of(stream) if alone else ()
    if not tiles:
        return (Case(knob, ["le", length, SMALL_TILE]),)
    shape, choice = tiles[1]
    tiles = (shape, replace(choice, stream=SMALL_TILE)), (shape, choice)
    return (Case(knob, ANY_CALL, tiles=tiles, each=program_lengths(module, stream)),)


def tiles_of(stream: Any, **asked: int) -> Sequence[tuple[Shape, Choice]]:
    """The tiles of warp groups for calls that something is asked for (`group_choice`), and for
    any, of a stream with products."""
    if not streams_products(stream):
        return ()
    with stream.operation.context, stream.operation.location, collect_remarks(), tuned.unheard():
        own, other = (group_choice(stream, **some) for some in (asked, {}))  # (said by `tile`)
    return (own, other) if own and other else ()


def is_narrow(module: Any, way: Way, schedule: str) -> bool:
    """Whether a fused program has the knobs of a way for narrow elements (`Way.narrow`): not where
    its stream is known to be short, or there is none to ask."""
    if schedule not in way.narrow or not streams_bytes(module, way.narrow_bytes):
        return False
    most, _ = way.shorter
    length = stream_length(module)
    return not most or not (length is None or (isinstance(length, int) and length <= most))


def shorter(module: Any, way: Way, schedule: str) -> tuple[Case, ...]:
    """Calls that `Way.shorter` is for."""
    most, knob = way.shorter
    if not most or not is_narrow(module, way, schedule):
        return ()
    length, (stream,) = stream_length(module), streams(module)
    programs = _rows_of(stream, TILE.find(stream.operation, ()))
    idle = [] if programs is None else [["lt", programs, ["multiprocessors"]]]
    short = [] if isinstance(length, int) else [["le", length, most]]
    rules = [*short, *idle]
    return (Case(knob, functools.reduce(lambda a, b: ["or", a, b], rules)),) if rules else ()


def _rows_of(stream: Any, sizes: Sequence[int] = ()) -> Expression | None:
    """How many points the axes of a stream have that it does not stream: all of them rows (tiles,
    if their `sizes` are given); None where an extent is no dimension of an argument."""
    extents = iter(stream.extents)
    found: list[Any] = []
    for axis, known in enumerate(stream.domain):
        extent = next(extents) if known == DYNAMIC else None
        if axis == stream.axis.value:
            continue
        place = None if extent is None else argument_of(extent)
        if extent is not None and place is None:
            return None
        points = int(known) if place is None else ["dim", *place]
        size = sizes[axis] if sizes else 1
        found.append(points if size == 1 else ["ceildiv", points, size] if size else 1)
    return points_of(found) if found else None


def long_rows(module: Any) -> tuple[Case, ...]:
    """Calls with few and long rows of a program that is one kernel without products, but for
    reductions before it, which are cut as well."""
    length = stream_length(module)
    if length is None or (isinstance(length, int) and length < LONG_ROW):
        return ()
    (stream,) = streams(module)
    rows = _rows_of(stream) if LONGER_FEW.on(stream.operation) else None
    kernels = [op for f in functions(module) for op in kernel_ops(f)]
    before = [op for op in kernels if isinstance(op, N.ReduceOp)]
    if rows is None or kernels != [*before, stream] or any(map(streams_products, before)):
        return ()
    again = is_read_again(nests_of(stream, Values()), stream.axis.value)
    few = ["le", rows, ["mul", FEW_AGAIN if again else 1, ["multiprocessors"]]]
    rule = ["and", ["le", LONG_ROW, length], few]
    return (Case("columns:64", rule, schedule="private", exact=True),)
