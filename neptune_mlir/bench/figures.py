# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures of merit: medians and spreads, errors, the speed-of-light bound and its score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def spread(rounds: Sequence[Sequence[float]]) -> float:
    """How far the medians of the rounds lie apart, as a fraction of the median of all."""
    medians = [median(samples) for samples in rounds]
    return (max(medians) - min(medians)) / median([x for samples in rounds for x in samples])


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def errors(got: Any, wanted: Any) -> dict[str, float]:
    """Of a result against its reference, both float64 arrays: relative Frobenius, root mean
    square, 90th and 99th percentile and largest absolute error. All are infinite where one is
    not finite and the other is, or is another infinity."""
    got, wanted = np.asarray(got, np.float64).ravel(), np.asarray(wanted, np.float64).ravel()
    if got.shape != wanted.shape:
        raise ValueError(f"{got.size} elements against {wanted.size}")
    names = ("relative", "rms", "p90", "p99", "max")
    same = (got == wanted) & np.isinf(wanted)
    got, wanted = got[~same], wanted[~same]
    if not got.size:
        return dict.fromkeys(names, 0.0)
    difference = np.abs(got - wanted)
    if not np.isfinite(difference).all():
        return dict.fromkeys(names, math.inf)
    scale, norm = float(np.linalg.norm(wanted)), float(np.linalg.norm(difference))
    p90, p99 = (float(x) for x in np.percentile(difference, [90, 99]))
    rms = norm / math.sqrt(difference.size)
    return dict(zip(names, (norm / scale if scale else norm, rms, p90, p99,
                            float(difference.max())), strict=True))  # fmt: skip


def worst_errors(got: Any, wanted: Any) -> dict[str, float]:
    """`errors` of a result, or of each of several results (tuples): the largest of each figure."""
    if not isinstance(wanted, tuple):
        return errors(got, wanted)
    every = [errors(g, w) for g, w in zip(got, wanted, strict=True)]
    return {name: max(one[name] for one in every) for name in every[0]}


@dataclass(frozen=True)
class Limits:
    """What the chip reached in this run: matrix products (per second), bytes moved (per second)."""

    flops: float
    bytes: float

    def bound_us(self, flops: float, moved: float) -> float:
        """No program that does this work can be faster."""
        return max(flops / self.flops, moved / self.bytes) * 1e6


def sol_score(us: float, bound: float, base: float) -> float | None:
    """SOL-ExecBench's 1 / (1 + (T - T_sol) / (T_base - T_sol)): 1 at the bound, 0.5 at the base.

    None where the base is not above the bound (one of the two is then wrong).
    """
    if base <= bound:
        return None
    return 1 / (1 + (us - bound) / (base - bound)) if us >= bound else None


def is_audit_failure(us: float, bound: float) -> bool:
    """A time under the bound: something was not done, or not measured."""
    return us < bound
