# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rule that a fused program counts as right by: what infinities and NaNs may become."""

import numpy as np

from neptune_mlir.algebra.numerics.judge import judge
from neptune_mlir.algebra.numerics.programs import Programs

NAN, INF = np.nan, np.inf


def verdict(fused, unfused, exact, *values, exponents=frozenset()):
    """Of one-row programs, of which nothing but the named arguments is in an exponent."""
    three = (lambda *_: [fused], lambda *_: [unfused], exact)
    runs = [lambda values, f=f: [np.asarray(f(*values), float)] for f in three]
    found = Programs(*runs, ("f32",) * len(values), ("f32",), frozenset(exponents))
    with np.errstate(all="ignore"):
        (comparison,) = judge(found, [np.asarray([v], float) for v in values])
    return comparison.ok


def test_what_an_infinity_is_summed_into_need_not_be_finite():
    bounded = lambda x, y: 1 / (1 + np.abs(x)) + y  # noqa: E731  0 of an infinity
    assert verdict(NAN, 1.0, bounded, INF, 1.0)
    assert not verdict(NAN, 1.0, bounded, INF, 1.0, exponents={0})  # a maximum knows infinities
    assert not verdict(2.0, 1.0, bounded, INF, 1.0)  # a number is right or wrong
    assert not verdict(NAN, 1.0, lambda x, y: y, INF, 1.0)  # nothing that depends on it
    assert verdict(NAN, -INF, lambda x: x, -INF) and verdict(INF, NAN, lambda x: abs(x), NAN)


def test_where_a_program_divides_by_0_an_infinity_is_as_good_as_a_nan():
    assert verdict(INF, NAN, lambda x: x / x, 0.0)
    assert not verdict(1.0, NAN, lambda x: x / x, 0.0)
    assert not verdict(NAN, INF, lambda x: 1 / x, 0.0)


def test_the_ends_of_the_range_are_spared_where_inputs_are_scaled_together():
    product = lambda x, y: x * y  # noqa: E731
    assert verdict(0.0, 1e-30, product, 1e-15, 1e-15)
    assert verdict(INF, 1e30, product, 1e15, 1e15)
    assert not verdict(0.0, 1e-30, product, 1e-30, 1.0)
    assert not verdict(INF, 1e30, product, 1e30, 1.0)
    assert not verdict(0.0, 1e-20, product, 1e-10, 1e-10)


def test_what_an_overflow_makes():
    """Of a NaN, the 0 that dividing by an infinity gives; nothing else that is finite."""
    assert verdict(0.0, NAN, lambda x: x, 1.0) and verdict(1.0, NAN, lambda x: x, 1.0)
    assert not verdict(2.0, NAN, lambda x: x, 1.0)
    assert not verdict(NAN, 1.0, lambda x: x, 1.0)


def test_what_a_mask_leaves_out_is_hidden_from_all_that_follows():
    """A norm of x less the mean of what the weights show: with an infinity under a weight of 0 it
    is NaN as written. Hidden from the mean alone, the norm divides by an infinity."""
    weights = np.array([1.0, 1.0, 0.0])

    def norm(x, hide):
        with np.errstate(all="ignore"):
            shown = np.where(weights == 0, 0.0, weights * x) if hide else weights * x
            off = x - shown.sum(1, keepdims=True) / 2
            rate = 1 / np.sqrt((off * off).sum(1, keepdims=True))
            made = off * rate
        return np.where((off == 0) | (rate == 0), 0.0, made) if hide else made

    def judged(made, x):
        def run(hide):
            return lambda values: [norm(values[0], hide)]

        def programs(hide):
            return Programs(
                lambda values: [made(values[0])], run(hide), run(hide), ("f32",), ("f32",),
                frozenset(), reordered=lambda order: run(hide),
                hiding=None if hide else lambda: programs(True),
            )  # fmt: skip

        return judge(programs(False), [x])[0].ok

    row, hidden = np.array([[1.0, 3.0, 5.0]]), np.array([[1.0, 3.0, INF]])
    assert np.isnan(norm(hidden, False)).all() and not norm(hidden, True).any()
    for x in (row, hidden):
        assert judged(lambda x: norm(x, True), x) and judged(lambda x: norm(x, False), x)
        assert not judged(lambda x: norm(x, True) + 1e-3, x)
    assert not judged(lambda x: np.full(x.shape, NAN), row)
    # visited in part: some elements are NaNs as written, the others as if nothing were there
    assert judged(lambda x: np.where(np.arange(3) == 1, NAN, norm(x, True)), hidden)
