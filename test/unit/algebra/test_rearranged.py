# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is luck of an order of elements: the last that is asked of what is wrong by all else."""

from dataclasses import replace

import numpy as np
import pytest

from neptune_mlir.algebra.numerics import judge as judging
from neptune_mlir.algebra.numerics.floats import EPSILON
from neptune_mlir.algebra.numerics.judge import judge
from neptune_mlir.algebra.numerics.moves import jitter, moved_together
from neptune_mlir.algebra.numerics.orders import EXACT, FURTHER_ORDERS
from neptune_mlir.algebra.numerics.programs import Programs
from neptune_mlir.algebra.numerics.rearranged import by_size, rearrangements

ULP, ORDER = EPSILON["f32"], FURTHER_ORDERS[2]
X = np.sort(np.random.default_rng(0).random((3, 8)) + np.arange(8), 1)


@pytest.fixture(autouse=True)
def near_alone(monkeypatch):
    """Inputs further away have no other verdict here, and take long."""
    monkeypatch.setattr(judging, "PARTS", ())


def programs(fused, unfused, exact, reordered):
    """Functions of rows; `reordered` of an order and rows."""
    run = lambda f: lambda values: [np.asarray(f(values[0]), float)]  # noqa: E731
    return Programs(
        run(fused), run(unfused), run(exact), ("f32",), ("f32",), ranged=run(exact),
        reordered=lambda order: run(lambda x: reordered(order, x)), otherwise=lambda n: run(exact),
    )  # fmt: skip


def total(x):
    return x.sum(1)


def off(x, ulps, always=False):
    """A sum that is off where elements ascend."""
    ascend = (np.diff(x) > 0).all(1)
    return total(x) * (1 + ULP * ulps * (ascend | always))


def luck(fused=30.0, written=14.0, always=False, exact=total):
    of = programs(
        lambda x: off(x, fused, always), total, exact,
        lambda order, x: off(x, written * (order == ORDER)),
    )  # fmt: skip
    return judge(of, [X])[0].ok


def test_an_error_in_one_order_is_luck_if_the_program_has_it_in_one():
    assert luck()
    assert not luck(written=12.0)  # not as far off in any order
    assert not luck(fused=34.0, written=30.0)  # in others not within the bound, on average


def test_an_error_in_all_orders_is_none():
    assert not luck(always=True)


def test_nor_is_it_luck_where_positions_count():
    by_place = np.arange(8) * 1e-3
    assert not luck(exact=lambda x: total(x) + 1e-8 * (x * by_place).sum(1))


def test_programs_without_other_roundings_have_no_last_look():
    of = programs(
        lambda x: off(x, 30.0), total, total, lambda order, x: off(x, 14.0 * (order == ORDER))
    )
    assert judge(of, [X])[0].ok
    assert not judge(replace(of, otherwise=None), [X])[0].ok


@pytest.mark.parametrize(("given", "right"), [(0.4, True), (0.8, False), (0.0, False)])
def test_what_an_order_of_an_overflowing_sum_gives(given, right):
    """A reference is -inf if what is below 0 comes first, and then weights are as if there were
    none; else it is a NaN, or inf and all weights are 0."""
    of = programs(
        lambda x: np.full(3, 0.4), lambda x: np.full(3, np.nan), lambda x: np.zeros(3),
        lambda order, x: np.full(3, given if order == ORDER else 0.0),
    )  # fmt: skip
    assert judge(of, [X])[0].ok == right


def test_which_axes_may_be_rearranged():
    generator = np.random.default_rng(0)
    x, w = generator.random((3, 8)), generator.random(8)

    def known(exact, *arguments):
        found = rearrangements(lambda values: [exact(*values)], arguments, generator, 20)
        assert len(found) in (0, 20)
        return set(found[0].of_extents) if found else set()

    assert known(lambda x, w: x * w, x, w) == {3, 8}
    assert known(lambda x, w: np.cumsum(x * w, 1), x, w) == {3}
    assert known(lambda x, w: np.cumsum(x * w, 1) * np.arange(3)[:, None], x, w) == set()
    assert known(lambda x: np.tril(x), x[:, :3]) == set()


def test_orders_by_size_are_those_of_one_row():
    x = np.array([[1.0, 3.0, 2.0], [3.0, 1.0, 2.0]])
    w = np.array([[2.0, 1.0], [2.0, 3.0], [2.0, 2.0]])
    orders = [[*way.of_extents[3]] for way in by_size([x, w], {3}, {2: 1})]
    assert orders == [[1, 2, 0], [0, 2, 1], [0, 2, 1], [1, 2, 0]]
    assert not by_size([x, w], {5}, {})


def test_a_zero_that_an_exponent_is_made_of_moves_beside_1():
    """exp(0) is 1, and has its last place."""
    zeros = np.zeros(50)
    (moved,) = moved_together([jitter(zeros, "f32", -1.0, zeros=True)], np.random.default_rng(0), 1)
    assert 0 < np.abs(moved[0]).max() <= ULP


def test_noise_of_equal_16_bit_numbers_has_the_last_place_of_f32():
    """Of weights that differ by exp(32), one is left, and no variance."""
    x = np.full((1, 5), 65504.0)

    def variance(x):
        e = np.exp(x - x.max(1, keepdims=True))
        p = e / e.sum(1, keepdims=True)
        d = x - (p * x).sum(1, keepdims=True)
        return (p * d * d).sum(1)

    noise = lambda x: np.full(1, 1e-6)  # noqa: E731
    of = programs(noise, lambda x: np.zeros(1), variance, lambda order, x: np.zeros(1))
    of = replace(of, arguments=("f16",), exponents=frozenset({0}))
    assert judge(of, [x])[0].ok
    far = replace(of, fused=lambda values: [np.full(1, 1.0)])
    assert not judge(far, [x])[0].ok


@pytest.mark.parametrize(
    ("given", "order", "right"),
    [(0.0, EXACT, True), (0.5, EXACT, True), (0.4, EXACT, False), (0.0, ORDER, False)],
)
def test_a_row_that_needs_the_noise_of_a_sum(given, order, right):
    """With an exact mean, equal numbers have no variance, and what is divided by its root
    overflows. No single order says that much."""
    one = lambda x: np.ones(3)  # noqa: E731
    exactly = 0.5 if given else 0.0
    of = programs(
        lambda x: np.full(3, given), one, one,
        lambda number, x: np.full(3, exactly if number == order else 1.0),
    )  # fmt: skip
    assert judge(of, [X])[0].ok == right


def test_digits_that_exact_sums_lose_are_none_that_a_fused_program_may_lose():
    """An eighth of a row is what the program as written is off by, or it is in range."""
    one = lambda x: np.ones(3)  # noqa: E731
    of = programs(
        lambda x: np.full(3, 0.9), one, one,
        lambda number, x: np.full(3, 0.9 if number == EXACT else 1.0),
    )  # fmt: skip
    assert not judge(of, [X])[0].ok


@pytest.mark.parametrize(("written", "right"), [(14.0, True), (12.0, False)])
def test_an_order_of_all_elements_is_one_of_the_sums(written, right):
    """The program as written has the error of the fused one where some elements come last."""
    def where_it_is_worse(x):  # the last element is the largest one in one draw of eight
        return total(x) * (1 + ULP * written * (x[:, -1] == x.max(1)) * (np.diff(x) < 0).any(1))

    of = programs(lambda x: off(x, 30.0), where_it_is_worse, total, lambda order, x: total(x))
    assert judge(of, [X])[0].ok == right


def test_so_is_one_by_the_size_of_elements():
    """Partial sums are largest where elements ascend or descend, which 32 draws do not."""
    def where_it_is_worse(x):
        return total(x) * (1 + ULP * 14.0 * (np.diff(x) < 0).all(1))

    of = programs(lambda x: off(x, 30.0), where_it_is_worse, total, lambda order, x: total(x))
    assert judge(of, [X])[0].ok
