# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of tensors: where one stands, and how it is cut out and padded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from neptune_mlir.analysis.tile_axes import TileAxis
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.scalars import constant
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import ir, tensor


@dataclass(frozen=True)
class Tile:
    """Where an axis stands: `size` positions from `offset`, of which `valid` exist.

    `own`: how many of them are the program's (None: what exists). The others are another's, who
    stores their results.
    """

    size: int
    offset: Index
    valid: Index
    own: Index | None = None

    @property
    def stored(self) -> Index:
        """How many positions of a result are stored."""
        return self.valid if self.own is None else self.own

    @property
    def counted(self) -> Index:
        """How many positions say where a program has work. Of a tile that has none of its own one
        is: it begins behind the end, where loads give 0."""
        return self.valid if self.own is None else ix.maximum(self.own, 1)

    @property
    def ragged(self) -> bool:
        return not ix.is_static(self.valid) or self.valid < self.size


def grid_tiles(
    axes: Sequence[TileAxis], grid: Sequence[int], ids: Sequence[Index],
    begins: Mapping[int, Index] = MappingProxyType({}),
) -> dict[int, Tile]:  # fmt: skip
    """Where a program stands that has these numbers along the axes `grid`, and all of those that
    are not cut. `begins`: where number 0 of an axis is, if not at 0."""
    tiles = {
        # (a loop that runs once is no reason to load again in each step of the loops around it)
        k: Tile(a.size, 0, a.extent) for k, a in enumerate(axes)
        if a.role == "whole" or (a.role == "loop" and a.once)
    }  # fmt: skip
    for k, program_id in zip(grid, ids, strict=False):
        axis = axes[k]
        offset = ix.scale(program_id, axis.size)
        offset = ix.add(offset, begins[k]) if k in begins else offset
        full = axis.divides or axis.size == 1
        valid = axis.size if full else ix.minimum(axis.size, ix.sub(axis.extent, offset))
        tiles[k] = Tile(axis.size, offset, valid)
    return tiles


def _mixed(indices: Sequence[Index]) -> tuple[list[Any], list[int]]:
    """Operands and static array of a list of offsets or sizes."""
    operands = [i for i in indices if not ix.is_static(i)]
    return operands, [i if ix.is_static(i) else DYNAMIC for i in indices]


def slice_operands(offsets: Sequence[Index], sizes: Sequence[Index]) -> list[list[Any]]:
    """What the slice ops take after their tensors: offsets, sizes and unit strides."""
    dynamic_offsets, static_offsets = _mixed(offsets)
    dynamic_sizes, static_sizes = _mixed(sizes)
    strides = [1] * len(offsets)
    return [dynamic_offsets, dynamic_sizes, [], static_offsets, static_sizes, strides]


def extract_slice(
    source: Any, offsets: Sequence[Index], sizes: Sequence[Index], kept: Sequence[int]
) -> Any:
    """The slice of `source`, with the dimensions `kept` (the others have size 1 and vanish)."""
    shape = [sizes[d] if ix.is_static(sizes[d]) else DYNAMIC for d in kept]
    kind = ir.RankedTensorType.get(shape, ir.RankedTensorType(source.type).element_type)
    return tensor.ExtractSliceOp(kind, source, *slice_operands(offsets, sizes)).result


def hold_pads(block: Any) -> None:
    """Keeps pads at the start of what kernels read apart from those of tiles: `canonicalize` makes
    one of two, where a kernel reads the whole, and loads have no pad at their start."""
    for op in block.operations:
        if op.operation.name == "tensor.pad":
            low = ir.DenseI64ArrayAttr(op.operation.attributes["static_low"])
            if any(low):
                op.operation.attributes["nofold"] = ir.UnitAttr.get()


def pad(source: Any, tiles: Sequence[Tile]) -> Any:
    """`source`, the valid part of `tiles`, padded at its end with 0 to their static sizes."""
    if not any(t.ragged for t in tiles):
        return source
    element = ir.RankedTensorType(source.type).element_type
    kind = ir.RankedTensorType.get([t.size for t in tiles], element)
    dynamic, static = _mixed([ix.sub(t.size, t.valid) for t in tiles])
    op = tensor.PadOp(kind, source, [], dynamic, [0] * len(tiles), static)
    block = op.regions[0].blocks.append(*[ir.IndexType.get()] * len(tiles))
    with ir.InsertionPoint(block):
        tensor.YieldOp(constant(0, str(element)))
    return op.result
