# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of numbers that others see rounded: fused with their reader, or not at all."""

import numpy as np
import pytest

from neptune_mlir.algebra.numerics.floats import EPSILON
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Kernel, Source
from neptune_mlir.frontend import notation as N
from support.hostile_runs import cases_of, compiled, programs_of
from support.small_tiles import tiny

WHY = "subtracts it from what it adds up"


def covariance(rows):
    """Of y and of what has one number more than x. The mean of y leaves something: 9 of 37."""
    p = N.Program("covariance")
    i, j = p.axis("i", rows), p.axis("j", 37)
    x, y = (p.input(name, i, j)[i, j] for name in "xy")
    t = x + N.sum(abs((x + y) / 1000.0), j)
    live = N.cast(j < 9, "f32")
    count = N.sum(live, j)
    p.output(N.sum(live * ((t - mean(t, live, count, j)) * (y - mean(y, live, count, j))), j), i)
    return p


def mean(t, live, count, j):
    return N.sum(live * t, j) / count


@pytest.mark.usefixtures("small_tiles")
def test_the_mean_of_rounded_numbers_is_subtracted_from_them():
    text = Source.of(covariance(256)).text
    programs = programs_of(text, "cpu", compiled(text))
    cases = cases_of(programs, [(256, 37)] * 2, ["x", "y"])
    (case,) = (c for c in cases if c.name == "all floats: moves down at once")
    (exact,) = programs.exact(case.arguments)
    fused, unfused = (
        np.median(np.abs(run(case.arguments)[0] / exact - 1)) / EPSILON["f32"]
        for run in (programs.fused, programs.unfused)
    )
    assert fused <= 1.2 * unfused  # 2.2 times as much around the mean of numbers as they were


def reasons(build):
    p = N.Program("sums")
    i, j = p.axis("i", 5), p.axis("j", 37)
    for value in build(*(p.input(name, i, j)[i, j] for name in "xy"), j):
        p.output(value, *value.axes)
    _, facts = compiler.lower_text(Source.of(p).text, "program", "cpu", None, "fused")
    return [r for r in facts["remarks"] if "not fused" in r and WHY in r]


def centred(x, y, j):
    t = 3.0 * (x + N.sum(y, j))
    return t - N.sum(t, j) / 37.0


def test_maps_are_readers_too():
    assert reasons(lambda x, y, j: [centred(x, y, j)])


def in_one_loop(x, y, j):
    return [N.max(centred(x, y, j), j)]


def of_its_own(x, y, j):
    """Nobody subtracts the mean from what it is made of."""
    t = x + N.sum(abs(y), j)
    return [N.sum(t, j) / 37.0, N.max(y - N.sum(t, j), j)]


@pytest.mark.parametrize("build", [in_one_loop, of_its_own])
def test_nothing_is_kept_apart_without_a_reason(build):
    assert not reasons(build)


@pytest.mark.usefixtures("small_tiles")
def test_powers_of_exponentials_keep_what_divides_them():
    """Masked rows hide their largest score: of exponentials of 1e-13 the fourth power vanishes, of
    what their own largest divides, and 1e-5 beside it, it is 1e-32."""
    p = N.Program("powers")
    i, j = p.axis("i", 5), p.axis("j", 37)
    x, live = p.input("x", i, j, dtype="f16")[i, j], p.input("live", i, j, dtype="i1")[i, j]
    x = N.cast(x, "f32")
    e = N.exp(N.where(live, x, -N.inf) - N.max(x, j))
    t = e / (N.max(abs(e), j) + 1e-5)
    p.output(N.sum(t * t * t * t, j), i)
    scores = np.zeros((5, 37))
    scores[:, 3] = 30
    with_all = np.ones((5, 37), bool)
    with_all[:, 3] = False
    text = Source.of(p).text
    programs = programs_of(text, "cpu", compiled(text))
    fused, exact = (run([scores, with_all])[0] for run in (programs.fused, programs.exact))
    assert np.allclose(fused, exact, rtol=1e-5, atol=0)


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
