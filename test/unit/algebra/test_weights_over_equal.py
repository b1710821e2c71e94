# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights that nearly sum to 1, over exponentials that are equal: their difference from their
weighted sum is small and the same in a row, and its covariance with anything cancels."""

import numpy as np
import pytest

from neptune_mlir.algebra.numerics.judge import judge
from neptune_mlir.algebra.numerics.whole import EQUAL
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from support.hostile_runs import compiled, programs_of

ROWS, WIDTH = 5, 37


def correlation():
    """Of y and of exponentials, with weights that nobody divides by their sum."""
    p = N.Program("correlation")
    i, j = p.axis("i", ROWS), p.axis("j", WIDTH)
    inputs = (p.input(name, i, j, dtype="f16") for name in ("x", "y", "w", "bias"))
    x, y, w, bias = (N.cast(t[i, j], "f32") for t in inputs)
    e = N.exp(x + bias - N.max(x, j))
    de, dy = e - N.sum(w * e, j), y - N.sum(w * y, j)
    size, other_size = (N.sum(w * (d * d), j) for d in (de, dy))
    p.output(N.sum(w * (de * dy), j) * N.rsqrt(size * other_size + 1e-6), i)
    return p


@pytest.mark.usefixtures("small_tiles")
def test_moments_of_what_cancels_are_not_corrected_step_by_step():
    text = Source.of(correlation()).text
    bundle = compiled(text)
    generator = np.random.default_rng(10)
    x, y, w, bias = generator.standard_normal((4, ROWS, WIDTH)).astype(np.float16)
    x[:], bias[:] = 100.0, 0.0
    w += (1 - 2.0**-5 - w.sum(-1, keepdims=True)) / WIDTH
    arguments = [a.astype(np.float64) for a in (x, y, w, bias)]
    (found,) = judge(programs_of(text, "cpu", bundle), arguments)
    assert found.ok, found.verdict
    remarks = bundle.facts["remarks"]
    assert any(EQUAL in r for r in remarks)
    assert any("fused 3 reductions" in r for r in remarks)  # the moments, around final sums
