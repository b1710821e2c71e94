# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Factors of products that are worth a tensor of their own, ahead of the product.

    o[i, n] = Σ_j ((x[i, j] - m[i]) * r[i] * g[j] + b[j]) * w[j, n]
                                                 ->     z[i, j] = (x[i, j] - m[i]) * r[i] * ...
                                                        o[i, n] = Σ_j z[i, j] * w[j, n]

What enters a sum that is a factor (a mean) could be corrected in a running product only with sums
of the other factor, one more product of one row in every program; and where the product has many
columns, a sum costs each of their tiles more arithmetic than fits beside a matrix instruction. So
what it needs is reduced first, and `z` written in the same pass over `x`. That is done where the
partner has 16 bits, for matrix instructions that take these, and `z` is rounded as its partner is.

Part of `rolling-update` (option `ahead`); targets with matrix instructions ask for it.
"""

from __future__ import annotations

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, Nest, build_map
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.groups import factors
from neptune_mlir.transforms.fusion.region import contraction_operands, inside_casts
from neptune_mlir.transforms.registry import remark

NARROW = ("f16", "bf16")


def found_in(program: NestProgram) -> dict[str, tuple[Term, Term]]:
    """The products of a program, whose maps are inlined, that have such a factor, and a partner of
    16 bits for it; both."""
    found = {}
    for key, nest in program.nests.items():
        both = contraction_operands(nest.body) if nest.combiner == "add" else None
        for factor, partner in [both, both[::-1]] if both else []:
            narrow = inside_casts(partner).dtype in NARROW
            if narrow and any(_takes_statistics(program, nest, f) for f in factors(factor)):
                found[key] = factor, partner
    return found


def _takes_statistics(program: NestProgram, product: Nest, term: Term) -> bool:
    """Whether a term is a sum that reductions enter which the product's sum does not run along.
    (Others, as scores are, belong to each tile.)"""
    along = set(product.reduced_axes)
    reads = [r for r in T.leaves(term, "read") if r.attr in program.nests]
    of_rows = (program.nests[r.attr].kind == "reduce" and not T.axes_of(r) & along for r in reads)
    return inside_casts(term).op in ("add", "sub") and any(of_rows)


def take_ahead(program: NestProgram) -> None:
    """Make maps of such factors."""
    for key, (factor, partner) in found_in(program).items():
        nest, dtype = program.nests[key], inside_casts(partner).dtype
        loops = sorted(T.axes_of(factor))
        dynamic = [k for k, size in enumerate(nest.domain) if size == DYNAMIC]
        wide = factor  # than the type that the program may round it to itself
        while wide.op == "cast" and dtype in (wide.dtype, wide.args[0].dtype):
            wide = wide.args[0]
        rounded = T.make("cast", wide, dtype=dtype)
        with ir.InsertionPoint(nest.op), nest.location:
            made = build_map(
                program.values,
                T.rename_axes(rounded, {a: T.index(k) for k, a in enumerate(loops)}),
                [nest.domain[a] for a in loops],
                [nest.extents[dynamic.index(a)] for a in loops if a in dynamic],
                names=[nest.names[a] for a in loops] if nest.names else None,
            )
        name = program.values.key(made, hint=f"{key}.factor")
        read = T.read(name, *map(T.index, loops), dtype=dtype)
        product = T.make("mul", T.make("cast", read, dtype=factor.dtype), partner)
        remark(nest.location, "a factor is computed ahead of its product: a sum of what is reduced")
        program.replace_body(key, product)
