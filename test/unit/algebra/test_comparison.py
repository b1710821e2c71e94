# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a comparison keeps of its runs, and what it finds for reports alone."""

import numpy as np
import pytest

from neptune_mlir.algebra.numerics import comparison
from neptune_mlir.algebra.numerics.comparison import Comparison
from neptune_mlir.algebra.numerics.judge import judge
from neptune_mlir.algebra.numerics.programs import Programs


def test_a_verdict_is_found_once_for_the_runs_that_there_are(monkeypatch):
    """What is kept of it is that of these runs: the same as where nobody asked before."""
    generator = np.random.default_rng(0)
    exact = (generator.random((3, 8)) + 1) * (1 + 1e-7 * generator.random((5, 3, 8)))
    sizes = (9e-7, 3e-7, 0.0)
    runs = [[e + s * generator.standard_normal(e.shape) for s in sizes] for e in exact]
    asked, said = Comparison("f32"), []
    for run in runs:
        asked.add(*run)
        said.append((asked.excess, asked.fused, asked.bound, asked.rows_over, asked.ok))
        alone = Comparison("f32")
        alone.add_runs(*(np.array(of) for of in zip(*runs[: len(said)], strict=True)))
        assert said[-1] == (alone.excess, alone.fused, alone.bound, alone.rows_over, alone.ok)
    assert len({excess for excess, *_ in said}) == len(runs)
    monkeypatch.setattr(comparison, "norm", None)  # whoever works it out again calls it
    assert (asked.excess, asked.fused, asked.bound, asked.rows_over, asked.ok) == said[-1]


def test_only_reports_ask_how_far_results_are_apart():
    for reported in (False, True):
        runs = [lambda values, k=k: [k * values[0]] for k in (1.5, 1.0, 1.0)]
        of = Programs(*runs, ("f32",), ("f32",), reported=reported)
        (found,) = judge(of, [np.ones((2, 3))])
        wanted = 0.5 * reported
        assert (found.frobenius_fused, found.frobenius_unfused) == (pytest.approx(wanted), 0.0)
        assert found.difference == wanted
