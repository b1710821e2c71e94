# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands of contractions: sums of products of what varies along different axes.

    o[i, n] = Σ_j (x[i, j] * r[i] * g[j]) * w[j, n]

Matrix instructions take both in 16 bits where one is stored so, and programs round factors to f16
themselves. That has little range: 6e-5 to 65504 with all of its digits. x r g is in range whatever
x is; x g, with r behind the sum, is if x is. So nothing moves out of a factor that is rounded to
f16 and that it keeps in range: by degrees, as all ranges (`growth.py`), but of the factor alone.
A constant below 1/2 keeps in range what grows with any input: q k / 64 where q k is not. (One above
1 may move out: what underflows then loses digits, what overflows all of the result.)
bf16 has the range of f32, and what is read as it is has no digits to lose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.growth import LITERALS, Growth, Ranges, growths, within
from neptune_mlir.algebra.terms import Term

SMALL_RANGE = "f16"
HAS_ALL = (SMALL_RANGE, T.FLOAT8)  # whose numbers it has


def is_plain_read(term: Term) -> bool:
    """A read, possibly converted: what a contraction may take as an operand."""
    while term.op == "cast":
        term = term.args[0]
    return term.op == "read"


def contraction_operands(body: Term) -> tuple[Term, Term] | None:
    """The two operands of a summed product whose factors vary along different axes.

    None where one factor spans all axes (then there is nothing to contract). A product that is
    written as one of two such operands is taken so: each then stands in the body.
    """
    if body.op == "mul":
        left, right = body.args
        if T.axes_of(left) - T.axes_of(right) and T.axes_of(right) - T.axes_of(left):
            return left, right
    groups: list[tuple[frozenset[int], list[Term]]] = []
    for factor in sorted(T.factors(body), key=lambda f: -len(T.axes_of(f))):
        axes = T.axes_of(factor)
        # Prefer to scale an operand that is computed anyway.
        hosts = [g for g in groups if axes <= g[0]]
        hosts.sort(key=lambda g: all(is_plain_read(f) for f in g[1]))
        if hosts:
            hosts[0][1].append(factor)
        else:
            groups.append((axes, [factor]))
    while len(groups) > 2:  # fold the two smallest
        groups.sort(key=lambda g: len(g[0]))
        (a, x), (b, y), *rest = groups
        groups = [(a | b, [*x, *y]), *rest]
    if len(groups) < 2:
        return None
    left, right = (_product(g[1], body.dtype) for g in groups)
    return left, right


def _product(terms: Sequence[Term], dtype: str) -> Term:
    result = terms[0]
    for t in terms[1:]:
        result = T.make("mul", result, t, dtype=dtype)
    return result


def inside_casts(term: Term) -> Term:
    """The term below conversions: what is stored, so that the conversion happens on load."""
    while term.op == "cast":
        term = term.args[0]
    return term


def rounds_in_range(body: Term, rest: Term, ranges: Ranges) -> bool:
    """Whether what is rounded to f16 of the rest of a summed body has no more of the range of any
    input than what is rounded in the body has."""
    made = [growths(t, ranges.of_ref)[t] for t in rounded_factors(rest)]
    if not made:
        return True
    written = [growths(t, ranges.of_ref)[t] for t in rounded_factors(body)]
    return all(any(within(m, w) and not _larger(m, w) for w in written) for m in made)


def _larger(made: Growth, written: Growth) -> bool:
    """Whether constants no longer make small what grows with an input."""
    grows = any(degree > 0 for key, degree in made.large.items() if key != LITERALS)
    allowed = min(0.0, written.large.get(LITERALS, 0.0)) + 1
    return grows and made.large.get(LITERALS, 0.0) > allowed


def rounded_factors(body: Term) -> Iterator[Term]:
    """What is rounded to f16 in a summed body, or where a matrix instruction computes it."""
    for n in T.walk(body):
        if n.op == "cast" and n.dtype == SMALL_RANGE and T.is_float(n.args[0].dtype):
            yield n.args[0]
    both = contraction_operands(body)
    for factor, partner in (both, both[::-1]) if both else ():
        stored = inside_casts(factor)
        exact = stored.op == "read" and (stored.dtype in HAS_ALL or not T.is_float(stored.dtype))
        if inside_casts(partner).dtype == SMALL_RANGE and not exact:
            yield factor
