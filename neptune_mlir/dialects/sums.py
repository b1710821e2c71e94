# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An op of the `neptune` dialect for results that several programs of a grid add to."""

# no `from __future__ import annotations`: op definitions are read from live annotations
from collections.abc import Sequence
from typing import Any

from neptune_mlir.dialects import verify_sums
from neptune_mlir.dialects.neptune import Neptune
from neptune_mlir.ir.bindings import ext, ir


class AddSliceOp(Neptune.Operation, name="add_slice", traits=[ext.Pure]):
    """Adds a tile to a part of a strip of a result: `strip[at + i] + tile[i]`, and the rest of the
    strip as it is.

    As `tensor.insert_slice` with as many dimensions and steps of 1, but for the sum, and what of
    the tile lies behind an end of the strip is left out. The strip is one of a result that every
    program along some dimensions of the grid adds to, in any order and at the same time: an element
    is read, added to and written as one step. On CPUs these programs run one after the other
    (`neptune.in_order`).

    Three more operands say that programs add in turns: the number that a word of memory has when
    this program may add to the tile (0: it is the first one, and stores it), this program's own,
    which it leaves there, and behind how many rows of the strip words are; a fourth one is what
    each word has in the end. Of two operands the first one says where words are: programs add in
    any order, and each adds 1 to a word when memory has its sums, up to the second one.

    Example:

        %s1 = "neptune.add_slice"(%part, %s0, %row, %c0)
            : (tensor<64x64xf32>, tensor<?x64xf32>, index, index) -> tensor<?x64xf32>

    Rejected: a tile of another rank or element type than the strip's, elements that are no floats,
    another number of offsets than dimensions (or two to four more), a result of another type than
    the strip's.
    """

    tile: ext.Operand[Any]
    strip: ext.Operand[Any]
    at: Sequence[ext.Operand[ir.IndexType]]
    result: ext.Result[Any]

    verify_invariants = staticmethod(verify_sums.add_slice)


class AwaitSumsOp(Neptune.Operation, name="await_sums"):
    """Waits until all programs of a kernel have added to some rows of a result.

    The rows are those from `at` on, up to a tile of that kernel or some whole ones. Its words
    (`add_slice`) are behind `first` rows, and have the number `last` when all have added; where
    that is 0 no program adds, and there is nothing to wait for but the kernels before. A tile of 0
    rows: words count programs, for all rows.

    Example:

        "neptune.await_sums"(%sums, %b, %row, %c0, %last, %first) {size = 16 : i64, tile = 64 : i64}
            : (tensor<?x?x64xf32>, index, index, index, index, index) -> ()

    Rejected: another number of offsets than dimensions of the tensor, and a number of rows that is
    no part of a tile, nor whole tiles.
    """

    tensor: ext.Operand[Any]
    at: Sequence[ext.Operand[ir.IndexType]]
    size: ir.IntegerAttr
    tile: ir.IntegerAttr

    verify_invariants = staticmethod(verify_sums.await_sums)


__all__ = ["AddSliceOp", "AwaitSumsOp"]
