# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `cut-rows`: streams whose tiles of rows are to begin where a list of numbers says.

    first[t] = sum over n of where(starts[n] <= t < starts[n + 1], other[n], 0)
    stream over j, tile 128 of t         neptune.cut_rows = [t, starts]
    live  first[t] <= j           ->     tiles: starts[0], ... + 128, ..., starts[1], ...

Sequences stand one behind the other (`ragged_attention`), and each row sees the keys of its own. A
tile that has rows of two sequences visits the keys of both, for all of its rows. Where what bounds
a stream was looked up by the row's place among the elements of an argument, rows with one place
see much the same, so tiles are cut there.

That is a guess about what pays. `lower-to-tiles` makes tiles that have each row once, whatever the
numbers are.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import read_live, read_nest
from neptune_mlir.analysis.masks import conjuncts
from neptune_mlir.analysis.tiles import tuned
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import CHIP, CUT_ROWS, TILE
from neptune_mlir.dialects.nests import DYNAMIC, Values, element_type
from neptune_mlir.dialects.op_names import REDUCE
from neptune_mlir.dialects.program import functions
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.schedule.tile import kernel_ops


@register("cut-rows", "begin tiles of rows where what bounds their stream changes")
def cut_rows(module: Any) -> None:
    for op, place in cut_streams(module):
        CUT_ROWS.set(op, place)


def cut_streams(module: Any) -> list[tuple[Any, tuple[int, int]]]:
    """The streams on GPUs whose rows are cut: the axis of rows, and which argument of the function
    says where."""
    found: list[tuple[Any, tuple[int, int]]] = []
    if not CHIP.on(module.operation):
        return found
    for function in functions(module):
        values = Values()
        for op in kernel_ops(function):
            if isinstance(op, N.StreamOp) and tuned(op.operation, "cut", 1):
                place = _place(op, values)
                found += [] if place is None else [(op.operation, place)]
    return found


def _place(stream: Any, values: Values) -> tuple[int, int] | None:
    for read in T.leaves(read_live(stream, values), "read"):
        axes = [t.attr for t in read.args if t.op == "index"]
        if len(axes) != 1 or len(read.args) != 1 or axes[0] == stream.axis.value:
            continue
        rows = axes[0]
        if stream.domain[rows] != DYNAMIC or TILE.of(stream.operation)[rows] <= 1:
            continue
        made = defining_op(values[read.attr])
        if made is not None and made.name == REDUCE:
            number = _looked_up(read_nest(made.opview, values), values)
            if number is not None:
                return rows, number
    return None


def _looked_up(nest: Any, values: Values) -> int | None:
    """The argument among whose elements a result's position is looked up: it is at least one of
    them, and less than the next."""
    if nest.body is None or nest.combiner != "add" or nest.body.op != "select":
        return None
    if len(nest.result_axes) != 1 or len(nest.reduced_axes) != 1:
        return None
    row, along = T.index(nest.result_axes[0]), nest.reduced_axes[0]
    begins, ends = set(), set()
    for condition in conjuncts(nest.body.args[0]):
        if condition.op in ("le", "ge", "lt", "gt") and row in condition.args:
            other = next((a for a in condition.args if a is not row), row)
            strict = condition.op in ("lt", "gt")
            (ends if strict else begins).add(_element(other))
    pairs = {(r.attr, r.args) for r in begins if r is not None}
    for read in ends:
        if read is None or len(read.args) != 1:
            continue
        before = T.index(along)
        if read.args[0] is T.make("add", before, T.const(1, "index")):
            array = values[read.attr]
            if (read.attr, (before,)) in pairs and defining_op(array) is None:
                return int(array.arg_number) if element_type(array) == "i32" else None
    return None


def _element(term: Term) -> Term | None:
    while term.op == "cast":
        term = term.args[0]
    return term if term.op == "read" else None
