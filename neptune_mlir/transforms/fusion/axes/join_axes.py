# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Neighbours that are reduced together, and never read apart, become one axis.

    s = reduce add [n | c, y, x]  a[n, c, y, x]     ->     s = reduce add [n | e]  a'[n, e]

Exporters write the dimensions that a tensor has. Rules for rows look at one axis: how long it is,
what divides it, whether it is cut into chunks. No element moves: `a'` is `a` under another shape,
as is a result that has both axes.

Two axes are joined where some reduction reads along both last, and all nests that have one of them
read and write them side by side, reduce both or neither, and compute with no position along them.

Part of `inline-maps`, for GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import lookups, positions
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, Nest, build_map, build_reduce
from neptune_mlir.dialects.program import ExtentClasses, NestProgram, as_apart
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.axes.chunk_moments import chunk_moments
from neptune_mlir.transforms.fusion.axes.chunk_places import chunk_places
from neptune_mlir.transforms.fusion.axes.split_sums import split_sums
from neptune_mlir.transforms.fusion.reshapes import collapsed, expanded, replaced

LONGEST = 1 << 30  # an axis has positions of 32 bits, behind its end too


def axes_of_rows(function: Any) -> None:
    """Join axes, and split those of moments over several (`chunk_moments`), of places of extrema
    (`chunk_places`) and of sums over rows (`split_sums`)."""
    while _join_two(function):
        pass
    chunk_moments(function)
    chunk_places(function)
    split_sums(function)


def _join_two(function: Any) -> bool:
    program = NestProgram(function)
    classes = ExtentClasses(program)
    for key, nest in program.nests.items():
        for outer, inner in _ends(nest):
            kinds = classes.of_loop(key, outer), classes.of_loop(key, inner)
            loops = _loops(program, classes, *kinds) if kinds[0] != kinds[1] else None
            if loops:
                _Joined(program, loops).write()
                return True
    return False


def _ends(nest: Nest) -> Iterator[tuple[int, int]]:
    """Reduced loops that a nest reads along last."""
    for read in T.reads(nest.body) if nest.kind == "reduce" else ():
        last = [i.attr for i in read.args[-2:] if i.op == "index"]
        if len(set(last)) == 2 and {*last} <= {*nest.reduced_axes}:
            yield last[0], last[1]


def _loops(
    program: NestProgram, classes: ExtentClasses, outer: Any, inner: Any
) -> dict[str, tuple[int, int]] | None:  # fmt: skip
    """The loops of these classes of each nest that has them; None where one forbids it."""
    found: dict[str, tuple[int, int]] = {}
    for key, nest in program.nests.items():
        kinds = [classes.of_loop(key, loop) for loop in range(len(nest.domain))]
        has = [[k for k, c in enumerate(kinds) if c == one] for one in (outer, inner)]
        if has == [[], []]:
            continue
        if [len(h) for h in has] != [1, 1] or not _allows(program, nest, has[0][0], has[1][0]):
            return None
        found[key] = (has[0][0], has[1][0])
    return found


def _allows(program: NestProgram, nest: Nest, outer: int, inner: int) -> bool:
    extents = nest.domain[outer], nest.domain[inner]
    if DYNAMIC in extents or 0 in extents or extents[0] * extents[1] > LONGEST:
        return False
    result = list(nest.result_axes)
    inside = [axis in result for axis in (outer, inner)]
    if inside[0] != inside[1] or nest.combiner == "custom" or positions(nest.body) & {outer, inner}:
        return False
    if inside[0] and result.index(inner) != result.index(outer) + 1:
        return False
    return all(_is_beside(program, r, outer, inner, extents) for r in T.reads(nest.body))


def _is_beside(
    program: NestProgram, read: Term, outer: int, inner: int, extents: tuple[int, int]
) -> bool:
    """Whether a read has all of both axes side by side, or neither."""
    if not read.axes & {outer, inner}:
        return True
    at = _place(read, outer, inner)
    kind = ir.RankedTensorType(program.values[read.attr].type)
    whole = at is not None and tuple(kind.shape[at : at + 2]) == extents
    return whole and not any(lookup.axes & {outer, inner} for lookup in lookups(read))


def _place(read: Term, outer: int, inner: int) -> int | None:
    """The dimension at which a read has `outer`, and `inner` at the next one."""
    places = [d for d, i in enumerate(read.args) if i.axes & {outer, inner}]
    found = [read.args[d] for d in places]
    beside = found == [T.index(outer), T.index(inner)] and places[1] == places[0] + 1
    return places[0] if beside else None


class _Joined:
    def __init__(self, program: NestProgram, loops: dict[str, tuple[int, int]]):
        self._program, self._loops = program, loops
        self._views: dict[tuple[str, int], str] = {}  # a tensor and a place -> what stands for it

    def write(self) -> None:
        for key, (outer, inner) in self._loops.items():
            self._nest(key, self._program.nests[key], outer, inner)

    def _nest(self, key: str, nest: Nest, outer: int, inner: int) -> None:
        left = [k for k in range(len(nest.domain)) if k != outer]
        extents = nest.domain[outer], nest.domain[inner]
        domain = [extents[0] * extents[1] if k == inner else nest.domain[k] for k in left]
        names = None
        if nest.names:
            joined = nest.names[outer] + nest.names[inner]
            names = [joined if k == inner else nest.names[k] for k in left]
        result = [left.index(k) for k in nest.result_axes if k != outer]
        with ir.InsertionPoint(nest.op), nest.location:
            body = self._body(nest, outer, inner, {k: T.index(n) for n, k in enumerate(left)})
            shape = (self._program.values, body, domain, nest.extents)
            if nest.kind == "map":
                made = build_map(shape[0], *shape[1:], result_axes=result, names=names)
            else:
                combiner = nest.combiner or ""
                made = build_reduce(shape[0], combiner, *shape[1:], result, names=names)
            as_apart(nest, made)
            if outer in nest.result_axes:
                at = list(nest.result_axes).index(outer)
                self._views[key, at] = self._program.values.key(made, "joined")
                made = expanded(made, at, list(extents))
            nest.result.replace_all_uses_with(made)
        nest.op.operation.erase()
        self._program.values.rebind(key, made)

    def _body(self, nest: Nest, outer: int, inner: int, number: dict[int, Term]) -> Term:
        table: dict[Term, Term] = {}
        for read in T.reads(nest.body):
            at = _place(read, outer, inner)
            if at is None:
                table[read] = T.rename_axes(read, number)
                continue
            found = [T.rename_axes(i, number) for d, i in enumerate(read.args) if d != at]
            table[read] = T.read(self._view(read.attr, at), *found, dtype=read.dtype)
        return replaced(nest.body, table, {**number, outer: T.const(0, "index")})

    def _view(self, key: str, at: int) -> str:
        """A tensor with its dimension `at` and the next one as one."""
        if (key, at) not in self._views:
            tensor = self._program.values[key]
            shape = ir.RankedTensorType(tensor.type).shape
            made = collapsed(tensor, at, shape[at] * shape[at + 1])
            self._views[key, at] = self._program.values.key(made, "joined")
        return self._views[key, at]
