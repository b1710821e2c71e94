# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums that follow from sums that a program has, without another pass over the data.

    sum over j of (x(j) - mean) = 0        mean = (sum over j of x(j)) / n
    sum over j of c * exp(x(j) - m) = c * (sum over j of exp(x(j) - m))

The body is a polynomial of atoms (`algebra.normal`); each monomial has to be the body of a known
sum, or 1, times what does not vary along the axes. What a known sum has as a factor beside the data
has to be a factor of the body as well, or an exponential: nothing is divided by what may be 0.
Taken where it leaves one product or nothing: what is left of a difference of sums would be the
rounding of both.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    scaled,
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
            values = (
                normal.mul(k.value, {mono_mul(outside, k.inverse): c})
                for k in known.get(data, ())
                if k.divides(outside) and k.axes <= body.axes
            )
            value = next(values, None)
            if value is None:
                return None
            total = add(total, value)
    except TooComplex:
        return None
    if len(total) > 1:
        return None
    return to_term(total, body.dtype) if total else T.const(0.0, body.dtype)


@dataclass(frozen=True)
class _Sum:
    """A sum whose body has, beside what varies along its axes, the factors `outside`."""

    value: Poly
    outside: Mono
    axes: frozenset[int]

    @property
    def inverse(self) -> Mono:
        return mono_pow(self.outside, Fraction(-1))

    def divides(self, wanted: Mono) -> bool:
        """Whether what is to stand outside of a sum has these factors, but for exponentials."""
        powers = dict(wanted)
        return all(
            t.op == "exp" or (powers.get(t, 0) * e > 0 and abs(powers[t]) >= abs(e))
            for t, e in self.outside
        )


def _known(program: Program, axes: frozenset[int], normal: Normaliser) -> dict[Mono, list[_Sum]]:
    """By what is summed, a product of what varies along the axes: the sums of that."""
    count = constant(1)
    for a in sorted(axes):
        size = T.make("cast", program.axis_list[a].size.term, dtype=normal.dtype)
        count = normal.mul(count, normal.poly(size))
    found: dict[Mono, list[_Sum]] = {(): [_Sum(count, (), frozenset())]}
    for step in program.steps:
        if step.combiner != "add" or set(step.removed) != axes:
            continue
        poly = normal.poly(step.body)
        if len(poly) != 1:
            continue
        ((mono, c),) = poly.items()
        data, outside = _parts(mono, axes)
        read = T.read(step.key, *(T.index(a) for a in step.kept), dtype=step.body.dtype)
        value = scaled(atom(read), ONE / c)
        found.setdefault(data, []).append(_Sum(value, outside, frozenset(step.kept)))
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
