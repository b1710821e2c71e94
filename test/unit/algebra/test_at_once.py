# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The first run of many inputs, judged in one go: never milder than `judge`, seldom stricter."""

import numpy as np
import pytest

from neptune_mlir.algebra.numerics import hostile
from neptune_mlir.algebra.numerics.at_once import STRANGE, excess_at_once
from neptune_mlir.algebra.numerics.comparison import Comparison
from neptune_mlir.algebra.numerics.judge import judge, judge_each
from neptune_mlir.algebra.numerics.moves import alike, jitter, moved_together, wiggle
from neptune_mlir.algebra.numerics.norms import frobenius, kinds
from neptune_mlir.algebra.numerics.programs import Programs, far_from_one


def softmax(x, y):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return (weights * y).sum(-1) / weights.sum(-1)


def unguarded(x, y):
    return (np.exp(x) * y).sum(-1) / np.exp(x).sum(-1)


def products(x, y):
    return (x * y) * y


def moved(x, y):
    return x * (y * y)


def variance(x, y):
    return ((x - x.mean(-1, keepdims=True)) ** 2).mean(-1)


def of_squares(x, y):
    return (x * x).mean(-1) - x.mean(-1) ** 2


def largest(x, y):
    return x.argmax(-1)


def last_largest(x, y):
    return x.shape[-1] - 1 - x[..., ::-1].argmax(-1)


@pytest.mark.parametrize(
    ("fused", "unfused", "result", "some_wrong"),
    [(softmax, softmax, "f32", False), (unguarded, softmax, "f32", True),
     (moved, products, "f32", True), (moved, products, "f16", False),
     (of_squares, variance, "f32", True), (last_largest, largest, "i64", True)],
)  # fmt: skip
def test_as_judge_has_it(fused, unfused, result, some_wrong):
    def run(function, kind):
        def of(arguments):
            with np.errstate(all="ignore"):
                found = function(*(np.asarray(a, kind) for a in arguments))
            return [np.asarray(found, float if result != "i64" else None)]

        return of

    dtypes = ("f32", "f32")
    runs = run(fused, np.float32), run(unfused, np.float32), run(unfused, np.float64)
    generator = np.random.default_rng(0)
    given = [hostile.plain(generator, (3, 16), d) for d in dtypes]
    many = [case.arguments for case in hostile.cases(given, dtypes)]
    three = [[np.stack([of(arguments)[0] for arguments in many])] for of in runs]
    stacks = [np.stack(of_each) for of_each in zip(*many, strict=True)]
    right = excess_at_once(stacks, dtypes, three, [result]) <= 1.0
    by_one = []
    for k, arguments in enumerate(many):
        comparison = Comparison(result)
        far = far_from_one([np.asarray(a)[None] for a in arguments], dtypes)
        comparison.together, comparison.beyond = (bool(of_all[0]) for of_all in far)
        comparison.add(*(values[0][k] for values in three))
        by_one.append(comparison.ok)
    assert not (right & ~np.array(by_one)).any()
    assert right.sum() >= 0.9 * sum(by_one)
    assert (sum(by_one) < len(many)) == some_wrong


def test_infinities_are_worse_where_the_program_as_written_is_right():
    x, one, inf = np.ones((3, 2)), np.ones((3, 2)), np.full((3, 2), np.inf)
    fused, unfused = np.array([[1, 1], [1, np.inf], [1, np.nan]]), np.stack([one, one, inf])[:, 0]
    found = excess_at_once([x], ("f32",), ([fused], [unfused], [one]), ("f32",))
    np.testing.assert_array_equal(found, [0, np.inf, STRANGE])


def test_kinds_and_norms():
    assert kinds(np.array([0.0, np.inf, -np.inf, np.nan])).tolist() == [0, 1, 2, 3]
    got, wanted = np.array([3e200, 4.5e200, np.nan]), np.array([3e200, 4e200, 1.0])
    assert frobenius(got[None], wanted[None]) == pytest.approx(0.1)


def test_inputs_side_by_side_are_judged_as_each_alone():
    """A program is told of whatever it runs on before it does."""
    asked = set()

    def run(function, kind):
        def of(arguments):
            assert (id(of), id(arguments)) in asked
            with np.errstate(all="ignore"):
                return [np.asarray(function(*(np.asarray(a, kind) for a in arguments)), float)]

        return of

    def prepare(many, runs):
        asked.update((id(run), id(arguments)) for run in runs for arguments in many)
        kept.extend(many)  # nothing else has their place in memory

    kept = []
    runs = run(of_squares, np.float32), run(variance, np.float32), run(variance, np.float64)
    orders = [run(lambda x, y, k=k: variance(np.roll(x, k, -1), y), np.float32) for k in range(6)]
    programs = Programs(
        *runs, ("f32", "f32"), ("f32",), frozenset(), prepare, orders.__getitem__, runs[2]
    )
    generator = np.random.default_rng(0)
    given = [hostile.plain(generator, (3, 16), "f32") for _ in range(2)]
    many = [case.arguments for case in hostile.cases(given, ("f32", "f32"))][5::17]
    together = judge_each(programs, many)
    apart = [judge(programs, arguments) for arguments in many]
    said = [
        [[(c.runs, c.strangers, c.excess, c.overflows, c.verdict) for c in found] for found in of]
        for of in (together, apart)
    ]
    assert said[0] == said[1] and len({c.ok for found in together for c in found}) == 2
    assert any(c.runs > 1 for found in together for c in found)


@pytest.mark.parametrize("move", [jitter, alike, wiggle])
def test_many_moves_are_as_many_of_one(move):
    values = np.array([[0.5, 0.0, 1.0], [1.0, np.inf, -1e9]])
    moves = [move(values, "f32"), move(np.arange(3), "i64"), move(values[0], "bf16")]
    one, other = (np.random.default_rng(3) for _ in range(2))
    for at_once in moved_together(moves, one, 5):
        np.testing.assert_equal(at_once, moved_together(moves, other, 1)[0])
