# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statistics as people write them, on inputs that hurt, by the rule of `--check`: moments under
masks, weights that are data, log-sum-exp with infinities, safe norms, entropies, counts."""

import numpy as np
import pytest

from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from support.hostile_runs import cases_of, compiled, failures, programs_of

pytestmark = pytest.mark.usefixtures("small_tiles")


def log_softmax(x, j):
    s = x - N.max(x, j)
    return s - N.log(N.sum(N.exp(s), j))


def weights(x, j):
    e = N.exp(x - N.max(x, j))
    return e / N.sum(e, j)


def masked_skew(x, y, m, j):
    count = N.maximum(N.cast(N.sum(N.cast(m, "i64"), j), "f32"), 1.0)
    d = N.where(m, x - N.sum(N.where(m, x, 0.0), j) / count, 0.0)
    spread = N.sum(d * d, j) / count
    return N.sum(d * d * d, j) / count / (spread * N.sqrt(spread) + 1e-6)


def bessel(x, y, m, j):
    count = N.cast(N.sum(N.cast(m, "i32"), j), "f32")
    mean = N.sum(N.where(m, x, 0.0), j) / N.maximum(count, 1.0)
    spread = N.where(m, (x - mean) * (x - mean), 0.0)
    return N.sum(spread, j) / N.maximum(count - 1.0, 1.0)


def weighted_scores(x, y, m, j):
    w = abs(y)
    total = N.sum(w, j) + 1e-8
    d = x - N.sum(w * x, j) / total
    return d / N.sqrt(N.sum(w * d * d, j) / total + 1e-5)


def expected_variance(x, y, m, j):
    p = weights(x, j)
    d = y - N.sum(p * y, j)
    return N.sum(p * d * d, j)


def guarded_log_sum_exp(x, y, m, j):
    top = N.max(x, j)
    reference = N.where(abs(top) == N.inf, 0.0, top)
    return N.log(N.sum(N.exp(x - reference), j)) + reference


def soft_minimum(x, y, m, j):
    low = N.min(x, j)
    return low - N.log(N.sum(N.exp(low - x), j))


def masked_log_mean_exp(x, y, m, j):
    s = x + N.where(m, 0.0, -3.4028234663852886e38)
    top = N.max(s, j)
    return top + N.log(N.mean(N.exp(s - top), j))


def masked_entropy(x, y, m, j):
    s = log_softmax(N.where(m, x, -1e9), j)
    return -N.sum(N.exp(s) * s, j)


def divergence(x, y, m, j):
    a = log_softmax(x, j)
    return N.sum(N.exp(a) * (a - log_softmax(y, j)), j)


def safe_direction(x, y, m, j):
    size = N.max(abs(x), j)
    d = x / N.where(size == 0.0, 1.0, size)
    return d * N.rsqrt(N.sum(d * d, j) + 1e-12)


def norm_of_fourth_powers(x, y, m, j):
    size = N.max(abs(x), j) + 1e-30
    square = (x / size) * (x / size)
    return size * N.sqrt(N.sqrt(N.sum(square * square, j)))


def correlation(x, y, m, j):
    a, b = x - N.mean(x, j), y - N.mean(y, j)
    return N.sum(a * b, j) * N.rsqrt(N.sum(a * a, j) * N.sum(b * b, j) + 1e-12)


def residual(x, y, m, j):
    a, b = x - N.mean(x, j), y - N.mean(y, j)
    rest = b - N.sum(a * b, j) / (N.sum(a * a, j) + 1e-6) * a
    return N.sum(rest * rest, j)


def products_of_sums(x, y, m, j):
    return N.sum(y * N.sum(x, j), j) * N.sum(x * y, j)


def empty_rows_are_0(x, y, m, j):
    s = N.where(m, x, -N.inf)
    top = N.max(s, j)
    e = N.exp(s - N.where(top == -N.inf, 0.0, top))
    total = N.sum(e, j)
    return N.where(total == 0.0, 0.0, e / total)


def focal(x, y, m, j):
    s = log_softmax(x, j)
    p = N.exp(s)
    return -N.sum(y * (1.0 - p) * (1.0 - p) * s, j)


def levels(x, y, m, j):
    step = N.max(abs(x), j) / 127.0 + 1e-12
    return N.roundeven(x / step) * step


def layer_norm(x, y, m, j):
    d = x - N.sum(x, j) / 37.0
    return d * N.rsqrt(N.sum(d * d, j) / 37.0 + 1e-5)


def masked_layer_norm(x, y, m, j):
    count = N.cast(N.sum(N.cast(m, "i64"), j), "f32")
    d = x - N.sum(N.where(m, x, 0.0), j) / count
    return N.where(m, d * N.rsqrt(N.sum(N.where(m, d * d, 0.0), j) / count + 1e-5), 0.0)


def softmax_of_norm(x, y, m, j):
    z = layer_norm(x, y, m, j)
    e = N.exp(z - N.max(z, j))
    return e / N.sum(e, j)


def kurtosis(x, y, m, j):
    d = x - N.mean(x, j)
    spread = N.mean(d * d, j)
    return N.mean(d * d * d * d, j) / (spread * spread + 1e-6)


def pooled_deviation(x, y, m, j):
    p = weights(y, j)
    return N.sum(p * abs(x - N.sum(p * x, j)), j)


QUICK = (masked_skew, expected_variance, guarded_log_sum_exp, safe_direction, empty_rows_are_0)
MORE = (bessel, weighted_scores, soft_minimum, masked_log_mean_exp, masked_entropy, divergence,
        masked_layer_norm, softmax_of_norm, kurtosis, pooled_deviation,
        norm_of_fourth_powers, correlation, residual, products_of_sums, focal, levels)  # fmt: skip


def check(body, dtype, target, most):
    p = N.Program(body.__name__)
    i, j = p.axis("i", 5), p.axis("j", 37)
    x, y = (p.input(name, i, j, dtype=dtype)[i, j] for name in ("x", "y"))
    wide = (x, y) if dtype == "f32" else (N.cast(x, "f32"), N.cast(y, "f32"))
    value = body(*wide, p.input("m", i, j, dtype="i1")[i, j], j)
    p.output(value, *value.axes)
    text = Source.of(p).text
    programs = programs_of(text, target, compiled(text))
    cases = cases_of(programs, [(5, 37)] * len(p.inputs), list(p.inputs))
    if most and len(cases) > most:
        cases = [cases[k * len(cases) // most] for k in range(most)]
    assert not (found := failures(programs, cases, 3)), "\n".join(map(str, found))


@pytest.mark.parametrize("body", QUICK, ids=lambda body: body.__name__)
def test_statistic(body):
    check(body, "f32", "cpu", 30)


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("body", QUICK + MORE, ids=lambda body: body.__name__)
def test_statistics(body, dtype, target):
    check(body, dtype, target, None if target == "cpu" else 12)


@pytest.mark.parametrize("body", [layer_norm, softmax_of_norm], ids=lambda body: body.__name__)
@pytest.mark.parametrize("target", ["cpu", "sm_80"])
def test_rows_of_equal_numbers(body, target):
    """What rounding the mean lost is subtracted from the data; the variance has it as well."""
    p = N.Program(body.__name__)
    i, j = p.axis("i", 4), p.axis("j", 37)
    value = body(p.input("x", i, j)[i, j], None, None, j)
    p.output(value, *value.axes)
    text = Source.of(p).text
    programs = programs_of(text, target, compiled(text))
    x = np.repeat([[3.3e9], [-100000.1], [-1e9], [1.1e6]], 37, axis=1).astype("f4").astype(float)
    (found,) = programs.fused([x])
    most = 1.01 if body is layer_norm else 1 / 37 * 1.01
    assert np.abs(found).max() <= most
