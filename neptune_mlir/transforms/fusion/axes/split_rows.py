# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An axis becomes two where a reduction sees the same elements along two.

    m = reduce add [i, g | e]  y[i, g, e]                (y: x as rows of c elements)
    z = map [i, j]  x[i, j] - m[i, j floordiv c]
                                   ->
    z' = map [i, g, e]  y[i, g, e] - m[i, g]             (z is z' as [i, j])

A norm of groups of a row is such a program. Nests that see one tensor under two shapes share no
loop, and a tile along an axis that is divided lies within a group, so it has few elements. With
both axes the map ends the stream that makes `m`, and a reduction over the row has whole groups in
a tile.

An axis is split where a nest reads a reduction at its quotient by c, and what that reduction read,
not divided. Other tensors that it reads along the axis are seen as two as well (no element moves);
where something else is made of the position, the nest stays.

Part of `inline-maps`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import lookups, position_of
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, Nest, build_map, build_reduce
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.fusion.reshapes import collapsed, expanded, replaced

_EXPAND = "tensor.expand_shape"


@dataclass(frozen=True)
class _Split:
    """The loop of a nest to be split, and the extent of the inner one of both."""

    key: str
    loop: int
    inner: int


def split_rows(function: Any) -> None:
    while True:
        program = NestProgram(function)
        found = [s for key in program.nests if (s := _split_of(program, key)) is not None]
        if not found:
            return
        _write(program, found[0])


def _split_of(program: NestProgram, key: str) -> _Split | None:
    nest = program.nests[key]
    reads = T.reads(nest.body)
    for read in reads:
        made = program.nests.get(read.attr)
        if made is None or made.kind != "reduce":
            continue
        for dim, position in enumerate(read.args):
            at = position_of(position)
            if at is None or at.axis is None or at.divisor == 1 or at.modulus is not None:
                continue
            split = _Split(key, at.axis, at.divisor)
            plain = {
                (r.attr, d) for r in reads for d, p in enumerate(r.args) if p is T.index(at.axis)
            }
            if _sees_two(program, made, made.result_axes[dim], split, plain) and (
                all(_splits(program, r, split, nest.domain[at.axis]) for r in reads)
            ):
                return split
    return None


def _sees_two(
    program: NestProgram, made: Nest, loop: int, split: _Split, plain: set[tuple[str, int]]
) -> bool:
    """Whether a reduction reads, at its `loop` and a loop that it reduces, one of the dimensions
    `plain` as two."""
    for read in T.reads(made.body):
        source = _as_two(program, read.attr, split.inner)
        if source is None or source not in plain:
            continue
        dim = source[1]
        inner = read.args[dim + 1]
        if read.args[dim] is T.index(loop) and (
            inner.op == "index" and inner.attr not in made.result_axes
        ):
            return True
    return False


def _as_two(program: NestProgram, key: str, inner: int) -> tuple[str, int] | None:
    """What a tensor is a view of, and which dimension of it is two here, the second of `inner`."""
    op = defining_op(program.values[key])
    if op is None or op.name != _EXPAND:
        return None
    groups = [[d.value for d in group] for group in op.attributes["reassociation"]]
    wide = [dim for dim, group in enumerate(groups) if len(group) != 1]
    if len(wide) != 1 or len(groups[wide[0]]) != 2:
        return None
    shape = ir.RankedTensorType(op.results[0].type).shape
    same = shape[groups[wide[0]][1]] == inner
    return (program.values.key(op.operands[0]), wide[0]) if same else None


def _splits(program: NestProgram, read: Term, split: _Split, extent: int) -> bool:
    """Whether a read can have two axes for one: it does not have it, or once, undivided or by what
    divides the inner extent or is divided by it."""
    if split.loop not in read.axes:
        return True
    if extent == DYNAMIC or extent % split.inner or lookups(read):
        return False
    places = [d for d, p in enumerate(read.args) if split.loop in p.axes]
    at = position_of(read.args[places[0]]) if len(places) == 1 else None
    if at is None or at.constant:
        return False
    if at.divisor == 1 and at.modulus is None:
        shape = ir.RankedTensorType(program.values[read.attr].type).shape
        return shape[places[0]] == extent
    outer = at.divisor % split.inner == 0 and at.modulus is None
    return outer or (at.divisor == 1 and at.modulus is not None and split.inner % at.modulus == 0)


def _write(program: NestProgram, split: _Split) -> None:
    """Another nest in place of one, and a view of its result in place of that."""
    nest, loop = program.nests[split.key], split.loop
    domain = [*nest.domain]
    domain[loop : loop + 1] = [nest.domain[loop] // split.inner, split.inner]
    number = {k: T.index(k + (k > loop)) for k in range(len(nest.domain))}
    result = [m for k in nest.result_axes for m in ([k + (k > loop)] + [loop + 1] * (k == loop))]
    names = [*nest.names] if nest.names else None
    if names:
        names[loop : loop + 1] = [f"{names[loop]}g", names[loop]]
    with ir.InsertionPoint(nest.op), nest.location:
        table = {r: _moved(program, nest, r, split, number) for r in T.reads(nest.body)}
        inner = T.const(split.inner, "index")
        place = dict(number)
        place[loop] = T.make("add", T.make("mul", T.index(loop), inner), T.index(loop + 1))
        body = replaced(nest.body, table, place)
        if nest.kind == "map":
            made = build_map(
                program.values, body, domain, nest.extents, result_axes=result, names=names
            )
        else:
            made = build_reduce(
                program.values, nest.combiner, body, domain, nest.extents, result, names=names
            )
        if loop in nest.result_axes:
            made = collapsed(made, nest.result_axes.index(loop), nest.domain[loop])
    nest.result.replace_all_uses_with(made)
    nest.op.operation.erase()


def _moved(
    program: NestProgram, nest: Nest, read: Term, split: _Split, number: dict[int, Term]
) -> Term:
    """A read by both axes."""
    if split.loop not in read.axes:
        return T.rename_axes(read, number)
    args = [T.rename_axes(p, number) for p in read.args]
    (dim,) = [d for d, p in enumerate(read.args) if split.loop in p.axes]
    at = position_of(read.args[dim])
    assert at is not None
    outer, inner = T.index(split.loop), T.index(split.loop + 1)
    if at.modulus is not None:
        args[dim] = T.make("rem", inner, T.const(at.modulus, "index"))
        return T.read(read.attr, *args, dtype=read.dtype)
    if at.divisor > 1:
        args[dim] = T.make("floordiv", outer, T.const(at.divisor // split.inner, "index"))
        return T.read(read.attr, *args, dtype=read.dtype)
    args[dim : dim + 1] = [outer, inner]
    view = _view(program, nest, read.attr, dim, split)
    return T.read(view, *args, dtype=read.dtype)


def _view(program: NestProgram, nest: Nest, key: str, dim: int, split: _Split) -> str:
    """The tensor `key` with two dimensions for one: what others see of it already, so that loops
    are shared, or another view."""
    tensor = program.values[key]
    for use in tensor.uses:
        op = use.owner.operation
        if op.name == _EXPAND and op.is_before_in_block(nest.op.operation):
            seen = program.values.key(op.results[0])
            if _as_two(program, seen, split.inner) == (key, dim):
                return seen
    sizes = [nest.domain[split.loop] // split.inner, split.inner]
    return program.values.key(expanded(tensor, dim, sizes), "groups")
