# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is rare in random numbers, and made on purpose for the check of whole programs."""

import numpy as np
import pytest

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.numerics.steps import NestStep
from neptune_mlir.algebra.numerics.whole import WholeProgram, wrong_values
from neptune_mlir.algebra.numerics.whole_inputs import EQUAL, OUTLIER, further
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from support.hostile_runs import compiled


def test_weights_of_both_signs_nearly_sum_to_1_over_equal_exponents():
    inputs = {key: ((5, 37), "f32") for key in ("x", "w", "y")}
    given = [np.ones((5, 37))] * 3
    found = {c.name: c.arguments for c in further(inputs, {"x"}, given, 11, None)}
    x, w, y = found[f"w: {EQUAL}"]
    left = np.abs(w.sum(-1) - 1)
    assert (x == 0).all() and (y == 1).all() and (w < 0).any()
    assert ((left > 2.0**-7) & (left < 0.5)).all() and len({*left}) == 5
    assert f"x: {EQUAL}" not in found and found.keys() >= {f"{key}: {OUTLIER}" for key in inputs}
    assert [c.name for c in further(inputs, None, given, 11, [f"w: {EQUAL}"])] == []


@pytest.mark.nightly
@pytest.mark.usefixtures("small_tiles")
def test_moments_of_what_cancels_are_not_corrected_step_by_step():
    """Weights that nobody divides by their sum, over equal exponentials: their difference from
    their weighted sum is small and the same in a row, and its covariance with anything cancels.
    (Corrected it is off by 1140 ulps, 127 as written.)"""
    p = N.Program("correlation")
    i, j = p.axis("i", 5), p.axis("j", 37)
    inputs = (p.input(name, i, j, dtype="f16") for name in ("x", "y", "w", "bias"))
    x, y, w, bias = (N.cast(t[i, j], "f32") for t in inputs)
    e = N.exp(x + bias - N.max(x, j))
    de, dy = e - N.sum(w * e, j), y - N.sum(w * y, j)
    size, other_size = (N.sum(w * (d * d), j) for d in (de, dy))
    p.output(N.sum(w * (de * dy), j) * N.rsqrt(size * other_size + 1e-6), i)
    remarks = compiled(Source.of(p).text).facts["remarks"]
    assert any(EQUAL in r for r in remarks)
    assert any("fused 3 reductions" in r for r in remarks)  # the moments, around final sums


def test_what_a_mask_hides_is_not_normalised():
    """A number that a mask hides is far larger than those that its square is divided by the squares
    of: it is in range, and so is its square, but not what is left without the last norm."""
    at, row = (T.index(0), T.index(1)), (T.index(0),)
    x, nothing = T.read("x", *at), T.const(0.0)
    shown = T.make("gt", T.read("y", *at), nothing)

    def norm(key):
        return T.make("rsqrt", T.make("add", T.read(key, *row), T.const(1e-5)))

    def sum_of(body, key):
        return NestStep(key, "add", body, (8, 29), (0,))

    size = sum_of(T.make("select", shown, T.make("mul", x, x), nothing), "size")
    standard = T.make("mul", x, norm("size"))
    again = sum_of(T.make("mul", standard, standard), "again")
    normal = T.make("mul", standard, norm("again"))
    kept = sum_of(T.make("mul", normal, x), "total")
    moved = [
        sum_of(T.make("mul", standard, x), "rest"),
        NestStep("total", None, T.make("mul", T.read("rest", *row), norm("again")), (8,), (0,)),
    ]
    inputs = {key: ((8, 29), "f32") for key in ("x", "y")}
    program = WholeProgram(inputs, {}, {"total": "f32"}, frozenset())
    steps = [size, again]
    assert not wrong_values(program, [*steps, kept], program, [*steps, kept])
    assert OUTLIER in wrong_values(program, [*steps, kept], program, [*steps, *moved])
