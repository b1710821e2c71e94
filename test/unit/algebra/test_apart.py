# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What lies apart in the memory of the check of whole programs: dimensions along which all is
alike."""

import numpy as np
import pytest

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.numerics import whole
from neptune_mlir.algebra.numerics.orders import SIGNS
from neptune_mlir.algebra.numerics.steps import IN_ORDER, NestStep, apart
from neptune_mlir.algebra.numerics.whole import WholeProgram


def products(key="total"):
    """The sums of rows of q k + w, whose softmax is not asked for."""
    q = T.read("q", T.index(0), T.index(1), T.index(3))
    k = T.read("k", T.index(0), T.index(2), T.index(3))
    scores = NestStep("scores", "add", T.make("mul", q, k), (3, 5, 9, 4), (0, 1, 2))
    body = T.make("add", T.read("scores", *map(T.index, range(3))), T.read("w", T.index(2)))
    return [scores, NestStep(key, "add", T.make("exp", body), (3, 5, 9), (0, 1))]


SHAPES = {"q": ((3, 5, 4), "f32"), "k": ((3, 9, 4), "f32"), "w": ((9,), "f32")}


def test_dimensions_along_which_all_is_alike():
    assert apart(products()[:1], ["q", "k"]) == {"q": [0], "k": [0]}
    # of `scores` alone w lacks the first one, and of k all steps fold the last one
    assert apart(products(), ["q", "k", "w"]) == {"q": [0], "k": [0], "w": []}
    total = NestStep("total", "add", T.read("x", T.index(0), T.index(1)), (4, 24), (0,))
    twice = NestStep("y", None, T.read("x", T.index(0), T.index(0)), (4,), (0,))
    assert apart([total], ["x"]) == {"x": [0]}
    assert apart([total, twice], ["x"]) == {"x": []}


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("plan", [whole.ONE_STEP, (IN_ORDER, 0), (IN_ORDER, SIGNS)])
def test_how_inputs_lie_in_memory_changes_no_bit(monkeypatch, kind, plan):
    program = WholeProgram(SHAPES, {}, {"total": "f32"}, frozenset())
    draws = np.random.default_rng(3)
    many = [[draws.standard_normal(s) for s, _ in SHAPES.values()] for _ in range(7)]
    laid_out = []
    monkeypatch.setattr(
        WholeProgram, "values",
        lambda self, steps, data, *rest, values=WholeProgram.values: (
            laid_out.append({key: x.strides for key, x in data.items()})
            or values(self, steps, data, *rest)
        ),
    )  # fmt: skip
    (found,) = whole._Run(program, products(), kind, plan).batch(many)
    monkeypatch.setattr(whole, "apart", lambda steps, inputs: dict.fromkeys(inputs, ()))
    (plainly,) = whole._Run(program, products(), kind, plan).batch(many)
    assert (found == plainly).all()
    now, before = (of["q"] for of in laid_out)
    assert now[1] == 7 * now[0] and before[3] == 7 * before[0]  # next to the inputs
