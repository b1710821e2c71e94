# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of products as contractions: one factor an element of an input, as it stands.

    sum over i of where(c, x[i, e] * w, 0) / t    ->    sum over i of (where(c, w, 0) / t) * x[i, e]

That is what targets map to matrix instructions. Where the input has 16-bit elements the other
factor is rounded to its type, as it is in the products of the forward pass.
"""

from __future__ import annotations

from collections.abc import Collection

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.deferral import split
from neptune_mlir.algebra.terms import Term
from neptune_mlir.frontend.gradient.derivatives import wide


def contraction(body: Term, inputs: Collection[str]) -> Term:
    """`body`, what a sum adds up, as a product with an element of an input; as it is where no
    such factor has an axis of its own. The factor with the first axis of the result comes first:
    rows are those of the left operand."""
    for factor in _elements(body, inputs):
        found = split(body, lambda t, factor=factor: t is factor)  # type: ignore[misc]
        if found.over is factor and found.under is None and factor.axes - found.rest.axes:
            rest = found.rest
            rows = min(rest.axes - factor.axes, default=-1) < min(factor.axes - rest.axes)
            rest = _rounded(rest, factor, inputs)
            return T.make("mul", *((rest, factor) if rows else (factor, rest)))
    return body


def _elements(body: Term, inputs: Collection[str]) -> list[Term]:
    """The elements of inputs in a term, as they stand in f32 products."""
    return [n for n in T.walk(body) if _is_element(n, inputs) and n.dtype == wide(n.dtype)]


def _is_element(t: Term, inputs: Collection[str]) -> bool:
    source = t.args[0] if t.op == "cast" else t
    return source.op == "read" and source.attr in inputs and T.is_float(source.dtype)


def _rounded(other: Term, factor: Term, inputs: Collection[str]) -> Term:
    """`other` in the precision of an input's element."""
    narrow = factor.args[0].dtype if factor.op == "cast" else factor.dtype
    if wide(narrow) == narrow or other.is_const or _is_element(other, inputs):
        return other
    if other.op == "cast" and other.args[0].dtype == narrow:
        return other
    return T.make("cast", T.make("cast", other, dtype=narrow), dtype=other.dtype)
