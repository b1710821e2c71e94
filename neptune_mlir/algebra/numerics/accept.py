# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which fused form of a chain is good enough: proved over the reals, and right in floats.

The solver gives a form whose values stay in the range of the program as written (`growth`). The
stress test then compares it with that program, and decides. A form that differs only in rows that
saw nothing is tried again with these cases spelled out (`empty`), which costs a comparison a row.

    strict    as default, and inputs scaled together stay in range too: no factor moves that
              could cost a part of the range of the type
    default   at most twice the error of the program as written, and NaN and infinities where it
              has them
    fast      equal over the reals; for data that are known to be harmless
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from neptune_mlir.algebra.chain import Reduction, Solution, Unsolvable
from neptune_mlir.algebra.numerics.stress import Report, stress
from neptune_mlir.algebra.solver import solve_chain
from neptune_mlir.algebra.terms import Term, leaves


def accept(
    chain: Sequence[Reduction],
    axis: int,
    outputs: Mapping[str, Term],
    *,
    nonneg: Collection[Any] = (),
    numerics: str = "default",
) -> tuple[Solution, Report | None]:
    """The first form that passes, and how it did (None for `fast`, which asks nobody).

    Args:
        outputs: what the fused program gives, over `ref` of the reductions.
        nonneg: inputs that are never negative.

    Raises:
        Unsolvable: there is none; says which value would be lost, and on which input.
    """
    if numerics == "fast":
        return solve_chain(chain, axis, numerics=numerics), None
    return _accepted(tuple(chain), axis, tuple(outputs.items()), frozenset(nonneg), numerics)


@lru_cache(maxsize=64)  # one program is planned several times while it is compiled
def _accepted(
    chain: tuple[Reduction, ...],
    axis: int,
    outputs: tuple[tuple[str, Term], ...],
    nonneg: frozenset[Any],
    numerics: str,
) -> tuple[Solution, Report]:
    report = None
    for empty_rows in (False, True):
        solution = solve_chain(chain, axis, numerics=numerics, empty_rows=empty_rows)
        found = stress(chain, solution, axis, outputs=dict(outputs), nonneg=nonneg)
        if found.ok:
            return solution, found
        report = report or found
    assert report is not None and report.failure is not None
    failure = report.failure
    culprit = _culprit(chain, dict(outputs)[failure.result])
    raise Unsolvable(
        culprit.name, "accuracy", culprit.body,
        f"{failure} (unfused: {report.unfused[failure.result]:.3g} at most)",
        "it runs unfused; numerics=fast fuses it for data on which that does not matter",
    )  # fmt: skip


def _culprit(chain: Sequence[Reduction], output: Term) -> Reduction:
    """The last reduction that a value is made of."""
    names = {n.attr for n in leaves(output, "ref")}
    return [r for r in chain if r.name in names][-1]
