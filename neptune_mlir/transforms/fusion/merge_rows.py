# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`merge-rows`: two parallel axes that a factor of a product lacks become one axis of rows.

    s = reduce add [b, h, i, j | d]  q[b, h, i, d] * k[b, h floordiv 8, j, d]
                                   ->
    q' = q as [b, h floordiv 8, 8 * i, d]                           (no element moves)
    s  = reduce add [b, h, hi, j | d]  q'[b, h, hi, d] * k[b, h, j, d]

An instruction of matrices takes rows along one axis. Where `k` reads an axis divided by a constant
(or not at all), and the axis behind it not at all, the points of both that share an operand are
the rows of one product: each element of `k` that a program loads then serves all of them. The axes
stand side by side in memory, so a row is a number: `hi = h mod 8 * extent of i + i`. Where a mask
or a bias computes with positions, `i` is `hi mod (extent of i)`.

All nests that have one of the axes have to have both, side by side in their results, and read
tensors by both or by neither; else the function stays as it is. What is read by one of them and by
no other axis than `q` has (a sink or a slope of each head, a number of each query) is chosen by a
row among the elements of its group, where these are few:

    sink[h]     ->     hi < I ? sink'[h, 0] : hi < 2 I ? sink'[h, 1] : ...     (sink' as [h, 8])

Else it is made a tensor that has both, by a small kernel. The function stays as it is, too, where
the inner axis has more than MOST points, and where it has one point and the outer axis is divided
(`tile` takes these as rows).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import lookups, position_of
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import MERGED_ROWS, SPREADS
from neptune_mlir.dialects.nests import DYNAMIC, Nest, build_map, build_reduce
from neptune_mlir.dialects.program import (
    ExtentClasses,
    NestProgram,
    cast,
    erase_dead,
    fold_dims,
    functions,
)
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.reshapes import collapsed, expanded, extents_of, replaced
from neptune_mlir.transforms.registry import register, remark

FEW_HEADS = 16  # that a row chooses among: a comparison each, and no kernel in front
MOST = 64  # rows of one axis that leave a product with too few


@dataclass(frozen=True)
class _Pair:
    """Two axes by their classes of extents. So many points of the outer one (`group`) share an
    operand; 0: all of them. `rows`: all axes of the other operand, which has both."""

    outer: Any
    inner: Any
    group: int
    rows: frozenset[Any]


@register(
    "merge-rows", "make one axis of two parallel ones that a factor of a product lacks",
    after=("inline-maps",),
)  # fmt: skip
def merge_rows(module: Any) -> None:
    for function in functions(module):
        fold_dims(function.regions[0].blocks[0])
        program = NestProgram(function)
        classes = ExtentClasses(program)
        for pair in dict.fromkeys(_pairs(program, classes)):
            merged = _Merged.of(program, classes, pair)
            if merged is not None:
                merged.write()
                break


def _pairs(program: NestProgram, classes: ExtentClasses) -> Iterator[_Pair]:
    """Axes of the rows of products of two tensors that it may be worth to merge."""
    for key, nest in program.nests.items():
        if nest.combiner != "add" or nest.body.op != "mul":
            continue
        factors = [_read(f) for f in nest.body.args]
        for mine, other in (factors, factors[::-1]):
            if mine is None or other is None or not other.axes - mine.axes:
                continue
            for outer, inner in zip(nest.result_axes, nest.result_axes[1:], strict=False):
                group = _shared(other, outer)
                beside = _beside(mine, outer, inner) is not None
                if beside and inner not in other.axes and group is not None:
                    of = [classes.of_loop(key, loop) for loop in (outer, inner)]
                    rows = frozenset(classes.of_loop(key, loop) for loop in mine.axes)
                    yield _Pair(of[0], of[1], group, rows)


def _read(factor: Term) -> Term | None:
    while factor.op == "cast":
        factor = factor.args[0]
    return factor if factor.op == "read" else None


def _shared(read: Term, axis: int) -> int | None:
    """How many points of an axis a read is the same for (0: all); None: one, or it is unclear."""
    if axis not in read.axes:
        return 0
    if any(axis in lookup.axes for lookup in lookups(read)):
        return None
    found = [p for i in read.args if (p := position_of(i)) is not None and p.axis == axis]
    if len(found) != 1 or found[0].divisor == 1 or found[0].modulus or found[0].constant:
        return None
    return found[0].divisor


def _beside(read: Term, outer: int, inner: int) -> int | None:
    """The dimension at which a read has `outer`, and `inner` at the next one; None: elsewhere too,
    or not so."""
    places = [d for d, i in enumerate(read.args) if i.axes & {outer, inner}]
    if len(places) != 2 or places[1] != places[0] + 1:
        return None
    found = read.args[places[0]], read.args[places[1]]
    return places[0] if found == (T.index(outer), T.index(inner)) else None


class _Loops:
    """The loops of a nest that has both axes, before and after."""

    def __init__(self, nest: Nest, outer: int, inner: int, keeps: bool):
        """`keeps`: a part of the outer axis stays an axis."""
        self.outer, self.inner = outer, inner
        left = [k for k in range(len(nest.domain)) if keeps or k != outer]
        self.number = {old: T.index(new) for new, old in enumerate(left)}
        self.order = left
        self.result = [left.index(k) for k in nest.result_axes if keeps or k != outer]


class _Merged:
    """A function whose axes can be merged."""

    def __init__(self, program: NestProgram, pair: _Pair, loops: dict[str, _Loops]):
        self._program, self._pair, self._loops = program, pair, loops
        self._views: dict[str, str] = {}  # key of a tensor -> key of what stands for it
        self._parted: dict[Any, str] = {}  # a tensor, its outer axis as parts and groups
        self._spread: dict[Any, str] = {}  # a tensor by one of the axes -> key of one by both

    @classmethod
    def of(cls, program: NestProgram, classes: ExtentClasses, pair: _Pair) -> _Merged | None:
        """None where some nest does not allow it."""
        loops: dict[str, _Loops] = {}
        for key, nest in program.nests.items():
            kinds = [classes.of_loop(key, loop) for loop in range(len(nest.domain))]
            has = [[k for k, c in enumerate(kinds) if c == one] for one in (pair.outer, pair.inner)]
            if has == [[], []]:
                continue
            if [len(h) for h in has] != [1, 1]:
                return None
            points = nest.domain[has[1][0]]
            if points != DYNAMIC and not (1 if pair.group else 0) < points <= MOST:
                return None
            (outer,), (inner,) = has
            result = list(nest.result_axes)
            if outer not in result or result.index(outer) + 1 >= len(result):
                return None
            if result[result.index(outer) + 1] != inner:
                return None
            small = {k for k, c in enumerate(kinds) if c in pair.rows}
            if not all(
                _allows(r, outer, inner, pair.group) or _is_of_one(r, {outer, inner}, small)
                for r in T.reads(nest.body)
            ):
                return None
            loops[key] = _Loops(nest, outer, inner, pair.group > 0)
        return cls(program, pair, loops) if loops else None

    def write(self) -> None:
        first = self._program.nests[next(iter(self._loops))]
        with ir.InsertionPoint(first.op), first.location:
            self._measure(first, next(iter(self._loops.values())))
            remark(first.location, f"'{self._names[0]}' and '{self._names[1]}' are rows together")
        for key in self._loops:
            self._nest(key)
        known = self._rows if ix.is_static(self._rows) else 0
        MERGED_ROWS.set(self._program.function.operation, known)
        if self._spread:
            SPREADS.set(self._program.function.operation)
        fold_dims(self._program.block)
        erase_dead(self._program.block)

    def _measure(self, nest: Nest, loops: _Loops) -> None:
        """The extents of the axes, before and after."""
        extents = extents_of(nest)
        self._outer, self._inner = extents[loops.outer], extents[loops.inner]
        group = self._pair.group
        self._parts: Index = ix.floordiv(self._outer, group) if group else 1
        self._rows = ix.mul(self._inner, group or self._outer)
        names = nest.names or tuple(f"d{k}" for k in range(len(nest.domain)))
        self._names = names[loops.outer], names[loops.inner]
        key = self._program.values.key
        inner = self._inner
        self._length = (
            T.const(inner, "index") if ix.is_static(inner) else T.sym(key(inner), "index")
        )

    def _nest(self, key: str) -> None:
        """Another nest in place of one, and a view of its result in place of that."""
        program, nest, loops = self._program, self._program.nests[key], self._loops[key]
        extents = extents_of(nest)
        extents[loops.outer], extents[loops.inner] = self._parts, self._rows
        extents = [extents[k] for k in loops.order]
        domain = [e if ix.is_static(e) else DYNAMIC for e in extents]
        dynamic = [e for e in extents if not ix.is_static(e)]
        names = None
        if nest.names:
            called = {loops.inner: "".join(self._names)}
            names = [called.get(k, nest.names[k]) for k in loops.order]
        with ir.InsertionPoint(nest.op), nest.location:
            body = self._body(nest, loops)
            if nest.kind == "map":
                made = build_map(
                    program.values, body, domain, dynamic, result_axes=loops.result, names=names
                )
            else:
                made = build_reduce(
                    program.values, nest.combiner or "", body, domain, dynamic, loops.result,
                    names=names,
                )  # fmt: skip
            self._views[key] = program.values.key(made, "merged")
            at = list(nest.result_axes).index(loops.outer)
            whole = [self._outer, self._inner]
            nest.result.replace_all_uses_with(self._split(made, nest.result.type, at, whole))
        nest.op.operation.erase()

    def _body(self, nest: Nest, loops: _Loops) -> Term:
        table: dict[Term, Term] = {}
        for read in T.reads(nest.body):
            if not read.axes & {loops.outer, loops.inner}:
                table[read] = T.rename_axes(read, loops.number)
                continue
            at = _beside(read, loops.outer, loops.inner)
            if at is None and _is_of_one(read, {loops.outer, loops.inner}, read.axes):
                table[read] = self._by_both(read, nest, loops)
                continue
            if at is None:  # by the outer axis, divided
                found = [self._divided(i, loops) for i in read.args]
                table[read] = T.read(read.attr, *found, dtype=read.dtype)
                continue
            row = [loops.number[k] for k in (loops.outer, loops.inner) if k in loops.number]
            before, after = (
                [T.rename_axes(i, loops.number) for i in part]
                for part in (read.args[:at], read.args[at + 2 :])
            )
            table[read] = T.read(self._view(read.attr, at), *before, *row, *after, dtype=read.dtype)
        row = loops.number[loops.inner]
        place = dict(loops.number)
        single = self._length is T.const(1, "index")
        place[loops.inner] = T.const(0, "index") if single else T.make("rem", row, self._length)
        head = T.make("floordiv", row, self._length)
        if self._pair.group:
            group = T.const(self._pair.group, "index")
            head = T.make("add", T.make("mul", place[loops.outer], group), head)
        place[loops.outer] = head
        return replaced(nest.body, table, place)

    def _by_both(self, read: Term, nest: Nest, loops: _Loops) -> Term:
        """What is read by one of the axes, of a tensor that has both: its elements, each as often
        as the other axis has points."""
        (at,) = [k for k, i in enumerate(read.args) if i.axes & {loops.outer, loops.inner}]
        heads = self._pair.group or (self._outer if ix.is_static(self._outer) else FEW_HEADS + 1)
        if loops.outer in read.axes and heads <= FEW_HEADS:
            return self._chosen(read, loops, at, heads)
        axes = [i.attr for i in read.args]
        axes[at : at + 1] = [loops.outer, loops.inner]
        here = (read.attr, at, loops.outer in read.axes)
        if here not in self._spread:
            extents = [extents_of(nest)[a] for a in axes]
            place = {a: T.index(k) for k, a in enumerate(axes)}
            made = build_map(
                self._program.values, T.rename_axes(read, place),
                [e if ix.is_static(e) else DYNAMIC for e in extents],
                [e for e in extents if not ix.is_static(e)], result_axes=[*range(len(axes))],
            )  # fmt: skip
            key = f"spread {len(self._spread)}"  # (an op that is gone may have left its place)
            self._program.values.bind(key, made)
            self._spread[here] = self._view(key, at)
        row = [loops.number[k] for k in (loops.outer, loops.inner) if k in loops.number]
        rest = [T.rename_axes(i, loops.number) for i in read.args]
        return T.read(self._spread[here], *rest[:at], *row, *rest[at + 1 :], dtype=read.dtype)

    def _chosen(self, read: Term, loops: _Loops, at: int, heads: int) -> Term:
        """What is read by the outer axis alone, chosen by where a row lies: of a few elements."""
        key, rest = read.attr, [T.rename_axes(i, loops.number) for i in read.args]
        before, after = rest[:at], rest[at + 1 :]
        if self._pair.group:
            if (read.attr, at) not in self._parted:
                made = expanded(self._program.values[key], at, [self._parts, heads])
                self._parted[read.attr, at] = self._program.values.key(made, "parts")
            key = self._parted[read.attr, at]
            before = [*before, loops.number[loops.outer]]
        row = loops.number[loops.inner]

        def element(head: int) -> Term:
            return T.read(key, *before, T.const(head, "index"), *after, dtype=read.dtype)

        found = element(heads - 1)
        for head in reversed(range(heads - 1)):
            end = T.make("mul", self._length, T.const(head + 1, "index"))
            found = T.make("select", T.make("lt", row, end), element(head), found)
        return found

    def _divided(self, position: Term, loops: _Loops) -> Term:
        """A position that has the outer axis divided by a multiple of the group."""
        found = position_of(position)
        if found is None or found.axis != loops.outer:
            return T.rename_axes(position, loops.number)
        part = T.const(found.divisor // self._pair.group, "index")
        return T.make("floordiv", loops.number[loops.outer], part)

    # ---- the same elements under another shape

    def _view(self, key: str, at: int) -> str:
        """The tensor `key`, its dimensions `at` and the next one of parts and rows."""
        if key not in self._views:
            tensor = self._program.values[key]
            group = self._pair.group
            if group:
                tensor = expanded(tensor, at, [self._parts, group])
                at += 1
            made = collapsed(tensor, at, self._rows)
            self._views[key] = self._program.values.key(made, "rows")
        return self._views[key]

    def _split(self, tensor: Any, kind: Any, at: int, whole: list[Index]) -> Any:
        """What has parts and rows again as it was."""
        if self._pair.group:
            tensor = expanded(tensor, at + 1, [self._pair.group, self._inner])
            tensor = collapsed(tensor, at, self._outer)
        else:
            tensor = expanded(tensor, at, whole)
        return cast(tensor, kind)


def _allows(read: Term, outer: int, inner: int, group: int) -> bool:
    """Whether a read has both axes side by side, none, or the outer one alone, divided by a
    multiple of the group, and no lookup by one of them."""
    if not read.axes & {outer, inner} or _beside(read, outer, inner) is not None:
        return not any(lookup.axes & {outer, inner} for lookup in lookups(read))
    shared = _shared(read, outer)
    return inner not in read.axes and bool(group) and bool(shared) and (shared or 0) % group == 0


def _is_of_one(read: Term, pair: set[int], axes: Collection[int]) -> bool:
    """Whether a read has one of a pair of axes, once, and beside it some of `axes`, each alone."""
    plain = all(i.op == "index" for i in read.args)
    return plain and len(read.axes & pair) == 1 and len(read.axes) == len(read.args) and (
        read.axes <= {*axes, *pair}
    )  # fmt: skip
