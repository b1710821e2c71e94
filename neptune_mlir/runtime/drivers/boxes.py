# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a tensor map says of an array: how its boxes lie, and how much is fetched at once."""

from __future__ import annotations

from typing import Any

from neptune_mlir.errors import ArgumentError

PANEL = 64  # elements of a row that one swizzled box holds: 128 bytes


def is_narrow(array: Any, panel: int, launch: bool) -> bool:
    """Whether the second-level cache fetches 128 bytes at once of boxes: not of rows of one panel,
    whose neighbours are asked for at the same time."""
    return launch and array.shape[-1] > panel


def map_shape(
    array: Any, size: int, rows_dim: int, rows: int, columns: int, panel: int = PANEL,
    rounds: int = 0,
) -> tuple[str, list[int], list[int], list[int]]:  # fmt: skip
    """The type of elements, and of the axes of `tensor_map` extents, strides in bytes and box, of
    an array with elements, of so many bytes each."""
    rest = [d for d in reversed(range(len(array.shape) - 1)) if d != rows_dim]
    # an axis of one element may have any stride, but the encoding checks it
    axes = [
        (array.shape[d], array.strides[d] * size) if d >= 0 and array.shape[d] > 1 else (1, 16)
        for d in (rows_dim, *rest)
    ]
    steps = [step for _, step in axes]
    height, *others = (extent for extent, _ in axes)
    if min(steps) < 0:
        raise ArgumentError("TMA does not support negative strides")
    width, ones = array.shape[-1], [1 for _ in rest]
    extents, strides, box = [width, height, *others], steps, [panel, rows, *ones]
    if columns:
        extents = [panel, height, width // panel, *others]
        strides = [steps[0], panel * size, *steps[1:]]
        box = [panel, rows, columns // panel, *ones]
    return "tf32" if rounds else array.dtype, extents, strides, box
