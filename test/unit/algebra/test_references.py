# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What sums are measured from and what moves behind them: exact before all data were seen."""

from __future__ import annotations

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.algebra.numerics.error_bound import bounds
from neptune_mlir.algebra.numerics.evaluation import Domain, define, evaluate, fused
from neptune_mlir.algebra.numerics.judge import judge
from neptune_mlir.algebra.numerics.programs import Programs
from neptune_mlir.algebra.solver import solve_chain
from neptune_mlir.algebra.terms import ref as reference
from neptune_mlir.frontend import notation as N
from support.chains import AXIS, absolute, exp, maximum, read, reduction, ref, where, x
from support.small_tiles import tiny

y, weights = read("y", 0, 1), read("weights", 0, 1)
columns = read("columns", 1)
ULP = 2.0**-23


def errors(chain, data, tile=4):
    """Of the last reduction in f32, fused and as written, in ulps of its size."""
    extents = data["x"].shape
    wide, narrow = Domain(extents, data, {}), Domain(extents, data, {}, np.float32)
    result = reference(chain[-1].name, dtype=chain[-1].dtype)
    exact = evaluate(result, wide, define(chain, AXIS, wide))
    forms = fused(solve_chain(chain, AXIS), AXIS, narrow, tile), define(chain, AXIS, narrow)
    found = [evaluate(result, narrow, values) for values in forms]
    return [float((np.abs(f - exact) / np.abs(exact)).max() / ULP) for f in found]


def rows(seed, length=37):
    return np.random.default_rng(seed).standard_normal((5, length)).astype(np.float32)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_residual_is_measured_from_a_coefficient_of_its_own_weights(seed, signed):
    w = weights if signed else absolute(weights)
    slope = ref("xy") / ref("xx")
    chain = [
        reduction("xy", "add", w * (x * y)), reduction("xx", "add", w * (x * x)),
        reduction("r", "add", (y - slope * x) * (y - slope * x)),
    ]  # fmt: skip
    data = {"x": rows(seed), "y": rows(seed + 10), "weights": rows(seed + 20)}
    data["weights"][:, :4] = [1, 0, 0, 0]  # of the first tile the coefficient sees one element,
    data["x"][:, 0] = 1e-4  # from which it would be 1e4
    of_fused, unfused = errors(chain, data)
    assert of_fused <= 2 * unfused + 4


@pytest.mark.parametrize("seed", range(3))
def test_products_are_measured_from_a_mean_of_their_own_data(seed):
    count = ref("c") + where(ref("c") < 1.0, 1.0, 0.0)
    keep = absolute(weights)
    chain = [
        reduction("c", "add", keep), reduction("s", "add", keep * x),
        reduction("o", "add", (x - ref("s") / count) * columns),
    ]  # fmt: skip
    data = {"x": rows(seed) + 100, "columns": rows(seed + 30)[0], "weights": np.zeros((5, 37))}
    data["weights"][:, -1] = 1  # the mean is known in the last tile
    of_fused, unfused = errors(chain, data)
    assert of_fused <= 2 * unfused + 4


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_weighted_powers_around_a_plain_mean_are_measured_from_a_weighted_one(seed, power):
    """One weight is large, and its element near the mean: while the mean is that of others, the
    element is far from it."""
    d = x - ref("s") * (1 / 37)
    body = weights * (d * d if power == 2 else d)
    chain = [reduction("s", "add", x), reduction("v", "add", body)]
    data = {"x": rows(seed), "weights": np.abs(rows(seed + 20))}
    data["x"][:, :4] += 3
    data["x"][:, 1] = data["x"].mean(1) + 1e-3
    data["weights"][:, 1] = 1e4
    of_fused, unfused = errors(chain, data)
    assert of_fused <= 2 * unfused + 4


def test_what_is_far_behind_passes_no_error_to_a_maximum():
    chain = [
        reduction("m", "max", x + y), reduction("top", "max", maximum(x, y)),
        reduction("l", "add", exp(x + y - ref("m"))),
    ]  # fmt: skip
    data = {"x": rows(0).astype(float), "y": rows(1).astype(float)}
    data["x"][:, :9] = -3e38
    domain = Domain(data["x"].shape, data, {})
    found = bounds(chain, AXIS, domain, define(chain, AXIS, domain), {})
    assert all(np.max(found[name]) < 1e-13 for name in ("m", "top", "l"))
    data["x"][:] = -3e38  # unless all are
    found = bounds(chain, AXIS, domain, define(chain, AXIS, domain), {})
    assert np.min(found["m"]) > 1e20


def far_behind():
    """Weights relative to a number that may be far over all scores: their squares vanish."""
    p = N.Program("far_behind")
    i, j = p.axis("i"), p.axis("j")
    x, r = p.input("x", i, j)[i, j], p.input("r", i)[i]
    weight = N.exp(x - N.maximum(N.max(x, j), r))
    share = weight / N.sum(weight, j)
    p.output(N.sum(share * share, j), i)
    return p


def test_a_factor_that_keeps_a_sum_in_range_stays():
    program = far_behind()
    data = rows(0), np.full(5, 60.0, np.float32)
    with tiny():
        kernel = neptune_mlir.compile(program)
        got = kernel(*data)
    wanted = program.reference(*(a.astype(np.float64) for a in data))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert not any("deferred" in r for r in kernel.facts["remarks"])


def test_infinities_that_are_multiplied_by_0_may_be_hidden():
    """What a mask leaves out the fused program does; one that forgets an infinity is wrong."""
    shown = np.arange(6) < 3

    def unfused(arguments):
        with np.errstate(invalid="ignore"):
            return [(arguments[0] * shown).sum(1)]

    def hiding(arguments):
        return [np.where(shown, arguments[0], 0.0).sum(1)]

    def forgetful(arguments):
        return [np.where(np.isfinite(arguments[0]) & shown, arguments[0], 0.0).sum(1)]

    data = rows(0, 6).astype(np.float64)
    data[2, 4] = np.inf
    for fused_form, at, right in ((hiding, 4, True), (forgetful, 4, True), (forgetful, 1, False)):
        data[2] = rows(0, 6)[2]
        data[2, at] = np.inf
        runs = Programs(fused_form, unfused, unfused, ("f32",), ("f32",))
        (found,) = judge(runs, [data])
        assert found.ok == right


def test_arguments_whose_product_leaves_the_range_are_not_compared():
    data = [np.full((2, 3), 1e15), np.full((2, 3), 1e15), np.ones((2, 3))]
    wrong = Programs(
        lambda a: [np.full(2, np.nan)], *[lambda a: [(a[0] / a[1] * a[2]).sum(1)]] * 2,
        ("f32",) * 3, ("f32",),
    )  # fmt: skip
    assert judge(wrong, data)[0].ok
    assert not judge(wrong, [data[0], data[2], data[2]])[0].ok
