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

What a chain is compared with is its definition: the chain itself, or, where factors of it were
moved behind reductions (`deferral`), the reductions as they were before. The definition that was
given with a chain holds for it from then on: whoever plans the same chain later hears the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from neptune_mlir.algebra.chain import Reduction, Solution, Unsolvable
from neptune_mlir.algebra.numerics.alike import forget_verdicts, stressed
from neptune_mlir.algebra.numerics.stress import LENGTH, Report
from neptune_mlir.algebra.solver import solve_chain
from neptune_mlir.algebra.terms import Term, leaves


@dataclass(frozen=True)
class Definition:
    """What a fused chain is to compute: reductions, and the outputs over `ref` of these, which
    have the names and the order of the chain's outputs."""

    chain: tuple[Reduction, ...]
    outputs: tuple[tuple[str, Term], ...]

    @property
    def tensors(self) -> set[Any]:
        """What it reads."""
        terms = [*(r.body for r in self.chain), *(t for _, t in self.outputs)]
        return {n.attr for t in terms for n in leaves(t, "read")}

    @property
    def is_complete(self) -> bool:
        """Whether everything reads only reductions that come before it."""
        known: set[str] = set()
        for reduction in self.chain:
            if any(n.attr not in known for n in leaves(reduction.body, "ref")):
                return False
            known.add(reduction.name)
        return all(n.attr in known for _, t in self.outputs for n in leaves(t, "ref"))


_DEFINITIONS: dict[Definition, Definition] = {}  # of chains of which factors were moved
_MOST = 256


def definition_of(chain: Sequence[Reduction], outputs: Mapping[str, Term]) -> Definition:
    """What this chain is compared with."""
    itself = Definition(tuple(chain), tuple(outputs.items()))
    return _DEFINITIONS.get(itself, itself)


def accept(
    chain: Sequence[Reduction],
    axis: int,
    outputs: Mapping[str, Term],
    *,
    nonneg: Collection[Any] = (),
    numerics: str = "default",
    written: Definition | None = None,
) -> tuple[Solution, Report | None]:
    """The first form that passes, and how it did (None for `fast`, which asks nobody).

    Args:
        outputs: what the fused program gives, over `ref` of the reductions.
        nonneg: inputs that are never negative.
        written: the definition, where it is not the chain itself.

    Raises:
        Unsolvable: there is none; says which value would be lost, and on which input.
    """
    if numerics == "fast":
        return solve_chain(chain, axis, numerics=numerics), None
    itself = Definition(tuple(chain), tuple(outputs.items()))
    if written is not None:
        if len(_DEFINITIONS) >= _MOST:
            _DEFINITIONS.clear()
        _DEFINITIONS[itself] = written
    written = definition_of(chain, outputs)
    found = _accepted(itself, written, axis, frozenset(nonneg), numerics)
    if isinstance(found, Unsolvable):
        raise found.with_traceback(None)
    return found


@lru_cache(maxsize=256)  # one program is planned several times while it is compiled
def _accepted(
    form: Definition, written: Definition, axis: int, nonneg: frozenset[Any], numerics: str
) -> tuple[Solution, Report] | Unsolvable:
    try:
        return _first_good(form, written, axis, nonneg, numerics)
    except Unsolvable as reason:
        return reason


def _first_good(
    form: Definition, written: Definition, axis: int, nonneg: frozenset[Any], numerics: str
) -> tuple[Solution, Report]:
    report = None
    for empty_rows in (False, True):
        solution = solve_chain(form.chain, axis, numerics=numerics, empty_rows=empty_rows)
        found = stressed(
            written.chain, solution, axis, dict(written.outputs), dict(form.outputs), nonneg
        )
        if found.ok:
            return solution, found
        report = report or found
    assert report is not None and report.failure is not None
    failure = report.failure
    culprit = _culprit(form.chain, dict(form.outputs)[failure.result])
    raise Unsolvable(
        culprit.name, "accuracy", culprit.body,
        f"{failure} (unfused: {report.unfused[failure.result]:.3g} at most)",
        "it runs unfused; numerics=fast fuses it for data on which that does not matter",
    )  # fmt: skip


def forget() -> None:
    """Drop what is kept of chains that were tested."""
    _accepted.cache_clear()
    worse_result.cache_clear()
    forget_verdicts()
    _DEFINITIONS.clear()


@lru_cache(maxsize=64)
def worse_result(
    form: Definition, written: Definition, axis: int, nonneg: frozenset[Any]
) -> str | None:
    """The reduction of a chain, not fused, that gives a worse result than its definition does."""
    found = stressed(
        written.chain, form.chain, axis, dict(written.outputs), dict(form.outputs), nonneg,
        plans=((LENGTH, 1),),
    )  # fmt: skip
    if found.failure is None:
        return None
    return _culprit(form.chain, dict(form.outputs)[found.failure.result]).name


def _culprit(chain: Sequence[Reduction], output: Term) -> Reduction:
    """The last reduction that a value is made of."""
    names = {n.attr for n in leaves(output, "ref")}
    return [r for r in chain if r.name in names][-1]
