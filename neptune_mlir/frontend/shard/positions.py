# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program on a part of its data: the same formulas, with positions counted from a start.

A device that holds a piece of an axis loops over that piece. Tensors are read at positions of the
piece; everything else that reads the position or the extent (a mask, a bias) means those of the
whole axis, so they become `position + start` and `size`, arguments of type index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.errors import InputError, UsageError, did_you_mean
from neptune_mlir.frontend.program import Program, Tensor
from neptune_mlir.runtime.shards.plan import SIZE, START, ShardPosition


def axis_numbers(program: Program, names: Sequence[str]) -> dict[int, str]:
    """The axes with these names, by number. Raises UsageError for unknown ones."""
    known = {a.name: a.number for a in program.axis_list}
    if not names:
        raise UsageError("no axis is sharded", hint=f"one of {', '.join(known)}")
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"one of {', '.join(known)}")
            raise UsageError(f"'{program.name}' has no axis '{name}'", hint=hint)
    return {known[n]: n for n in names}


def localized(program: Program, names: Sequence[str]) -> tuple[Program, tuple[ShardPosition, ...]]:
    """The program on pieces of some axes, and its further arguments, which come last.

    Raises:
        UsageError: no such axis.
        InputError: a read that needs more of a tensor than the piece.
    """
    sharded = axis_numbers(program, names)
    for step in program.steps:
        _check_reads(program, step.body, sharded, step.place)
    for output in program.outputs:
        _check_reads(program, output.term, sharded, output.place)
    made = program.copy(f"{program.name}_local")
    for axis in made.axis_list:
        if axis.made_of is not None and _made_of(axis.made_of, sharded.values(), axis.name):
            raise InputError(
                f"the size of axis '{axis.name}' is made of others, one of which is sharded",
                hint="shard an axis whose size is its own",
            )
        if axis.number in sharded:
            axis.static = None
    positions = _Positions(program, sharded)
    made.steps = [replace(s, body=positions.of(s.body)) for s in program.steps]
    made.outputs = [replace(o, term=positions.of(o.term)) for o in program.outputs]
    used = {n.attr for t in _terms(made) for n in T.walk(t) if n.op == "sym"}
    found = tuple(p for p in positions.all if p.name in used)
    for p in found:
        made.scalar(p.name, "index")
    return made, found


def _terms(program: Program) -> list[Term]:
    return [*(s.body for s in program.steps), *(o.term for o in program.outputs)]


def _made_of(size: Term, sharded: object, own: str) -> bool:
    names = {f"size:{n}" for n in sharded}  # type: ignore[attr-defined]
    return f"size:{own}" in names or any(n.attr in names for n in T.walk(size) if n.op == "sym")


class _Positions:
    def __init__(self, program: Program, sharded: dict[int, str]):
        def free(wanted: str) -> str:
            while wanted in program.inputs:
                wanted += "_"
            return wanted

        self.all: list[ShardPosition] = []
        self.starts: dict[int, Term] = {}
        self.sizes: dict[str, Term] = {}
        for number, name in sharded.items():
            start, size = (ShardPosition(free(f"{name}_{k}"), name, k) for k in (START, SIZE))
            self.all += [start, size]
            self.starts[number] = T.sym(start.name, "index")
            if program.axis_list[number].static is None:
                self.sizes[f"size:{name}"] = T.sym(size.name, "index")

    def of(self, root: Term) -> Term:
        """`root` with positions outside of reads counted from the start of the piece."""
        done: dict[Term, Term] = {}
        for n in T.walk(root):
            if n.op == "index" and n.attr in self.starts:
                done[n] = T.make("add", n, self.starts[n.attr])
            elif n.op == "sym" and n.attr in self.sizes:
                done[n] = self.sizes[n.attr]
            elif n.is_leaf or all(done[a] is a for a in n.args):
                done[n] = n  # a read stays whole: it is of what is here
            else:
                done[n] = T.make(n.op, *(done[a] for a in n.args), dtype=n.dtype)
        return done[root]


def _check_reads(
    program: Program, term: Term, sharded: dict[int, str], place: tuple[str, int]
) -> None:
    """Refuses a read of a sharded axis that another device may have to answer."""
    for read in T.reads(term):
        argument = program.inputs.get(read.attr)
        own = [a.number for a in argument.shape] if isinstance(argument, Tensor) else None
        for dim, at in enumerate(read.args):
            plain = at.op == "index" and (own is None or own[dim] == at.attr)
            here = own is not None and own[dim] in sharded
            if plain or not (here or at.axes & sharded.keys()):
                continue
            name = sharded[own[dim]] if own is not None and here else sharded[min(at.axes)]
            raise InputError(
                f"'{read.attr}' is read at {program.show(at)} in dimension {dim}, which may lie on "
                f"another device where '{name}' is sharded",
                loc=f"{place[0]}:{place[1]}:1",
                hint=f"read it at '{name}' itself, or shard another axis",
            )
