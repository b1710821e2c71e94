# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of reductions alone like those of the kernel that reads them. Part of the pass `tile`.

A reduction that is fused with nothing, and whose result another kernel alone reads beside the same
rows (a mean, and what is normalised by it), becomes a part of that kernel's programs
(`merge-programs`) where both cut their axes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import FusedNest, contractions, nests_of
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import ONE_TILE, TILE
from neptune_mlir.dialects.nests import Values


def like_readers(ops: Sequence[Any], values: Values) -> None:
    """Give reductions alone the tile sizes of the only kernel that reads them, if that multiplies
    no matrices.

    Args:
        ops: the kernels of a function in order; all have tile sizes.
    """
    place = {op.operation: k for k, op in enumerate(ops)}
    end = list(range(len(ops)))  # the kernel that each becomes a part of
    for k in reversed(range(len(ops))):
        op = ops[k]
        if not isinstance(op, N.ReduceOp):
            continue
        readers = {_kernel(use.owner, place) for r in op.operation.results for use in r.uses}
        ends = {None if n is None else end[n] for n in readers}
        if len(ends) != 1 or None in ends:
            continue
        reader = ops[min(n for n in readers if n is not None)]
        nests = nests_of(reader, values)
        if not isinstance(reader, N.StreamOp | N.ReduceOp) or any(contractions(nests)):
            continue
        (nest,) = nests_of(op, values)
        if (axes := _axes(nest, nests)) is not None:
            sizes = TILE.of(reader.operation)
            TILE.set(op.operation, [sizes[axes[a]] for a in range(len(list(op.domain)))])
            if ONE_TILE.on(reader.operation):
                ONE_TILE.set(op.operation)
            (end[k],) = ends


def _kernel(user: Any, place: dict[Any, int]) -> int | None:
    """The number of the kernel that an op belongs to; None: of no kernel."""
    op = user.operation
    while op not in place:
        if op.parent is None or op.parent.name == "func.func":
            return None
        op = op.parent
    return place[op]


def _axes(nest: FusedNest, readers: Sequence[FusedNest]) -> dict[int, int] | None:
    """Of each axis of a reduction that of the kernel which reads it, by what both read; None where
    they do not read the same elements."""
    for mine in nest.reads:
        for theirs in (read for other in readers for read in other.reads):
            if (axes := _renamed(mine, theirs)) is None or set(axes) != {*nest.loops}:
                continue
            wanted = T.read(nest.key, *(T.index(axes[a]) for a in nest.result_axes),
                            dtype=nest.dtype)  # fmt: skip
            if all(r is wanted for o in readers for r in o.reads if r.attr == nest.key):
                return axes
    return None


def _renamed(mine: Term, theirs: Term) -> dict[int, int] | None:
    """The axes that turn one read into the other."""
    if mine.attr != theirs.attr or len(mine.args) != len(theirs.args):
        return None
    if any(t.op != "index" for t in (*mine.args, *theirs.args)):
        return None
    axes = {a.attr: b.attr for a, b in zip(mine.args, theirs.args, strict=True)}
    return axes if len({*axes.values()}) == len(axes) == len(mine.args) else None
