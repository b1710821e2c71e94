# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of the `neptune` dialect about tensors that a tile program sees otherwise than they lie in
memory.
"""

# no `from __future__ import annotations`: op definitions are read from live annotations
from collections.abc import Sequence
from typing import Any

from neptune_mlir.dialects import verify_paged
from neptune_mlir.dialects.neptune import Neptune
from neptune_mlir.ir.bindings import ext, ir


class PagedOp(Neptune.Operation, name="paged", traits=[ext.Pure]):
    """The rows of a tensor in pages, one behind the other, as a table says: row `r` of dimension
    `dim` is slot `r mod page_size` (dimension `slot`) of page `table[r floordiv page_size]`.

    Nothing moves: a tile of it (`tensor.extract_slice`) is a load whose rows are looked up one by
    one. So a tile may have rows of several pages. `at` are the positions in the table along its
    dimensions but for `column`. Numbers of the table are clamped to the `count` pages that there
    are. With a `slot` of -1 all rows of a page are the same element.

    Example, of sequence %b of a cache in pages of 16 keys:

        %keys = "neptune.paged"(%pages, %table, %count, %b)
            {dim = 0 : i64, slot = 1 : i64, column = 1 : i64, page_size = 16 : i64}
            : (tensor<?x16x8x128xf16>, tensor<?x?xi32>, index, index) -> tensor<?x8x128xf16>

    Rejected: a table of other elements than integers, positions that are not one for each dimension
    of the table but `column`, dimensions that are not there, a slot dimension of another extent
    than `page_size`, a result of another type than the tensor's without `slot` and with any number
    of rows.
    """

    tensor: ext.Operand[Any]
    table: ext.Operand[Any]
    count: ext.Operand[ir.IndexType]
    at: Sequence[ext.Operand[ir.IndexType]]
    dim: ir.IntegerAttr
    slot: ir.IntegerAttr
    column: ir.IntegerAttr
    page_size: ir.IntegerAttr
    result: ext.Result[Any]

    verify_invariants = staticmethod(verify_paged.paged)


__all__ = ["PagedOp"]
