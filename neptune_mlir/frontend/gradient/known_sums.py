# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums that follow from sums that a program has, without another pass over the data.

    sum over j of (x(j) - mean) = 0        mean = (sum over j of x(j)) / n
    sum over j of c * exp(x(j) - m) = c * (sum over j of exp(x(j) - m))

The body is a polynomial of atoms (`algebra.normal`); each monomial has to be the body of a known
sum, or 1, times what does not vary along the axes. Taken where it leaves one product or nothing:
what is left of a difference of sums would be the rounding of both.
"""

from __future__ import annotations

from fractions import Fraction

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.poly import (
    ONE,
    Mono,
    Poly,
    TooComplex,
    add,
    atom,
    constant,
    mono_mul,
    mono_pow,
    to_term,
)
from neptune_mlir.algebra.terms import Term
from neptune_mlir.frontend.program import Program


def known_sum(program: Program, body: Term, axes: frozenset[int]) -> Term | None:
    """The sum of `body` over `axes` from sums over the same axes; None where it does not follow."""
    normal = Normaliser(Facts(frozenset()), reals=True)
    normal.dtype = body.dtype
    try:
        wanted = normal.poly(body)
        known = _known(program, axes, normal)
        total: Poly = {}
        for mono, c in wanted.items():
            data, outside = _parts(mono, axes)
            if data not in known:
                return None
            value = normal.mul(known[data], {outside: c})
            total = add(total, value)
    except TooComplex:
        return None
    if len(total) > 1:
        return None
    return to_term(total, body.dtype) if total else T.const(0.0, body.dtype)


def _known(program: Program, axes: frozenset[int], normal: Normaliser) -> dict[Mono, Poly]:
    """By what is summed, a product of what varies along the axes: the value of its sum."""
    count = constant(1)
    for a in sorted(axes):
        size = T.make("cast", program.axis_list[a].size.term, dtype=normal.dtype)
        count = normal.mul(count, normal.poly(size))
    found: dict[Mono, Poly] = {(): count}
    for step in program.steps:
        if step.combiner != "add" or set(step.removed) != axes:
            continue
        poly = normal.poly(step.body)
        if len(poly) != 1:
            continue
        ((mono, c),) = poly.items()
        data, outside = _parts(mono, axes)
        read = T.read(step.key, *(T.index(a) for a in step.kept), dtype=step.body.dtype)
        found.setdefault(
            data, normal.mul(atom(read), {mono_pow(outside, Fraction(-1)): ONE / c})
        )
    return found


def _parts(mono: Mono, axes: frozenset[int]) -> tuple[Mono, Mono]:
    """The atoms that vary along the axes, and the others."""
    data: Mono = ()
    outside: Mono = ()
    for factor in mono:
        if factor[0].axes & axes:
            data = mono_mul(data, (factor,))
        else:
            outside = mono_mul(outside, (factor,))
    return data, outside
