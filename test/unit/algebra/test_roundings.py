# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Other roundings than to nearest, and what the rule of `--check` makes of them."""

import itertools
from dataclasses import replace

import numpy as np

from neptune_mlir.algebra.numerics.floats import EPSILON, LARGEST, SMALLEST, rounded
from neptune_mlir.algebra.numerics.judge import ROUNDINGS, judge
from neptune_mlir.algebra.numerics.programs import Programs
from neptune_mlir.driver.compiler import compile_reference
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from neptune_mlir.transforms.cpu.round_floats import MIX
from support.hostile_runs import programs_of

ULP = EPSILON["f32"]


def turned(values, number, digits=24):
    """Up where a number is further up than a mark that its neighbours have, else down. The least
    neighbours are those of f32."""
    more = np.uint64(53 - digits)
    values = np.asarray(values, np.float64)
    small = np.abs(values) < SMALLEST["f32"]
    units = np.where(small, values, 0.0) / (SMALLEST["f32"] * ULP)
    lower = np.floor(units)
    bits = np.where(small, lower, values).view(np.uint64)
    further = np.where(small, 0, bits & ((np.uint64(1) << more) - np.uint64(1)))
    down = bits ^ further
    further += ((units - lower) * 2.0 ** float(more)).astype(np.uint64)
    factors = np.array(MIX, np.uint64)
    with np.errstate(over="ignore"):
        mark = down ^ np.uint64(number) * factors[0]
        for factor in factors:
            mark = mark * factor
            mark = mark ^ (mark >> np.uint64(32))
        mark = (mark * factors[0]) >> (np.uint64(64) - more)
    up = further > mark
    normal = (down + (up.astype(np.uint64) << more)).view(np.float64)
    return np.where(small, (lower + up) * (SMALLEST["f32"] * ULP), normal)


def test_a_rounding_keeps_what_needs_none_and_order():
    generator = np.random.default_rng(0)
    values = np.sort(np.concatenate([generator.standard_normal(500), 1 + 1e-8 * np.arange(500)]))
    nearest = values.astype("f4")
    differ = []
    for number in (1, 2, 63):
        found = turned(values, number)
        assert (found == found.astype("f4")).all() and (np.diff(found) >= 0).all()
        assert (np.abs(found - values) < ULP * np.abs(values)).all()
        assert (turned(found, number) == found).all()
        differ.append((found != nearest).mean())
    assert all(0.1 < part < 0.4 for part in differ)
    assert np.isinf(turned([np.inf, -np.inf], 5)).all() and np.isnan(turned([np.nan], 5)).all()


PRODUCT = """func.func @f(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %0 = arith.mulf %x, %y : tensor<64xf32>
  return %0 : tensor<64xf32>
}"""


def test_the_pass_rounds_as_numpy_does():
    x, y = np.random.default_rng(1).standard_normal((2, 64)).astype("f4").astype(float)
    run = compile_reference(PRODUCT, "f", None, digits=24, numbered=True)
    for number in (1, 2, 77):
        assert (run(x, y, rounding=number) == turned(x * y, number)).all()


def test_what_is_denormal_has_few_digits():
    """27 least numbers times 0.3 are 8 or 9 of them, and a tenth of one is 0 but for luck."""
    least = SMALLEST["f32"] * ULP
    run = compile_reference(PRODUCT, "f", None, digits=24, numbered=True)
    factors = np.repeat([0.3, 1 / 270, -0.3, 2.0**-15], 16)
    found = [run(np.full(64, 27 * least), factors, rounding=k) / least for k in range(1, 65)]
    of_each = np.array(found).reshape(64, 4, 16)
    assert all((np.array(turned(27 * least * factors, k)) / least == f).all()
               for k, f in enumerate(found, 1))  # fmt: skip
    assert {*of_each[:, 0].flat} == {8.0, 9.0} and {*of_each[:, 2].flat} == {-8.0, -9.0}
    assert {*of_each[:, 1].flat} == {0.0, 1.0} and of_each[:, 1].mean() < 0.2
    assert (of_each == of_each[:, :, :1]).all()  # what is equal stays so
    exact = run(np.full(64, 3 * least), np.full(64, 5.0), rounding=3)
    assert (exact == 15 * least).all()


def test_sums_have_few_digits_too():
    """They are operations of a nest's combiner, which nothing rounded before."""
    program = N.Program("total")
    i, j = program.axis("i", 3), program.axis("j", 1000)
    x = program.input("x", i, j)
    total = N.sum(x[i, j], j)
    program.output(total, *total.axes)
    run = compile_reference(Source.of(program).text, "f", None, digits=24)
    data = np.random.default_rng(2).standard_normal((3, 1000)).astype("f4")
    assert (run(data.astype(float)) == np.add.accumulate(data, 1)[:, -1]).all()


ROOT = """func.func @f(%x: tensor<6xf32>) -> tensor<6xf32> {
  %large = arith.constant dense<1.0e9> : tensor<6xf32>
  %some = arith.constant dense<20.0> : tensor<6xf32>
  %0 = arith.addf %x, %large : tensor<6xf32>
  %1 = arith.subf %0, %large : tensor<6xf32>
  %2 = arith.subf %1, %some : tensor<6xf32>
  %3 = math.sqrt %2 : tensor<6xf32>
  return %3 : tensor<6xf32>
}"""


def test_a_nan_may_be_the_luck_of_a_rounding():
    """x + 1e9 is a multiple of 64, whatever the last place of x is: the root of x - 20 is one of 44
    or of -20 where x is from 0 to 64."""
    x = np.array([10.5, 33.7, 50.3, -30.5, 1000.2, 64.0])
    written = programs_of(ROOT)
    assert np.isnan(written.unfused([x])[0]).tolist() == [True, False, False, True, False, False]

    def strange(made):
        fused = lambda values: [np.where(made < 0, np.nan, np.sqrt(np.abs(made)))]  # noqa: E731
        return judge(replace(written, fused=fused), [x])[0].strangers

    nearest = np.array([-20.0, 44.0, 44.0, -20.0, 1004.0, 44.0])
    assert not strange(nearest)
    assert not strange(np.array([44.0, -20.0, -20.0, -20.0, 940.0, 44.0]))
    for k in (3, 4, 5):  # with no rounding
        assert strange(np.where(np.arange(6) == k, -nearest, nearest)) == 1


def test_errors_that_stay_are_those_of_other_roundings():
    """Ones and zeros: what the fused program loses, the one as written may lose on this input."""
    ones = np.array([[1.0, 0.0, 1.0]] * 3)

    def verdict(fused, written, beside=2.0):
        def run(values):
            at_input = np.array_equal(values[0], ones)
            return [1 + ULP * (fused if at_input else beside) * np.ones(3)]

        numbers = itertools.cycle([3.0, -2.0])
        unfused = lambda x: [1 + ULP * next(numbers) * np.ones(3)]  # noqa: E731
        exact = lambda x: [np.ones(3)]  # noqa: E731
        other = lambda n: lambda x: [1 + ULP * written * n / ROUNDINGS * np.ones(3)]  # noqa: E731
        of = Programs(run, unfused, exact, ("f32",), ("f32",), otherwise=other)
        return judge(of, [ones])[0].ok

    assert verdict(20.0, 10.0)
    assert not verdict(20.0, 5.0)  # with no rounding half of it
    assert not verdict(20.0, 10.0, 14.0)  # not on this input alone
    assert not verdict(60.0, 20.0)


def test_an_input_that_is_exact_by_luck_is_one_of_others():
    """No rounding is needed where 16 zeros and ones have a mean; a last place away it is."""
    ones = np.array([[1.0, 0.0, 1.0]] * 3)

    def verdict(fused, beside):
        def made(there, elsewhere):
            def run(values):
                at_input = np.array_equal(values[0], ones)
                return [1 + ULP * (there if at_input else elsewhere) * np.ones(3)]

            return run

        of = Programs(
            made(fused, 2 * beside), made(0.25, beside), made(0.0, 0.0), ("f32",), ("f32",),
            otherwise=lambda n: made(0.25, 0.25),
        )  # fmt: skip
        return judge(of, [ones])[0].ok

    assert verdict(12.0, 5.0)
    assert not verdict(20.0, 5.0)
    assert not verdict(12.0, 1.0)


def test_each_rounding_of_an_input_is_run_once():
    """However often one looks at it before it is wrong."""
    asked = []
    least = np.full((1, 3), -LARGEST["f32"])
    most = lambda x: [np.max(x[0], 1)]  # noqa: E731
    of = Programs(
        lambda x: [np.max(np.where(x[0] == least, -np.inf, x[0]), 1)], most, most,
        ("f32",), ("f32",), ranged=most,
        otherwise=lambda n: lambda x: asked.append((n, x[0].tobytes())) or most(x),
    )  # fmt: skip
    assert not judge(of, [least])[0].ok
    assert len(asked) >= ROUNDINGS and len(set(asked)) == len(asked)


def test_a_rounding_may_leave_the_range():
    """Of the mean of the smallest float; not of a maximum, of which nothing is rounded."""
    least = np.full((1, 3), -LARGEST["f32"])

    def verdict(by, fused=-np.inf):
        most = lambda x: [np.max(x[0], 1)]  # noqa: E731
        of = Programs(
            lambda x: [np.max(np.where(x[0] == least, fused, x[0]), 1)], most, most,
            ("f32",), ("f32",), ranged=most,
            otherwise=lambda n: lambda x: [np.max(x[0], 1) * (1 + by * (n % 2))],
        )  # fmt: skip
        return judge(of, [least])[0].ok

    assert verdict(ULP)
    assert not verdict(0.0)
    assert not verdict(ULP, np.inf) and not verdict(ULP, 0.0)


def test_a_row_that_most_roundings_make_is_noise():
    """The variance of weights that are all 1/37, which no f32 is: nearly 0 in float64, 0 where all
    are rounded alike, and otherwise the square of a last place."""
    zeros = np.zeros((3, 4))

    def verdict(fused, others):
        made = lambda value: lambda x: [value * np.ones(3)]  # noqa: E731
        other = lambda n: made(others * n / ROUNDINGS)  # noqa: E731
        of = Programs(made(fused), made(0.0), made(1e-34), ("f32",), ("f32",), otherwise=other)
        return judge(of, [zeros])[0].ok

    assert verdict(1e-17, 1e-17)
    assert not verdict(1e-16, 1e-17)
    assert not verdict(1e-17, 1e-34)


def test_errors_of_a_short_range_are_those_of_inputs_further_away():
    """Exponentials that are denormal are rounded alike in all runs of an input, and no other
    rounding shows it where the range is that of f64."""
    ones, off = np.array([[1.0, 0.0, 1.0]] * 3), 2.0**14

    def verdict(fused, beside, with_range=0.0):
        def made(there, elsewhere):
            def run(values):
                at_input = np.array_equal(values[0], ones)
                return [1 + ULP * off * (there if at_input else elsewhere) * np.ones(3)]

            return run

        wide = made(with_range, with_range)
        of = Programs(
            made(fused, 2 * beside), made(1.0, beside), made(0.0, 0.0), ("f32",), ("f32",),
            ranged=wide, otherwise=lambda n: made(0.0, 0.0),
        )  # fmt: skip
        return judge(of, [ones])[0].ok

    assert verdict(9.0, 4.0)
    assert not verdict(9.0, 1.0)  # it is never as far off
    assert not verdict(9.0, 4.0, 0.5)  # it does not lack range


def test_small_rows_of_16_bit_arguments_hide_nothing():
    """How far a row moves is measured by the last place of the arguments: of f16 that is 2^13 of
    f32's, and errors of a small row were compared with the mean row."""
    x = rounded(np.random.default_rng(5).random((4, 8)) + 1, "f16")
    x[0] *= 2.0**-10
    total = lambda x: x.sum(1)  # noqa: E731

    def planted(ulps):
        fused = lambda values: [total(values[0]) * (1 + ULP * ulps)]  # noqa: E731
        exact = lambda values: [total(values[0])]  # noqa: E731
        return judge(Programs(fused, exact, exact, ("f16",), ("f32",)), [x])[0]

    assert planted(3.0).ok
    assert not planted(40.0).ok

    def small(values):
        found = total(values[0])
        found[0] *= 1 + 100 * ULP
        return [found]

    exact = lambda values: [total(values[0])]  # noqa: E731
    assert not judge(Programs(small, exact, exact, ("f16",), ("f32",)), [x])[0].ok


def test_what_moving_inputs_keep_exact_other_roundings_do_not():
    """Two sums are rounded alike on each input near this one, and cancel; not with most others."""
    x = np.random.default_rng(6).random((3, 4)) + 1

    def verdict(fused, others):
        made = lambda ulps: lambda x: [(1 + ULP * ulps) * x[0].sum(1)]  # noqa: E731
        other = lambda n: made(others * (-1) ** n)  # noqa: E731
        of = Programs(made(fused), made(0.0), made(0.0), ("f32",), ("f32",), otherwise=other)
        return judge(of, [x])[0].ok

    assert verdict(15.0, 8.0)  # twice the root mean square, over that of a coarser rounding
    assert not verdict(16.0, 8.0)
    assert not verdict(15.0, 0.0)


def test_roundings_of_rows_below_the_smallest_number():
    """Fourth powers of a last place: errors are in units of the smallest normal number there."""
    x, unit = np.ones((3, 4)), ULP * SMALLEST["f32"]

    def verdict(fused):
        made = lambda units: lambda x: [1e-60 + unit * units * np.ones(3)]  # noqa: E731
        other = lambda n: made(30.0 * (n % 4 == 0))  # noqa: E731
        of = Programs(made(fused), made(0.0), made(0.0), ("f32",), ("f32",), otherwise=other)
        return judge(of, [x])[0].ok

    assert verdict(15.0)
    assert not verdict(36.0)


def test_noise_overflows_where_another_rounding_makes_it():
    """The fourth power of what is left of equal numbers: 0 as written, on all inputs near this."""
    x = np.full((3, 4), 1e20)

    def strange(others):
        made = lambda value: lambda x: [value * np.ones(3)]  # noqa: E731
        other = lambda n: made(others if n == 7 else 0.0)  # noqa: E731
        of = Programs(
            made(np.nan), made(0.0), made(0.0), ("f32",), ("f32",), ranged=made(0.0),
            otherwise=other,
        )  # fmt: skip
        return judge(of, [x])[0].strangers

    assert not strange(1e52)
    assert strange(1e30) == 3


def test_what_becomes_0_where_numbers_are_denormal_is_luck():
    """Σ (p - mean) 0.3 u, where all p are 27 times the least number. As written a last place of the
    mean is lost, as 0.3 of the least number is 0; where the factor is behind the sum it is not."""
    program = N.Program("deviations")
    i, j = program.axis("i", 4), program.axis("j", 37)
    x, w, u = program.input("x", i, j), program.input("w", i, j), program.input("u", j)
    p = N.exp(x[i, j] - 100.0)
    mean = N.sum(w[i, j] * p, j) / N.sum(w[i, j], j)
    total = N.sum((p - mean) * 0.3 * u[j], j)
    program.output(total, *total.axes)
    written = replace(programs_of(Source.of(program).text), hiding=None, reordered=None)
    generator, least = np.random.default_rng(4), SMALLEST["f32"] * ULP
    w = rounded(generator.standard_normal((4, 37)), "f32")
    u = rounded(1.5 + generator.standard_normal(37), "f32")
    arguments = [np.zeros((4, 37)), w, u]
    assert not written.unfused(arguments)[0].any()

    def verdict(off):
        made = np.round(off * 0.3 * u.sum()) * least * np.eye(4)[1]
        return judge(replace(written, fused=lambda values: [made]), arguments)[0].ok

    assert verdict(1.0) and verdict(-2.0)
    assert not verdict(27.0)  # the mean is not subtracted
