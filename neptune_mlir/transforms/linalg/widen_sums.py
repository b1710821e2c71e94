# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`widen-sums`: sums and products of 16-bit floats accumulate in f32, rounded once at the end.

    %s = reduce add [i, k]  x[i, k] : f16          %w = reduce add [i, k]  f32(x[i, k]) : f32
                                            ->     %s = map [i]  f16(w[i])

A running sum of 16 bits stops growing where an element is half a unit of its last place: ones of
type bf16 add up to 256. The f32 sum is what passes between tiles, chunks and kernels. Factors of a
product that is summed are widened, not the product: in f32 it is exact, as it is in a matrix
instruction. Maxima and minima need none of this.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import build_map, build_reduce
from neptune_mlir.dialects.program import NestProgram, functions
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.registry import register

NARROW = ("f16", "bf16")
WIDE = "f32"


def rounds(combiner: str | None, dtype: str) -> bool:
    """Whether a running value of this type would be rounded at every step."""
    named = combiner not in (None, "custom")
    return named and dtype in NARROW and lookup(combiner).accumulates


def widened(body: Term) -> Term:
    """What is accumulated, in f32: its own sums, products and signs are computed in f32 too."""
    if body.op in ("add", "mul", "neg"):
        return T.make(body.op, *map(widened, body.args))
    return T.make("cast", body, dtype=WIDE)


@register("widen-sums", "accumulate sums and products of 16-bit floats in f32")
def widen_sums(module: Any) -> None:
    for function in functions(module):
        program = NestProgram(function)
        for key, nest in program.nests.items():
            if nest.kind == "reduce" and rounds(nest.combiner, nest.dtype):
                _widen(program, key)


def _widen(program: NestProgram, key: str) -> None:
    nest = program.nests[key]
    sizes = [nest.domain[k] for k in nest.result_axes]
    dynamic = [k for k, size in enumerate(nest.domain) if size < 0]
    extents = [nest.extents[dynamic.index(k)] for k in nest.result_axes if k in dynamic]
    names = nest.names
    with ir.InsertionPoint(nest.op), nest.location:
        wide = build_reduce(
            program.values, nest.combiner, widened(nest.body), nest.domain, nest.extents,
            nest.result_axes, names=names,
        )  # fmt: skip
        total = T.read(program.values.key(wide), *map(T.index, range(len(sizes))), dtype=WIDE)
        rounded = build_map(
            program.values, T.make("cast", total, dtype=nest.dtype), sizes, extents,
            names=[names[k] for k in nest.result_axes] if names else None,
        )  # fmt: skip
    program.replace(key, rounded)
