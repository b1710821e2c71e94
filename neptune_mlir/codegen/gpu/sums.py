# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adding tiles to results that programs share (`neptune.add_slice`), and waiting for such sums
(`neptune.await_sums`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.gpu.compute import Held
from neptune_mlir.codegen.gpu.scalars import Index
from neptune_mlir.dialects.op_names import AWAIT_SUMS, TURN
from neptune_mlir.errors import Refused
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.tiling.in_turns import WORDS

WORD_BYTES = 4

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
    if len(turn_of(op)) >= TURN and not writer.takes_turns(view.array):
        raise Refused("programs add in turns, and no warp waits for these")
    tensor = writer.signature.tensors[view.array.number]
    multiple = row_multiple(tensor, view.offsets, view.dims, shape)
    window = Window(None, view.offsets, view.dims, shape, tuple(valid), multiple)
    tile = writer.tile(value)
    layout = tile.layout if isinstance(tile, Held) else writer.any_layout(shape)
    values = writer.compute.registers(tile, layout)
    writer.write_tile(op, view.array, window, layout, values)
    writer.views[op.results[0]] = writer.views[strip]


def awaits_of(forall: Any) -> list[Any]:
    """The ops of a kernel that wait for sums."""
    return [op.operation for op in forall.regions[0].blocks[0].operations
            if op.operation.name == AWAIT_SUMS]  # fmt: skip


def await_sums(writer: KernelWriter) -> None:
    """Wait for the sums that a kernel reads, where it does not wait for whole kernels: for their
    words, or for the kernels before, if no program adds."""
    if not writer.signature.independent:
        return
    s, chip = writer.s, writer.chip
    for op in awaits_of(writer.forall):
        *at, last, first = (writer.scalar(v) for v in list(op.operands)[1:])
        some = s.less(0, last)
        branch = scf.IfOp(some, has_else=True)
        with s.scope(branch.then_block):
            for place in _words(writer, op, at, first):
                chip.await_told(place, s.value(last, s.i32))
            scf.YieldOp([])
        with s.scope(branch.else_block):
            chip.wait_for_last()
            scf.YieldOp([])


def _words(writer: KernelWriter, op: Any, at: list[Index], first: Index) -> Iterator[Any]:
    """Where the words (i64) are of the tiles that the awaited rows are of: one for each group of
    warps that adds."""
    s, array = writer.s, replace(writer.arrays[op.operands[0]], in_fragments=False)
    size, tile = (int(op.attributes[name].value) for name in ("size", "tile"))
    *outer, row, _ = at
    place = Window(None, (*outer, first, 0), (), (), ())
    begin = writer.memory.address(array, place, ())
    start = s.op("llvm.ptrtoint", [begin], s.i64)
    made = defining_op(op.operands[0])
    (told,) = {k.tells for k in writer.signature.awaits if k.forall == made}
    for k in range(max(1, size // tile) if tile else 1):
        number = s.mul(s.add(s.div(row, tile), k), WORDS) if tile else 0
        for group in range(told):
            moved = s.value(s.mul(s.add(number, group), WORD_BYTES), s.i64)
            yield s.op("arith.addi", [start, moved], s.i64)


def end_behind_others(writer: KernelWriter) -> None:
    """Let a kernel end when those before it have. One that waits for sums has many programs, of
    which the last one is enough: others make room for those that have not begun."""
    s, last = writer.s, None
    if awaits_of(writer.forall):
        number, count = (
            s.op(name, [], s.index, dimension=ir.Attribute.parse("#gpu<dim x>"))
            for name in ("gpu.block_id", "gpu.grid_dim")
        )
        last = s.equal(number, s.sub(count, 1))
    with under(s, last):
        writer.chip.wait_for_last()
