# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moments around one mean: fused together, or none of them."""

import pytest

from neptune_mlir.algebra.numerics.judge import judge
from neptune_mlir.algebra.shared_differences import TOGETHER, taken_along
from neptune_mlir.algebra.solver import Reduction
from neptune_mlir.algebra.terms import index, make, read, ref
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from support.hostile_runs import cases_of, compiled, programs_of

DATA = {
    "sum": lambda x, r, u: x + r,
    "difference": lambda x, r, u: x - r,
    "three inputs": lambda x, r, u: x + u + r,
}


def correlation(data):
    """Of y and of numbers of which noise is all that is left where r is large; a number that a row
    shares is added to x, and its covariance with y is not to see it."""
    p = N.Program("correlation")
    i, j = p.axis("i", 5), p.axis("j", 37)
    x, y, w, u = (p.input(name, i, j)[i, j] for name in "xywu")
    r = p.input("r", i)[i]
    weight = abs(w)
    total = N.sum(weight, j)

    def around(t):
        return t - N.sum(weight * t, j) / total

    dx, dy = around(data(x, r, u)), around(y)
    size, other_size = (N.sum(weight * (d * d), j) / total for d in (dx, dy))
    mixed = N.sum(weight * (dx * dy), j) / total
    t = x + mixed * N.rsqrt(size * other_size + 1e-6)
    live = N.cast(i - j < 3, "f32")
    count = N.sum(live, j)
    mean_t, mean_y = (N.sum(live * v, j) / count for v in (t, y))
    p.output(N.sum(live * ((t - mean_t) * (y - mean_y)), j) / count, i)
    return p


@pytest.mark.first_of_each()
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("data", DATA)
def test_noise_is_the_same_in_moments_around_one_mean(data):
    program = correlation(DATA[data])
    bundle = compiled(Source.of(program).text)
    programs = programs_of(Source.of(program).text, "cpu", bundle)
    names = list(program.inputs)
    shapes = [tuple(a.static for a in t.shape) for t in program.inputs.values()]
    (case,) = (c for c in cases_of(programs, shapes, names) if c.name == "r: magnitude 1e+30")
    assert all(c.ok for c in judge(programs, case.arguments))
    assert any(TOGETHER in r for r in bundle.facts["remarks"])


def test_what_has_a_difference_in_common_goes_along():
    j = index(1)
    x, y, z = (read(name, index(0), j) for name in "xyz")
    dx, dy, dz = (make("sub", v, ref(m, index(0))) for v, m in zip((x, y, z), "abc", strict=True))
    weight = make("exp", make("sub", x, ref("top", index(0))))
    chain = [
        *(Reduction(m, "add", v) for m, v in zip("abc", (x, y, z), strict=True)),
        Reduction("top", "max", x),
        Reduction("variance", "add", make("mul", dx, dx)),
        Reduction("covariance", "add", make("mul", dx, dy)),
        Reduction("other", "add", make("abs", dy)),
        Reduction("apart", "add", make("mul", dz, dz)),
        Reduction("weights", "add", weight),
        Reduction("weighted", "add", make("mul", weight, y)),
    ]  # fmt: skip
    assert taken_along(chain, "variance", 1) == {"covariance", "other"}
    assert taken_along(chain, "apart", 1) == set()
    assert taken_along(chain, "weighted", 1) == set()  # a maximum is what it is
