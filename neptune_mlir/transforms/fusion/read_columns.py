# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An argument of one column is read as a vector.

    y = reduce add [i | j]  a[i, j] * x[j, 0]        ->        a[i, j] * v[j]      (v: x as [j])

Elements of an array that are read together lie along its last dimension, for only the stride of
that one is known: 1. Where it has one element, a thread would load one element at a time.

Part of `inline-maps`, for GPUs. (On CPUs an argument of another shape is a copy.)
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.bindings import tensor as tensor_dialect
from neptune_mlir.transforms.fusion.reshapes import collapsed


def read_columns(function: Any) -> None:
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
        size: ix.Index = kind.shape[last]
        if kind.is_dynamic_dim(last):
            size = tensor_dialect.DimOp(argument, ix.value(last)).result
        return collapsed(argument, last, size)
