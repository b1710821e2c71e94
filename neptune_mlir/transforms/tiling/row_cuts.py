# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where tiles of rows begin that are cut by the elements of a tensor (`cut-rows`).

Rows s[n] to s[n + 1] are a part, and those behind the last number; rows in front of the first
number belong to the first part. Tiles of T rows begin with a part. With

    number(n) = s[n] // T + n

the tiles from number(n) to number(n + 1) are enough for part n, so which part a tile is of needs no
sum over the parts before it: the tile with number g is of the last part n with number(n) <= g. Some
tiles have no rows, at most one for each part.

Numbers that do not ascend would leave rows without a tile. Then all rows are one part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import scalar_term
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.attributes import TILE
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.op_names import GLOBAL
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import arith, ir, tensor
from neptune_mlir.transforms.fusion.groups import FusedAxis
from neptune_mlir.transforms.fusion.region import FusedRegion, produce
from neptune_mlir.transforms.tiling.slices import Tile

TILES, PARTS = 4, 32  # of a tile of the kernel that finds them: a warp has a tile, a lane a part


@dataclass(frozen=True)
class RowCuts:
    """Tiles of `size` rows along `axis`, which has `extent` rows: how many there are, and for each
    where it begins and how many rows are its own (tensors of i32)."""

    axis: int
    size: int
    extent: Index
    count: Index
    first: Any
    rows: Any

    def tile(self, number: Any) -> Tile:
        """That with a number. It is loaded as far as there are rows, whosever they are; results
        are computed row by row, and only its own are stored."""
        at = [ix.value(number)]
        first, rows = (
            arith.IndexCastOp(ir.IndexType.get(), tensor.ExtractOp(array, at).result).result
            for array in (self.first, self.rows)
        )
        valid = ix.minimum(self.size, ix.sub(self.extent, first))
        return Tile(self.size, first, valid, rows)


def find_cuts(
    starts: Any, extent: Index, size: int, values: nests.Values, location: Any
) -> tuple[Any, Index]:
    """Emit the kernel-level op that finds where tiles of `size` rows begin and how many rows of
    `extent` each has; returns it and the number of tiles."""
    ends = tensor.DimOp(starts, ix.value(0)).result
    count = ix.add(ix.floordiv(extent, size), ends)
    parts = ix.maximum(ix.sub(ends, 1), 0)
    axes = [FusedAxis(DYNAMIC, ix.value(n), name)
            for n, name in ((count, "tile"), (parts, "part"))]  # fmt: skip
    region = FusedRegion(values, axes)
    op = ir.Operation.create(
        GLOBAL,
        results=[region.type([0], "i32")] * 2,
        operands=[a.extent for a in axes],
        attributes={
            "domain": ir.DenseI64ArrayAttr.get([DYNAMIC] * 2),
            "axis_names": ir.ArrayAttr.get([ir.StringAttr.get(a.name) for a in axes]),
            "resultSegmentSizes": ir.DenseI32ArrayAttr.get(N.segment_sizes(2)),
            **TILE.entry([TILES, PARTS]),
        },
        regions=1,
    )
    rows = T.make("cast", _number(extent, values), dtype="i32")
    with ir.InsertionPoint(op.regions[0].blocks.append()):
        produce(_find(region, values.key(starts), rows, size, location))
    return op, count


def _find(region: FusedRegion, starts: str, rows: Term, size: int, location: Any) -> list[Any]:
    """The nests: what the parts say of a tile, then where it begins and its rows."""
    zero, one, step = (T.const(n, "i32") for n in (0, 1, size))
    tile, part = (T.make("cast", T.index(k), dtype="i32") for k in (0, 1))
    before = T.read(starts, T.index(1), dtype="i32")
    given = T.read(starts, T.make("add", T.index(1), T.const(1, "index")), dtype="i32")
    start = _within(given, zero, rows)
    number = _sum(T.make("floordiv", start, step), part, one)
    reached = T.make("le", number, tile)

    def over_parts(combiner: str, body: Term) -> Term:
        found = region.reduce(combiner, body, [0], reduced=[1], loc=location)
        return region.read(found, [0], "i32")

    passed = over_parts("add", T.make("select", reached, one, zero))
    begin = over_parts("max", T.make("select", reached, start, zero))
    end = over_parts("min", T.make("select", reached, rows, start))
    falls = over_parts("max", T.make("select", T.make("lt", given, before), one, zero))

    ascends = T.make("le", falls, zero)
    begin = T.make("select", ascends, T.make("max", begin, zero), zero)
    end = T.make("select", ascends, T.make("min", end, rows), rows)
    passed = T.make("select", ascends, passed, zero)
    own = T.make("sub", T.make("sub", tile, T.make("floordiv", begin, step)), passed)
    first = T.make("add", begin, T.make("mul", own, step))
    some = T.make("lt", first, end)
    found = T.make("select", some, T.make("min", T.make("sub", end, first), step), zero)
    first = T.make("select", some, first, rows)
    return [region.map(term, [0], location) for term in (first, found)]


def _within(x: Term, low: Term, high: Term) -> Term:
    return T.make("min", T.make("max", x, low), high)


def _sum(first: Term, *rest: Term) -> Term:
    for term in rest:
        first = T.make("add", first, term)
    return first


def _number(number: Index, values: nests.Values) -> Term:
    return T.const(number, "index") if ix.is_static(number) else scalar_term(number, values)
