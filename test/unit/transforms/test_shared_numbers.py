# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of numbers from which others subtract what they make of the sum."""

import numpy as np
import pytest

from neptune_mlir.driver.kernel import Kernel, Source
from neptune_mlir.frontend import notation as N
from support.hostile_runs import compiled
from support.small_tiles import tiny


def scaled(p, i, j, x):
    """Numbers that their largest one scales."""
    return x / N.max(abs(x), j)


def shifted(p, i, j, x):
    """Numbers to which a sum of others is added."""
    y = p.input("y", i, j)[i, j]
    return x + N.sum(y * y, j)


@pytest.mark.parametrize("numbers", [scaled, shifted])
def test_one_weight_leaves_nothing(numbers):
    """The mean of one number is that number, as it is rounded."""
    p = N.Program("deviation")
    i, j = p.axis("i"), p.axis("j")
    x, w = p.input("x", i, j)[i, j], p.input("w", i, j)[i, j]
    t = numbers(p, i, j, x)
    p.output(t - N.sum(w * t, j) / N.sum(w, j), i, j)
    generator = np.random.default_rng(0)
    arrays = {name: generator.standard_normal((64, 37)).astype("f4") for name in p.inputs}
    arrays["w"][:] = 0
    arrays["w"][:, 7] = 1
    with tiny():
        bundle = compiled(Source.of(p).text)
        found = Kernel.of_bundle(bundle, "program")(*arrays.values())
    assert (found[:, 7] == 0).all() and np.isfinite(found).all()
    assert stays(bundle)


def stays(bundle):
    remarks = bundle.facts["remarks"]
    apart = any("subtracts it from what it adds up" in r for r in remarks)
    return apart and not any("deferred" in r for r in remarks)


def test_a_coefficient_has_the_rounding_of_what_it_scales():
    """t is the same number in both sums and behind them; equal data are all rounded alike."""
    p = N.Program("residual")
    i, j = p.axis("i"), p.axis("j")
    x, y = p.input("x", i, j)[i, j], p.input("y", i, j)[i, j]
    t = scaled(p, i, j, x)
    p.output(y - N.sum(t * y, j) / N.sum(t * t, j) * t, i, j)
    with tiny():
        assert stays(compiled(Source.of(p).text))
