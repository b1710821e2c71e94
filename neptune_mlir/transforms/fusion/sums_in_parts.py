# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A sum over rows and columns of tiles is taken in two parts, the first beside a stream.

    a[h] = Σ_b,i,j f(s[b, h, i, j])              ->     r[b, h, j] = Σ_i f(s[b, h, i, j])
                                                        a[h] = Σ_b,j r[b, h, j]

with s[b, h, i, j] a sum of products that streams compute for each pair of tiles, and do not store.
Programs of a stream each have some of i, or some of j, so they cannot sum over both; a nest that
does reads `s` from memory, and it is stored. The first part is a sum along one of both, which a
stream has a number a row for. So are gradients of numbers that scores read: slopes, scales, and
biases of heads or of keys.

Of both axes that one is summed first along which more of the reductions that read `s` sum: they are
the stream that has most to share.

Part of `rolling-update`.
"""

from __future__ import annotations

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.contractions import contraction_operands
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, Nest, build_reduce
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.groups import Grouping
from neptune_mlir.transforms.registry import remark

INTO = ("add", "max", "min")  # reductions of reductions


def sum_in_parts(program: NestProgram) -> bool:
    """Write such sums in two parts; returns whether there was one."""
    grouping = Grouping(program, {})
    found = {
        key: loop for key, nest in program.nests.items()
        if nest.kind == "reduce" and nest.combiner in INTO
        and (loop := _first_loop(program, grouping, nest)) is not None
    }  # fmt: skip
    for key, loop in found.items():
        _write(program, key, loop)
    return bool(found)


def _first_loop(program: NestProgram, grouping: Grouping, nest: Nest) -> int | None:
    """The loop of a nest to be reduced first, beside a stream."""
    for read in T.reads(nest.body):
        made = program.nests.get(read.attr)
        if made is None or made.kind != "reduce" or not grouping.meant_inside(read.attr):
            continue
        operands = contraction_operands(made.body) if made.combiner == "add" else None
        loops = [i.attr for i in read.args if i.op == "index"]
        if operands is None or len(set(loops)) != len(read.args):
            continue
        left, right = map(T.axes_of, operands)
        rows = [
            (k, loop) for k, (axis, loop) in enumerate(zip(made.result_axes, loops, strict=True))
            if (axis in left) != (axis in right) and loop in nest.reduced_axes
        ]  # fmt: skip
        if len(rows) > 0 and len(nest.reduced_axes) > 1:
            readers = [program.nests[k] for k in grouping.readers[read.attr]]
            return max(rows, key=lambda row: (_along(readers, read.attr, row[0]), -row[1]))[1]
    return None


def _along(readers: list[Nest], key: str, dim: int) -> int:
    """How many reductions sum along one dimension of what they read, and no other of it."""
    return sum(
        _reduced_dims(nest, read) == {dim}
        for nest in readers for read in T.reads(nest.body) if read.attr == key
    )  # fmt: skip


def _reduced_dims(nest: Nest, read: Term) -> set[int]:
    return {
        d for d, i in enumerate(read.args)
        if nest.kind == "reduce" and T.axes_of(i) & set(nest.reduced_axes)
    }  # fmt: skip


def _write(program: NestProgram, key: str, loop: int) -> None:
    nest = program.nests[key]
    dynamic = [k for k, size in enumerate(nest.domain) if size == DYNAMIC]
    kept = [k for k in range(len(nest.domain)) if k != loop]  # the axes of the first part
    with ir.InsertionPoint(nest.op), nest.location:
        first = build_reduce(
            program.values, nest.combiner, nest.body, nest.domain, nest.extents, kept,
            names=nest.names,
        )  # fmt: skip
        read = T.read(
            program.values.key(first, hint=f"{key}.part"),
            *(T.index(k) for k in range(len(kept))), dtype=nest.dtype,
        )  # fmt: skip
        second = build_reduce(
            program.values, nest.combiner, read, [nest.domain[k] for k in kept],
            [nest.extents[dynamic.index(k)] for k in kept if k in dynamic],
            [kept.index(k) for k in nest.result_axes],
            names=[nest.names[k] for k in kept] if nest.names else None,
        )  # fmt: skip
    remark(nest.location, "a sum is taken in two parts, the first beside a stream")
    nest.result.replace_all_uses_with(second)
    program.values.rebind(key, second)  # one that reads it may be next
    nest.op.operation.erase()
