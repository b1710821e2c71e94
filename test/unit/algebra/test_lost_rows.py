# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that the program as written loses, and what they say of others."""

from dataclasses import replace

import numpy as np
import pytest

from neptune_mlir.algebra.numerics.floats import EPSILON
from neptune_mlir.algebra.numerics.judge import judge
from neptune_mlir.algebra.numerics.programs import Programs
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from neptune_mlir.runtime.rounding import WAYS
from support.hostile_runs import programs_of


def of(*functions):
    """Functions of an array as a program: fused, unfused and in float64."""
    runs = [lambda values, f=f: [np.asarray(f(*values), float)] for f in functions]
    return Programs(*runs, ("f32",), ("f32",))


def test_a_row_that_the_program_loses_is_no_bound_for_others():
    """Nor where inputs further away decide."""
    x = np.random.default_rng(0).random((3, 8)) + 1

    def written(x):
        return x.sum(1) * (1 + np.array([0.5, 0, 0]))

    def fused(x, off):
        return x.sum(1) * (1 + np.array([0.5, off, 0]))

    for off, right in ((2 * EPSILON["f32"], True), (0.01, False)):
        near = lambda x, off=off: fused(x, off)  # noqa: E731
        three = of(near, written, lambda x: x.sum(1))
        rounded_so = lambda number, three=three: three.unfused  # noqa: E731
        for asked in (three, replace(three, otherwise=rounded_so)):
            (found,) = judge(asked, [x])
            assert found.ok == right
        assert right or found.fused > 8e4 > found.bound == 4


def test_what_a_mask_hides_may_overflow():
    """The program as written makes a NaN of it; what is not hidden counts as the program has it."""
    x, hidden = np.array([[1.0, 3.0, 1e30]]), np.array([[1.0, 1.0, 0.0]])
    exact = lambda x: (hidden * x * x).sum(1)  # noqa: E731
    lost = lambda x: np.full(1, np.nan)  # noqa: E731
    for value, right in ((10.0, True), (10.01, False), (20.0, False)):
        asked = of(lambda x, value=value: np.full(1, value), lost, exact)
        without = of(lambda x, value=value: np.full(1, value), exact, exact)
        without = replace(without, reordered=lambda order, w=without: w.unfused)
        asked = replace(asked, hiding=lambda w=without: w)
        asked = replace(asked, exact=lambda values: [exact(values[0]) * 1.5])  # overflows, too
        (found,) = judge(asked, [x])
        assert found.ok == right


def test_a_fused_program_is_not_asked_where_the_program_as_written_makes_no_nan():
    """On a simulator it is slow. As written where 0 times anything is 0, it is judged once more."""
    exact = lambda x: x.sum(1)  # noqa: E731
    calls = {}
    for hides in (False, True):
        asked = of(lambda x: exact(x) * 1.01, exact, exact)
        run = asked.fused

        def counted(values, run=run, hides=hides):
            calls[hides] = calls.get(hides, 0) + 1
            return run(values)

        asked = replace(asked, fused=counted, reordered=lambda order, a=asked: a.unfused)
        asked = replace(asked, hiding=(lambda a=asked: a) if hides else None)
        assert not judge(asked, [np.random.default_rng(0).random((3, 8)) + 1])[0].ok
    assert calls[True] <= 2 * calls[False]


def test_a_row_that_no_input_moves_has_roundings_for_draws():
    """x / |x| is 1 whatever x is. The program as written happens to round it right."""
    ulp = EPSILON["f32"]
    exact = lambda x: x[:, 0] / x[:, 0]  # noqa: E731

    def rounded_so(number):
        return lambda values: [exact(values[0]) * (1 + 100 * (-1) ** number * ulp)]

    for off, right in ((150, True), (300, False)):
        asked = of(lambda x, off=off: exact(x) * (1 + off * ulp), exact, exact)
        (alone,) = judge(asked, [np.full((3, 1), -1e9)])
        (found,) = judge(replace(asked, otherwise=rounded_so), [np.full((3, 1), -1e9)])
        assert not alone.ok and found.ok == right


@pytest.mark.parametrize(("spread", "beside", "right"), [
    (0.0, np.nan, True), (0.0, 0.0, False), (1.0, np.nan, False),
])  # fmt: skip
def test_rows_that_are_noise_are_draws_of_each_other(spread, beside, right):
    """Fourth moments of equal numbers: one of them is exact by luck of its digits. Whether noise
    overflows is luck of its row then, but not where another row is none."""
    x = np.array([[1e20] * 4, [3.0 + spread, 3.0, 3.0, 3.0]])

    def moment(values):
        d = values[0] - values[0].mean(1, keepdims=True)
        return [np.mean(d**4, 1)]

    def as_written(values):
        return [np.array([beside, 0.0 if spread == 0 else moment(values)[0][1]])]

    fused = lambda values: [np.array([beside, np.nan])]  # noqa: E731
    of = Programs(fused, as_written, moment, ("f32",), ("f32",), ranged=moment)
    assert judge(of, [x])[0].ok == right


def test_float64_knows_no_row_that_it_rounds_away():
    """x + s is s in float64, too, and s is a difference of larger numbers, so that its last digits
    are 0 and all sums of it exact: no last place of an input shows that x is gone."""
    p = N.Program("rounded_away")
    i, j = p.axis("i", 2), p.axis("j", 9)
    x, large = (p.input(name, i, j, dtype="f32")[i, j] for name in ("x", "large"))
    s = N.sum(large, j)
    p.output(N.max(x + s - N.sum(x + s, j) / 9.0, j), i)
    programs = programs_of(Source.of(p).text)
    generator = np.random.default_rng(5)
    x, large = generator.standard_normal((2, 2, 9)).astype(np.float32).astype(float)
    large[:, 2:] = 0.0
    large[0, :2] = 2.0**75, -(2.0**75) + 2.0**56
    assert programs.exact([x, large])[0][0] == 0
    of_rows = {0: True, 1: False}
    for row, right in of_rows.items():
        off = np.where(np.arange(2) == row, 1e9 if row == 0 else 1e-2, 0.0)
        noisy = replace(programs, fused=lambda a, off=off: [programs.unfused(a)[0] + off])
        (found,) = judge(noisy, [x, large])
        assert found.ok == (right and bool(WAYS)), (row, found.verdict)
