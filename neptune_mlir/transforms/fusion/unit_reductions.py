# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `unit-reductions`: a reduction of one element is that element.

    %m = reduce max [i, j]  x[i, j]      (j < 1)      ->      %m = map [i]  x[i, 0]

Only loops of the extent 1 are reduced, as the program says it: softmax of rows of one element,
a mean over a batch of one. As a reduction it would be streamed, in tiles of which one lane counts.

A sum of what products make, over the axis that numbers these products, stays: the gradient of a
bias, over a batch of one. Streams have tiles of 1 along such an axis, and compute the products
inside; as a map it would read them from memory.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.dialects.nests import DYNAMIC, Nest, build_map, read_nest
from neptune_mlir.dialects.program import NestProgram, functions
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.registry import register


@register("unit-reductions", "turn reductions of one element into maps")
def unit_reductions(module: Any) -> None:
    for function in functions(module):
        program = NestProgram(function)
        for key, nest in list(program.nests.items()):
            if nest.kind != "reduce" or _numbers_products(program, nest):
                continue
            if all(nest.domain[k] == 1 for k in nest.reduced_axes):
                new = _as_map(program, nest)
                program.replace(key, new)
                program.nests[key] = read_nest(new.owner, program.values)


def _numbers_products(program: NestProgram, nest: Nest) -> bool:
    """Whether a nest reads contractions, along a reduced axis that both of their factors have."""
    reduced = set(nest.reduced_axes)
    for read in T.reads(nest.body):
        made = program.nests.get(read.attr)
        if made is None or made.kind != "reduce" or made.body.op != "mul":
            continue
        shared = set(made.result_axes).intersection(*map(T.axes_of, made.body.args))
        at = dict(zip(made.result_axes, read.args, strict=True))
        if any(at[a].op == "index" and at[a].attr in reduced for a in shared):
            return True
    return False


def _as_map(program: NestProgram, nest: Nest) -> Any:
    at = {loop: T.index(dim) for dim, loop in enumerate(nest.result_axes)}
    at |= {loop: T.const(0, "index") for loop in nest.reduced_axes}
    given = iter(nest.extents)
    extents = {k: next(given) for k, n in enumerate(nest.domain) if n == DYNAMIC}
    names = nest.names and tuple(nest.names[loop] for loop in nest.result_axes)
    with ir.InsertionPoint(nest.op), nest.location:
        return build_map(
            program.values, T.rename_axes(nest.body, at),
            [nest.domain[loop] for loop in nest.result_axes],
            [extents[loop] for loop in nest.result_axes if loop in extents], names=names,
        )  # fmt: skip
