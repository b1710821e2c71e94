# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies of tensors by copy engines, which no multiprocessor has a part in."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from neptune_mlir.runtime.drivers.cuda import Box, CudaDriver
from neptune_mlir.runtime.drivers.makers import driver

FARTHEST = (1 << 31) - 1  # bytes between rows of an order to a copy engine


def rows_of(x: torch.Tensor) -> tuple[int, int, int]:
    """A tensor's bytes as rows: of how many bytes each, how many, how far apart."""
    size = x.numel() * x.element_size()
    gaps = (d for d in range(x.ndim - 1) if x.stride(d) != x.stride(d + 1) * x.shape[d + 1])
    gap = next(gaps, None)
    if gap is None or x.is_contiguous():
        return size, 1, size
    width = x[(0,) * (gap + 1)].numel() * x.element_size()
    return width, size // width, x.stride(gap) * x.element_size()


def copy(to: torch.Tensor, x: torch.Tensor) -> None:
    """Copy by a copy engine: of tensors with gaps, torch's own copy is a kernel."""
    if not x.is_cuda or x.is_contiguous() or not x.numel():
        to.copy_(x, non_blocking=True)
        return
    width, rows, pitch = rows_of(x)
    stream = torch.cuda.current_stream(x.device)
    cuda = driver(CudaDriver)
    assert isinstance(cuda, CudaDriver)
    cuda.copy_rows(
        to.data_ptr(), x.data_ptr(), width, rows, pitch, stream.device_index, stream.cuda_stream
    )


def copy_all(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Copy tensors: two by one order to a copy engine where that can be, for each order takes some
    microseconds beside its bytes (in a graph on a branch of its own as well). The driver takes a
    box of one allocation alone."""
    boxes = boxes_of(pairs) if pairs[0][1].is_cuda else None
    if boxes is not None:
        stream, cuda = torch.cuda.current_stream(pairs[0][1].device), driver(CudaDriver)
        assert isinstance(cuda, CudaDriver)
        place = stream.device_index
        if len({cuda.allocation(x.data_ptr(), place) for _, x in pairs}) == 1:
            width, rows, _ = rows_of(pairs[0][1])
            cuda.copy_box(*boxes, width, rows, len(pairs), place, stream.cuda_stream)
            return
    for to, x in pairs:
        copy(to, x)


def boxes_of(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> tuple[Box, Box] | None:
    """Where two tensors of one shape go to and come from, if they are layers of a box: one as far
    behind the other as some rows are. None: they are not."""
    alike = {(x.shape, x.stride(), to.stride(), x.dtype) for to, x in pairs}
    if len(pairs) != 2 or len(alike) > 1 or not pairs[0][1].numel():
        return None
    _, rows, pitch = rows_of(pairs[0][1])
    found = []
    for one, other in zip(*pairs, strict=True):
        apart = other.data_ptr() - one.data_ptr()
        row = pitch if rows > 1 else apart
        if not rows * pitch <= apart <= FARTHEST or apart % row:
            return None
        found.append((one.data_ptr(), row, apart))
    return found[0], found[1]
