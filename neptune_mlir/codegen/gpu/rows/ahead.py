# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that later programs will read, brought to the second-level cache.

A program that holds a row in registers loads, computes and stores in turn, and few programs fit
on a multiprocessor: while all of them compute, memory waits. So a program asks first for the row of
the program that begins on this multiprocessor behind it (choice `ahead`: so many programs on). That
is an instruction of one thread; nothing depends on it, and no register holds what it brings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import CHUNK
from neptune_mlir.analysis.tiles import Window, element_bytes, load_window, nested, tuned
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter


def bring_rows(writer: KernelWriter) -> None:
    """Ask for the rows of the program `ahead` programs on, of each array of which a program reads
    a row of its own, in whole chunks, where one tile has all of it. (Rows of several tiles are read
    again from near caches, which such rows would push out of them.)"""
    body, distance = writer.forall.regions[0].blocks[0], tuned(writer.forall, "ahead", 0)
    if not distance or len(writer.bounds) != 1 or not writer.chip.brings_rows:
        return
    row = body.arguments[0]
    seen = []
    for op in nested(body):
        if op.name not in ("tensor.extract_slice", "tensor.pad") or not op.results:
            continue
        if not ir.RankedTensorType(op.results[0].type).has_static_shape:  # what exists of a tile
            continue
        found = load_window(op.results[0], writer.forall)
        if found is None or found.tensor in seen or not _is_row(found, row):
            continue
        size = _length(writer, found.tensor)
        if size is None or (isinstance(size, int) and size > found.shape[0]):
            continue
        if found.multiple * element_bytes(_dtype(found)) % CHUNK == 0:
            seen.append(found.tensor)
            _bring(writer, found, size, distance)


def _is_row(found: Window, row: Any) -> bool:
    """Whether a window is (a part of) the row of a matrix that a program has alone."""
    return found.pages is None and found.dims == (1,) and found.offsets[0] == row


def _dtype(found: Window) -> str:
    return str(ir.RankedTensorType(found.tensor.type).element_type)


def _length(writer: KernelWriter, tensor: Any) -> Any:
    """The elements of a row: a number, or what the kernel is given as that; None: it is not."""
    kind = ir.RankedTensorType(tensor.type)
    if not kind.is_dynamic_dim(1):
        return kind.shape[1]
    for scalar in writer.signature.scalars:
        made = defining_op(scalar)
        if made is not None and made.name == "tensor.dim" and made.operands[0] == tensor:
            dim = defining_op(made.operands[1])
            if dim is not None and ir.IntegerAttr(dim.attributes["value"]).value == 1:
                return writer.scalars[scalar]
    return None


def _bring(writer: KernelWriter, found: Window, size: Any, distance: int) -> None:
    """The code. (Programs count down: a later one has a row before this one's.)"""
    s, array = writer.s, writer.arrays[found.tensor]
    there = s.sub(writer.scalars[writer.body.arguments[0]], distance)
    unit = element_bytes(array.dtype)
    window = Window(found.tensor, (there, 0), (), (), ())
    pointer = writer.memory.address(array, window, ())
    writer.memory.needs(array, CHUNK)
    row = s.value(there, s.i32)
    if not isinstance(size, int):
        row = s.select(s.less(size, found.shape[0] + 1), row, s.constant(-1, s.i32))
    count = s.value(s.mul(size, unit), s.i32)
    writer.chip.bring(s, writer.threads.id, row, pointer, count)
