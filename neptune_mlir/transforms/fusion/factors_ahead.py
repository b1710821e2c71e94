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

A factor is also stored as it is, but with what is summed along its rows, where f32 is multiplied as
TF32 and neither factor lies so: instructions of warp groups read one of them from shared memory,
and transpose elements of 16 bits alone. The smaller one is copied, if there is much to multiply.
Of two factors of e4m3 that one is copied which does not lie so.

    o[i, n] = Σ_j x[j, i] * w[j, n]              ->     z[n, j] = w[j, n]
                                                        o[i, n] = Σ_j x[j, i] * z[n, j]

Part of `rolling-update` (option `ahead`); targets with matrix instructions ask for it.

Another kind of factor is computed ahead on every target: what products make, element by element, of
a contraction that goes through memory anyway.

    s[i, j] = Σ_d x[i, d] * w[j, d]                    g[i, j] = bf16(exp(s[i, j] - l[i]))
    a[i, d] = Σ_j bf16(exp(s[i, j] - l[i])) * w[j, d]       ->      a[i, d] = Σ_j g[i, j] * w[j, d]
    b[j, d] = Σ_i bf16(exp(s[i, j] - l[i])) * x[i, d]               b[j, d] = Σ_i g[i, j] * x[i, d]

`g` is written where `s` was, in the type that the products take, and `s` is not stored. Each
product would compute `g` again for every tile of its columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from math import prod

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import lookups
from neptune_mlir.algebra.contractions import (
    contraction_operands,
    inside_casts,
    rounded_factors,
    rounds_in_range,
)
from neptune_mlir.algebra.deferral import split
from neptune_mlir.algebra.growth import Ranges
from neptune_mlir.algebra.terms import FLOAT8, Term
from neptune_mlir.dialects.attributes import SCALED
from neptune_mlir.dialects.nests import DYNAMIC, Nest, build_map
from neptune_mlir.dialects.program import NestProgram, precision_of, top_level_op
from neptune_mlir.ir.bindings import ir
from neptune_mlir.runtime.arrays import storage_dtype
from neptune_mlir.transforms.registry import remark

NARROW = ("f16", "bf16")
UNKNOWN = 1024  # an extent that only a call knows
WORTH = 256  # products of each element of a factor from which on a copy of it pays


def found_in(program: NestProgram, scaled: bool = False) -> dict[str, tuple[Term, Term]]:
    """The products of a program, whose maps are inlined, that have such a factor, and a partner of
    16 bits for it; both. `scaled`: any that sums of their rows scale; else where it is marked."""
    found = {}
    kept = _kept_in_range(program)
    for key, nest in program.nests.items():
        both = contraction_operands(nest.body) if nest.combiner == "add" else None
        every = scaled or SCALED.on(nest.op.operation) or key in kept
        for factor, partner in [both, both[::-1]] if both else []:
            some = (_takes_statistics(program, nest, f, every) for f in T.factors(factor))
            if inside_casts(partner).dtype in NARROW and any(some):
                found[key] = factor, partner
        if both and not scaled and (turned := _turned(program, nest, both)):
            found[key] = turned
    return found


def _kept_in_range(program: NestProgram) -> set[str]:
    """The products whose factor may leave the range of f16 without what scales its rows."""
    ranges, found = Ranges(), set()
    for key, nest in program.nests.items():
        ranges.learn(key, nest.body)
        if nest.combiner == "add" and any(rounded_factors(nest.body)):
            rest = split(nest.body, partial(_is_fixed, set(nest.reduced_axes))).rest
            if not rounds_in_range(nest.body, rest, ranges):
                found.add(key)
    return found


def _is_fixed(along: set[int], term: Term) -> bool:
    return not T.axes_of(term) & along


def _turned(program: NestProgram, nest: Nest, both: tuple[Term, Term]) -> tuple[Term, Term] | None:
    """The factors of a product, that first which is to be copied with its sum along rows."""
    along = set(nest.reduced_axes)
    if len(along) != 1:
        return None
    across = [f for f in both if _lies_across(f, along)]
    if precision_of(program.function) and all(f.op == "read" and f.dtype == "f32" for f in both):
        across = across if len(across) == 2 else []
    elif not all(f.op == "cast" and f.args[0].dtype == FLOAT8 for f in both):
        return None
    sizes = [_elements(nest, T.axes_of(f)) for f in across]
    if not sizes or _elements(nest, range(len(nest.domain))) < WORTH * min(sizes):
        return None
    chosen = across[sizes.index(min(sizes))]
    return both if chosen == both[0] else both[::-1]


def _lies_across(factor: Term, along: set[int]) -> bool:
    """Whether a factor is read from a tensor whose rows do not run along what is summed."""
    read = inside_casts(factor)
    if read.op != "read" or lookups(read) or not along < T.axes_of(read):
        return False
    return T.axes_of(read.args[-1]) != along


def _elements(nest: Nest, axes: Iterable[int]) -> int:
    extents = (nest.domain[a] for a in axes)
    return prod(UNKNOWN if n == DYNAMIC else n for n in extents)


def _takes_statistics(program: NestProgram, product: Nest, term: Term, scaled: bool) -> bool:
    """Whether a term is a sum (`scaled`: anything) that reductions enter which the product's sum
    does not run along. (Others, as scores are, belong to each tile.)"""
    along = set(product.reduced_axes)
    reads = [r for r in T.leaves(term, "read") if r.attr in program.nests]
    of_rows = (program.nests[r.attr].kind == "reduce" and not T.axes_of(r) & along for r in reads)
    return (scaled or inside_casts(term).op in ("add", "sub")) and any(of_rows)


def take_ahead(program: NestProgram) -> None:
    """Make maps of such factors."""
    for key, (factor, partner) in found_in(program).items():
        nest, dtype = program.nests[key], inside_casts(partner).dtype
        wide = factor  # than the type that the program may round it to itself
        while wide.op == "cast" and dtype in (wide.dtype, wide.args[0].dtype):
            wide = wide.args[0]
        copied = inside_casts(factor).op == "read"
        rounded = inside_casts(factor) if copied else T.make("cast", wide, dtype=dtype)
        along = set(nest.reduced_axes) if copied else set()
        axes = sorted(T.axes_of(factor), key=lambda a: (a in along, a))
        read = _stored(program, nest, rounded, axes, f"{key}.factor")
        product = T.make("mul", T.make("cast", read, dtype=factor.dtype), partner)
        why = "for its instructions" if copied else "a sum of what is reduced"
        how = "copied, transposed," if copied else "computed"
        remark(nest.location, f"a factor is {how} ahead of its product: {why}")
        program.replace_body(key, product)


def _stored(program: NestProgram, nest: Nest, term: Term, loops: list[int], hint: str) -> Term:
    """A read, at these loops of a nest, of a new map that makes a term of its body."""
    dynamic = [k for k, size in enumerate(nest.domain) if size == DYNAMIC]
    with ir.InsertionPoint(nest.op), nest.location:
        made = build_map(
            program.values,
            T.rename_axes(term, {a: T.index(k) for k, a in enumerate(loops)}),
            [nest.domain[a] for a in loops],
            [nest.extents[dynamic.index(a)] for a in loops if a in dynamic],
            names=[nest.names[a] for a in loops] if nest.names else None,
        )
    return T.read(program.values.key(made, hint=hint), *map(T.index, loops), dtype=term.dtype)


def store_factors(program: NestProgram, computed_inside: Collection[str]) -> bool:
    """Store what products make of contractions in place of these; returns whether there was one.

    Args:
        computed_inside: contractions that streams compute themselves, and do not read from memory.
    """
    changed = False
    for key in list(program.nests):
        nest = program.nests[key]  # a product that was built anew may be a contraction itself
        if nest.kind == "reduce" and key not in computed_inside and _contracts(nest):
            factors_of = _factors_of(program, key)
            changed |= bool(factors_of) and _store(program, nest, factors_of)
    return changed


def _contracts(nest: Nest) -> bool:
    return nest.combiner == "add" and contraction_operands(nest.body) is not None


@dataclass(frozen=True)
class _Factor:
    """Of a product: what it makes of a contraction (`term`, before it is widened) at the loops that
    are the axes of that, and how the product reads it."""

    product: str
    term: Term
    loops: tuple[int, ...]
    operands: tuple[Term, Term]  # the factor as it is multiplied, and its partner

    @property
    def over_axes(self) -> Term:
        return T.rename_axes(self.term, {a: T.index(k) for k, a in enumerate(self.loops)})


def _factors_of(program: NestProgram, key: str) -> list[_Factor]:
    """The factors that read a contraction; none where anything else reads it, or where they take
    more memory than it does."""
    found = []
    value = program.values[key]
    users = {top_level_op(use.owner, program.block) for use in value.uses}
    for name, nest in program.nests.items():
        if nest.op.operation not in users:
            continue
        users.discard(nest.op.operation)
        factor = _factor_of(nest, name, key) if nest.combiner == "add" else None
        if factor is None:
            return []
        found.append(factor)
    kinds = {f.over_axes for f in found}
    size = sum(storage_dtype(k.dtype).itemsize for k in kinds)
    return found if not users and size <= storage_dtype(program.nests[key].dtype).itemsize else []


def _factor_of(nest: Nest, name: str, key: str) -> _Factor | None:
    both = contraction_operands(nest.body)
    for factor, partner in (both, both[::-1]) if both else ():
        reads = [r for r in T.reads(factor) if r.attr == key]
        if not reads:
            continue
        term = factor
        while term.op == "cast" and _widens(term):
            term = term.args[0]
        loops = tuple(i.attr for i in reads[0].args if i.op == "index")
        plain = len(reads) == 1 and len(set(loops)) == len(reads[0].args)
        if not plain or T.axes_of(term) != set(loops) or term.op == "read" or lookups(term):
            return None
        return _Factor(name, term, loops, (factor, partner))
    return None


def _widens(cast: Term) -> bool:
    return storage_dtype(cast.dtype).itemsize > storage_dtype(cast.args[0].dtype).itemsize


def _store(program: NestProgram, contraction: Nest, found: list[_Factor]) -> bool:
    made: dict[Term, str] = {}  # maps by what they compute
    for factor in found:
        nest, loops = program.nests[factor.product], factor.loops
        wide, partner = factor.operands
        if factor.over_axes not in made:  # before the first product that reads it
            read = _stored(program, nest, factor.term, list(loops), f"{factor.product}.factor")
            made[factor.over_axes] = read.attr
        read = T.read(made[factor.over_axes], *map(T.index, loops), dtype=factor.term.dtype)
        stored = read if wide.dtype == read.dtype else T.make("cast", read, dtype=wide.dtype)
        program.replace_body(factor.product, T.make("mul", stored, partner))
    remark(contraction.location, "what products make of a contraction is stored in its place")
    return True
