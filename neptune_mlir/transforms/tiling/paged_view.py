# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles whose rows lie in several pages: slices of a view (`neptune.paged`) of the tensor.

`k[table[b, j // 16], j % 16, h, d]` at a tile of 64 keys has four pages. Every row is looked up, by
whoever copies it. The chips' own loads do that; CPUs keep tiles within a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.paged_reads import PagedRead, read_pages, spans
from neptune_mlir.dialects.op_names import PAGED
from neptune_mlir.dialects.verify_paged import NO_SLOT
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.transforms.tiling.emit import Frame
    from neptune_mlir.transforms.tiling.kernel import TileKernel


def find(read: Term, frame: Frame, kernel: TileKernel) -> PagedRead | None:
    """The pages of a read whose tile lies in several of them; None for others."""
    stream = kernel.stream
    pages = None if stream is None else read_pages(read, stream)
    if pages is None or not frame.binds(pages.axis) or not spans(kernel.op):
        return None
    extent = kernel.axes[pages.axis].extent
    if ix.is_static(extent) and extent <= pages.size:
        return None
    return pages if pages.size % frame.tile(pages.axis).size else None


def write(source: Any, table: Any, pages: PagedRead, at: Sequence[Index], count: Index) -> Any:
    """Emit the view; returns it.

    Args:
        at: positions in the table, but that along its column.
        count: the pages that there are.
    """
    kind = ir.RankedTensorType(source.type)
    shape = [
        ir.ShapedType.get_dynamic_size() if d == pages.dim else n
        for d, n in enumerate(kind.shape) if d != pages.slot
    ]  # fmt: skip
    i64 = ir.IntegerType.get_signless(64)
    numbers = {
        "dim": pages.dim, "slot": NO_SLOT if pages.slot is None else pages.slot,
        "column": pages.column, "page_size": pages.size,
    }  # fmt: skip
    return ir.Operation.create(
        PAGED, results=[ir.RankedTensorType.get(shape, kind.element_type)],
        operands=[source, table, ix.value(count), *map(ix.value, at)],
        attributes={name: ir.IntegerAttr.get(i64, n) for name, n in numbers.items()},
    ).results[0]  # fmt: skip
