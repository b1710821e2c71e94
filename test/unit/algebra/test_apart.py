# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What lies apart in the memory of the check of whole programs: dimensions along which all is
alike."""

import numpy as np
import pytest

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.numerics import evaluation, kept, steps, whole
from neptune_mlir.algebra.numerics.kept import Forms
from neptune_mlir.algebra.numerics.norms import norm
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


def softmax_over(last):
    """exp(x - max) of rows, asked for by a sum over i, j and by products over i, d, j."""
    x = T.read("x", T.index(0), T.index(last))
    return T.make("exp", T.make("sub", x, T.read("most", T.index(0))))


def weighted():
    rows = T.read("x", T.index(0), T.index(1))
    product = T.make("mul", softmax_over(2), T.read("v", T.index(2), T.index(1)))
    return [
        NestStep("most", "max", rows, (6, 29), (0,)),
        NestStep("total", "add", softmax_over(1), (6, 29), (0,)),
        NestStep("sums", "add", product, (6, 5, 29), (0, 1)),
    ]


def test_loops_with_other_numbers_have_the_same_form():
    forms = Forms()
    assert forms.of(softmax_over(1)) == forms.of(softmax_over(2)) != forms.of(softmax_over(0))
    turned = T.read("x", T.index(1), T.index(0))
    assert forms.of(turned) != forms.of(T.read("x", T.index(0), T.index(1)))
    assert forms.of(turned) == forms.of(T.read("x", T.index(2), T.index(1)))
    numbers = [T.const(n) for n in (0.0, -0.0, float("nan"))]
    assert len({*map(forms.of, numbers)}) == 3
    other = T.make("sub", T.read("y", T.index(0), T.index(1)), T.read("most", T.index(0)))
    assert forms.of(T.make("exp", other)) != forms.of(softmax_over(1))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_other_loops_made_is_not_computed_again(monkeypatch, kind):
    shapes = {"x": ((6, 29), "f32"), "v": ((29, 5), "f32")}
    program = WholeProgram(shapes, {}, {"sums": "f32", "total": "f32"}, frozenset())
    draws = np.random.default_rng(3)
    many = [[draws.standard_normal(s) for s, _ in shapes.values()] for _ in range(7)]
    count = []
    monkeypatch.setattr(
        evaluation, "operated",
        lambda n, *rest: count.append(n.op) or kept.operated(n, *rest),
    )  # fmt: skip
    found = whole._Run(program, weighted(), kind, (IN_ORDER, 0)).batch(many)
    assert count.count("exp") == 1
    monkeypatch.setattr(whole, "_shared", lambda steps: {})
    plainly = whole._Run(program, weighted(), kind, (IN_ORDER, 0)).batch(many)
    assert count.count("exp") == 3
    assert all((a == b).all() for a, b in zip(found, plainly, strict=True))


def test_a_maximum_is_not_laid_out_anew(monkeypatch):
    program = WholeProgram({"x": ((6, 29), "f32")}, {}, {"most": "f32"}, frozenset())
    many = [[np.random.default_rng(k).standard_normal((6, 29))] for k in range(7)]
    monkeypatch.setattr(steps.np, "ascontiguousarray", lambda array: pytest.fail("a copy"))
    step = weighted()[0]
    data = {"x": np.array([x for x, in many]).transpose(1, 2, 0).copy().transpose(2, 0, 1)}
    (found,) = program.values([step], data, np.float64)
    assert (found == np.array([x for x, in many]).max(2)).all()


@pytest.mark.parametrize("width", [0, 1, 2, 4, 7, 8, 29])
def test_norms_of_short_rows_are_added_in_order(width):
    rows = np.random.default_rng(width).standard_normal((5, 31, width)) * 1e3
    rows[0] = 0.0
    size = np.abs(rows).max(axis=2, keepdims=True, initial=0.0)
    size = np.where(size > 0, size, 1.0)
    wanted = np.sqrt(np.square(rows / size).sum(axis=2, keepdims=True)) * size
    assert (norm(rows, 2) == wanted.squeeze(2)).all()


def test_orders_that_nobody_asks_for_are_not_looked_at(monkeypatch):
    looked = []
    monkeypatch.setattr(whole, "_shared", lambda steps: looked.append(steps) or {})
    program = WholeProgram({"x": ((6, 29), "f32")}, {}, {"most": "f32"}, frozenset())
    steps = weighted()[:1]
    trial = whole._Trial(program, steps, program, steps)
    assert trial.verdict(trial.cases(whole.SEED)[:5], (3, 1)) == ("", set())
    assert 1 <= len(looked) < 5
