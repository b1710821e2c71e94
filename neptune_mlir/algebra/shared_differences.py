# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moments around one mean: fused together, or none of them.

    t = Σ_j x_j / n     v = Σ_j (x_j - t)^2     c = Σ_j (x_j - t) (y_j - u)     c / sqrt(v + 1e-6)

What rounding leaves of x_j - t is the same number in both sums of the program as written, so that
c is at most sqrt(v) times what it is of y, even where the x_j are equal and nothing but noise is
left. In one loop with t the differences are from means so far, whose noise is another. A sum that
has it beside one that has not is bounded by nothing: where v is 0, c need not be. So a moment
that is not fused with its mean takes all others along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.terms import Term, leaves, walk

TOGETHER = "it has a difference in common with what is not fused:"


def taken_along(chain: Sequence[Reduction], refused: str, axis: int) -> set[str]:
    """The reductions of a chain that have a difference from a sum of it in common with one that is
    not fused with this sum, or with one of these."""
    sums = {r.name for r in chain if r.combiner == "add"}
    of_each = {r.name: _differences(r.body, sums, axis) for r in chain}
    found, known = {refused}, set(of_each[refused])
    while more := {name for name, own in of_each.items() if name not in found and own & known}:
        found |= more
        known = known.union(*(of_each[name] for name in more))
    return found - {refused}


def keep_apart(
    excluded: dict[str, set[str]], some: Iterable[str], others: Iterable[str]
) -> None:
    """Note that none of some reductions is in one loop with any of the others."""
    for one, other in product(some, others):
        excluded.setdefault(one, set()).add(other)
        excluded.setdefault(other, set()).add(one)


def _differences(body: Term, sums: set[str], axis: int) -> set[Term]:
    """What numbers along an axis differ by from something that is made of sums."""
    return {
        n for n in walk(body)
        if n.op == "sub" and axis in n.args[0].axes and axis not in n.args[1].axes
        and any(ref.attr in sums for ref in leaves(n.args[1], "ref"))
    }  # fmt: skip
