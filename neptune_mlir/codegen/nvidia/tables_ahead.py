# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of tables that a producer's loops look places up in, asked for before the loops are known.

A producer reads how long its stream is, then which page its first tile lies in, then the tile:
three waits for memory, one behind the other, before anything is computed. Where the row of the
table follows from the program's number, the lanes of its warp ask for all of it first, a line each;
nothing depends on that, and no register holds it. So the page is in a near cache when the length is
known. (Kernels without a producer lost by it: there all warps would ask.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import Window, element_bytes, nested, owner
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.dialects.op_names import PAGED
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

LINE = 128  # bytes


def ask_for_tables(writer: SpecializedWriter, block: Any, numbers: Sequence[Any]) -> None:
    """Write the ops of a producer's block that give numbers. When the row of a table is known, in
    which its loops look places up, ask for that."""
    s, rows = writer.s, list(dict.fromkeys(_looked_up(writer, block)))
    ahead = [row for _, row in rows]
    first = [op for op in numbers if any(result in ahead for result in op.results)]
    for op in first:
        writer.write_op(op)
    for table, row in rows:
        array = writer.arrays[table]
        last = s.sub(s.value(array.strides[0], s.index), 1)  # of the row, at least
        column = s.minimum(s.mul(writer.threads.lane, LINE // element_bytes(array.dtype)), last)
        there = Window(None, (writer.scalar(row), column), (), (), ())
        hopper.bring_near(writer.memory.address(array, there, ()))
    for op in numbers:
        if op not in first:
            writer.write_op(op)


def _looked_up(writer: SpecializedWriter, block: Any) -> Iterator[tuple[Any, Any]]:
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


def _is_outside(writer: SpecializedWriter, block: Any, value: Any) -> bool:
    """Whether a number is made outside the loops of a block."""
    made = owner(value)
    return (value.owner if made is None else made.block) in (writer.body, block)
