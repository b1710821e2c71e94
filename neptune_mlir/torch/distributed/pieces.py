# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments in pieces: their extents and positions, tensors one after the other in bytes, chunks of
one side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.shards.plan import ShardArray, ShardPart

DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "i1": torch.bool, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64,
}  # fmt: skip
Kinds = Sequence[tuple[tuple[int, ...], torch.dtype]]


def _padded(size: int) -> int:
    return -(-size // 256) * 256


def bytes_of(kinds: Kinds) -> int:
    """How many they take."""
    return sum(_padded(torch.Size(shape).numel() * dtype.itemsize) for shape, dtype in kinds)


def unpacked(memory: torch.Tensor, kinds: Kinds) -> list[torch.Tensor]:
    """Tensors one after the other in bytes."""
    found, at = [], 0
    for shape, dtype in kinds:
        size = torch.Size(shape).numel() * dtype.itemsize
        found.append(memory[at : at + size].view(dtype).view(shape))
        at += _padded(size)
    return found


def side_by_side(
    x: torch.Tensor, axes: Sequence[str], along: str, chunks: int
) -> torch.Tensor:
    """A tensor whose first axis has one point: that axis has the chunks of another one, each a
    part of it; what does not have that axis is the same in all."""
    if along not in axes:
        return x.expand(chunks, *x.shape[1:]).contiguous()
    dim = axes.index(along)
    cut = x.unflatten(dim, (chunks, x.shape[dim] // chunks))
    return cut.movedim(dim, 0).squeeze(1)


def extents_of(arrays: Sequence[ShardArray], arguments: Sequence[Any]) -> dict[str, int]:
    """The extent of each axis that an argument has. Raises ArgumentError."""
    found: dict[str, int] = {}
    for array, x in zip(arrays, arguments, strict=True):
        if array.axes is None:
            continue
        if not isinstance(x, torch.Tensor) or x.ndim != len(array.axes):
            shape = list(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
            raise ArgumentError(f"'{array.name}' is {shape}", hint=f"[{', '.join(array.axes)}]")
        for axis, n in zip(array.axes, x.shape, strict=True):
            if found.setdefault(axis, n) != n:
                raise ArgumentError(
                    f"'{array.name}' has {n} positions of '{axis}', another argument {found[axis]}"
                )
    return found


def by_name(parts: Sequence[ShardPart], x: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors by the names of the parts that they are."""
    return {p.name: own for p, own in zip(parts, x, strict=True)}


def ends_of(pieces: Sequence[tuple[int, int]]) -> list[int]:
    """Where a device's pieces end in its own order."""
    found, at = [], 0
    for start, end in pieces:
        at += end - start
        found.append(at)
    return found


def start_of(pieces: Sequence[tuple[int, int]], ends: Sequence[int], at: int) -> int:
    """The position on the whole axis of a device's own position, less that position's distance
    from the first one: what is counted from there."""
    for (start, end), last in zip(pieces, ends, strict=True):
        if at < last:
            return start + at - (last - (end - start))
    return 0


def narrow(x: Any, axes: Sequence[str] | None, spans: Mapping[str, tuple[int, int]]) -> Any:
    """Of an argument some positions of some of its axes."""
    for dim, axis in enumerate(axes or ()):
        if axis in spans:
            start, end = spans[axis]
            if (start, end) != (0, x.shape[dim]):
                x = x.narrow(dim, start, end - start)
    return x
