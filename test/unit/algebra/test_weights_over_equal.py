# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights that nearly sum to 1, over exponentials that are equal: their difference from their
weighted sum is small and the same in a row, and its covariance with anything cancels."""

import pytest

from neptune_mlir.algebra.numerics.whole import EQUAL
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from support.hostile_runs import compiled

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
    """(Corrected they are off by 1140 ulps on such an input, 127 as written.)"""
    remarks = compiled(Source.of(correlation()).text).facts["remarks"]
    assert any(EQUAL in r for r in remarks)
    assert any("fused 3 reductions" in r for r in remarks)  # the moments, around final sums
