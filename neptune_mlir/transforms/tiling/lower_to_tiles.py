# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lower-to-tiles`: every kernel-level op becomes one `scf.forall` over static tiles.

Kernel-level ops are `neptune.stream`, `neptune.private`, `neptune.global` and lone maps and
reduces, with their `neptune.tile`. docs/architecture.md ("Tile IR") is the contract of what
comes out; `analysis/tile_axes.py` says which role each axis plays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import elements, position_of
from neptune_mlir.analysis.fused_nests import FusedNest, contractions
from neptune_mlir.analysis.masks import Linear, affine_part
from neptune_mlir.analysis.tile_axes import extents_of
from neptune_mlir.analysis.tiles import tuned
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.attributes import (
    CHIP,
    CUT_ROWS,
    IN_ORDER,
    IN_TWO,
    KERNEL,
    OF_MASK,
    ONE_TILE,
    SHORTER,
    TILE,
    TILE_FEW,
    TUNED,
)
from neptune_mlir.dialects.gpu_attributes import WHOLE
from neptune_mlir.dialects.op_names import ADD_SLICE
from neptune_mlir.dialects.program import functions
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import ir, scf, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.bodies import drop_shared_axes, split_invariants
from neptune_mlir.transforms.tiling.bounds import Range, live_ranges, live_span
from neptune_mlir.transforms.tiling.emit import Frame, GridProgram
from neptune_mlir.transforms.tiling.in_turns import (
    count_of,
    is_counted,
    room_for_words,
    rows_stored,
    takes_turns,
    turn_of,
)
from neptune_mlir.transforms.tiling.kernel import LOOPED, RunningValue, TileKernel, read_kernel
from neptune_mlir.transforms.tiling.row_cuts import RowCuts, find_cuts
from neptune_mlir.transforms.tiling.slices import (
    Tile,
    extract_slice,
    grid_tiles,
    hold_pads,
    slice_operands,
)
from neptune_mlir.transforms.tiling.sums_awaited import await_sums
from neptune_mlir.transforms.tiling.zeros import build_zeros, zeros_first

_KERNEL_OPS = ("stream", "private", "global", "map", "reduce", "accumulate")
JOIN_NAMES = {2: "_pair", 8: "_few", 32: "_some"}  # how names of joins of so many chunks end
FEWER = tuple(JOIN_NAMES.values())


@register("lower-to-tiles", "lower fused and lone nests to a grid of programs over static tiles")
def lower_to_tiles(module: Any) -> None:
    for function in functions(module):
        name = ir.StringAttr(function.operation.attributes["sym_name"]).value
        block = function.regions[0].blocks[0]
        values = nests.Values()
        ops = [o.operation for o in block.operations if _is_kernel(o)]
        for number, op in enumerate(ops):
            with ir.InsertionPoint(op), op.location:
                results = _lower_op(op, values, f"{name}_{number}")
            for old, new in zip(op.results, results, strict=True):
                old.replace_all_uses_with(new)
            _rebind(values, op, results)
            op.erase()
        hold_pads(block)
        if CHIP.on(module.operation):
            zeros_first(block)
            await_sums(block)


def _is_kernel(op: Any) -> bool:
    dialect, _, name = op.operation.name.partition(".")
    return dialect == "neptune" and name in _KERNEL_OPS


def _rebind(values: nests.Values, op: Any, results: Sequence[Any]) -> None:
    for old, new in zip(op.results, results, strict=True):
        values.rebind(values.key(old), new)


def _ending(chunks: int) -> str:
    """How the name of a join of up to so many chunks ends."""
    return next(ending for most, ending in JOIN_NAMES.items() if chunks <= most)


def _lower_op(op: Any, values: nests.Values, name: str) -> list[Any]:
    """Emit the foralls of an op; returns its results.

    A join with sizes for few chunks (`neptune.tile_few`) gets kernels for these, a stream those for
    short ones (`neptune.shorter`). All stand in the plan, and only one of them has programs.
    """
    if not (TILE_FEW.on(op) or SHORTER.on(op)):
        return _lower(read_kernel(op, values), values, name)
    joins, whole, least = TILE_FEW.on(op), TILE.of(op), 0
    axis = 0 if joins else op.opview.axis.value
    count = op.operands[0] if joins else extents_of(op.opview)[axis]
    variants = TILE_FEW.find(op) or [[*whole[:axis], n, *whole[axis + 1 :]] for n in SHORTER.of(op)]
    results: list[Any] = []
    for sizes in variants:
        most = sizes[axis]
        if most <= least or (most >= whole[axis] and not joins):
            continue  # wide rows leave room for fewer, wide elements for shorter ones
        TILE.set(op, sizes)
        if joins:
            op.operands[0] = ix.minimum(count, most)
        else:
            ONE_TILE.set(op)
        results = _lower(
            read_kernel(op, values), values, name + (_ending(most) if joins else f"_{most}"),
            partial(_within, count, least, most), results,
        )  # fmt: skip
        least = most
    TILE.set(op, whole)
    if joins:
        op.operands[0] = count
    elif results:
        ONE_TILE.drop(op)
    return _lower(
        read_kernel(op, values), values, name,
        lambda bound: ix.where_less(least, count, bound, 0), results,
    )  # fmt: skip


def _within(count: Index, least: int, most: int, bound: Index) -> Index:
    """`bound` where `count` is over `least` and `most` at most, else 0."""
    few = ix.where_less(count, most + 1, bound, 0)
    return ix.where_less(least, count, few, 0) if least else few


def _lower(
    kernel: TileKernel, values: nests.Values, name: str,
    launched: Callable[[Index], Index] = lambda bound: bound, outs: Sequence[Any] = (),
    begins: Mapping[int, Index] = MappingProxyType({}),
) -> list[Any]:  # fmt: skip
    """Emit the forall of one kernel at the insertion point; returns its results.

    Args:
        launched: makes a grid dimension empty where the kernel is not to run.
        outs: what the results start from, instead of new tensors.
        begins: where axes of the grid begin, if not at 0: there are no programs before.
    """
    split_invariants(kernel)
    drop_shared_axes(kernel)
    # an axis that no nest runs over (of a shared domain) would only repeat programs
    used = {a for nest in kernel.nests.values() for a in nest.loops} | T.axes_of(kernel.live)
    grid = _neighbours_last(kernel, used)
    chunked = kernel.chunks is not None
    bounds: list[Index] = [kernel.chunks] if chunked else []
    cuts = _row_cuts(kernel, values, name)
    bounds += [
        cuts.count
        if cuts is not None and k == cuts.axis
        else ix.ceildiv(_behind(kernel.axes[k].extent, begins.get(k)), kernel.axes[k].size)
        for k in grid
    ]
    shapes = [_result_shape(kernel, key) for key in kernel.results]
    starts = list(outs) or [
        tensor.empty(shape, ir.RankedTensorType(r.type).element_type)
        for shape, r in zip(shapes, kernel.op.operation.results, strict=True)
    ]
    for k, key in enumerate(kernel.results):
        if found := kernel.spread(key):
            starts[k] = _zeros(kernel, found.origin, shapes[k], values, f"{name}_zeros{k}")
    bounds[:1] = [launched(bounds[0] if bounds else 1)]
    # The mapping keeps canonicalization from dropping grid dimensions that run once.
    mapping = [ir.Attribute.parse(f"#gpu.block<linear_dim_{k}>") for k in range(len(bounds))]
    forall = scf.ForallOp(
        [0] * len(bounds), bounds, [1] * len(bounds), starts, mapping=ir.ArrayAttr.get(mapping)
    )
    KERNEL.set(forall.operation, name)
    if TUNED.on(kernel.schedule):
        TUNED.set(forall.operation, TUNED.of(kernel.schedule))
    if together := kernel.shared_axes:
        IN_ORDER.set(forall.operation, len(grid) - len(together))
    with ir.InsertionPoint(forall.body):
        ids = list(forall.induction_variables)
        chunk = ids.pop(0) if chunked else None
        frame = Frame(forall.body, grid_tiles(kernel.axes, grid, ids, begins))
        if cuts is not None:
            frame.tiles[cuts.axis] = cuts.tile(ids[grid.index(cuts.axis)])
        program = GridProgram(kernel, values, frame)
        if kernel.stream is not None:
            _stream(program, chunk, list(forall.inner_iter_args))
        stores = _finish(program, list(forall.inner_iter_args), chunk)
        parallel = scf.InParallelOp()
        with ir.InsertionPoint(parallel.block):
            for (value, offsets, sizes), out in zip(stores, forall.inner_iter_args, strict=True):
                tensor.ParallelInsertSliceOp(value, out, *slice_operands(offsets, sizes))
    return list(forall.results)


def _behind(extent: Index, begin: Index | None) -> Index:
    return extent if begin is None else ix.sub(extent, begin)


def _zeros(
    kernel: TileKernel, origin: FusedNest, shape: Sequence[Index], values: nests.Values, name: str
) -> Any:
    """Emit the kernel that makes what programs add to, but for rows that the first one stores."""
    made = build_zeros(origin, shape, values)
    stored = rows_stored(kernel)
    begins = {} if stored is None else {origin.result_axes.index(kernel.stream): stored}
    (zeros,) = _lower(read_kernel(made.owner, values), values, name, begins=begins)
    made.owner.erase()
    return zeros


def _row_cuts(kernel: TileKernel, values: nests.Values, name: str) -> RowCuts | None:
    """Emit the kernel that finds tiles of rows, where these are cut by data (`cut-rows`)."""
    op = kernel.op.operation
    if not CUT_ROWS.on(kernel.schedule):
        return None
    axis, number = CUT_ROWS.of(kernel.schedule)
    rows, starts = kernel.axes[axis], op.block.arguments[number]
    found, count = find_cuts(starts, rows.extent, rows.size, values, op.location)
    with ir.InsertionPoint(found):
        first, own = _lower(read_kernel(found, values), values, f"{name}_cuts")
    OF_MASK.set(defining_op(first))
    found.erase()
    return RowCuts(axis, rows.size, rows.extent, count, first, own)


def _neighbours_last(kernel: TileKernel, used: set[int]) -> list[int]:
    """The axes of the grid, those last whose programs read the same streamed tiles: programs that
    run side by side share what they stream. (Where a number bounds a stream that is another one
    for each point of an axis, what is streamed depends on that axis.) First come axes that number
    products: all factors that are streamed have them, and neighbours along them would share none.
    """
    grid = [k for k, axis in enumerate(kernel.axes) if axis.role == "grid" and k in used]
    streamed = {a for read in kernel.streamed_reads() for a in read.axes}
    bounds = {a for read in elements(kernel.live) for a in read.axes}
    streamed |= {a for a in bounds if kernel.axes[a].size == 1}
    factors = {f.attr for _, *both in contractions([*kernel.nests.values()]) for f in both}
    loaded = [read.axes for read in kernel.streamed_reads() if read.attr in factors]
    shared = frozenset.intersection(*loaded) if len(loaded) > 1 else frozenset()
    together = kernel.shared_axes  # programs that add to one result
    return sorted(grid, key=lambda a: (a in together, a not in streamed, a not in shared))


def _result_shape(kernel: TileKernel, key: str) -> list[Index]:
    chunks = [] if kernel.chunks is None else [kernel.chunks]
    return chunks + [_room(kernel, key, a) for a in kernel.result_axes(key)]


def _room(kernel: TileKernel, key: str, axis: int) -> Index:
    """What a result has along an axis: on GPUs, of what programs add up, whole tiles of a stream.
    Nobody has to ask where it ends then, and it may lie in memory tile by tile. Behind these are
    the words of programs that take turns, or count themselves."""
    extent = kernel.axes[axis].extent
    if axis != kernel.stream or not kernel.spread(key) or not _has_whole_tiles(kernel):
        return extent
    rows = ix.round_up(extent, kernel.axes[axis].size)
    words = takes_turns(kernel) or is_counted(kernel)
    return room_for_words(kernel, key, rows) if words else rows


def _has_whole_tiles(kernel: TileKernel) -> bool:
    """Whether what programs add up has room for whole tiles. (What the function returns has the
    extents that its caller knows.)"""
    streamed = kernel.axes[kernel.stream] if kernel.stream is not None else None
    added = [r for r, key in zip(kernel.op.operation.results, kernel.results, strict=True)
             if kernel.spread(key)]  # fmt: skip
    leaves = any(use.owner.name == "func.return" for r in added for use in r.uses)
    on_gpu = CHIP.on(kernel.op.operation.parent.parent)
    return bool(streamed and streamed.size) and on_gpu and not leaves


def _stream(program: GridProgram, chunk: Any, outs: Sequence[Any]) -> None:
    """The loops over the streamed axis; afterwards the final values are known to `program`."""
    kernel, root = program.kernel, program.root

    def start(running: RunningValue, final: str) -> Any:
        if running.spreads:
            window = _strip(program, final, [kernel.stream])
            with root.here():
                return extract_slice(
                    outs[kernel.results.index(final)], window.offsets, window.sizes, window.kept
                )
        if running.start is None:
            return program.identity(running.origin, root)
        return program.value_at(running.start, running.origin, root)

    starts = list(map(start, kernel.running, kernel.finish_keys))

    def step(frame: Frame, carried: Sequence[Any]) -> list[Any]:
        frame.made.update((r.key, v) for r, v in zip(kernel.running, carried, strict=True))
        return [
            _add(program, r.updated, frame, v) if r.spreads else program.tile_of(r.updated, frame)
            for r, v in zip(kernel.running, carried, strict=True)
        ]

    ranges = _stream_ranges(program, chunk)
    finals = program.loop(
        root, kernel.stream, ranges, starts, step, program.loads.is_live, _is_backward(program),
        _own_begin(program),
    )  # fmt: skip
    root.made.update(zip(kernel.finish_keys, finals, strict=True))


def _own_begin(program: GridProgram) -> Index:
    """Where a stream begins that adds to a result which programs share: each at a tile of its own
    (choice `apart`; those that run at once would add to one tile). Masks let streams begin apart,
    and programs that take turns begin where the first one does."""
    kernel, shared = program.kernel, sorted(program.kernel.shared_axes)
    if not tuned(kernel.schedule, "apart", 0) or takes_turns(kernel):
        return 0
    if len(shared) != 1 or not _has_whole_tiles(kernel):
        return 0
    if any(form.coefficient(kernel.stream) for form in affine_part(kernel.live)):
        return 0
    with program.root.here():
        return ix.round_down(program.root.tile(shared[0]).offset, kernel.axes[kernel.stream].size)


def _is_backward(program: GridProgram) -> bool:
    """Whether a stream runs from its end to its start: where its data may lie in two arrays along
    it, and a mask ends it, in the second one, so that the first one is what is on its way."""
    kernel = program.kernel
    if not any(form.coefficient(kernel.stream) < 0 for form in affine_part(kernel.live)):
        return False
    function = kernel.op.operation.parent
    told = dict(IN_TWO.find(function, ()) or ())
    if not told or not CHIP.on(function.parent):
        return False
    for read in kernel.streamed_reads():
        x = program.values[read.attr]
        if isinstance(x, ir.BlockArgument) and x.owner.owner == function:
            dim = told.get(x.arg_number)
            if dim is not None and kernel.stream in T.axes_of(read.args[dim]):
                return True
    return False


def _stream_ranges(program: GridProgram, chunk: Any) -> list[Range]:
    """The tiles of the streamed axis that this program visits."""
    kernel, root = program.kernel, program.root
    axis = kernel.axes[kernel.stream]
    start, stop = 0, axis.extent
    exists = program.exists(kernel.stream)
    live = [form for form in affine_part(kernel.live) if program.bounds(form)]
    anywhere = chunk is None and _begins_anywhere(kernel, live)
    if kernel.in_one_tile and not live:
        return program.whole_range(kernel.stream)
    with root.here():
        if chunk is not None:  # chunks are cut between tiles, and differ by one at most
            tiles = ix.ceildiv(axis.extent, axis.size)
            if ix.is_static(tiles) and tiles == kernel.chunks and not live:
                known = [exists] if axis.divides else []
                start = ix.scale(chunk, axis.size)
                return [Range(start, axis.extent, axis.divides, known, single=True)]

            # Chunks share what is live: a mask may end each program's stream somewhere else.
            first, last = live_span(axis.extent, axis.size, kernel.stream, live, program.span)
            tiles = ix.ceildiv(ix.sub(last, first), axis.size)

            def cut(number: Index) -> Index:
                done = ix.floordiv(ix.mul(tiles, number), kernel.chunks)
                return ix.add(first, ix.scale(done, axis.size))

            start = cut(chunk)
            stop = ix.minimum(axis.extent, cut(ix.add(chunk, 1)))
        if kernel.is_clipped(kernel.stream) and not live:
            return [Range(start, stop, axis.divides, [exists] if axis.divides else [])]
        return live_ranges(
            start, stop, axis.size, kernel.stream, live, program.span, divides=axis.divides,
            exists=exists, anywhere=anywhere, rows=_whole_rows(program),
            from_end=_begins_at_end(kernel, live) and not _is_backward(program),
        )  # fmt: skip


def _whole_rows(program: GridProgram) -> list[Linear]:
    """That all rows of a program exist, where sums that programs share are sums over these: a
    program that has all of them masks none, and the last one does so in all its tiles."""
    axes = program.kernel.axes
    summed = [a for a in program.kernel.shared_axes if axes[a].size > 1 and not axes[a].divides]
    return [program.exists(a) for a in sorted(summed)]


def _begins_anywhere(kernel: TileKernel, live: Sequence[Linear]) -> bool:
    """Whether tiles of a stream need not begin at multiples of their size: data of the rows of a
    tile say where it begins (a sequence among others), and no read asks that tiles are aligned:
    digits of positions (pages), or elements that lie along the stream."""
    stream = kernel.stream
    begins = [form.without(stream) for form in live if form.coefficient(stream) > 0]
    found = {a for form in begins for read in form.reads for a in read.axes}
    if not any(kernel.axes[a].size > 1 for a in found):
        return False
    for read in kernel.streamed_reads():
        positions = [position_of(index) for index in read.args]
        along = [p for p in positions if p is not None and stream in p.term().axes]
        if any(p.is_digit or p.lookup is not None for p in along) or None in positions:
            return False
        if stream in read.args[-1].axes:
            return False
    return True


def _begins_at_end(kernel: TileKernel, live: Sequence[Linear]) -> bool:
    """Whether a stream that a mask ends is to begin there (reductions are commutative).

    A reference that is kept (`keep-references`) is that of the first tile. Where `live` also says
    where rows begin, some see nothing in their program's first tile, but all in its last ones.
    Where numbers are made of positions, like a bias that falls with the distance, they are largest
    there, mostly.
    """
    if not tuned(kernel.schedule, "keeps", 1):
        return False
    if any(form.coefficient(kernel.stream) > 0 for form in live):
        return True
    return any(
        T.is_float(cast.dtype) and not T.leaves(cast, "read")
        and kernel.stream in T.axes_of(cast)
        for nest in kernel.nests.values() if nest.body is not None
        for cast in T.leaves(nest.body, "cast")
    )  # fmt: skip


Store = tuple[Any, list[Index], list[Index]]  # what, and where in the result: offsets, sizes


def _finish(program: GridProgram, outs: Sequence[Any], chunk: Any) -> list[Store]:
    """Compute every result; those over a looped axis tile by tile, in a sweep."""
    kernel = program.kernel
    stores: dict[int, Store] = {}
    sweeps: dict[tuple[int, ...], list[int]] = {}
    for k, key in enumerate(kernel.results):
        if kernel.spread(key):
            window = _strip(program, key, [kernel.stream])
            stores[k] = (program.root.made[key], window.offsets, window.sizes)
            continue
        swept = sorted(a for a in kernel.result_axes(key) if kernel.axes[a].role in LOOPED)
        if swept:
            sweeps.setdefault(tuple(swept), []).append(k)
        else:
            value = program.tile_of(key, program.root)
            window = _window(program, key, program.root)
            with program.root.here():
                stores[k] = (_valid_part(value, window), window.offsets, window.sizes)
    for axes, members in sweeps.items():
        stores.update(_sweep(program, axes, {k: outs[k] for k in members}))
    if chunk is not None:
        stores = {k: (v, [chunk, *o], [1, *s]) for k, (v, o, s) in stores.items()}
    return [stores[k] for k in range(len(kernel.results))]


@dataclass(frozen=True)
class ResultWindow:
    """The valid part of a tile in a result; `kept` are the dimensions that the tile has."""

    offsets: list[Index]
    sizes: list[Index]
    kept: list[int]


def _window(program: GridProgram, key: str, frame: Frame) -> ResultWindow:
    tiles = [frame.tile(a) for a in program.kernel.result_axes(key)]
    return ResultWindow(
        [t.offset for t in tiles],
        [t.stored for t in tiles],
        [d for d, t in enumerate(tiles) if t.size > 1],
    )


def _valid_part(value: Any, window: ResultWindow) -> Any:
    sizes = [window.sizes[d] for d in window.kept]
    if list(ir.RankedTensorType(value.type).shape) == sizes:
        return value
    return extract_slice(value, [0] * len(sizes), sizes, range(len(sizes)))


def _sweep(program: GridProgram, axes: Sequence[int], outs: dict[int, Any]) -> dict[int, Store]:
    """Fill results that carry looped axes: a strip of each, tile after tile."""
    kernel = program.kernel
    strips: dict[int, ResultWindow] = {}
    start = []
    for k, out in outs.items():
        strips[k] = window = _strip(program, kernel.results[k], axes)
        with program.root.here():
            start.append(extract_slice(out, window.offsets, window.sizes, window.kept))

    def fill(frame: Frame, rest: Sequence[int], carried: Sequence[Any]) -> list[Any]:
        if rest:
            ranges = program.whole_range(rest[0], split=len(rest) == 1)
            return program.loop(
                frame, rest[0], ranges, carried, lambda inner, c: fill(inner, rest[1:], c)
            )
        return [
            _insert(program, kernel.results[k], frame, axes, strip)
            for k, strip in zip(outs, carried, strict=True)
        ]

    filled = fill(program.root, axes, start)
    return {k: (v, strips[k].offsets, strips[k].sizes) for k, v in zip(outs, filled, strict=True)}


def _strip(program: GridProgram, key: str, swept: Sequence[int]) -> ResultWindow:
    """What one program fills of a result: its own tile, but all of the swept axes."""
    offsets: list[Index] = []
    sizes: list[Index] = []
    kept = []
    for d, a in enumerate(program.kernel.result_axes(key)):
        with program.root.here():
            swept_tile = Tile(0, 0, _room(program.kernel, key, a))
        tile = swept_tile if a in swept else program.root.tile(a)
        offsets.append(tile.offset)
        sizes.append(tile.stored)
        if a in swept or tile.size > 1:
            kept.append(d)
    return ResultWindow(offsets, sizes, kept)


def _insert(program: GridProgram, key: str, frame: Frame, swept: Sequence[int], strip: Any) -> Any:
    """Write the tile of a result at hand into its strip."""
    value = program.tile_of(key, frame)
    window, offsets, sizes = _in_strip(program, key, frame, swept)
    with frame.here():
        part = _valid_part(value, window)
        return tensor.InsertSliceOp(part, strip, *slice_operands(offsets, sizes)).result


def _add(program: GridProgram, key: str, frame: Frame, strip: Any) -> Any:
    """Add this program's part of the tile at hand to the strip of a result."""
    value = program.tile_of(key, frame)
    _, offsets, _ = _in_strip(program, key, frame, [program.kernel.stream])
    with frame.here():
        at = list(map(ix.value, offsets))
    if takes_turns(program.kernel):
        at += _turn(program, frame)
    elif is_counted(program.kernel) and _has_whole_tiles(program.kernel):
        at += count_of(program, _rows_of_tiles(program))
    with frame.here():
        made = ir.Operation.create(ADD_SLICE, results=[strip.type], operands=[value, strip, *at])
        live = affine_part(program.kernel.live)
        if _has_whole_tiles(program.kernel) and not _begins_anywhere(program.kernel, live):
            WHOLE.set(made)
        return made.results[0]


def _turn(program: GridProgram, frame: Frame) -> list[Any]:
    """When this program may add its part of the tile at hand."""
    if not _has_whole_tiles(program.kernel):
        raise program.kernel.error(
            "programs cannot take turns: a returned sum has no room for their words"
        )
    return turn_of(program, frame, _rows_of_tiles(program))


def _rows_of_tiles(program: GridProgram) -> Index:
    """How many rows all tiles have of what programs share."""
    stream = program.kernel.axes[program.kernel.stream]
    with program.root.here():
        return ix.round_up(stream.extent, stream.size)


def _in_strip(
    program: GridProgram, key: str, frame: Frame, swept: Sequence[int]
) -> tuple[ResultWindow, list[Index], list[Index]]:
    """Where a tile of a result is: in the result, and offsets and sizes in the program's strip."""
    window = _window(program, key, frame)
    axes = program.kernel.result_axes(key)
    dims = [d for d, a in enumerate(axes) if a in swept or d in window.kept]
    offsets = [window.offsets[d] if axes[d] in swept else 0 for d in dims]
    return window, offsets, [window.sizes[d] for d in dims]
