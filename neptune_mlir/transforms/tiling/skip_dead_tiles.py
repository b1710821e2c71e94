# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `skip-dead-tiles`: which tiles of a stream have a live point, by data that masks read.

    stream over j, tile 64x64            low_q, high_q   = extrema of each tile of doc_q
    live  doc_q[i] == doc_kv[j]    ->    low_kv, high_kv = extrema of each tile of doc_kv
                                         first, end = global [ti, tj] over
                                             low_q[ti] <= high_kv[tj] and low_kv[tj] <= high_q[ti]
                                         stream live  64 first[i // 64] <= j < 64 end[i // 64]

Nothing is asked of the data: the condition in tiles is what interval arithmetic makes of the mask
(`analysis/intervals.py`), and false only where no point of a tile is live. It is evaluated once a
call, for all tiles, by two kinds of small kernels. `lower-to-tiles` then takes the new conditions
for bounds of the stream, as those of causal masks and lengths.

Where the mask has every axis that the body has, looking at it is all the work there is, and the
stream stays as it is. So it does where somebody chose that nothing is looked at (`looks`): for
calls of few tiles (`pipelines/short_calls.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import scalar_term
from neptune_mlir.analysis.intervals import may_hold
from neptune_mlir.analysis.masks import (
    Linear,
    begins_known,
    condition_of,
    conjuncts,
    constraints,
    linear,
)
from neptune_mlir.analysis.tile_axes import TileAxis
from neptune_mlir.analysis.tiles import tuned
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.attributes import CHIP, TILE
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.op_names import GLOBAL, PRIVATE, STREAM
from neptune_mlir.dialects.program import functions
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.groups import FusedAxis
from neptune_mlir.transforms.fusion.region import FusedRegion, produce, write_live
from neptune_mlir.transforms.registry import register, remark
from neptune_mlir.transforms.tiling.extrema import tile_extrema
from neptune_mlir.transforms.tiling.kernel import TileKernel, read_kernel

TILES_AT_ONCE = 64  # that one step of the loop over tiles looks at


@register("skip-dead-tiles", "find the tiles of streams that masks made of data leave")
def skip_dead_tiles(module: Any) -> None:
    on_gpu = CHIP.on(module.operation)
    for function in functions(module):
        name = ir.StringAttr(function.operation.attributes["sym_name"]).value
        values = nests.Values()
        for number, op in enumerate(list(function.regions[0].blocks[0].operations)):
            if op.operation.name in (STREAM, PRIVATE):
                with ir.InsertionPoint(op), op.operation.location:
                    _skip(op.operation, values, f"{name}_extrema_{number}", on_gpu)


def _skip(op: Any, values: nests.Values, name: str, on_gpu: bool) -> None:
    """Bound one stream by data, where its mask has some and it pays."""
    stream_op = op if op.name == STREAM else op.regions[0].blocks[0].operations[0].operation
    if not len(stream_op.opview.live.blocks):
        return  # it has no mask
    kernel = read_kernel(op, values)
    stream = kernel.stream
    assert stream is not None
    kept, data = [], []
    for condition in conjuncts(kernel.live):
        forms = constraints(condition)
        known = forms is not None and begins_known(forms, stream)
        (kept if known else data).append(condition)
    looks = tuned(stream_op, "looks", 1)
    useful = [c for c in data if looks and not c.is_const and _pays(kernel, c, on_gpu)]
    if not useful:
        if data:
            write_live(stream_op.opview, T.conjunction(kept), values)
        return
    data = useful
    grid = _TileGrid.of(kernel, T.conjunction(data))
    ranges = _Ranges(kernel, values, grid, name)
    condition = T.conjunction(may_hold(c, ranges) for c in data)
    first, end, *flags = _live_tiles(grid, condition, values, op.location, each=not on_gpu)
    bounds = _bounds(kernel, grid, values, first, end)
    live = [*kept, *conjuncts(condition_of(bounds)), *(_flag(grid, values, f) for f in flags)]
    write_live(stream_op.opview, T.conjunction(live), values)
    names = [axis.name for axis in kernel.axes]
    text = " and ".join(
        T.show(c, lambda t: names[t.attr] if t.op == "index" else None) for c in data
    )
    remark(op.location, f"tiles of '{names[stream]}' are skipped where no point has {text}")


def _pays(kernel: TileKernel, condition: Term, on_gpu: bool) -> bool:
    """Whether to look at a condition tile by tile is little beside the work that it may save."""
    axes = condition.axes | {kernel.stream}
    if any(kernel.axes[a].role == "loop" for a in axes):
        return False
    if not any(set(nest.loops) - axes for nest in kernel.nests.values() if nest.in_body):
        return False
    extents = (kernel.axes[kernel.stream].extent, kernel.axes[kernel.stream].size)
    if ix.is_static(extents[0]) and extents[0] <= extents[1]:
        return False
    wide = (r for r in T.leaves(condition, "read") if kernel.stream in r.axes)
    return not on_gpu or all(
        kernel.axes[a].size == 1 for r in wide for a in r.axes if a != kernel.stream
    )


@dataclass(frozen=True)
class _TileGrid:
    """The tiles of some axes of a kernel: coordinate `number[a]` counts those of axis a. Axes that
    are not cut have none."""

    axes: Sequence[TileAxis]
    cut: tuple[int, ...]  # the streamed axis last

    @classmethod
    def of(cls, kernel: TileKernel, condition: Term) -> _TileGrid:
        stream = kernel.stream
        assert stream is not None
        rest = [a for a in condition.axes - {stream} if kernel.axes[a].role != "whole"]
        return cls(kernel.axes, (*sorted(rest), stream))

    def coordinate(self, axis: int) -> Term:
        return T.index(self.cut.index(axis))

    def places(self) -> list[Term]:
        """The coordinates in terms of the axes."""
        sizes = [T.const(self.axes[a].size, "index") for a in self.cut]
        return [T.make("floordiv", T.index(a), n) for a, n in zip(self.cut, sizes, strict=True)]

    def extents(self) -> list[FusedAxis]:
        found = []
        for a in self.cut:
            count: Index = ix.ceildiv(self.axes[a].extent, self.axes[a].size)
            known = (count, None) if ix.is_static(count) else (DYNAMIC, count)
            found.append(FusedAxis(*known, self.axes[a].name))
        return found


class _Ranges:
    """The range of every leaf of a condition over a tile, as terms over the coordinates of tiles.
    Kernels that find the extrema of what is read are emitted when first asked for."""

    def __init__(
        self, kernel: TileKernel, values: nests.Values, grid: _TileGrid, name: str
    ) -> None:
        self._kernel, self._values, self._grid, self._name = kernel, values, grid, name
        self._made: dict[Term, tuple[Term, Term]] = {}

    def __call__(self, leaf: Term) -> tuple[Term, Term]:
        if leaf not in self._made:
            self._made[leaf] = self._range(leaf)
        return self._made[leaf]

    def _range(self, leaf: Term) -> tuple[Term, Term]:
        if leaf.op == "index":
            return self._positions(leaf.attr)
        if leaf.op == "read" and any(self._kernel.axes[a].size > 1 for a in leaf.axes):
            return self._extrema(leaf)
        places = {a: self._grid.coordinate(a) for a in leaf.axes if a in self._grid.cut}
        places |= {a: T.const(0, "index") for a in leaf.axes if a not in places}
        value = T.make("cast", T.rename_axes(leaf, places), dtype="index")
        return value, value

    def _positions(self, a: int) -> tuple[Term, Term]:
        axis = self._kernel.axes[a]
        last = T.make("sub", _number(axis.extent, self._values), T.const(1, "index"))
        if a not in self._grid.cut:
            return T.const(0, "index"), last
        low = T.make("mul", self._grid.coordinate(a), T.const(axis.size, "index"))
        high = T.make("add", low, T.const(axis.size - 1, "index"))
        return low, high if axis.divides else T.make("min", high, last)

    def _extrema(self, read: Term) -> tuple[Term, Term]:
        name = f"{self._name}_{len(self._made)}"
        axes = [a for a in self._grid.cut if a in read.axes]
        arrays = tile_extrema(self._kernel, self._values, read, axes, name)
        coordinates = [self._grid.coordinate(a) for a in axes]
        low, high = (
            T.read(self._values.key(v), *coordinates, dtype=nests.element_type(v)) for v in arrays
        )
        return T.make("cast", low, dtype="index"), T.make("cast", high, dtype="index")


def _number(number: Index, values: nests.Values) -> Term:
    return T.const(number, "index") if ix.is_static(number) else scalar_term(number, values)


def _live_tiles(
    grid: _TileGrid, condition: Term, values: nests.Values, location: Any, *, each: bool
) -> list[Any]:
    """The number of the first tile of the stream that may have a live point, and that behind the
    last one, for each tile of the other axes. With `each` also whether a tile may, for all tiles.
    """
    axes = grid.extents()
    stream = len(axes) - 1
    rows = list(range(stream))
    count = axes[stream]
    at_once = min(count.size, TILES_AT_ONCE) if count.extent is None else TILES_AT_ONCE
    region = FusedRegion(values, axes)
    op = ir.Operation.create(
        GLOBAL,
        results=[region.type(rows, "i32")] * 2 + [region.type([*rows, stream], "i32")] * each,
        operands=[a.extent for a in axes if a.extent is not None],
        attributes={
            "domain": ir.DenseI64ArrayAttr.get([a.size for a in axes]),
            "axis_names": ir.ArrayAttr.get([ir.StringAttr.get(f"{a.name}_tile") for a in axes]),
            "resultSegmentSizes": ir.DenseI32ArrayAttr.get(N.segment_sizes(2 + each)),
            **TILE.entry([1] * stream + [at_once]),
        },
        regions=1,
    )
    beyond = _number(count.size if count.extent is None else count.extent, values)
    tile = T.index(stream)
    with ir.InsertionPoint(op.regions[0].blocks.append()):
        found = []
        for combiner, here, none in (
            ("min", tile, beyond),
            ("max", T.make("add", tile, T.const(1, "index")), T.const(0, "index")),
        ):
            number = T.make("cast", T.make("select", condition, here, none), dtype="i32")
            found.append(region.reduce(combiner, number, rows, reduced=[stream], loc=location))
        if each:
            one, none = T.const(1, "i32"), T.const(0, "i32")
            flag = T.make("select", condition, one, none)
            found.append(region.map(flag, [*rows, stream], location))
        produce(found)
    return list(op.results)


def _bounds(
    kernel: TileKernel, grid: _TileGrid, values: nests.Values, first: Any, end: Any
) -> list[Linear]:
    """The forms that are 0 or more between two tiles of the stream, in its own axes."""
    stream, size = kernel.stream, kernel.axes[kernel.stream].size
    places = grid.places()[:-1]
    position = linear(T.index(stream))
    assert position is not None
    starts, stops = (
        Linear.of({T.read(values.key(array), *places, dtype="i32"): size}, 0)
        for array in (first, end)
    )
    return [position.plus(starts, -1), stops.plus(position, -1).shifted(-1)]


def _flag(grid: _TileGrid, values: nests.Values, flags: Any) -> Term:
    """Whether the tile that a point lies in may have a live one."""
    return T.make("ne", T.read(values.key(flags), *grid.places(), dtype="i32"), T.const(0, "i32"))
