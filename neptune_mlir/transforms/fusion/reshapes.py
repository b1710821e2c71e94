# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same elements under another shape, and bodies of nests over other axes."""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, Nest
from neptune_mlir.dialects.program import NestProgram, cast
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.bindings import tensor as tensor_dialect


def extents_of(nest: Nest) -> list[Index]:
    dynamic = iter(nest.extents)
    return [next(dynamic) if n == DYNAMIC else n for n in nest.domain]


def replaced(body: Term, table: dict[Term, Term], place: dict[int, Term]) -> Term:
    """`body` with other reads, and other positions where it computes with these."""
    done: dict[Term, Term] = {}
    for node in T.walk(body):
        made = node
        if node in table:
            made = table[node]
        elif node.op == "index":
            made = place[node.attr]
        elif node.args and node.op != "read":
            made = T.make(node.op, *(done[a] for a in node.args), dtype=node.dtype)
        done[node] = made
    return done[body]


def expanded(tensor: Any, at: int, sizes: list[Index]) -> Any:
    """The dimension `at` as several."""
    kind = ir.RankedTensorType(tensor.type)
    groups = [[d + (d > at) * (len(sizes) - 1)] for d in range(kind.rank)]
    groups[at] = list(range(at, at + len(sizes)))
    shape: list[Index] = []
    for d in range(kind.rank):
        if d == at:
            shape += sizes
        elif kind.is_dynamic_dim(d):
            shape.append(tensor_dialect.DimOp(tensor, ix.value(d)).result)
        else:
            shape.append(kind.shape[d])
    static = [n if ix.is_static(n) else DYNAMIC for n in shape]
    dynamic = [n for n in shape if not ix.is_static(n)]
    wanted = ir.RankedTensorType.get(static, kind.element_type)
    return tensor_dialect.ExpandShapeOp(wanted, tensor, groups, dynamic, static).result


def collapsed(tensor: Any, at: int, size: Index) -> Any:
    """The dimensions `at` and the next one as one."""
    kind = ir.RankedTensorType(tensor.type)
    groups = [[d] for d in range(at)] + [[at, at + 1]] + [[d] for d in range(at + 2, kind.rank)]
    known = not (kind.is_dynamic_dim(at) or kind.is_dynamic_dim(at + 1))
    middle = kind.shape[at] * kind.shape[at + 1] if known else DYNAMIC
    wanted = ir.RankedTensorType.get(
        [*kind.shape[:at], middle, *kind.shape[at + 2 :]], kind.element_type
    )
    made = tensor_dialect.CollapseShapeOp(wanted, tensor, groups).result
    if known == ix.is_static(size):
        return made
    static = size if ix.is_static(size) else DYNAMIC
    wanted = ir.RankedTensorType.get(
        [*kind.shape[:at], static, *kind.shape[at + 2 :]], kind.element_type
    )
    return cast(made, wanted)


def read_columns(function: Any) -> None:
    """Read arguments of one column as vectors.

        y = reduce add [i | j]  a[i, j] * x[j, 0]     ->     a[i, j] * v[j]      (v: x as [j])

    Elements of an array that are read together lie along its last dimension, for only the stride of
    that one is known: 1. Where it has one element, a thread would load one element at a time. (Part
    of `inline-maps`, for GPUs: on CPUs an argument of another shape is a copy.)
    """
    program = NestProgram(function)
    for argument in filter(_is_column, program.block.arguments):
        key, view = program.values.key(argument), ""
        for name, nest in program.nests.items():
            reads = [r for r in T.reads(nest.body) if r.attr == key]
            if not reads or not all(r.args[-1].is_const for r in reads):
                continue
            view = view or program.values.key(_as_vector(program, argument), "vector")
            table = {r: T.read(view, *r.args[:-1], dtype=r.dtype) for r in reads}
            program.put_body(name, T.substitute(nest.body, table))
    program.write()


def _is_column(value: Any) -> bool:
    if not isinstance(value.type, ir.RankedTensorType):
        return False
    kind = ir.RankedTensorType(value.type)
    shape = [DYNAMIC if kind.is_dynamic_dim(d) else n for d, n in enumerate(kind.shape)]
    return len(shape) > 1 and shape[-1] == 1 and shape[-2] not in (0, 1)


def _as_vector(program: NestProgram, argument: Any) -> Any:
    """The last two dimensions of an argument as one."""
    kind = ir.RankedTensorType(argument.type)
    last = kind.rank - 2
    with ir.InsertionPoint.at_block_begin(program.block), argument.location:
        size: Index = kind.shape[last]
        if kind.is_dynamic_dim(last):
            size = tensor_dialect.DimOp(argument, ix.value(last)).result
        return collapsed(argument, last, size)
