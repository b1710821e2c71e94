# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads of a short program, all before anything is computed.

A tile that registers take is loaded where it is used. In a program that joins the parts which the
kernel before it left, that is one load behind the other: the sums wait for the maxima, and the
parts of a result for a barrier. It waits for the second-level cache each time, and does little
else. So a program without a loop asks for all that other kernels made before it waits for any of
it, where a thread has room for that.

What takes few registers of a thread (a number for each row, a target) is asked for first in any
program without a loop: else the program waits for it alone, once its rows are reduced. So are
scales of a row that has twice as many, where all of them together leave room for other programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import iteration_of
from neptune_mlir.analysis.tiles import (
    element_bytes,
    element_of,
    is_tensor,
    load_window,
    read_generic,
    tuned,
)
from neptune_mlir.codegen.gpu.rows.stashed import stash_of
from neptune_mlir.codegen.gpu.tile_forms import Arriving, Pending
from neptune_mlir.dialects.gpu_attributes import VIA
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter

LOADS = ("tensor.extract_slice", "tensor.pad")
WORD = 4  # bytes of a register
LITTLE = 8  # registers of a thread that any tile may take first
FEW = 64  # threads of a program that wait for all, where they have more than twice as many
ROOM, FULL = 32, 512  # registers and threads of a program in which tiles of twice as many may
MOST = 64  # registers of a thread that wait for what was asked for


def load_early(writer: KernelWriter) -> list[Any]:
    """Load the tiles of a program without loops, if most of them are of what other kernels made;
    else the small ones. Returns the loads that are written then, and leaves in `writer.early` the
    registers of a thread that they take."""
    ops = [op.operation for op in writer.body.operations]
    loads = [op for op in ops if op.name in LOADS and _is_load(writer, op)]
    if any(op.name.startswith("scf.for") and op != ops[-1] for op in ops):
        return []
    uses = {}  # the tile and layout of each use: its registers
    for op in ops:
        if op.name != "linalg.generic":
            continue
        g = read_generic(op)
        for k, value in enumerate(g.inputs):
            if defining_op(value) in loads and g.is_read(k):
                if VIA.of(op) != "registers":
                    return []
                layout = iteration_of(op, g.extents).project(g.maps[k])
                uses[value, layout] = layout.registers * element_bytes(element_of(value)) // WORD
    made = sum(n for (value, _), n in uses.items() if _is_of_kernel(writer, value))
    words = sum(uses.values())
    own = 2 * made <= words or words > MOST
    if own:
        little = 2 * LITTLE if words <= ROOM and _has_room(writer) else LITTLE
        uses = {use: n for use, n in uses.items() if n <= little}
        words = sum(uses.values())
        if words > MOST:
            return []
        loads = [op for op in loads if any(defining_op(value) == op for value, _ in uses)]
    for op in loads:
        writer.write_op(op)
    arrived = {}
    for value, layout in uses:
        tile = writer.tiles[value]
        if isinstance(tile, Pending):
            arrived[value, layout] = writer.compute.arriving(tile, layout)
            arrived[value, layout].all()
    if own and writer.chip.sinks_loads:
        _await_all(writer, ops, arrived, words)
    writer.early = words
    return loads


def _await_all(
    writer: KernelWriter, ops: list[Any], arrived: dict[Any, Arriving], words: int
) -> None:
    """Let the first sum wait for all that was asked for, where others follow it, or shared memory
    has the row, or few warps have more than LITTLE twice: an assembler moves loads down to where
    their registers are used, behind what the first sum waits for. (Beside one sum alone a few loads
    stay before it; and of many warps some wait while others compute.)"""
    sums = [g for op in ops if op.name == "linalg.generic" and (g := read_generic(op)).reduced]
    for g in sums:
        read = {value for k, value in enumerate(g.inputs) if g.is_read(k)}
        others = [found for (value, _), found in arrived.items() if value not in read]
        rows = [found for (value, _), found in arrived.items() if value in read]
        kept = [found for value in read if (found := stash_of(writer.tiles.get(value)))]
        if others and kept:
            kept[0].tie(writer.s, others)
            return
        alone = words > 2 * LITTLE and writer.threads.count <= FEW
        if others and rows and (len(sums) > 1 or alone):
            rows[0].tie(writer.s, others)
            return


def reads_kernels(writer: KernelWriter) -> bool:
    """Whether a program reads what other kernels made."""
    loads = (op.operation for op in writer.body.operations if op.operation.name in LOADS)
    return any(_is_load(writer, op) and _is_of_kernel(writer, op.results[0]) for op in loads)


def _has_room(writer: KernelWriter) -> bool:
    """Whether registers have room for more: programs of many threads have few, but for those that
    keep rows elsewhere; of these few are beside each other anyway."""
    threads = writer.threads.count
    return bool(threads >= FULL if tuned(writer.forall, "stash", 0) else threads <= FULL)


def _is_load(writer: KernelWriter, op: Any) -> bool:
    """Whether an op brings a tile. (Others are the valid part of one, or of a result.)"""
    value = op.results[0]
    if not is_tensor(value) or not ir.RankedTensorType(value.type).has_static_shape:
        return False
    return load_window(value, writer.forall) is not None


def _is_of_kernel(writer: KernelWriter, tile: Any) -> bool:
    """Whether another kernel made what a tile is of."""
    found = load_window(tile, writer.forall)
    made = found and defining_op(found.tensor)
    return bool(made and made.name == "scf.forall")
