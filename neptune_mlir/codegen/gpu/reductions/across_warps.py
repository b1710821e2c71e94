# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions that several warps have a part of, joined through shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import element_bytes
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.gpu.scalars import Index

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.compute import Compute


def across_warps(
    compute: Compute, name: str, values: list[Any], along: Sequence[tuple[int, int]], dtype: Any,
    out: Layout,
) -> list[Any]:  # fmt: skip
    """Combine what different warps reduced, through shared memory; `along`: distance and size
    of the digits of their numbers."""
    if not along:
        return values
    s, memory = compute.s, compute.memory
    count = 1
    number: Index = 0
    for distance, size in along:
        digit = s.mod(s.div(compute.threads.warp, distance), size)
        number = s.add(number, s.mul(digit, count))
        count *= size
    layout = L.shared((count, *out.shape), element_bytes(dtype))
    found = []
    with memory.scratch(layout.bytes) as offset:
        tile = SharedTile(layout, offset, dtype)
        for value, position in zip(values, compute.threads.positions(out), strict=True):
            if value is None:
                continue
            place = s.add(memory.shared_offset(layout, [number, *position]), tile.offset)
            inside = memory.in_bounds(position, out.shape) if out.padded else None
            with under(s, inside):
                memory.store_element(
                    memory.to_memory(value, dtype), memory.shared_pointer(place), layout.element
                )
        memory.barrier()
        for position in compute.threads.existing(out):
            parts = memory.load_shared(tile, [[k, *position] for k in range(count)])
            found.append(s.reduce(name, parts))
    return found
