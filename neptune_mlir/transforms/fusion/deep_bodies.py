# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A body as deep as front ends like is cut into maps of bounded depth: part of `inline-maps`.

    %y = map [i]  tanh(tanh(... tanh(x[i])))    ->    %t = map [i]  tanh(... tanh(x[i]))
                                                      %y = map [i]  tanh(... tanh(t[i]))

So nothing behind that pass meets a deeper term, and rules of algebra may go down a term by
recursion. What is cut off becomes a tensor over the loops that it varies along.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, Nest, build_map
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.ir.bindings import ir


def cut_deep_bodies(function: Any, limit: int) -> None:
    """Leave no body of a nest in which more than `limit` operations wait for each other."""
    program = NestProgram(function)
    for key, nest in list(program.nests.items()):
        body = _cut(program, nest, limit)
        if body is not nest.body:
            program.replace_body(key, body)


def _cut(program: NestProgram, nest: Nest, limit: int) -> Term:
    if nest.body.size <= limit:
        return nest.body
    depths: dict[Term, int] = {}
    short: dict[Term, Term] = {}
    for node in T.walk(nest.body):
        depths[node], short[node] = 0, node
        if node.is_leaf:  # positions are not deep
            continue
        depth = 1 + max(depths[a] for a in node.args)
        if depth > limit:
            for a in node.args:
                if depths[a] == limit:
                    depths[a], short[a] = 0, _as_map(program, nest, short[a])
            depth = 1 + max(depths[a] for a in node.args)
        depths[node] = depth
        args = [short[a] for a in node.args]
        if any(new is not old for new, old in zip(args, node.args, strict=True)):
            short[node] = T.term(node.op, args, node.attr, node.dtype)
    return short[nest.body]


def _as_map(program: NestProgram, nest: Nest, body: Term) -> Term:
    """The read of a map in front of a nest that computes a part of its body."""
    if body.dtype == "index":  # no tensor holds these
        return T.make("cast", _as_map(program, nest, T.make("cast", body, dtype="i64")),
                      dtype="index")  # fmt: skip
    loops = sorted(body.axes)
    given = iter(nest.extents)
    extents = [next(given) if size == DYNAMIC else None for size in nest.domain]
    local = T.rename_axes(body, {a: T.index(k) for k, a in enumerate(loops)})
    with ir.InsertionPoint(nest.op), nest.location:
        made = build_map(
            program.values, local, [nest.domain[a] for a in loops],
            [extents[a] for a in loops if nest.domain[a] == DYNAMIC],
            names=nest.names and [nest.names[a] for a in loops],
        )  # fmt: skip
    return T.read(program.values.key(made, "part"), *map(T.index, loops), dtype=body.dtype)
