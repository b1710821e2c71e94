# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The program on several pieces of an axis at once: the pieces are points of the first axis.

A device whose rows are in several pieces has a run for each, and a run has few programs where the
data are short: one that waits for data keeps multiprocessors that another could use. As points of
the first axis they are one run. All of them read the same columns, of both devices, which so have
no first axis; each has its own start of rows, and the first column that it sees, as elements of
tensors. A mask says which columns are the last ones (`ShardSchedule.stack`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.frontend.program import Axis, Program, Tensor
from neptune_mlir.frontend.shard.masks import conditions_of, is_movable
from neptune_mlir.runtime.shards.plan import START

if TYPE_CHECKING:
    from neptune_mlir.frontend.shard.split import ShardSplit

NUMBER = "i64"  # of lengths in 32 bits a kernel in front would find the longest (`longest-first`)


def stacked(split: ShardSplit) -> Program | None:
    """`split.whole` on pieces of the first sharded axis: its arguments without the starts, those
    with the last axis without their first one; then the start of each piece's rows, and the first
    column that it sees. None where something else reads positions, or the first axis."""
    if len(split.axes) != 2:
        return None
    whole, (rows, columns) = split.whole, split.axes
    first = _first_of(whole, split.axes)
    conditions = list(conditions_of(split))
    tensors = {n: x for n, x in whole.inputs.items() if isinstance(x, Tensor)}
    shared = {n for n, x in tensors.items() if any(a.name == columns for a in x.shape)}
    own = {n for n, x in tensors.items() if any(a.name == rows for a in x.shape)}
    if first is None or not conditions or not is_movable(split, conditions):
        return None
    if shared | own != tensors.keys() or not _reads_plainly(whole, first, shared):
        return None
    made = whole.copy(f"{split.program.name}_stacked")
    for p in split.positions:
        if p.kind == START:
            made.inputs.pop(p.name, None)
    for name in shared:
        made.inputs[name] = replace(tensors[name], shape=tensors[name].shape[1:], program=made)
    told = [_free(made, f"{rows}_starts"), _free(made, f"{columns}_lows")]
    for name in told:
        made.input(name, made.axis_list[first.number], dtype=NUMBER)
    starts, lows = (
        T.make("cast", T.read(n, T.index(first.number), dtype=NUMBER), dtype="index") for n in told
    )
    column = T.index(next(a.number for a in whole.axis_list if a.name == columns))
    moved = {
        T.sym(p.name, "index"): starts if p.axis == rows else T.const(0, "index")
        for p in split.positions if p.kind == START
    }  # fmt: skip
    table = {c: T.make("and", T.substitute(c, moved), T.make("le", lows, column))
             for c in conditions}  # fmt: skip

    def of(root: Term) -> Term:
        return T.rewrite(root, lambda n: _without_first(n, shared) or table.get(n))

    made.steps = [replace(s, body=of(s.body)) for s in whole.steps]
    made.outputs = [replace(o, term=of(o.term)) for o in whole.outputs]
    made.in_two = {name: dim - 1 for name, dim in whole.in_two.items()}
    return made


def _first_of(whole: Program, sharded: Sequence[str]) -> Axis | None:
    """The first axis of all tensors, arguments and results, if it is one, and whole."""
    shapes = [x.shape for x in whole.inputs.values() if isinstance(x, Tensor)]
    numbers = {(*(a.number for a in shape), -1)[0] for shape in shapes}
    numbers |= {(*o.axes, -1)[0] for o in whole.outputs}
    if len(numbers) != 1 or -1 in numbers:
        return None
    axis = whole.axis_list[numbers.pop()]
    return None if axis.name in sharded or axis.made_of is not None else axis


def _reads_plainly(whole: Program, first: Axis, shared: set[str]) -> bool:
    """Whether the first axis is read as the first position of what is read alone."""
    at = T.index(first.number)
    for term in [*(s.body for s in whole.steps), *(o.term for o in whole.outputs)]:
        for n in T.walk(term):
            if n.op != "read" and at in n.args:
                return False
            if n.op == "read" and n.attr in shared and n.args[0] is not at:
                return False
    return True


def _without_first(n: Term, shared: set[str]) -> Term | None:
    if n.op == "read" and n.attr in shared:
        return T.read(n.attr, *n.args[1:], dtype=n.dtype)
    return None


def _free(program: Program, name: str) -> str:
    while name in program.inputs:
        name += "_"
    return name
