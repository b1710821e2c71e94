# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms that keep their digits, and chains that have none and stay apart."""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.deferral import split_in_range
from neptune_mlir.algebra.growth import Ranges
from neptune_mlir.algebra.numerics import evaluation
from neptune_mlir.algebra.numerics.accept import accept
from neptune_mlir.algebra.numerics.accuracy import ANY
from neptune_mlir.algebra.numerics.evaluation import Domain, define, fused
from neptune_mlir.algebra.numerics.floats import rounded
from neptune_mlir.algebra.numerics.kept import added_in_pairs, is_row, with_digits
from neptune_mlir.algebra.numerics.stress import extents_of, stress
from neptune_mlir.algebra.solver import Unsolvable, solve_chain
from support.chains import (
    AXIS,
    INF,
    E,
    absolute,
    cast,
    equal,
    exp,
    l,
    log,
    m,
    maximum,
    n,
    number,
    read,
    reduction,
    ref,
    rsqrt,
    softmax_over,
    sqrt,
    v,
    w,
    where,
    x,
)

weights, y = read("weights", 0, 1), read("y", 0, 1)
along = read("along", 1)
shown = E(T.read("shown", T.index(0), T.index(1), dtype="i1"))
count = cast(E(T.ref("c", T.index(0), dtype="i64")), "f32")
counted = Reduction("c", "add", cast(shown, "i64").term, "i64")


def square(a):
    return a * a


def variance(total, weight, of, *first):
    """A weighted variance whose mean is Σ w x over `total`."""
    mean = ref("s") / total
    return [*first, reduction("s", "add", of), reduction("q", "add", weight(square(x - mean)))]


def masked(a):
    return where(shown, a, 0.0)


def weighted(a):
    return a * weights


a_max = reduction("a", "max", absolute(x))
unit = x / ref("a")
guard = where(equal(absolute(m), INF), 0.0, m)

FUSED = {
    "count of a mask": variance(count, masked, masked(x), counted),
    "count as a factor": variance(count, lambda a: a * cast(shown, "f32"),
                                  x * cast(shown, "f32"), counted),
    "weights that are data": variance(ref("k"), weighted, x * weights,
                                      reduction("k", "add", weights)),
    "weights, at least one": variance(maximum(ref("k"), 1.0), weighted, x * weights,
                                      reduction("k", "add", weights)),
    "shares": variance(1.0, weighted, x * weights),
    "entropy": softmax_over(x, reduction("h", "add", exp(x - m) / l * (x - m - log(l)))),
    "largest is one": [a_max, reduction("q", "add", square(unit))],
    "eighth powers": [a_max, reduction("q", "add", square(square(square(unit))))],
    "fourth powers": [reduction("a", "add", x * x),
                      reduction("q", "add", square(square(x / sqrt(ref("a")))))],
    "a mask over weights": [
        reduction("m", "max", where(shown, x, -INF)),
        reduction("l", "add", where(shown, exp(x - m), 0.0)),
        reduction("o", "add", where(shown, exp(x - m) / l, 0.0) * v),
    ],
    "two scales": [a_max, reduction("b", "max", absolute(y)),
                   reduction("o", "add", unit * (y / ref("b")))],
    "constants that keep the range": [
        reduction("s", "add", x), reduction("o", "add", square(y * 1e-20) * ref("s")),
    ],
    "correlation": [
        reduction("s", "add", x), reduction("t", "add", y),
        reduction("p", "add", square(x - ref("s") / n)),
        reduction("r", "add", square(y - ref("t") / n)),
        reduction("o", "add", (x - ref("s") / n) * (y - ref("t") / n) * rsqrt(ref("p") * ref("r"))),
    ],
}  # fmt: skip


def last_of(chain):
    return {chain[-1].name: T.ref(chain[-1].name, dtype=chain[-1].dtype)}


@pytest.mark.parametrize("name", FUSED)
def test_form_keeps_its_digits(name):
    chain = FUSED[name]
    solution, report = accept(chain, AXIS, last_of(chain))
    assert solution.proved
    assert report.ok and report.runs > 100


centred = x - ref("s") / n

# What used to be fused, and lost the small or the large numbers
LOST = {
    "scaled by a mean": [
        reduction("s", "add", x), reduction("q", "add", square(x / (ref("s") / n))),
    ],
    "third powers of units": [
        reduction("s", "add", x), reduction("q", "add", square(centred)),
        reduction("z", "add", square(centred * rsqrt(ref("q"))) * (centred * rsqrt(ref("q")))),
    ],
    "a weighted residual, of rows of every magnitude": [
        reduction("xy", "add", along * (x * y)), reduction("xx", "add", along * (x * x)),
        reduction("r", "add", along * square(y - ref("xy") / (ref("xx") + 1e-6) * x)),
    ],
}  # fmt: skip


# Equal numbers of 1e4 make 1e24: the variance may be 0 exactly where the covariance is noise.
@pytest.mark.parametrize(
    ("scale", "near"), [(1e3, True), (1e-3, True), (1e20, False), (1e-20, False)]
)
def test_differences_that_constants_take_far_from_1_stay_apart(scale, near):
    """Measured from another reference than the program's their squares leave the range."""
    mean = ref("s") / n
    chain = [reduction("s", "add", x * scale), reduction("q", "add", square(x * scale - mean))]
    if near:
        assert solve_chain(chain, AXIS).proved
        return
    with pytest.raises(Unsolvable) as caught:
        solve_chain(chain, AXIS)
    assert caught.value.obligation == "range" and caught.value.reduction == "q"
    assert solve_chain(chain, AXIS, numerics="fast").proved


@pytest.mark.parametrize("name", LOST)
def test_what_would_leave_the_range_stays_apart(name):
    chain = LOST[name]
    with pytest.raises(Unsolvable) as caught:
        accept(chain, AXIS, last_of(chain))
    assert caught.value.obligation in ("range", "accuracy")
    assert caught.value.reduction == chain[-1].name
    assert solve_chain(chain, AXIS, numerics="fast").proved


given = E(T.read("given", T.index(0)))


def over_a_count(value, *, magnitudes=False):
    """A product of v with what is left of x, or is added to it, by a sum of an earlier loop over
    a count of this one."""
    shift = where(shown, 1.0, 0.0)
    value = value + absolute(given) / ref("k") if magnitudes else value - given / ref("k")
    return [reduction("k", "add", shift), reduction("o", "add", value * v)]


def test_a_reference_that_is_half_made_is_not_multiplied_out():
    """x - s / k with s from an earlier loop: any number to the stress test, the mean of x to users.
    What cannot cancel may be summed apart."""
    chain = over_a_count(x)
    with pytest.raises(Unsolvable) as caught:
        solve_chain(chain, AXIS)
    assert caught.value.obligation == "cancellation" and caught.value.reduction == "o"
    assert solve_chain(chain, AXIS, numerics="fast").proved
    assert solve_chain(over_a_count(absolute(x), magnitudes=True), AXIS).proved


def test_high_powers_have_weights_of_one_sign():
    """Σ w (x - mean)^4, whose mean lies anywhere if weights have both signs."""

    def fourth(weight):
        mean = ref("s") / ref("k")
        return [reduction("k", "add", weight), reduction("s", "add", weight * x),
                reduction("q", "add", weight * square(square(x - mean)))]  # fmt: skip

    with pytest.raises(Unsolvable) as caught:
        solve_chain(fourth(weights), AXIS)
    assert caught.value.obligation == "cancellation" and caught.value.reduction == "q"
    assert solve_chain(fourth(weights), AXIS, numerics="fast").proved
    assert solve_chain(fourth(absolute(weights)), AXIS).proved


def test_divisors_of_weighted_squares_stay():
    """Of Σ (e / l) x x all stays in range where x x does; Σ e x x is as much larger as l is."""
    chain = softmax_over(x, reduction("q", "add", exp(x - m) / l * square(y)))
    with pytest.raises(Unsolvable) as caught:
        solve_chain(chain, AXIS)
    assert caught.value.obligation == "range" and caught.value.reduction == "q"
    found = split_in_range(chain[-1].body, lambda t: not t.axes & {AXIS}, lambda _: True)
    assert found.trivial
    once = (exp(x - m) / l * y).term
    assert not split_in_range(once, lambda t: not t.axes & {AXIS}, lambda _: True).trivial


def test_inputs_scaled_together_are_the_business_of_strict():
    chain = [a_max, reduction("o", "add", unit * w)]
    solution, _ = accept(chain, AXIS, last_of(chain))
    assert not any(r.correction for r in solution.running)
    corrected = solve_chain(chain, AXIS, numerics="strict").running[-1].correction
    assert corrected is not None and corrected.form == "multiplicative"


def test_residual_of_a_projection_is_measured_from_the_running_coefficient():
    slope = ref("xy") / ref("xx")
    chain = [
        reduction("xy", "add", x * y), reduction("xx", "add", x * x),
        reduction("r", "add", square(y - slope * x)),
    ]  # fmt: skip
    solution = solve_chain(chain, AXIS)
    assert solution.proved
    assert {r.name for r in solution.running} == {"xy", "xx", "xy.rest", "r"}
    cases = ("normal", "mean 1e+03")
    report = stress(chain, solution, AXIS, outputs=last_of(chain), cases=cases)
    assert report.ok, str(report.failure)


def test_a_mean_that_others_read_is_subtracted_as_it_was_rounded():
    """Σ (x - t)^2 beside x - t is the sum around the same t, else around what rounding lost."""
    chain = [reduction("s", "add", x), reduction("q", "add", square(x - ref("s") / n))]
    inside, outside = (solve_chain(chain, AXIS, visible=v) for v in ((), ("s",)))
    assert inside.proved and outside.proved
    exact, rounded_mean = (T.show(s.finals["q"]) for s in (inside, outside))
    assert "(1 - (@s.count / n))" in exact and "(1 - (" not in rounded_mean
    constants = rounded(np.random.default_rng(0).standard_normal((64, 1, 1)) * 1e6, "f32")
    data = {"x": np.repeat(constants, 37, axis=2)}
    domain = Domain((1, 37), data, {"n": 37.0}, np.float32, batched=True)
    within, beside = (fused(s, AXIS, domain, 4) for s in (inside, outside))
    lost = constants - (beside["s"] / np.float32(37)).astype(float)
    assert np.count_nonzero(lost) > 10
    assert not within["q"].any()
    assert np.allclose(beside["q"], 37 * lost * lost, rtol=1e-4)


def test_weights_of_any_sign_have_a_mean_among_the_data():
    solution = solve_chain(FUSED["weights that are data"], AXIS)
    running = {r.name: T.show(r.body) for r in solution.running}
    assert running["s.size"] == "abs(weights[i0, i1])"
    assert running["s.sized"].startswith("where((weights[i0, i1] < 0), -(")


def test_log_sum_exp_of_an_infinity_is_that():
    """The guard that a program writes knows +inf, which the identity's does not."""
    chain = [reduction("m", "max", x), reduction("l", "add", exp(x - guard))]
    outputs = {"lse": _bare(log(l) + guard)}
    solution, report = accept(chain, AXIS, outputs)
    assert report.ok
    assert "inf" in T.show(solution.running[1].body)
    plain = [reduction("m", "max", x), reduction("l", "add", exp(x - m))]
    outputs = {"lse": _bare(log(l) + m)}
    assert not stress(plain, solve_chain(plain, AXIS), AXIS, outputs=outputs).ok
    solution, report = accept(plain, AXIS, outputs)  # NaN where all is -inf
    assert report.ok and "nan" in T.show(solution.finals["l"])


def _bare(t):
    return T.rewrite(t.term, lambda k: T.ref(k.attr, dtype=k.dtype) if k.op == "ref" else None)


def test_sizes_of_intermediates_by_degrees():
    ranges = Ranges()
    ranges.allow((x / maximum(absolute(x), 1.0)).term)
    assert ranges.outside((x * 3.0).term) is None
    assert ranges.outside(square(x).term) is square(x).term
    assert ranges.outside((1.0 / x).term) is None
    assert ranges.outside((x * w).term) is not None  # the program reads no w
    ranges.allow(w.term)
    assert ranges.outside((x * w).term) is None
    ranges.allow((x * 1e20 / (absolute(x) * 1e20)).term)  # a constant is there at every scale
    assert ranges.outside((x * 1e20).term) is None
    assert ranges.outside((x * 1e20 * w).term) is not None
    strict = Ranges(joint=True)
    strict.allow(x.term)
    strict.allow(w.term)
    assert strict.outside((x * w).term) is not None


@pytest.mark.parametrize("planted", ["expanded", "unguarded"])
def test_stress_test_sees_what_proofs_cannot(planted):
    """Forms that are equal over the reals: moments about 0, and a move that may be infinite."""
    if planted == "expanded":
        chain = [reduction("k", "add", weights), reduction("s", "add", weights * x),
                 reduction("q", "add", square(x) * weights)]  # fmt: skip
        solution = solve_chain(chain, AXIS)
        about_mean = square(ref("s")) / ref("k")
        finals = {**solution.finals, "q": _bare(ref("q") - about_mean)}
        chain = FUSED["weights that are data"]
    else:
        chain = FUSED["entropy"]
        solution = solve_chain(chain, AXIS)
        finals = solution.finals
    running = tuple(_without_guards(r) for r in solution.running)
    bad = type(solution)(running, finals, (), {}, solution.facts)
    assert not stress(chain, bad, AXIS, outputs=last_of(chain)).ok


def _without_guards(running):
    if running.correction is None:
        return running
    h = running.correction.h
    if h.op == "select":
        h = h.args[2]
    correction = type(running.correction)(
        running.correction.form, h, running.correction.references, running.correction.proof
    )
    return type(running)(
        running.name, running.combiner, running.body, correction, running.dtype, running.axes,
        running.folded, running.source,
    )  # fmt: skip


def test_weights_that_are_to_sum_to_one_and_do_not():
    """Of bf16 data the sum that is taken for a mean is nearly exact, and may be small beside what
    it is made of. What is measured from it then loses no digits to the sums of the loop."""
    chain, generator = FUSED["shares"], np.random.default_rng(0)
    data = {
        "x": rounded(generator.standard_normal((64, 5, 37)), "bf16"),
        "weights": rounded(generator.standard_normal((64, 5, 37)) + 1e4, "bf16"),
    }
    wide, narrow = (
        Domain((5, 37), data, {}, kind, batched=True) for kind in (np.float64, np.float32)
    )
    exact = define(chain, AXIS, wide)["q"]
    found = fused(solve_chain(chain, AXIS), AXIS, narrow, 4)["q"]
    assert np.abs(found / exact - 1).max() < 1e-5


def test_products_have_the_order_of_the_program():
    """w (dx dy) is a number where w dx vanishes, and the reverse where dx dy would overflow."""
    extents, generator = (4, 24), np.random.default_rng(0)

    def chain(product):
        dx, dy = x - ref("s") / ref("n"), y - ref("t") / ref("n")
        return [
            reduction("n", "add", weights), reduction("s", "add", weights * x),
            reduction("t", "add", weights * y), reduction("q", "add", product(weights, dx, dy)),
        ]  # fmt: skip

    for product, sizes in (
        (lambda w, a, b: w * (a * b), (1e-25, 1e-22, 1e10)),
        (lambda w, a, b: (w * a) * b, (1e-25, 1e22, 1e20)),
    ):
        data = {
            key: generator.random(extents) * size
            for key, size in zip(("weights", "x", "y"), sizes, strict=True)
        }
        domains = [Domain(extents, data, {}, kind) for kind in (np.float64, np.float32)]
        reductions = chain(product)
        exact = define(reductions, AXIS, domains[0])["q"]
        found = fused(solve_chain(reductions, AXIS), AXIS, domains[1], 24)["q"]
        np.testing.assert_allclose(found, exact, rtol=1e-4)


def test_numbers_are_rounded_to_digits_as_frexp_has_it():
    rng = np.random.default_rng(5)
    values = rng.standard_normal(4096) * 2.0 ** rng.integers(-900, 900, 4096)
    ties = 1 + np.arange(64) * 2.0**-24  # half a last place beside what 24 bits hold
    values = np.concatenate([values, ties, -ties, [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324]])
    fraction, exponent = np.frexp(values)
    wanted = np.ldexp(np.rint(np.ldexp(fraction, 24)), exponent - 24)
    for part in (values, values[:-1]):  # the last one is below the normal numbers
        found = with_digits(part, 24)
        assert np.array_equal(found, wanted[: len(part)], equal_nan=True)
        assert np.array_equal(np.signbit(found), np.signbit(wanted[: len(part)]))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sums_in_pairs_are_those_of_numpy(kind):
    """To the bit, signs of zeros included, though the inputs are what lies in a row."""
    g = np.random.default_rng(0)
    for length in (8, 9, 15, 16, 29, 64, 127, 128):
        values = g.standard_normal((16, 3, length)) * 10.0 ** g.uniform(-5, 5, (16, 3, length))
        values[0], values[1, 0, 3] = -0.0, np.inf
        values = values.astype(kind)
        turned = np.moveaxis(np.ascontiguousarray(np.moveaxis(values, 0, -1)), -1, 0)[..., None]
        assert is_row(turned, 2)
        found = added_in_pairs(turned, 2)[..., 0]
        wanted = np.add.reduce(values, axis=2, keepdims=True, initial=0.0)
        assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()
    assert not is_row(turned[..., :7, :], 2) and not is_row(np.ones((2, 9), int), 1)


def test_what_a_chain_is_made_of_is_evaluated_once(monkeypatch):
    """As written: for each precision and for each change of the data. The fused loop is apart."""
    evaluated = []

    def noting(node, args, turned, operated=evaluation.operated):
        evaluated.append((node.op, args[0].dtype.char))
        return operated(node, args, turned)

    monkeypatch.setattr(evaluation, "operated", noting)
    chain = [reduction("s", "add", exp(x)), reduction("t", "add", exp(x) / ref("s"))]
    assert stress(chain, chain, AXIS, plans=()).ok
    exponentials = [precision for op, precision in evaluated if op == "exp"]
    # the data, those that differ in the last place, those without infinities; in f32 all orders
    assert sorted(exponentials) == ["d"] * (2 + len(ANY)) + ["f"]
    quotients = [precision for op, precision in evaluated if op == "div"]
    assert sorted(quotients) == ["d"] * (2 + len(ANY)) + ["f"] * 3  # of sums in three orders


def test_inputs_of_streams_that_are_compared_with_many_axes_stay_small():
    """Windows of images that are shifted: six axes of 24 were 273 GiB."""
    many = sum(number(axis) for axis in range(6)) < 7
    assert extents_of([many.term], 0, 24) == (24, 3, 3, 3, 3, 3)
    assert extents_of([(number(0) + number(1) < 7).term], 1, 24) == (24, 24)
