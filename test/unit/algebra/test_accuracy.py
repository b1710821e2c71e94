# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rule that a fused program counts as right by."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from neptune_mlir.algebra.numerics.accuracy import GARBAGE, LOST
from neptune_mlir.algebra.numerics.comparison import Comparison
from neptune_mlir.algebra.numerics.floats import EPSILON, LARGEST, rounded
from neptune_mlir.algebra.numerics.judge import AGAIN, judge
from neptune_mlir.algebra.numerics.moves import alike, jitter, moved_together, wiggle
from neptune_mlir.algebra.numerics.programs import Programs

NAN, INF = np.nan, np.inf


def moved(move, generator):
    """Values that moved once."""
    return moved_together([move], generator, 1)[0][0]


def compared(fused, unfused, exact, dtype="f32"):
    found = Comparison(dtype)
    found.add(np.asarray(fused, float), np.asarray(unfused, float), np.asarray(exact, float))
    return found


def test_what_is_no_float_is_compared_in_each_run():
    found = Comparison("i1")
    true = np.array([1, 0, 1])
    for _ in range(3):
        found.add(true, true, true)
    assert found.ok and found.excess == 0.0
    found.add(1 - true, true, true)
    assert not found.ok


def programs(fused, unfused, exact, arguments=("f32",), results=("f32",)):
    """Functions of arrays as programs with one result."""
    runs = [lambda values, f=f: [np.asarray(f(*values), float)] for f in (fused, unfused, exact)]
    return Programs(*runs, arguments, results)


def single(function):
    """A function computed in float32."""
    return lambda *values: function(*[np.asarray(v, np.float32) for v in values])


@pytest.mark.parametrize(
    ("fused", "unfused", "exact", "right"),
    [
        (NAN, NAN, NAN, True),
        (0.0, NAN, NAN, False),  # a NaN that vanishes
        (NAN, 1.0, 1.0, False),
        (INF, 1.0, 1.0, False),
        (INF, INF, INF, True),
        (NAN, INF, INF, False),  # an infinite input: the program defines inf
        (-INF, INF, INF, False),
        (1.0, INF, INF, False),
        (1.0, INF, 1.0, True),  # the unfused program overflows, the fused one is right
        (NAN, INF, 1.0, True),  # or overflows as well
        (INF, NAN, 1.0, True),
        (2.0, INF, 1.0, False),  # but a number has to be right
        (NAN, INF, 1e60, True),  # too large for f32: overflow is overflow
        (3e38, INF, 1e60, False),
        (NAN, 0.0, NAN, True),  # float64 and the fused program see what the unfused one lost
    ],
)
def test_patterns_of_nan_and_inf(fused, unfused, exact, right):
    found = compared([1.0, fused], [1.0, unfused], [1.0, exact])
    assert found.ok == right, found
    if found.strangers:
        assert found.example.startswith("element [1] is")


def test_the_bound_is_twice_the_unfused_error_and_four_ulps():
    ulp = EPSILON["f32"]
    exact = np.full(3, 1.0)
    assert compared(exact * (1 + 4 * ulp), exact, exact).ok
    assert not compared(exact * (1 + 4.5 * ulp), exact, exact).ok
    assert compared(exact * (1 + 24 * ulp), exact * (1 + 10 * ulp), exact).ok
    found = compared(exact * (1 + 25 * ulp), exact * (1 - 10 * ulp), exact)
    assert not found.ok
    assert found.fused == pytest.approx(25) and found.bound == pytest.approx(24)


def test_rows_have_their_own_size():
    """A row of large numbers hides no error of a small one; one element of a row may cancel."""
    exact = np.array([[1e20, 1e20], [1.0, 1.0]])
    off = np.array([[1e20, 1e20], [1.0, 1.001]])
    assert not compared(off, exact, exact).ok
    cancelled = np.array([[1.0, 1e-9]])
    assert compared(cancelled + np.array([[0, 1e-7]]), cancelled, cancelled).ok


def test_a_result_of_another_shape_fails():
    assert not compared(np.zeros(3), np.zeros(2), np.zeros(2)).ok


def test_integers_are_what_either_program_gives():
    assert compared([1, 2], [1, 2], [1, 2], "i64").ok
    assert compared([1, 3], [1, 2], [1, 3], "i64").ok
    assert not compared([1, 4], [1, 2], [1, 3], "i64").ok


def test_types_have_their_own_ulps():
    exact = np.array([1.0])
    for dtype in ("f16", "bf16", "f32"):
        assert compared(exact + 4 * EPSILON[dtype], exact, exact, dtype).ok
        assert not compared(exact + 5 * EPSILON[dtype], exact, exact, dtype).ok
    assert compared(exact + 9e-13, exact, exact, "f64").ok
    assert not compared(exact + 2e-12, exact, exact, "f64").ok


def test_luck_is_evened_out():
    """Sums in two orders differ by luck; what is wrong is wrong each time."""
    forward = single(lambda x: np.add.accumulate(x, axis=1)[:, -1])
    backward = single(lambda x: np.add.accumulate(x[:, ::-1], axis=1)[:, -1])
    exact = lambda x: np.asarray(x).sum(1)  # noqa: E731
    generator = np.random.default_rng(0)
    ran_again = 0
    for seed in range(200):
        x = rounded(generator.standard_normal((4, 300)), "f32")
        (found,) = judge(programs(backward, forward, exact), [x], seed)
        assert found.ok, (seed, found.fused, found.unfused)
        ran_again += found.runs == AGAIN
    assert ran_again  # the bound alone fails some
    shifted = single(lambda x: np.add.accumulate(x, axis=1)[:, -1] + np.float32(1e-3))
    (found,) = judge(programs(shifted, forward, exact), [x])
    assert not found.ok and found.runs == AGAIN


def test_what_is_close_to_the_bound_is_run_more_often():
    """Errors at random: few runs know their size no better than by a third."""
    draw = np.random.default_rng(1)

    def off(ulps):
        return lambda x: 1 + ulps * EPSILON["f32"] * draw.standard_normal(1)

    def verdicts(ulps):
        of = programs(off(ulps), off(50), lambda x: np.ones(1))
        return [judge(of, [np.ones(3)], seed)[0] for seed in range(12)]

    right = verdicts(98)  # 104 are allowed
    assert sum(v.ok for v in right) > 9 and any(v.ok and v.runs > 64 for v in right)
    # (half of the errors of a first run are small)
    assert not any(v.ok for v in verdicts(170) if v.runs > AGAIN)


def test_an_error_that_is_rare_and_large_is_looked_for():
    """y - b x is right for one b and off for the next: 16 runs may see none of the unfused ones."""

    x = rounded(np.random.default_rng(0).standard_normal((1, 3)), "f32")

    def sometimes(part, seed, at_first, large):
        def run(a):
            text = np.asarray(a).tobytes() + seed.to_bytes(4, "little")
            draw = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") / 2**32
            bad = at_first if np.array_equal(a, x) else draw < part
            return 1 + EPSILON["f32"] * np.array([large if bad else 60.0])

        return run

    def right(part, large=1000.0, often=0.08, times=50):
        of = [programs(sometimes(part, s, True, large), sometimes(often, s + 50, False, large),
                       lambda a: np.ones(1)) for s in range(times)]  # fmt: skip
        return sum(judge(p, [x])[0].ok for p in of)

    assert right(0.1) > 40  # 1.1 times the error
    assert right(1.0) < 6  # 3.3 times
    # however large it is, where most runs are right
    assert right(0.04, 1e4, 0.04, 4) > 2
    assert right(0.04, 1e4, 0.0, 4) == 0


@pytest.mark.parametrize("off", [40.0, 100.0, 1e4])
def test_an_error_of_one_input_is_not_rare(off):
    """Of ties, say: no number of runs in which there are none evens it out."""
    x = rounded(np.random.default_rng(0).standard_normal((1, 16)), "f32")

    def fused(a):
        return 1 + EPSILON["f32"] * np.array([off if np.array_equal(a, x) else 0.0])

    exact = lambda a: np.ones(1)  # noqa: E731
    assert not judge(programs(fused, exact, exact), [x])[0].ok


def test_roundings_that_no_last_place_moves_are_luck_too():
    """x - 1e4 rounds x to 1e-3: inputs that differ in the last place are all rounded alike."""

    def away(by, times=1.0):
        @single
        def run(x):
            moved = x + np.float32(by) - np.float32(1e4) + np.float32(1e4) - np.float32(by)
            return np.float32(times) * (moved - x) + x

        return lambda x: np.asarray(run(x), float).sum(1)

    exact = lambda x: x.sum(1)  # noqa: E731
    generator = np.random.default_rng(0)
    inputs = [rounded(1 + generator.random((1, 2)), "f32") for _ in range(60)]
    both = programs(away(3e-4), away(0.0), exact)
    found = [judge(both, [x])[0] for x in inputs]
    assert all(f.ok for f in found)
    assert sum(f.beside is not None for f in found) > 5  # by inputs further away
    worse = programs(away(3e-4, 8.0), away(0.0), exact)
    assert sum(judge(worse, [x])[0].ok for x in inputs) < 20  # (some are exact by luck)


def test_inputs_further_away_are_like_the_input():
    """Equal numbers are exact unfused, and others not: that makes no fused program right."""
    x = np.full((3, 4), 0.75)

    def spread(error):
        def run(x):
            unequal = x.max(1) > x.min(1)
            return 1 + 1e-3 * np.where(unequal | (error > 0), max(error, 1.0), 0.0)

        return run

    (found,) = judge(programs(spread(1.0), spread(0.0), lambda x: np.ones(3)), [x])
    assert found.ok  # a last place is enough to show the error of both
    masks = programs(spread(1.0), spread(0.0), lambda x: np.ones(3))
    (found,) = judge(replace(masks, exponents=frozenset({0})), [np.full((3, 4), -1e9)])
    assert not found.ok  # masks stay
    steep = lambda x: 1 + (x - 0.75).sum(1) ** 2 * 1e12  # noqa: E731
    (found,) = judge(programs(lambda x: steep(x) + 1e-3, steep, steep), [x])
    assert not found.ok  # what moves by more than the row is another problem


def test_zeros_ones_and_masks_move_alike():
    """Nothing else moves roundings of what is made of them."""
    x = np.array([[0.0, 1.0, -1e9, 1.0, -INF, 0.75]])
    there = moved(alike(x, "f32", 2.0**-10), np.random.default_rng(0))
    assert there[0, 0] == 0 and there[0, 4] == -INF and there[0, 1] == there[0, 3] != 1
    assert 0 < abs(there[0, 2] / -1e9 - 1) < 2.0**-10

    def third(times, by):
        def run(x):
            exact = (x / 3).sum(1)
            near = ((x.astype("f4") + np.float32(by)) / np.float32(3) - np.float32(by / 3)).sum(1)
            return exact + times * (near - exact)

        return run

    ones = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    unlike = [0.37, 11.3, 5.1, 101.7, 33.3, 64.9, 7.7, 900.1, 2.9, 430.3, 17.9, 250.7]
    for times, least, most in ((1.0, 10, 12), (9.0, 0, 6)):
        right = [judge(programs(third(times, a), third(1.0, a * 1.1 + 1), third(0.0, 0)), [ones])
                 for a in unlike]  # fmt: skip
        assert least <= sum(found.ok for (found,) in right) <= most


def test_a_zero_of_equal_numbers_is_compared_with_other_zeros():
    """The mean of equal numbers is exact for some of them, unfused and fused, by luck."""
    c = single(lambda x: x - np.add.accumulate(x, 1)[:, -1:] / np.float32(x.shape[1]))
    exact = lambda x: x - x.mean(1, keepdims=True)  # noqa: E731
    tiles = single(lambda x: x - x.reshape(len(x), -1, 5).sum(2).sum(1)[:, None] / np.float32(35))
    both = replace(programs(tiles, c, exact), exponents=frozenset({0}))
    values = [-float(k) for k in range(1000001, 1000061)]
    found = [judge(both, [np.full((1, 35), v)])[0] for v in values]
    assert sum(f.ok for f in found) > 50
    shifted = single(lambda x: x - x[:, :1] * np.float32(1.01))
    planted = replace(both, fused=lambda a: [np.asarray(shifted(*a), float)])
    assert not any(judge(planted, [np.full((1, 35), v)])[0].ok for v in values[:8])


def test_an_infinity_behind_a_mask_may_stay_one():
    """0 times infinity: a NaN as written, not seen by a program that skips what is masked."""

    def written(x):
        with np.errstate(invalid="ignore", over="ignore"):
            return (x * x).sum(1) + (0 * x).sum(1)

    x = np.array([[1.0, -INF], [1.0, 2.0]])
    inf, number = (lambda x, v=v: np.array([v, 5.0]) for v in (INF, 5.0))
    assert judge(programs(inf, written, written), [x])[0].ok
    for fused in (number, lambda x: np.array([-INF, 5.0])):
        assert judge(programs(fused, written, written), [x])[0].strangers


def test_what_a_nan_does_not_reach_is_compared():
    """Rows beside that of a NaN are the same whatever stands there, and have to be right."""
    x = rounded(np.random.default_rng(0).standard_normal((4, 8)), "f32")
    x[0, 2] = NAN

    def right(times, row):
        def fused(a):
            return a.sum(1) * np.where(np.arange(4) == row, times, 1.0)

        of = programs(fused, lambda a: a.sum(1), lambda a: a.sum(1))
        return judge(of, [x])[0].ok

    assert right(1.0, 1) and right(2.0, 0)
    assert not right(2.0, 1) and not right(1 + 1e-3, 3)


def test_what_is_hidden_is_right_where_it_is_a_number():
    """A mask leaves an infinity out, which the program multiplies by 0."""
    x = rounded(np.random.default_rng(0).standard_normal((4, 8)), "f32")
    x[0, 2] = INF
    weights = np.where(np.arange(8) == 2, 0.0, 1.0)

    def right(times):
        fused = lambda a: np.where(weights == 0, 0.0, a).sum(1) * times  # noqa: E731
        written = lambda a: np.where(a == INF, NAN, weights * np.minimum(a, 9.0)).sum(1)  # noqa: E731
        return judge(programs(fused, written, written), [x])[0].ok

    assert right(1.0)
    assert not right(np.array([2.0, 1.0, 1.0, 1.0]))


def test_a_number_will_do_where_a_last_place_makes_one_of_a_nan():
    """The same root, of equal numbers: the unfused program makes a NaN in all orders."""

    def root(x):
        with np.errstate(invalid="ignore"):
            return np.sqrt(x[:, 0] - x[:, 1] - 1e-9)

    some = programs(lambda x: np.array([1e-5]), root, root)
    assert judge(some, [np.array([[0.7, 0.7]])])[0].ok
    (wrong,) = judge(some, [np.array([[0.7, 0.7 + 2.0**-20]])])  # of any input near it
    assert wrong.strangers


def test_whether_it_is_a_number_may_be_decided_by_a_last_place():
    """The root of a variance of equal numbers with signed weights: its sign is noise."""

    def root(x):
        with np.errstate(invalid="ignore"):
            return np.sqrt(x[:, 0] - x[:, 1]) + 1e-6

    near = programs(lambda x: np.array([1e-5]), root, root)
    (found,) = judge(near, [np.array([[0.75, 0.75]])])
    assert not found.strangers and found.runs > 1
    (wrong,) = judge(near, [np.array([[0.75, 0.75 + 2.0**-10]])])  # a NaN to begin with
    assert wrong.strangers


def test_multiplying_out_is_never_luck():
    def variance(x):
        d = x - x.mean(1, keepdims=True)
        return (d * d).mean(1)

    expanded = single(lambda x: (x * x).mean(1) - x.mean(1) ** 2)
    for mean in (30, 100, 1e4):
        x = rounded(mean + np.random.default_rng(0).standard_normal((8, 512)), "f32")
        (found,) = judge(programs(expanded, single(variance), variance), [x])
        assert not found.ok
        (found,) = judge(programs(single(variance), single(variance), variance), [x])
        assert found.ok


def test_what_float64_does_not_know_is_not_compared():
    turns = np.array([[1e12], [1e-9]])
    lost = lambda x: np.cos(x * turns).sum(1)  # noqa: E731
    x = rounded(np.random.default_rng(0).standard_normal((2, 300)) * 1e5, "f32")
    noise = lambda x: lost(x) + np.array([7.0, 0.0])  # noqa: E731
    (found,) = judge(programs(noise, lost, lost), [x])
    assert found.ok and found.unknown == 1
    noise = lambda x: lost(x) + 7.0  # noqa: E731
    (found,) = judge(programs(noise, lost, lost), [x])
    assert not found.ok


def test_a_constant_in_place_of_a_result_fails():
    x = rounded(np.random.default_rng(0).standard_normal((4, 300)), "f32")
    total = lambda x: np.asarray(x).sum(1)  # noqa: E731
    (found,) = judge(programs(lambda x: np.zeros(4), single(total), total), [x])
    assert not found.ok


def test_rounding():
    values = [1.0, 1.00390625, 1.01171875, -2.5, INF, NAN, 1e39, -1e39]
    wanted = [1.0, 1.0, 1.015625, -2.5, INF, NAN, INF, -INF]
    np.testing.assert_array_equal(rounded(values, "bf16"), wanted)
    assert rounded(0.1, "f32") == np.float32(0.1) and rounded(70000.0, "f16") == INF
    for dtype, largest in LARGEST.items():
        assert rounded(largest, dtype) == largest
    assert rounded(np.array([1, 2]), "i64").dtype == np.int64


def test_jitter_moves_data_by_an_ulp_and_leaves_constants():
    generator = np.random.default_rng(0)
    values = np.array([0.5, 0.0, 1.0, 1.0, 0.0, -1e9, -1e9, INF, NAN, 123456.0])
    many = moved_together([jitter(values, "f32")], generator, 50)
    columns = [set(column) for column in np.nan_to_num([x for (x,) in many]).T]
    assert [len(c) > 1 for c in columns] == [True] + [False] * 8 + [True]
    assert max(columns[0]) - 0.5 <= EPSILON["f32"]
    np.testing.assert_array_equal(moved(jitter(np.array([1, 2]), "i64"), generator), [1, 2])
    nearly = moved(wiggle(values, "f32"), generator)
    assert 0 < abs(nearly[0] - 0.5) < 1e-14 and nearly[5] == nearly[6] != -1e9


def test_a_zero_that_an_exponent_is_made_of_moves_with_what_it_is_beside():
    """Exponentials of zeros are equal, and their mean is rounded: the spread is not quite 0."""
    x = np.array([[0.0, 0.0, 0.0, 1.0]])

    def spread(x):
        p = np.exp(x - x.max(1, keepdims=True))[:, :3]
        return np.ptp(p, axis=1)

    off = lambda x: spread(x) + 1e-8  # noqa: E731
    data = programs(off, spread, spread)
    assert judge(replace(data, exponents=frozenset({0})), [x])[0].ok
    assert not judge(replace(data, exponents=frozenset()), [x])[0].ok  # a weight of 0 is 0
    far = lambda x: spread(x) + 1e-6  # noqa: E731
    of = replace(programs(far, spread, spread), exponents=frozenset({0}))
    assert not judge(of, [x])[0].ok


def test_jitter_moves_large_whole_numbers_where_they_are_data():
    """f16 numbers near 1e4 are multiples of 8, and alike."""
    run = lambda values: []  # noqa: E731
    of = Programs(run, run, run, ("f16", "f16"), (), frozenset({0}))
    values = np.array([1e4, 1e4, 1.0, 1.0])
    both = of.jitter([values, values])
    times = [moved_together(both, np.random.default_rng(k), 1)[0] for k in range(9)]
    masks, data = (np.unique([m[k] for m in times], axis=0) for k in range(2))
    assert len(masks) == 1 and len(data) > 1 and (data[:, 2:] == 1).all()


def test_no_order_of_a_sum_is_luck():
    """Both sums of a difference are exact in the order of the program, and in no other one."""

    def fused(x):
        return x.sum(1) * (1 + 50 * EPSILON["f32"])

    total = lambda x: x.sum(1)  # noqa: E731
    x = np.random.default_rng(0).random((3, 8)) + 1
    as_written = programs(fused, total, total)
    other = lambda order: lambda values: [total(values[0]) * (1 - 40 * EPSILON["f32"])]  # noqa: E731
    (alone,), (found,) = judge(as_written, [x]), judge(replace(as_written, reordered=other), [x])
    assert not alone.ok and found.ok and 30 < found.unfused < 40
    (wrong,) = judge(replace(programs(lambda x: fused(fused(x)[:, None]), total, total),
                             reordered=other), [x])  # fmt: skip
    assert not wrong.ok


def test_a_number_may_be_nearly_right_where_the_program_makes_a_nan():
    x = np.random.default_rng(0).random((3, 8)) + 1
    lost = lambda x: np.where([True, False, False], NAN, x.sum(1))  # noqa: E731
    for off, right in ((LOST / 2, True), (2 * LOST, False)):
        near = lambda x, off=off: x.sum(1) * (1 + np.array([off, 0, 0]) * EPSILON["f32"])  # noqa: E731
        (found,) = judge(programs(near, lost, lambda x: x.sum(1)), [x])
        assert found.ok == right
    elsewhere = lambda x: x.sum(1) * (1 + np.array([0, 99, 0]) * EPSILON["f32"])  # noqa: E731
    (found,) = judge(programs(elsewhere, lost, lambda x: x.sum(1)), [x])
    assert not found.ok


def test_more_range_says_what_a_nan_of_the_unfused_program_hides():
    """The same digits and more range: its error is what counts, or what another order gives."""
    ulp = EPSILON["f32"]
    x = np.random.default_rng(0).random((3, 8)) + 1
    total = lambda x: x.sum(1)  # noqa: E731
    lost = lambda x: np.where([True, False, False], NAN, x.sum(1))  # noqa: E731
    off = lambda ulps: lambda x: x.sum(1) * (1 + np.array([ulps, 0, 0]) * ulp)  # noqa: E731
    ranged = lambda values: [off(20)(values[0])]  # noqa: E731
    for ulps, right in ((40, True), (60, False), (GARBAGE / 2, False)):
        of = replace(programs(off(ulps), lost, total), ranged=ranged)
        assert judge(of, [x])[0].ok == right
    never = replace(of, reordered=lambda order: lambda values: [lost(values[0])])
    assert not judge(never, [x])[0].ok
    same = replace(of, reordered=lambda order: lambda values: [
        off(GARBAGE / 2)(values[0]) if order % 2 else lost(values[0])])  # fmt: skip
    assert judge(same, [x])[0].ok  # it is what the program makes in some order


def test_what_the_program_gives_with_more_range_is_right():
    """Powers of noise, too large for f32: 0 where all numbers happen to be equal."""
    x = np.random.default_rng(0).random((3, 8)) + 1
    large, lost, zero = (lambda x, v=v: np.full(3, v) for v in (1e57, NAN, 0.0))
    for wide, right in ((0.0, True), (1e55, False)):
        of = replace(programs(zero, lost, large), ranged=lambda values, v=wide: [np.full(3, v)])
        assert judge(of, [x])[0].ok == right
    assert not judge(programs(zero, lost, large), [x])[0].ok


def test_products_that_vanish_lose_more_in_more_products():
    """What the unfused program loses for want of range, the fused one may lose 8 times."""
    x = np.random.default_rng(0).random((3, 8)) + 1
    off = lambda ulps: lambda x: x.sum(1) * (1 + ulps * EPSILON["f32"])  # noqa: E731
    for of_fused, of_ranged, right in ((120, 2, True), (180, 2, False), (120, 8, False)):
        ranged = lambda values, ulps=of_ranged: [off(ulps)(values[0])]  # noqa: E731
        of = replace(programs(off(of_fused), off(20), off(0)), ranged=ranged)
        assert judge(of, [x])[0].ok == right
    assert not judge(programs(off(120), off(20), off(0)), [x])[0].ok


def test_a_zero_that_an_overflow_makes_of_noise_defines_nothing():
    x = np.full((2, 2), 0.75)
    difference = lambda x: x[:, 0] - x[:, 1]  # noqa: E731
    lost = programs(lambda x: np.full(2, NAN), lambda x: np.zeros(2), difference)
    for noise, right in ((1e-9, True), (0.0, False)):
        ranged = lambda values, noise=noise: [difference(values[0]) + noise]  # noqa: E731
        assert judge(replace(lost, ranged=ranged), [x])[0].ok == right
    data = np.array([[0.75, 0.5], [0.75, 0.25]])  # not equal: the unfused program is right
    of = replace(programs(lambda x: np.full(2, NAN), difference, difference),
                 ranged=lambda values: [difference(values[0]) + 1.0])  # fmt: skip
    assert not judge(of, [data])[0].ok


def test_more_range_says_whether_the_unfused_program_left_its_own():
    """An overflow that ends as a number, somewhat wrong, as a coefficient x / inf does."""
    x = np.random.default_rng(0).random((3, 8)) + 1
    off = lambda part: lambda x: x.sum(1) * (1 + part)  # noqa: E731
    nans = lambda x: np.full(3, NAN)  # noqa: E731
    for of_unfused, of_ranged, right in ((0.08, 1e-6, True), (0.08, 0.07, False), (5e-4, 0, False)):
        ranged = lambda values, part=of_ranged: [off(part)(values[0])]  # noqa: E731
        of = replace(programs(nans, off(of_unfused), off(0)), ranged=ranged)
        assert judge(of, [x])[0].ok == right


def test_whether_the_unfused_program_makes_a_number_may_be_luck():
    """The root of what is 0 but for rounding, in a row that is slightly off as well."""
    x = np.random.default_rng(0).random((2, 8)) + 1
    exact = lambda x: np.array([NAN, x[1].sum()])  # noqa: E731
    unfused = lambda x: np.array([0.5, x[1].sum()])  # noqa: E731
    fused = lambda x: np.array([0.7, x[1].sum() * (1 + 7 * EPSILON["f32"])])  # noqa: E731
    off = np.array([1, 1 + 5 * EPSILON["f32"]])
    roots = lambda order: lambda values: [exact(values[0]) * off]  # noqa: E731
    (found,) = judge(replace(programs(fused, unfused, exact), reordered=roots), [x])
    assert found.ok and found.runs > 1
    (wrong,) = judge(replace(programs(fused, exact, exact), reordered=roots), [x])
    assert wrong.strangers  # always a NaN
    numbers = lambda order: lambda values: [unfused(values[0])]  # noqa: E731
    same = lambda values: [exact(values[0])]  # noqa: E731
    for order, right in ((numbers, True), (roots, False)):  # a NaN in the order of the program
        fine = lambda x: np.array([0.7, x[1].sum()])  # noqa: E731
        of = replace(programs(fine, exact, exact), reordered=order, ranged=same)
        assert judge(of, [x])[0].ok == right


def test_noise_is_compared_with_noise():
    """Where the unfused program is off by more than a row, four times of it, to a power of 4."""
    x = np.random.default_rng(0).random((3, 8))
    for times, right in ((200, True), (300, False)):
        off = lambda x, times=times: 1e-9 + np.full(3, 1e-8 * times)  # noqa: E731
        of = programs(off, lambda x: np.full(3, 1.1e-8), lambda x: np.full(3, 1e-9))
        assert judge(of, [x])[0].ok == right
    of = programs(lambda x: np.full(3, 1.2), lambda x: np.full(3, 1.01), lambda x: np.full(3, 1.0))
    assert not judge(of, [x])[0].ok  # 20 times worse, but a row that has digits


def test_a_variance_of_equal_numbers_may_be_noise():
    weights = np.random.default_rng(0).random(300)

    def variance(x):
        w = weights.astype(x.dtype)
        d = x - ((w * x).sum(1) / w.sum())[:, None]
        return (w * d * d).sum(1) / w.sum()

    x = np.full((2, 300), rounded(100.1, "f32"))
    made = (100 * EPSILON["f32"]) ** 2
    assert (variance(x) < 1e-27).all()
    for value, right in ((made / 4, True), (1e3 * made, False)):
        noise = lambda x, value=value: np.full(2, value)  # noqa: E731
        (found,) = judge(programs(noise, single(variance), variance), [x])
        assert found.ok == right and not found.unknown


def test_a_row_of_equal_masks_is_known():
    """Softmax of equal numbers is even, whatever these numbers are."""

    def softmax(x):
        weights = np.exp(x - x.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    x = np.full((2, 30), -LARGEST["f32"])
    lost = lambda x: softmax(x) * NAN  # noqa: E731
    (found,) = judge(programs(lost, single(softmax), softmax), [x])
    assert not found.ok and not found.unknown


def test_of_few_digits_not_many_fewer_may_be_left():
    off = lambda part: lambda x: np.abs(x) * (1 + part)  # noqa: E731
    for unfused, fused, right in ((2e-3, 1e-2, True), (2e-3, 4e-2, False), (1e-4, 5e-4, False)):
        assert judge(programs(off(fused), off(unfused), off(0.0)), [np.ones(3)])[0].ok == right


def test_whether_noise_overflows_is_luck():
    def noisy(x):  # 0 for equal numbers, and infinite otherwise
        return np.where(np.ptp(x) == 0, 0.0, INF)[None]

    right = programs(lambda x: [NAN], noisy, lambda x: [0.0])
    assert judge(right, [np.full((1, 8), 1e30)])[0].ok
    assert not judge(right, [np.zeros((1, 8))])[0].ok  # which no last place moves
