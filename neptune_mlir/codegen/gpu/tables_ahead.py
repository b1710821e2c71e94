# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of tables that loops look places up in, asked for before anything is known of the loops.

A program reads how long its stream is, then which page its first tile lies in, then the tile: three
waits for memory, one behind the other, before it computes. Where the row of the table follows from
the program's number, the lanes of a warp ask for all of it first, a line each; nothing depends on
that, and no register holds it. So the page is in a near cache when the length is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import Window, element_bytes, nested, owner
from neptune_mlir.dialects.op_names import PAGED
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter

LINE = 128  # bytes
WRITTEN = ("tensor.extract", "scf.if")  # ops that give numbers, and are not copied to their uses


def ask_for_tables(writer: KernelWriter, block: Any) -> list[Any]:
    """Ask for the rows of the tables that loops of a block look places up in. Returns the ops of
    the block that are written then: what chooses these rows."""
    if not writer.chip.brings_near:
        return []
    s, written = writer.s, list[Any]()
    for table, row in dict.fromkeys(_looked_up(writer, block)):
        made = owner(row)
        if made is not None and made.name in WRITTEN and made not in written:
            writer.write_op(made)
            written.append(made)
        array = writer.arrays[table]
        each = LINE // element_bytes(array.dtype)
        last = s.sub(s.value(array.strides[0], s.index), 1)  # of the row, at least
        column = s.minimum(s.mul(writer.threads.lane, each), last)
        there = Window(None, (writer.scalar(row), column), (), (), ())
        writer.chip.bring_near(writer.memory.address(array, there, ()))
    return written


def _looked_up(writer: KernelWriter, block: Any) -> Iterator[tuple[Any, Any]]:
    """The tables with rows of numbers that are read in loops at places that these say, and the
    numbers of their rows, which are known outside."""
    for op in nested(block):
        if op.name == "tensor.extract" and op.block != block:
            table, *at = op.operands
        elif op.name == PAGED and ir.IntegerAttr(op.attributes["column"]).value == 1:
            _, table, _, *at = op.operands
            at.append(None)
        else:
            continue
        if len(at) == 2 and table in writer.arrays and _is_outside(writer, block, at[0]):
            yield table, at[0]


def _is_outside(writer: KernelWriter, block: Any, value: Any) -> bool:
    """Whether a number is made outside the loops of a block."""
    made = owner(value)
    return (value.owner if made is None else made.block) in (writer.body, block)
