# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adding tiles to results that programs share (`neptune.add_slice`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import (
    Window,
    added_at,
    row_multiple,
    shape_of,
    slice_parts,
    strip_slice,
    turn_of,
)
from neptune_mlir.codegen.gpu.compute import Held
from neptune_mlir.errors import Refused

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter


def add_slice(writer: KernelWriter, op: Any) -> None:
    """Add what of a tile lies in a strip of a result."""
    s, value, strip, at = writer.s, op.operands[0], op.operands[1], added_at(op)
    _, sizes, dims = slice_parts(strip_slice(strip))
    view, shape = writer.inside(writer.views[strip], at, range(len(at))), shape_of(value)
    valid = []
    for extent, position, size in zip([sizes[d] for d in dims], at, shape, strict=True):
        start = writer.scalar(position)
        known = isinstance(extent, int)
        whole = known and extent >= size and s.constant_of(start) == 0
        end = extent if known else writer.scalar(extent)
        valid.append(None if whole else s.sub(end, start))
    if turn_of(op) and not writer.takes_turns(view.array):
        raise Refused("programs add in turns, and no warp waits for these")
    tensor = writer.signature.tensors[view.array.number]
    multiple = row_multiple(tensor, view.offsets, view.dims, shape)
    window = Window(None, view.offsets, view.dims, shape, tuple(valid), multiple)
    tile = writer.tile(value)
    layout = tile.layout if isinstance(tile, Held) else writer.any_layout(shape)
    values = writer.compute.registers(tile, layout)
    writer.write_tile(op, view.array, window, layout, values)
    writer.views[op.results[0]] = writer.views[strip]
