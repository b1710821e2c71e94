# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of plain products, chosen by how many programs a call has (`targets/product_tiles.py`).

A program that ends with a product of warp groups has kernels with other tiles, and with sums that
are cut into chunks, each for the calls that it is the fastest for. Where all extents are known, so
is the fastest, and it is the only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.analysis.fused_nests import nests_of
from neptune_mlir.analysis.tile_axes import extents_of
from neptune_mlir.dialects.attributes import PRODUCT
from neptune_mlir.dialects.neptune import StreamOp
from neptune_mlir.dialects.nests import Values
from neptune_mlir.dialects.program import functions
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.runtime.plan import Expression, evaluate
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.targets.product_tiles import (
    ANY,
    CUT,
    KNOWN,
    PAIRED,
    SCALED,
    SHARED,
    STREAMED,
    TILES,
    WHOLE,
    Product,
    ProductTile,
    ahead_cycles,
    allowed_cycles,
    cut_cycles,
    tiles_of,
    whole_cycles,
)
from neptune_mlir.transforms.schedule.group_sizes import factor_size
from neptune_mlir.transforms.schedule.tile import kernel_ops


def product_of(module: Any) -> Product | None:
    """The product that a fused program ends with, or whose columns it reduces, if its extents are
    numbers or those of arguments; one that other kernels read, if they are numbers: nothing is cut
    for it then, and a program has no more images."""
    kernels = [op for function in functions(module) for op in kernel_ops(function)]
    noted = [op for op in kernels if PRODUCT.on(op.operation)]
    if len(noted) != 1:
        return None
    (stream,) = noted
    extents = [extent_of(e) for e in extents_of(stream)]
    if any(e is None for e in extents):
        return None
    row, column, summed, computed = PRODUCT.of(stream.operation)
    others: Expression = 1
    for axis, extent in enumerate(extents):
        if axis not in (row, column, summed):
            others = extent if others == 1 else ["mul", others, extent]
    cuts = isinstance(stream, StreamOp)
    streamed = cuts and column == stream.axis.value
    size, last = factor_size(nests_of(stream, Values())), stream == kernels[-1]
    product = Product(
        extents[row], extents[column], others, extents[summed], streamed,
        cuts and last and not streamed, size, bool(computed),
    )  # fmt: skip
    return product if streamed or last or product.is_known else None


def extent_of(extent: Any) -> Expression | None:
    """An extent of a stream in terms of the launch plan."""
    if isinstance(extent, int):
        return extent
    place = argument_of(extent)
    return None if place is None else ["dim", *place]


def argument_of(extent: Any) -> tuple[int, int] | None:
    """The argument and the dimension that a run-time extent is of."""
    made = defining_op(extent)
    if made is None or made.name != "tensor.dim":
        return None
    array, number = made.operands
    dim = defining_op(number)
    if defining_op(array) is not None or dim is None or dim.name != "arith.constant":
        return None
    return array.arg_number, ir.IntegerAttr(dim.attributes["value"]).value


# Numbers of rows of which each has a tile that is the fastest, or nearly
ROWS = tuple(sorted({8 * round(1.1**k) for k in range(80)}))
WHOLE_SUM, AHEAD, CUT_SUM = "whole", "ahead", "cut"  # what is done with a product


def tiles_worth(product: Product) -> Sequence[tuple[str, ProductTile]]:
    """Tiles that may be the fastest, but for WHOLE, and of what: of sums that are not cut, of those
    whose factor of the rows is computed ahead, and of those that are cut. Where only the number of
    rows is not known, the fastest for some."""
    rows = (product.rows,) if isinstance(product.rows, int) else ROWS
    known = replace(product, rows=rows[0]).is_known
    tiles = STREAMED if product.streamed else TILES
    found = [(WHOLE_SUM, tile) for tile in tiles]
    if not product.streamed:
        kind = AHEAD if product.computed else WHOLE_SUM
        shared = SHARED if known else SHARED[:ANY]
        shared = (*KNOWN, *shared) if known else shared
        scaled = SCALED if product.computed else ()
        found += [(kind, tile) for tile in (*scaled, *PAIRED, *shared)]
    found += [(CUT_SUM, tile) for tile in (CUT if product.cuts else ())]
    if not known:
        return found
    some = list(dict.fromkeys([(WHOLE_SUM, WHOLE), *found, *((WHOLE_SUM, t) for t in STREAMED)]))
    best = {_fastest(replace(product, rows=n), some) for n in rows}
    return [of for of in some[1:] if of in best]


def _fastest(product: Product, some: Sequence[tuple[str, ProductTile]]) -> tuple[str, ProductTile]:
    """Of a product whose extents are known."""
    return min(some, key=lambda of: evaluate(_time(product, *of), (), (), MULTIPROCESSORS))


def _time(product: Product, how: str, tile: ProductTile) -> Expression:
    if (how, tile) == (WHOLE_SUM, WHOLE):
        return allowed_cycles(product)
    if how == CUT_SUM:
        return cut_cycles(product, tile, _chunks(product, tile))
    return (ahead_cycles if how == AHEAD else whole_cycles)(product, tile)


def _chunks(product: Product, tile: ProductTile) -> int:
    """About as many as `privatize` makes."""
    tiles = evaluate(tiles_of(product, tile), (), (), MULTIPROCESSORS)
    steps = evaluate(product.steps, (), (), MULTIPROCESSORS)
    return max(1, min(MULTIPROCESSORS // max(1, tiles), steps))


class Fastest:
    """Which calls the kernels of a product are for, one after the other: those that it is faster
    for than all before it. `rows`: of the product; `computed`: whether programs compute their
    factor, and reduce no columns."""

    def __init__(self, product: Product):
        self._product, self.rows = product, product.rows
        self.computed = product.computed and not product.streamed
        self._least = allowed_cycles(product)

    def when(
        self, tile: ProductTile, chunks: Expression | None = None, ahead: bool = False
    ) -> Expression:
        product = self._product
        if chunks is not None:
            time = cut_cycles(product, tile, chunks)
        else:
            time = (ahead_cycles if ahead else whole_cycles)(product, tile)
        rule = ["lt", time, self._least]
        self._least = ["min", self._least, time]
        return rule
