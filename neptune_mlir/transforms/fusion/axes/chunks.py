# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chunks of a loop: how long they are, and what is read in them. `chunk_moments` and
`chunk_places` write nests that reduce chunks."""

from __future__ import annotations

import math

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import APART
from neptune_mlir.dialects.nests import Nest
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.reshapes import expanded, replaced


def chunk_of(program: NestProgram, element: Term, loop: int, extent: int, sizes: range) -> int:
    """The most elements of a chunk, of these sizes, that divide a loop and all dimensions that are
    read along it (a loop over a part of a tensor is shorter); 0 for none."""
    whole = extent
    for read in T.reads(element):
        if loop in read.axes:
            kind, at = ir.RankedTensorType(program.values[read.attr].type), _along(read, loop)
            if kind.is_dynamic_dim(at):
                return 0
            whole = math.gcd(whole, kind.shape[at])
    return next((n for n in reversed(sizes) if whole % n == 0), 0)


def reduces_same(first: Nest, read: Term, element: Term, nest: Nest) -> bool:
    """Whether a nest, whose result another one reads, reduces the same elements."""
    if len(first.reduced_axes) != len(nest.reduced_axes) or APART.on(first.op.operation):
        return False
    loops = dict(zip(first.result_axes, read.args, strict=True))
    loops |= dict(zip(first.reduced_axes, map(T.index, nest.reduced_axes), strict=True))
    if any(i.op != "index" or first.domain[k] != nest.domain[i.attr] for k, i in loops.items()):
        return False
    return T.rename_axes(first.body, loops) is element


def in_chunks(program: NestProgram, element: Term, loop: int, chunk: int, inner: int) -> Term:
    """What is read of tensors whose dimension along `loop` is chunks and elements of one, which
    `inner` goes over; loops from this one on are one further."""
    moved = {k: T.index(k + (k >= inner)) for k in element.axes}
    table = {}
    for read in T.reads(element):
        places = [T.rename_axes(i, moved) for i in read.args]
        if loop not in read.axes:
            table[read] = T.read(read.attr, *places, dtype=read.dtype)
            continue
        at, tensor = _along(read, loop), program.values[read.attr]
        chunks = ir.RankedTensorType(tensor.type).shape[at] // chunk
        key = program.values.key(expanded(tensor, at, [chunks, chunk]), "chunks")
        args = [*places[: at + 1], T.index(inner), *places[at + 1 :]]
        table[read] = T.read(key, *args, dtype=read.dtype)
    return replaced(element, table, moved)


def _along(read: Term, loop: int) -> int:
    """The dimension that is read along a loop."""
    return next(d for d, i in enumerate(read.args) if loop in i.axes)
