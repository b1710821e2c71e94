# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`split-concats`: who reads a concatenation reads its parts, where that takes no copy.

    %c = tensor.concat dim(1) %a, %b       // 4x48, 4x1
    %r = reduce over dim 1 of f(%c), from %init

becomes a reduction of the first part that the second one continues:

    %s = reduce over dim 1 of f(%a), from %init
    %r = reduce over dim 1 of f(%b), from %s

and a slice of elementwise ops becomes those ops on slices, down to the part that it selects. So an
attention sink joined to the scores is one more term of each reduction, and rotary or latent
attention, whose heads are joined from parts, is a sum of contractions. A `tensor.pad` by a scalar
is a concatenation too, and so are parts that are written to a new tensor, one after the other. What
would leave two long loops (keys joined from two caches) stays, and so does a concatenation that
something needs whole.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from neptune_mlir.dialects.program import functions
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.linalg.concat_parts import NoPart, Parts, shape_of, static_slice
from neptune_mlir.transforms.linalg.joined_slices import join_written
from neptune_mlir.transforms.linalg.raise_linalg import erase_unused
from neptune_mlir.transforms.linalg.structured_loops import Loops
from neptune_mlir.transforms.registry import register

JOINS = ("tensor.concat", "tensor.pad")
SHORT = 4  # a part of up to so many elements is read one by one: its loop would be another kernel
STEP = 512  # a contraction of up to so many products is one step of a kernel, whatever its parts
MOST = 8  # parts of one loop


@register("split-concats", "read the parts of concatenations instead of joining them")
def split_concats(module: Any) -> None:
    for function in functions(module):
        block, parts = function.regions[0].blocks[0], Parts()
        join_written(block)
        joins = any(op.operation.name in JOINS for op in block.operations)
        for op in list(block.operations) if joins else ():
            with ir.InsertionPoint(op), op.location:
                if op.operation.name == "tensor.extract_slice":
                    _lift_slice(op.operation, parts)
                elif loops := Loops.of(op.operation):
                    _split_reduction(loops, parts)
        erase_unused(block)


def _lift_slice(op: Any, parts: Parts) -> None:
    """A slice of one dimension of what is joined in it: of what its operand is computed from."""
    source, static = op.operands[0], static_slice(op)
    if static is None or shape_of(op.results[0]) != static[1]:
        return
    cut = [k for k, size in enumerate(static[1]) if size != shape_of(source)[k]]
    if len(cut) == 1 and parts.cuts(source, cut[0]):
        (offset, size) = (values[cut[0]] for values in static)
        try:
            op.results[0].replace_all_uses_with(parts.part(source, cut[0], offset, size))
        except NoPart:
            return


def _split_reduction(loops: Loops, parts: Parts) -> None:
    """A reduction along concatenations, part after part."""
    for loop in loops.reduced():
        extent, along = loops.extent(loop), loops.along(loop)
        cuts = sorted({cut for value, dim in along for cut in parts.cuts(value, dim)})
        if extent is None or not cuts:
            continue
        contracts = len(along) > 1 and not any(parts.normalizes(v, dim) for v, dim in along)
        bounds = _bounds([0, *cuts, extent], contracts)
        try:
            pieces = [
                (lo, parts.operands(loops, loop, lo, hi - lo, loops.inputs)) for lo, hi in bounds
            ]
        except NoPart:
            continue
        if pieces:
            _build(loops, loop, pieces)
            return


def _build(loops: Loops, loop: int, pieces: list[tuple[int, list[Any]]]) -> None:
    """Each piece continues the results of the one before, those that anybody reads."""
    inits = list(loops.op.operands)[loops.inputs :]
    used = [next(iter(result.uses), None) is not None for result in loops.op.results]
    results = inits
    for offset, operands in pieces:
        built = loops.rebuilt([*operands[: loops.inputs], *results], loop, offset)
        results = [r if u else init for r, u, init in zip(built, used, inits, strict=True)]
    for old, new in zip(loops.op.results, results, strict=True):
        old.replace_all_uses_with(new)


def _bounds(points: list[int], contracts: bool) -> list[tuple[int, int]]:
    """Where each part starts and ends; none where more than one would be a long loop."""
    found = list(pairwise(points))
    if not contracts or points[-1] > STEP:
        if sum(hi - lo > SHORT for lo, hi in found) > 1:
            return []
        short = [[(k, k + 1) for k in range(lo, hi)] for lo, hi in found]
        found = [p for (lo, hi), ones in zip(found, short, strict=True)
                 for p in ([(lo, hi)] if hi - lo > SHORT else ones)]  # fmt: skip
    return found if len(found) <= MOST else []
