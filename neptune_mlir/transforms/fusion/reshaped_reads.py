# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads of reshapes as reads of what was reshaped.

    x = map [i, g, e]  a[i, g, e] - m[i, g]
    y = reshape x to [i, j]                            (j = 16 g + e)
    z = map [i, j]  y[i, j] * w[j]          ->         z = map [i, j]  (a[i, j // 16, j % 16] -
                                                                        m[i, j // 16]) * w[j]

Without it a map whose result is seen under another shape (a norm of groups of a row) is a tensor
in memory, and what reads it another kernel. A read is replaced where every position that comes of
it is one that reads may have: `(16 g + e) // 16` is `g` where e is under 16, and
`16 (j // 16) + j % 16` is `j`. So is it where a reshape of the array that stands before has such a
position: `a[i, 16 g + e]` is `b[i, g, e]` of a `b` that is `a` as [i, g, e]. Other reads stay those
of the reshape, which is a view.

A map that computes with what a reduction gives (what follows a product) is a tensor in memory if it
is seen under another shape, and who reads it reads that.

Part of `inline-maps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import is_access, lookups
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import MERGED_ROWS
from neptune_mlir.dialects.nests import DYNAMIC, Nest
from neptune_mlir.dialects.program import NestProgram, top_level_op
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

_EXPAND, _COLLAPSE = "tensor.expand_shape", "tensor.collapse_shape"


def straightened(program: NestProgram, nest: Nest) -> Term:
    """The body of a nest with such reads replaced. (Rows that `merge-rows` made of two axes stay
    those of a view: a tile of rows that are read by quotients would lie within one.)"""
    if MERGED_ROWS.on(program.function.operation):
        return nest.body
    extents = dict(enumerate(nest.domain))
    table: dict[Term, Term] = {}
    for read in T.reads(nest.body):
        if _reshape(program, read) is not None and not lookups(read):
            views = _Views(program, nest.op.operation)
            table[read] = _straight(views, read, extents) or read
    return T.substitute(nest.body, table) if table else nest.body


@dataclass(frozen=True)
class _Views:
    """A program, and the op before which reshapes stand that its reads may be of."""

    program: NestProgram
    reader: Any

    def of(self, read: Term, extents: Mapping[int, int]) -> Term | None:
        """A read of an array as one of a reshape whose extents split those of the array, where
        its positions are some there."""
        source = self.program.values[read.attr]
        for use in source.uses:
            op = use.owner.operation
            if op.name != _EXPAND or op.block != self.program.block:
                continue
            found = _digits(op, read.args) if op.is_before_in_block(self.reader) else None
            if found is not None:
                args = [_simplified(p, extents) for p in found]
                made = T.read(self.program.values.key(op.results[0]), *args, dtype=read.dtype)
                if is_access(made):
                    return made
        return None


def _straight(views: _Views, read: Term, extents: Mapping[int, int]) -> Term | None:
    """What a read is, through reshapes and maps; None where a position would be none."""
    program = views.program
    otherwise = read if is_access(read) else None
    op = _reshape(program, read)
    if op is not None:
        positions = _positions(op, read.args)
        if positions is None:
            return otherwise
        args = [_simplified(p, extents) for p in positions]
        made = T.read(program.values.key(op.operands[0]), *args, dtype=read.dtype)
        return _straight(views, made, extents) or otherwise
    nest = program.nests.get(read.attr)
    if otherwise is not None:  # of a map, which `inline-maps` puts in
        return read
    if nest is None or nest.kind != "map":
        return views.of(read, extents)
    if _counts(nest.body) or lookups(nest.body):
        return None
    at = {loop: read.args[dim] for dim, loop in enumerate(nest.result_axes)}
    table: dict[Term, Term] = {}
    for inner in T.reads(nest.body):
        args = [_simplified(T.rename_axes(a, at), extents) for a in inner.args]
        moved = T.read(inner.attr, *args, dtype=inner.dtype)
        found = _straight(views, moved, extents)
        if found is None:
            return None
        table[inner] = found
    return T.substitute(nest.body, table)


def at_roots(program: NestProgram, nest: Nest) -> Term:
    """The body of a nest, whose reads of reshapes are reads of what lies in memory where they are
    no more than positions there: of `y[i, j // 16, j % 16]`, say, `x[i, j]`."""
    extents, table = dict(enumerate(nest.domain)), {}
    for read in T.reads(nest.body):
        made, op = read, _reshape(program, read)
        while op is not None and not lookups(read) and (found := _positions(op, made.args)):
            args = [_simplified(p, extents) for p in found]
            made = T.read(program.values.key(op.operands[0]), *args, dtype=read.dtype)
            if all(a.op == "index" for a in args):
                table[read] = made
            op = _reshape(program, made)
    return T.substitute(nest.body, table) if table else nest.body


def shown(program: NestProgram) -> set[str]:
    """What lies in memory for a reshape of it that something reads."""
    read = {r.attr for nest in program.nests.values() for r in T.reads(nest.body)}
    nests = {nest.op.operation for nest in program.nests.values()}
    found = set()
    for op in program.block.operations:
        if op.operation.name not in (_EXPAND, _COLLAPSE):
            continue
        (result,) = op.operation.results
        others = any(top_level_op(use.owner, program.block) not in nests for use in result.uses)
        if others or program.values.key(result) in read:
            found.add(_root(program, op.operation))
    return found


def _root(program: NestProgram, op: Any) -> str:
    """What a reshape of reshapes shows."""
    source = op.operands[0]
    while (made := defining_op(source)) is not None and made.name in (_EXPAND, _COLLAPSE):
        source = made.operands[0]
    return program.values.key(source)


def _counts(body: Term) -> bool:
    """Whether a body computes with positions."""
    return bool(T.axes_of(T.substitute(body, {r: T.const(0, r.dtype) for r in T.reads(body)})))


def _reshape(program: NestProgram, read: Term) -> Any:
    op = defining_op(program.values[read.attr])
    return op if op is not None and op.name in (_EXPAND, _COLLAPSE) else None


def _positions(op: Any, args: Sequence[Term]) -> list[Term] | None:
    """Where in its source an element of a reshape lies; None where extents are not known."""
    if op.name == _COLLAPSE:
        return _digits(op, args)
    found: list[Term] = []
    for group in _groups(op):
        if group is None:
            return None
        total = T.const(0, "index")
        for d, _, step in group:
            total = T.make("add", total, T.make("mul", args[d], T.const(step, "index")))
        found.append(total)
    return found


def _digits(op: Any, args: Sequence[Term]) -> list[Term] | None:
    """Where an element of the side of a reshape with fewer dimensions lies in the other one; None
    where extents are not known."""
    found: list[Term] = []
    for number, group in enumerate(_groups(op)):
        if group is None:
            return None
        for k, (_, extent, step) in enumerate(group):
            digit = T.make("floordiv", args[number], T.const(step, "index"))
            found.append(T.make("rem", digit, T.const(extent, "index")) if k else digit)
    return found


def _groups(op: Any) -> Iterator[list[tuple[int, int, int]] | None]:
    """For each dimension of the side of a reshape with fewer, those of the other side that it is:
    their numbers, extents and steps; None where extents are not known."""
    wide = op.results[0] if op.name == _EXPAND else op.operands[0]
    shape = ir.RankedTensorType(wide.type).shape
    for group in op.attributes["reassociation"]:
        dims = [d.value for d in group]
        if len(dims) > 1 and any(shape[d] < 0 for d in dims):
            yield None
            continue
        steps = (prod(shape[e] for e in dims[k + 1 :]) for k in range(len(dims)))
        yield [(d, shape[d], step) for d, step in zip(dims, steps, strict=True)]


@dataclass(frozen=True)
class _Linear:
    """A position as a sum: how often it has each axis, or digit of one, and a number."""

    times: Mapping[Term, int] = field(default_factory=dict)
    constant: int = 0

    def plus(self, other: _Linear) -> _Linear:
        times = dict(self.times)
        for atom, n in other.times.items():
            times[atom] = times.get(atom, 0) + n
        return _Linear(times, self.constant + other.constant)

    def scaled(self, n: int) -> _Linear:
        return _Linear({a: n * m for a, m in self.times.items()}, n * self.constant)


def _simplified(position: Term, extents: Mapping[int, int]) -> Term:
    """A position, in as few digits as it has."""
    found = _sum(position, extents)
    if found is None:
        return position
    times = _joined(found.times)
    total = T.const(0, "index")
    for atom, n in times.items():
        total = T.make("add", total, T.make("mul", atom, T.const(n, "index")))
    return T.make("add", total, T.const(found.constant, "index"))


def _joined(times: Mapping[Term, int]) -> dict[Term, int]:
    """`c (x // c) + x % c` is x."""
    joined = {a: n for a, n in times.items() if n}
    for low, n in list(joined.items()):
        if low.op != "rem" or low not in joined:
            continue
        of, c = low.args
        high = T.make("floordiv", of, c)
        if joined.get(high) == n * c.value:
            del joined[low], joined[high]
            joined[of] = joined.get(of, 0) + n
    return joined


def _sum(t: Term, extents: Mapping[int, int]) -> _Linear | None:
    if t.is_const:
        return _Linear(constant=int(t.value))
    if t.op == "index":
        return _Linear({t: 1})
    if t.op == "add":
        parts = [_sum(a, extents) for a in t.args]
        return parts[0].plus(parts[1]) if parts[0] and parts[1] else None
    if t.op not in ("mul", "floordiv", "rem") or not t.args[1].is_const:
        return None
    of, c = _sum(t.args[0], extents), int(t.args[1].value)
    if of is None or c < 1:
        return None
    of = _Linear(_joined(of.times), of.constant)
    return of.scaled(c) if t.op == "mul" else _digit(of, t.op, c, extents)


def _digit(of: _Linear, op: str, c: int, extents: Mapping[int, int]) -> _Linear | None:
    """A sum divided by c, or its remainder: its multiples of c, and what is under c."""
    whole = _Linear({a: n // c for a, n in of.times.items() if n % c == 0}, of.constant // c)
    rest = _Linear({a: n for a, n in of.times.items() if n % c}, of.constant % c)
    most = _most(rest, extents)
    if most is not None and most < c:
        return whole if op == "floordiv" else rest
    if whole.times or rest.constant or list(rest.times.values()) != [1]:
        return None
    (atom,) = rest.times
    if atom.op == "floordiv" and op == "floordiv":
        atom, c = atom.args[0], c * int(atom.args[1].value)
    elif atom.op == "rem":
        return None
    digit = T.make(op, atom, T.const(c, "index"))
    return _Linear({digit: 1}, whole.constant if op == "floordiv" else 0)


def _most(of: _Linear, extents: Mapping[int, int]) -> int | None:
    """The greatest value of a sum of positions, if known."""
    total = of.constant
    for atom, n in of.times.items():
        most = _greatest(atom, extents)
        if most is None or n < 0:
            return None
        total += n * most
    return total


def _greatest(atom: Term, extents: Mapping[int, int]) -> int | None:
    if atom.op == "index":
        extent = extents.get(atom.attr, DYNAMIC)
        return None if extent == DYNAMIC else extent - 1
    below = _greatest(atom.args[0], extents)
    c = int(atom.args[1].value)
    if atom.op == "rem":
        return c - 1 if below is None else min(c - 1, below)
    return None if below is None else below // c
