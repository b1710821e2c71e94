# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The least and the greatest integer of every tile of a tensor, as a kernel of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.attributes import KERNEL, OF_MASK
from neptune_mlir.dialects.scalars import mlir_type
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import ir, scf, tensor
from neptune_mlir.transforms.tiling.emit import Frame, GridProgram, ranged_type
from neptune_mlir.transforms.tiling.kernel import TileKernel
from neptune_mlir.transforms.tiling.slices import grid_tiles, slice_operands


def tile_extrema(
    kernel: TileKernel, values: nests.Values, read: Term, axes: Sequence[int], name: str
) -> tuple[Any, Any]:
    """Emit a grid of programs, one for each tile of `axes` at the tile sizes of a kernel; returns
    the least and the greatest element that `read` takes in each, with a dimension for each axis.

    Axes of the read that are not in `axes` are not cut.
    """
    own = replace(
        kernel, nests={}, running=[], finish_keys=[], results=[], stream=None, chunks=None,
        axes=[replace(a, role="grid" if k in axes else "whole") for k, a in enumerate(kernel.axes)],
    )  # fmt: skip
    counts = [ix.ceildiv(own.axes[a].extent, own.axes[a].size) for a in axes]
    kind = mlir_type(ranged_type(read))
    starts = [tensor.empty(counts, kind) for _ in range(2)]
    bounds: list[Index] = counts or [1]
    mapping = [ir.Attribute.parse(f"#gpu.block<linear_dim_{k}>") for k in range(len(bounds))]
    forall = scf.ForallOp(
        [0] * len(bounds), bounds, [1] * len(bounds), starts, mapping=ir.ArrayAttr.get(mapping)
    )
    KERNEL.set(forall.operation, name)
    OF_MASK.set(forall.operation)
    with ir.InsertionPoint(forall.body):
        ids: list[Index] = list(forall.induction_variables)[: len(axes)]
        program = GridProgram(own, values, Frame(forall.body, grid_tiles(own.axes, axes, ids)))
        found = [program.extreme(read, combiner) for combiner in ("min", "max")]
        parallel = scf.InParallelOp()
        with ir.InsertionPoint(parallel.block):
            for value, out in zip(found, forall.inner_iter_args, strict=True):
                tensor.ParallelInsertSliceOp(value, out, *slice_operands(ids, [1] * len(ids)))
    low, high = forall.results
    return low, high
