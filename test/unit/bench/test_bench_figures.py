# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statistics, errors, the speed-of-light bound and its score."""

from __future__ import annotations

import math

import numpy as np
import pytest

from neptune_mlir.bench import figures


def test_median_and_spread() -> None:
    assert figures.median([3, 1, 2]) == 2
    assert figures.median([4, 1, 2, 3]) == 2.5
    assert figures.spread([[10, 10], [11, 11], [10, 12]]) == pytest.approx(1 / 10.5)
    assert figures.spread([[5.0], [5.0]]) == 0


def test_geometric_mean() -> None:
    assert figures.geometric_mean([1, 4]) == pytest.approx(2)


def test_errors() -> None:
    wanted = np.linspace(1, 2, 1000)
    got = wanted.copy()
    got[:50] += 0.1  # 5% of the elements
    found = figures.errors(got, wanted)
    assert found["max"] == pytest.approx(0.1)
    assert found["p90"] == 0
    assert found["p99"] == pytest.approx(0.1)
    assert found["rms"] == pytest.approx(0.1 * math.sqrt(0.05))
    assert found["relative"] == pytest.approx(0.1 * math.sqrt(50) / np.linalg.norm(wanted))


def test_errors_of_what_is_not_finite() -> None:
    inf = math.inf
    assert figures.errors([1.0, -inf], [1.0, -inf])["relative"] == 0
    for got, wanted in [([math.nan], [1.0]), ([inf], [1.0]), ([inf], [-inf]), ([1.0], [inf])]:
        assert figures.errors(got, wanted)["relative"] == inf
    assert figures.errors([], [])["max"] == 0
    with pytest.raises(ValueError, match="elements"):
        figures.errors([1.0], [1.0, 2.0])


def test_bound_is_the_slower_of_arithmetic_and_memory() -> None:
    limits = figures.Limits(flops=1e12, bytes=1e9)
    assert limits.bound_us(2e12, 1) == pytest.approx(2e6)
    assert limits.bound_us(1, 3e9) == pytest.approx(3e6)


def test_score() -> None:
    assert figures.sol_score(10, 10, 30) == 1
    assert figures.sol_score(30, 10, 30) == 0.5
    assert figures.sol_score(50, 10, 30) == pytest.approx(1 / 3)
    assert figures.sol_score(20, 10, 10) is None  # the base is at the bound: no scale
    assert figures.sol_score(5, 10, 30) is None  # under the bound
    assert figures.is_audit_failure(9.9, 10)
    assert not figures.is_audit_failure(10, 10)
