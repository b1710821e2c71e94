# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`--check=hostile` sees programs that lose digits, or the range, in place of the fused one."""

import pytest

from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from support.hostile_runs import cases_of, compiled, failures, programs_of

HURT = (
    "mean 3e+01",
    "mean 1e+04",
    "magnitude 1e+20",
    "moves up at once",
    "shows nothing everywhere",
)


def program(body, dtype="f32"):
    p = N.Program("rows")
    i, j = p.axis("i", 5), p.axis("j", 37)
    x = p.input("x", i, j, dtype=dtype)[i, j]
    m = p.input("m", i, j, dtype="i1")[i, j]
    p.output(body(N.cast(x, "f32") if dtype != "f32" else x, m, j), i)
    return p


def variance(x, m, j):
    d = x - N.mean(x, j)
    return N.sum(d * d, j) / 37.0


def expanded(x, m, j):
    mean = N.mean(x, j)
    return N.sum(x * x, j) / 37.0 - mean * mean


def masked_mean(x, m, j):
    return N.sum(N.where(m, x, 0.0), j) / N.sum(N.cast(m, "f32"), j)


def guarded(x, m, j):  # 0 where nothing is counted
    count = N.sum(N.cast(m, "f32"), j)
    return N.sum(N.where(m, x, 0.0), j) / N.maximum(count, 1.0)


def log_sum_exp(x, m, j):
    top = N.max(x, j)
    return top + N.log(N.sum(N.exp(x - top), j))


def by_mean(x, m, j):  # exponents that are not at most 0
    middle = N.mean(x, j)
    return middle + N.log(N.sum(N.exp(x - middle), j))


def safe_norm(x, m, j):
    size = N.max(abs(x), j)
    whole = N.where(size == 0.0, 1.0, size)
    return whole * N.sqrt(N.sum((x / whole) * (x / whole), j))


def norm(x, m, j):
    return N.sqrt(N.sum(x * x, j))


def fourth_moment(x, m, j):
    d = x - N.mean(x, j)
    return N.sum(d * d * d * d, j) / 37.0


def fourth_expanded(x, m, j):
    a, b = N.mean(x, j), N.sum(x * x, j) / 37.0
    c, d = N.sum(x * x * x, j) / 37.0, N.sum(x * x * x * x, j) / 37.0
    return d - 4.0 * a * c + 6.0 * a * a * b - 3.0 * a * a * a * a


@pytest.mark.parametrize(("right", "wrong", "dtype"), [
    (variance, expanded, "f32"), (masked_mean, guarded, "f32"), (log_sum_exp, by_mean, "f32"),
    (safe_norm, norm, "f32"),
    pytest.param(variance, expanded, "bf16", marks=pytest.mark.nightly),
    pytest.param(fourth_moment, fourth_expanded, "f16", marks=pytest.mark.nightly),
])  # fmt: skip
def test_planted(right, wrong, dtype):
    as_written = Source.of(program(right, dtype)).text
    planted = programs_of(as_written, bundle=compiled(Source.of(program(wrong, dtype)).text))
    cases = [c for c in cases_of(planted, [(5, 37), (5, 37)], ["x", "m"])
             if any(word in c.name for word in HURT)]  # fmt: skip
    assert failures(planted, cases, 1)
    assert not failures(programs_of(as_written), cases[:3])


def guarded_log_sum_exp(x, m, j):  # inf where the row has one, as in torch
    top = N.max(x, j)
    from_top = N.where(abs(top) > 3e38, 0.0, top)
    return from_top + N.log(N.sum(N.exp(x - from_top), j))


def test_infinities_that_a_program_defines():
    """A NaN in place of one was taken for the luck of a rounding that overflows."""
    as_written = Source.of(program(guarded_log_sum_exp)).text
    planted = programs_of(as_written, bundle=compiled(Source.of(program(log_sum_exp)).text))
    cases = [c for c in cases_of(planted, [(5, 37), (5, 37)], ["x", "m"])
             if c.name.startswith("x: one +inf")]  # fmt: skip
    assert len(failures(planted, cases)) == len(cases) > 0
    assert not failures(programs_of(as_written), cases)
