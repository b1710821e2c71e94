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
moved behind reductions (`deferral`), the reductions as they were before. Who moves factors keeps
what was said of such chains (`TestedChain`, by their content), for whoever plans them later.
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
from neptune_mlir.algebra.terms import Term, is_float, leaves, walk

SHORT = 64  # extents up to which a test may take them as they are


@dataclass(frozen=True)
class Definition:
    """What a fused chain is to compute: reductions, and the outputs over `ref` of these, which
    have the names and the order of the chain's outputs."""

    chain: tuple[Reduction, ...]
    outputs: tuple[tuple[str, Term], ...]

    @property
    def tensors(self) -> set[Any]:
        """What it reads."""
        return {n.attr for t in self._terms for n in leaves(t, "read")}

    @property
    def nodes(self) -> int:
        """How much it takes to evaluate it."""
        return len({n for t in self._terms for n in walk(t)})

    @property
    def _terms(self) -> list[Term]:
        return [*(r.body for r in self.chain), *(t for _, t in self.outputs)]

    @property
    def is_complete(self) -> bool:
        """Whether everything reads only reductions that come before it."""
        known: set[str] = set()
        for reduction in self.chain:
            if any(n.attr not in known for n in leaves(reduction.body, "ref")):
                return False
            known.add(reduction.name)
        return all(n.attr in known for _, t in self.outputs for n in leaves(t, "ref"))


def length_of(chain: Sequence[Reduction], outputs: Mapping[str, Term], extent: int) -> int:
    """The length of the stream for a test: a short extent that the program divides by is what it
    is, for a mean is another thing than a sum over some number.

    Args:
        extent: of the stream, where it is known; else negative.
    """
    if not 1 < extent <= SHORT:
        return LENGTH
    terms = [*(r.body for r in chain), *outputs.values()]
    numbers = [n.value for t in terms for n in leaves(t, "const") if is_float(n.dtype)]
    divided = any(n == extent or abs(n * extent - 1) < 1e-6 for n in numbers)
    return extent if divided else LENGTH


@dataclass(frozen=True)
class TestedChain:
    """A chain that passed: in which form, and on how many inputs."""

    empty_rows: bool
    runs: int

    def __str__(self) -> str:
        return f"{int(self.empty_rows)} {self.runs}"

    @classmethod
    def of(cls, text: str) -> TestedChain:
        """What `str` gave."""
        empty_rows, runs = text.split()
        return cls(empty_rows == "1", int(runs))


def accept(
    chain: Sequence[Reduction],
    axis: int,
    outputs: Mapping[str, Term],
    *,
    nonneg: Collection[Any] = (),
    numerics: str = "default",
    written: Definition | None = None,
    passed: TestedChain | None = None,
    length: int = LENGTH,
) -> tuple[Solution, Report | None]:
    """The first form that passes, and how it did (None for `fast`, which asks nobody).

    Args:
        outputs: what the fused program gives, over `ref` of the reductions.
        nonneg: inputs that are never negative.
        written: the definition, where it is not the chain itself.
        length: of the stream, see `length_of`.
        passed: what the test said of this chain, where it was compared with its definition before.

    Raises:
        Unsolvable: there is none; says which value would be lost, and on which input.
    """
    if numerics == "fast":
        return solve_chain(chain, axis, numerics=numerics, visible=_read_by(outputs)), None
    if passed is not None:
        solution = solve_chain(chain, axis, numerics=numerics, empty_rows=passed.empty_rows,
                               visible=_read_by(outputs))  # fmt: skip
        return solution, Report({}, {}, passed.runs, None)
    itself = Definition(tuple(chain), tuple(outputs.items()))
    found = _accepted(itself, written or itself, axis, frozenset(nonneg), numerics, length)
    if isinstance(found, Unsolvable):
        raise found.with_traceback(None)
    return found


def _read_by(outputs: Mapping[str, Term]) -> frozenset[str]:
    """The reductions that outputs are made of."""
    return frozenset(n.attr for t in outputs.values() for n in leaves(t, "ref"))


@lru_cache(maxsize=256)  # one program is planned several times while it is compiled
def _accepted(
    form: Definition, written: Definition, axis: int, nonneg: frozenset[Any], numerics: str,
    length: int,
) -> tuple[Solution, Report] | Unsolvable:  # fmt: skip
    try:
        return _first_good(form, written, axis, nonneg, numerics, length)
    except Unsolvable as reason:
        return reason


def _first_good(
    form: Definition, written: Definition, axis: int, nonneg: frozenset[Any], numerics: str,
    length: int,
) -> tuple[Solution, Report]:  # fmt: skip
    report = None
    for empty_rows in (False, True):
        solution = solve_chain(form.chain, axis, numerics=numerics, empty_rows=empty_rows,
                               visible=_read_by(dict(form.outputs)))  # fmt: skip
        found = stressed(
            written.chain, solution, axis, dict(written.outputs), dict(form.outputs), nonneg,
            length=length,
        )  # fmt: skip
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


@lru_cache(maxsize=64)
def worse_result(
    form: Definition, written: Definition, axis: int, nonneg: frozenset[Any], length: int = LENGTH
) -> str | None:
    """The reduction of a chain, not fused, that gives a worse result than its definition does."""
    found = stressed(
        written.chain, form.chain, axis, dict(written.outputs), dict(form.outputs), nonneg,
        length=length, plans=((length, 1),),
    )  # fmt: skip
    if found.failure is None:
        return None
    return _culprit(form.chain, dict(form.outputs)[found.failure.result]).name


def _culprit(chain: Sequence[Reduction], output: Term) -> Reduction:
    """The last reduction that a value is made of."""
    names = {n.attr for n in leaves(output, "ref")}
    return [r for r in chain if r.name in names][-1]
