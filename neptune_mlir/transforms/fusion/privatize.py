# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`privatize`: cut a stream into chunks that run in parallel, and join them.

Each chunk keeps private running values under its private references; a global nest re-bases
them to the global references with the *same* corrections as rolling update, then reduces over
the chunks (paper, Algorithm 2):

                                       mp, lp = private {chunks = 4}: stream over this chunk of j
    m, l = stream over j: ...   ->     global:   m  = reduce max [c]  mp[c]
                                                 lc = correct lp[c] (mp[c] -> m): a * exp(mp - m)
                                                 l  = reduce add [c]  lc[c]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import (
    FusedNest,
    contractions,
    multiplies_matrices,
    nests_of,
    read_live,
)
from neptune_mlir.analysis.masks import affine_part
from neptune_mlir.analysis.paged_reads import read_pages
from neptune_mlir.analysis.tile_axes import TileAxis, axes_of
from neptune_mlir.analysis.tiles import element_bytes
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import AXES, CHIP, TILE
from neptune_mlir.dialects.nests import (
    DYNAMIC,
    Nest,
    Values,
    element_type,
    read_nest,
    reference,
    tensor_key,
)
from neptune_mlir.dialects.op_names import GLOBAL, MULTIPROCESSORS, PRIVATE, READS, STREAM
from neptune_mlir.dialects.program import functions
from neptune_mlir.errors import ScheduleError
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.ir.values import defining_op, module_of
from neptune_mlir.targets.chips import gpu_target, is_known
from neptune_mlir.targets.resources import stages_under_way
from neptune_mlir.transforms.fusion.groups import FusedAxis
from neptune_mlir.transforms.fusion.region import FusedRegion, produce
from neptune_mlir.transforms.registry import register, remark

LONG_CHUNK = 32  # tiles
ALONE = 2  # times as many of one stream that data end: as many have room at once, and fill it
PIECES = 16  # times as many programs as a target runs at once, of streams that data end
MOST_CHUNKS = 128  # a join takes them all at once
ROWS = 4  # times as many programs of rows, which have little under way while they reduce a tile
MOST_OF_ROWS = 1024  # chunks of rows: what is joined is a number of each
JOIN = 19, 20  # what a stream that is cut may take, of the time of one that is not
CANDIDATES = 8
PAIR = 2  # programs of a multiprocessor that hide each other's waits
FEW_CHUNKS = 8  # that leave enough rows to keep a chip busy with their join
JOINED = 4  # tiles of a stream, in whose time a kernel that joins chunks is launched and done
LOOKED_UP = 2  # times as many programs, of streams each row of which waits for a table
AT_WORK = 4  # tiles that each of these chunks has at least
PARTIAL = 4  # bytes of an element of a chunk's results
AROUND = 2  # tiles of a stream, in whose time a program loads its rows and stores its results
MORE_ROOM = 3  # programs of a multiprocessor, from which on one chunk more may have its places
# What memory gives a multiprocessor while a program waits for a tile and multiplies it: 18 bytes a
# cycle, 1100 cycles, whatever the tile's bytes (measured with heads of 40 and 88 elements).
STEP_BYTES = 19800
# Joins of up to so many chunks have kernels of their own, whose programs take so many columns (0:
# by the rule). One that is made for all chunks there can be takes as long for 9.
SMALL_JOINS = {FEW_CHUNKS: 0, 32: 128}
WIDE = 512  # columns of a row that fills a program, for FEW_CHUNKS


def small_joins(domain: Sequence[int]) -> dict[int, int]:
    """SMALL_JOINS, and a join of two chunks of wide rows: a program takes several of these, and
    asks for nothing that is not there."""
    return {**({2: 0} if max(domain) >= WIDE else {}), **SMALL_JOINS}


def stream_axes(stream: Any) -> list[FusedAxis]:
    """The axes of a stream or global op."""
    extents = iter(stream.operation.operands)
    names = [ir.StringAttr(n).value for n in stream.axis_names]
    return [
        FusedAxis(size, next(extents) if size == DYNAMIC else None, name)
        for size, name in zip(stream.domain, names, strict=True)
    ]


def running_nests(stream: Any, values: Values) -> list[tuple[Nest, Nest | None]]:
    """Each running value's accumulation and its correction, in the order produced."""
    block = stream.operation.regions[0].blocks[0]
    terminator = list(block.operations)[-1]
    found = []
    for value in terminator.operation.operands:
        accumulate = read_nest(defining_op(value), values)
        init = defining_op(values[accumulate.init])
        found.append((accumulate, read_nest(init, values) if init is not None else None))
    return found


def _in_axes(term: Term, nest: Nest, shift: int = 0) -> Term:
    return T.rename_axes(term, {k: T.index(a + shift) for k, a in enumerate(nest.axes)})


def chunk_count(stream: Any, values: Values, programs: int, each: int) -> Index:
    """Into how many chunks to cut a stream that has tile sizes, for a grid of about `programs`.

    Where the number is known at run time only, because extents are, `each` puts so many programs
    on each multiprocessor of the device instead (0: `programs` all the same).

    Where each program has a multiprocessor alone (`each` is 1), the number is that with which the
    multiprocessors are busiest: the last programs of a launch leave some of them idle. A join has
    to be worth it (JOIN). Else:

    The target runs some more than `programs` at once: a grid of up to twice as many needs no
    cut. A larger one runs in waves, of which the last may be nearly empty; there chunks are small
    beside a wave (8 times as many programs), as long as each has LONG_CHUNK tiles. Where data say
    how long streams are, and more than one is, chunks are small too: the longest is not one
    program's. Of one there are ALONE times as many, of LONG_CHUNK tiles and with a small join.

    Where PAIR programs of a multiprocessor keep memory busy, one chunk more is taken where all have
    a place and are done sooner; of small tiles, of which more programs do, up to twice as many.
    Streams without products of matrices have ROWS times as many.

    At most as many as there are tiles and MOST_CHUNKS (MOST_OF_ROWS), at least one; known at run
    time only where extents are. Each loads about as much as its results are (`_most_by_bytes`).
    """
    nests = nests_of(stream, values)
    axes = axes_of(stream, nests, stream.axis.value)
    rows, most = not multiplies_matrices(nests), MOST_CHUNKS
    if rows:
        programs, each, most = ROWS * programs, ROWS * each, MOST_OF_ROWS
        if any(not ix.is_static(axis.extent) for axis in axes):
            most //= 2  # of which the join has a tile for the most that a call may have
    grid, least = _grid_of(stream, nests, axes, rows)
    (points,) = (axis for axis in axes if axis.role == "stream")
    live = live_tiles(stream, values, points.size)
    tiles = ix.minimum(ix.ceildiv(points.extent, points.size), *live)
    some = ix.maximum(1, grid)
    known = ix.is_static(tiles) and ix.is_static(grid)
    asked: Index = programs if known or not each else ix.scale(_multiprocessors(), each)
    few = _in_places(asked, some, each, tiles, rows, _looks_rows_up(nests, stream.axis.value))
    long = ix.floordiv(tiles, LONG_CHUNK)
    share = partial(_share, asked, some)
    many = ix.minimum(long, share(8))
    small: Index | None = None
    if _ends_by_data(stream):
        filling = _filling(asked, each, some, tiles) if each >= PAIR and not rows else 1
        small = ix.maximum(few, filling, ix.minimum(long, share(PIECES)))
        few = ix.maximum(few, ix.minimum(share(ALONE), long, max(SMALL_JOINS)))
    moved = _moved_bytes(nests, [axis.size for axis in axes], stream.axis.value)
    places = _places(stream, *moved)
    if each == PAIR and not rows and places >= MORE_ROOM and small is None:
        room = ix.floordiv(ix.scale(asked, places), PAIR)
        few = _fuller(grid, asked, room, tiles, few, moved[1])
    chosen = ix.where_less(ix.scale(asked, 2), grid, many, few)
    if each == 1 and small is None:
        chosen = _soonest(grid, asked, tiles, few)
    if small is not None:
        chosen = ix.where_less(1, _ends(stream, values, axes), small, chosen)
    chosen = ix.minimum(chosen, _most_by_bytes(tiles, *moved))
    return ix.maximum(1, ix.minimum(chosen, min(most, max(4, programs // least))))


def _in_places(
    asked: Index, grid: Index, each: int, tiles: Index, rows: bool, looked_up: bool
) -> Index:
    """So many chunks that a grid has about the programs that are asked for, or where PAIR programs
    of a multiprocessor wait for tables as well, LOOKED_UP times as many."""
    few = ix.floordiv(asked, grid)
    if each > PAIR and not rows:  # a join of more than FEW_CHUNKS is worth it for so many programs
        pair = ix.floordiv(ix.scale(_multiprocessors(), PAIR), grid)
        few = ix.maximum(ix.minimum(few, FEW_CHUNKS), pair)
    if looked_up and each == PAIR:
        few = ix.maximum(few, ix.minimum(ix.scale(few, LOOKED_UP), ix.floordiv(tiles, AT_WORK)))
    return _easily_joined(tiles, ix.minimum(tiles, few))


def _share(asked: Index, grid: Index, times: int) -> Index:
    """So many chunks that a grid has about so many times the programs that are asked for."""
    return ix.floordiv(ix.scale(asked, times), grid)


def _filling(asked: Index, each: int, grid: Index, tiles: Index) -> Index:
    """So many chunks that a multiprocessor has as many programs as it has room for, where each has
    AT_WORK tiles: of streams of different lengths some are over soon, and leave the others alone
    (measured with 2 to 64 sequences of up to 65536 keys, equal ones lose nothing)."""
    room = ix.floordiv(ix.scale(asked, ALONE * PAIR), ix.scale(grid, each))
    few = ix.minimum(room, ix.floordiv(tiles, AT_WORK), max(SMALL_JOINS))
    return _easily_joined(tiles, ix.maximum(1, few))


def _easily_joined(tiles: Index, count: Index) -> Index:
    """So many chunks, or as many as a small join takes, where the longest has no more tiles then:
    all are done as soon. (Of LONG_CHUNK tiles the share that others take off weighs more.)"""
    last = ix.maximum(0, ix.sub(tiles, 1))  # of all tiles; of a chunk one has fewer before it
    most = max(SMALL_JOINS)
    now = ix.minimum(ix.floordiv(last, ix.maximum(1, count)), LONG_CHUNK - 2)
    return ix.minimum(count, ix.where_less(now, ix.floordiv(last, most), MOST_OF_ROWS, most))


def _looks_rows_up(nests: Sequence[FusedNest], axis: int) -> bool:
    """Whether each row of a stream stands where a table says."""
    pages = (read_pages(read, axis) for nest in nests for read in nest.reads)
    return any(found is not None and found.size == 1 for found in pages)


def _grid_of(
    stream: Any, nests: Sequence[FusedNest], axes: Sequence[TileAxis], rows: bool
) -> tuple[Index, int]:
    """How many programs a stream has that is not cut, and what of that number is known."""
    along = [r for n in nests for r in n.reads if stream.axis.value in T.axes_of(r)]
    beside = {a for r in along if r.args for a in T.axes_of(r.args[-1])}
    grid: Index = 1
    least = 1
    for k, axis in enumerate(axes):
        if axis.role == "grid":
            alone = rows and k not in beside  # a program may have one of them
            count = axis.extent if alone else ix.ceildiv(axis.extent, axis.size)
            grid = ix.mul(grid, count)
            least *= count if ix.is_static(count) and count else 1
    return grid, least


def live_tiles(stream: Any, values: Values, size: int) -> list[int]:
    """The most tiles of a stream that masks leave a program, where two of them say so: one where a
    row's points begin and one where they end, a number apart."""
    axis, rows = stream.axis.value, TILE.of(stream.operation)
    live = affine_part(read_live(stream, values))
    found = []
    for begins in (form for form in live if form.coefficient(axis) == 1):
        for ends in (form for form in live if form.coefficient(axis) == -1):
            apart = begins.plus(ends)
            if not apart.atoms:
                of_rows = math.prod(rows[a] or 1 for a in begins.without(axis).axes)
                found.append(-(-(apart.constant + of_rows) // size) + 1)
    return found


def _moved_bytes(nests: list[FusedNest], sizes: list[int], axis: int) -> tuple[int, int]:
    """The bytes that results of products along a stream take, and those that a tile of it loads.
    `sizes`: of a tile, along each axis."""
    made = {nest.key for nest in nests}
    loaded: dict[str, int] = {}  # by tensor: elements that two products read come once
    results = 0
    for nest, *factors in contractions(nests):
        if axis in nest.reduced_axes:
            results += PARTIAL * math.prod(sizes[a] for a in nest.result_axes)
        for f in factors:
            if axis in T.axes_of(f) and f.attr not in made:
                count = math.prod(sizes[a] for a in T.axes_of(f))
                loaded[f.attr] = max(loaded.get(f.attr, 0), element_bytes(f.dtype) * count)
    return results, sum(loaded.values())


def _most_by_bytes(tiles: Index, results: int, loaded: int) -> Index:
    """The most chunks of a stream of so many tiles by the bytes of their results and of a tile:
    each loads as much as is stored and loaded again of it, or half of that where there are no more
    than have a join of their own."""
    if not loaded or 2 * results <= loaded:
        return tiles
    once, twice = (-(-n * results // loaded) for n in (1, 2))
    short = ix.minimum(ix.floordiv(tiles, once), max(SMALL_JOINS))
    return ix.maximum(ix.floordiv(tiles, twice), short)


def _soonest(grid: Index, places: Index, tiles: Index, few: Index) -> Index:
    """The number of chunks with which programs, of which so many run at once, are done soonest:
    one up to CANDIDATES, or `few` where that is more (then hardly any place is idle).

    A round takes the time of the tiles of a chunk and of AROUND more, a join that of JOINED."""
    found = []
    for count in range(1, CANDIDATES + 1):
        rounds = ix.floordiv(ix.add(ix.scale(grid, count), ix.sub(places, 1)), places)
        each = ix.add(ix.ceildiv(tiles, count), AROUND)
        share = JOIN[0] if count == 1 else JOIN[1]
        taken = ix.add(ix.mul(rounds, each), JOINED if count > 1 else 0)
        time = ix.scale(taken, share * (CANDIDATES + 1))
        found.append(ix.add(time, count))
    best = ix.mod(ix.minimum(*found), CANDIDATES + 1)
    return ix.where_less(CANDIDATES, few, few, best)


def _places(stream: Any, results: int, loaded: int) -> int:
    """About how many programs of a stream a multiprocessor of the chip has room for, by what is on
    its way to them and by their results; 0 where no chip is known."""
    chip = CHIP.find(module_of(stream), "")
    if not is_known(chip) or not loaded:
        return 0
    return gpu_target(chip).shared_sm // (stages_under_way(loaded) * loaded + 2 * results)


def _fuller(
    grid: Index, asked: Index, room: Index, tiles: Index, few: Index, loaded: int
) -> Index:  # fmt: skip
    """`few` chunks, or more where all programs have `room` at once and are done sooner: one more,
    or twice as many (FEW_CHUNKS at most) where so many programs keep memory busy. With fewer than
    these at work, or than are `asked` for, memory is waited for as much longer.

    Args:
        loaded: bytes of a tile.
    """
    some = ix.maximum(1, few)
    busy, more = asked, ix.add(some, 1)
    if PAIR * loaded < STEP_BYTES:
        busy = ix.floordiv(ix.scale(asked, STEP_BYTES), PAIR * loaded)
        more = ix.maximum(more, ix.minimum(ix.scale(some, 2), FEW_CHUNKS))

    def time(count: Index) -> Index:
        each = ix.floordiv(ix.add(tiles, ix.sub(count, 1)), count)
        return ix.mul(ix.add(each, AROUND), ix.maximum(busy, ix.mul(grid, count)))

    join = ix.where_less(1, some, 0, ix.scale(busy, JOINED))  # that of `few` counts alike
    sooner = ix.where_less(
        ix.scale(ix.add(time(more), join), JOIN[1]), ix.scale(time(some), JOIN[0]), more, few
    )
    return ix.where_less(room, ix.mul(grid, more), few, sooner)


def _ends_by_data(stream: Any) -> bool:
    """Whether a stream's live part depends on what tensors hold (lengths of sequences, say)."""
    return any(
        op.operation.name in READS
        for block in stream.operation.regions[2].blocks
        for op in block.operations
    )


def _ends(stream: Any, values: Values, axes: Sequence[Any]) -> Index:
    """How many ends data give streams: the points of the axes along which they say them."""
    reads = (t for t in T.walk(read_live(stream, values)) if t.op == "read")
    along = {a for read in reads for a in T.axes_of(read)} - {stream.axis.value}
    count: Index = 1
    for k in sorted(along):
        count = ix.mul(count, axes[k].extent)
    return count


def _multiprocessors() -> Any:
    kind = ir.IndexType.get()
    return ir.Operation.create(MULTIPROCESSORS, results=[kind]).results[0]


def private_stream(stream: Any, chunks: Index) -> Any:
    """A `neptune.private` before `stream` that holds its body; returns the op."""
    extent, count = (chunks, []) if ix.is_static(chunks) else (DYNAMIC, [chunks])
    operation = stream.operation
    body = operation.regions[0].blocks[0]
    types = [a.type for a in body.arguments]
    leading = [
        ir.RankedTensorType.get([extent, *ir.RankedTensorType(t).shape],
                                ir.RankedTensorType(t).element_type)
        for t in types
    ]  # fmt: skip
    sizes = ir.DenseI32ArrayAttr.get(N.segment_sizes(len(types)))
    attributes = {name: operation.attributes[name] for name in operation.attributes}
    attributes["resultSegmentSizes"] = sizes
    locations = [operation.location] * len(types)
    private = ir.Operation.create(
        PRIVATE,
        results=leading,
        operands=count,
        attributes={
            "chunks": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), extent),
            "resultSegmentSizes": sizes,
        },
        regions=1,
    )
    with ir.InsertionPoint(private.regions[0].blocks.append()):
        inner = ir.Operation.create(
            STREAM, results=types, operands=list(operation.operands),
            attributes=attributes, regions=3,
        )  # fmt: skip
        body.append_to(inner.regions[0])
        for block in list(operation.regions[2].blocks):
            block.append_to(inner.regions[2])
        finish = inner.regions[1].blocks.append(*types, arg_locs=locations)
        with ir.InsertionPoint(finish):
            produce(list(finish.arguments))
        produce(list(inner.results))
    return private


def join(stream: Any, nests: list[tuple[Nest, Nest | None]], private: Any, values: Values) -> Any:
    """A `neptune.global` that joins `private` and computes what `stream` gave.

    `nests` are the stream's running nests, read before its body moved.
    """
    operation = stream.operation
    count = list(private.operands)
    chunks = FusedAxis(private.attributes["chunks"].value, count[0] if count else None, "chunk")
    axes = [chunks, *stream_axes(stream)]
    op = ir.Operation.create(
        GLOBAL,
        results=[r.type for r in operation.results],
        operands=[*count, *operation.operands],
        attributes={
            "domain": ir.DenseI64ArrayAttr.get([a.size for a in axes]),
            "axis_names": ir.ArrayAttr.get([ir.StringAttr.get(a.name) for a in axes]),
            "resultSegmentSizes": operation.attributes["resultSegmentSizes"],
        },
        regions=1,
    )
    block = op.regions[0].blocks.append()
    with ir.InsertionPoint(block):
        region = FusedRegion(values, axes)
        own_axes = [tuple(n.axes[k] + 1 for k in n.result_axes) for n, _ in nests]
        privates = [
            region.read(value, (0, *result), element_type(value), hint="private")
            for value, result in zip(private.results, own_axes, strict=True)
        ]
        old_of = {values.key(a): k for k, a in enumerate(_body_arguments(private))}
        new_of = {values.key(n.result): k for k, (n, _) in enumerate(nests)}
        joined: list[Term] = []
        for (nest, correction), result, mine in zip(nests, own_axes, privates, strict=True):
            part = mine
            if correction is not None:
                part = _rebased(region, correction, result, privates, joined, old_of, new_of)
            value = region.reduce(nest.combiner, part, result, reduced=[0], loc=nest.location)
            joined.append(region.read(value, result, nest.dtype, hint="joined"))
        _move_finish(operation.regions[1].blocks[0], block, [values[t.attr] for t in joined])
    return op


def _body_arguments(private: Any) -> list[Any]:
    stream = private.regions[0].blocks[0].operations[0]
    return list(stream.operation.regions[0].blocks[0].arguments)


def _rebased(
    region: FusedRegion, correction: Nest, result: tuple[int, ...], privates: list[Term],
    joined: list[Term], old_of: dict[str, int], new_of: dict[str, int],
) -> Term:  # fmt: skip
    """The private value under the global reference: the stream's own correction, per chunk."""
    # a read of anything but a running value is data, the same for every chunk
    table = {r: privates[old_of[r.attr]] for r in correction.accumulators if r.attr in old_of}
    accumulators = list(table.values())
    old = [reference("old", privates[old_of[tensor_key(r)]]) for r in correction.old]
    new = [reference("new", joined[new_of[tensor_key(r)]]) for r in correction.new]
    table |= dict(zip(correction.old, old, strict=True))
    table |= dict(zip(correction.new, new, strict=True))
    table = {_in_axes(r, correction, 1): replacement for r, replacement in table.items()}
    roles = (accumulators, old, new)
    h = T.substitute(_in_axes(correction.body, correction, 1), table)
    value = region.correct(h, *roles, correction.form, (0, *result), correction.location)
    return region.read(value, (0, *result), correction.dtype, hint="rebased")


def _move_finish(finish: Any, block: Any, values: list[Any]) -> None:
    """Append the ops of `finish` to `block`, with `values` for its arguments."""
    for argument, value in zip(finish.arguments, values, strict=True):
        argument.replace_all_uses_with(value)
    for op in list(finish.operations):
        operation = op.operation
        last = list(block.operations)[-1].operation
        operation.move_after(last)
        if AXES.on(operation):
            AXES.set(operation, [a + 1 for a in AXES.of(operation)])


def _chunks_of(stream: Any, values: Values, programs: int, tiles: int, each: int) -> Index:
    """How many chunks a stream has: of so many tiles where its extent is known, else those for so
    many programs."""
    axis = stream_axes(stream)[stream.axis.value]
    if programs and (not tiles or axis.size == DYNAMIC):
        return chunk_count(stream, values, programs, each)
    if axis.size == DYNAMIC:
        raise ScheduleError(
            "cannot cut a stream of unknown length into chunks of known size",
            loc=location_text(stream.operation.location), hint="set the number of programs",
        )  # fmt: skip
    size = TILE.of(stream.operation)[stream.axis.value] or axis.size
    return -(-axis.size // (size * tiles))


def privatize_stream(
    stream: Any, chunks: int = 0, programs: int = 0, tiles: int = 0, each: int = 0
) -> Any:
    """Replace `stream` by a private/global pair; returns the `neptune.private`, or None where its
    rows are enough programs: then it stays, and has no tile sizes.

    Raises:
        ScheduleError: none of `chunks`, `programs` and `tiles` is 1 or more.
    """
    if (chunks or programs or tiles) < 1:
        raise ScheduleError(f"cannot cut a stream into {chunks} chunks", hint="use 1 or more")
    operation = stream.operation
    values = Values()
    nests = running_nests(stream, values)
    with ir.InsertionPoint(operation), operation.location:
        count: Index = chunks or _chunks_of(stream, values, programs, tiles, each)
        if not chunks and count == 1 and not multiplies_matrices(nests_of(stream, values)):
            TILE.drop(operation)
            return None
        private = private_stream(stream, count)
        joined = join(stream, nests, private, values)
    for old, new in zip(operation.results, joined.results, strict=True):
        old.replace_all_uses_with(new)
    operation.erase()
    number = f"{count} chunks" if ix.is_static(count) else f"chunks for {programs} programs"
    remark(private.location, f"privatized into {number}")
    return private


@register(
    "privatize", "cut streams into chunks that run in parallel (split-k), and join them",
    after=("rolling-update",),
)  # fmt: skip
def privatize(
    module: Any,
    *,
    chunks: int = 8,
    programs: int = 0,
    tiles: int = 0,
    each: int = 0,
    products: bool = False,
) -> None:
    """
    Args:
        chunks: 0 for as many as `tiles` or `programs` asks for; of both, `tiles` where the stream's
            extent is known.
        programs: how many programs a launch should have, where chunks are that many; their number
            is then known when the extents are. Needs tile sizes.
        tiles: how many tiles a chunk has, where the stream's extent is known. Needs tile sizes.
        each: with `programs`, how many of them a multiprocessor of the device should have, where
            the number of chunks is known at a launch only. 0: the device is not asked.
        products: whether streams without products of two matrices stay whole.
    """
    for stream in _streams(module):
        if products and not multiplies_matrices(nests_of(stream, Values())):
            continue
        privatize_stream(stream, chunks, programs, tiles, each)


def _streams(module: Any) -> list[Any]:
    return [
        op
        for function in functions(module)
        for op in function.regions[0].blocks[0].operations
        if isinstance(op, N.StreamOp)
    ]
