# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs whose chains are right, one by one, and whose results would not be: they stay apart."""

import gc
import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.numerics import whole
from neptune_mlir.algebra.numerics.at_once import (
    JUDGED,
    MOST_JUDGED,
    excess_of_numbers,
    numbers_lacking,
    worst_of,
)
from neptune_mlir.algebra.numerics.evaluation import Domain
from neptune_mlir.algebra.numerics.orders import HALVES, SIGNS
from neptune_mlir.algebra.numerics.remembered import store
from neptune_mlir.algebra.numerics.steps import IN_ORDER, NestStep
from neptune_mlir.algebra.numerics.whole import WholeProgram, wrong_values
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from neptune_mlir.frontend.shard import split
from neptune_mlir.transforms.fusion.exponents import exponents_of
from neptune_mlir.transforms.fusion.whole import like_the_last


def rows():
    p = N.Program("rows")
    i, j = p.axis("i", 5), p.axis("j", 37)
    return p, i, j, lambda name, dtype="f32": p.input(name, i, j, dtype=dtype)[i, j]


def spread(x, j):
    """A variance, and what is measured from the mean."""
    d = x - N.sum(x, j) / 37.0
    return N.sum(d * d, j) / 37.0, d


def residual_spread():
    """What a projection leaves has a variance: at 1e20 the coefficient's repair is of no use."""
    p, i, j, read = rows()
    x, y = read("x"), read("y")
    rest = y - N.sum(x * y, j) / (N.sum(x * x, j) + 1e-6) * x
    p.output(spread(rest, j)[0], i)
    return p


def masked_spread():
    """A variance of weights of which a mask leaves one: 0 to the last bit, or noise."""
    p, i, j, read = rows()
    x, keep = read("x"), read("w", "i1")
    e = N.exp(x * 2.0 - N.max(x, j))
    count = N.cast(N.sum(N.cast(keep, "i64"), j), "f32")
    d = e - N.sum(N.where(keep, e, 0.0), j) / count
    p.output(N.sum(N.where(keep, d * d, 0.0), j) / count, i)
    return p


def with_more(build, more):
    """A program, and so many reductions more."""
    p = build()
    i, j = p.axis_list[:2]
    z = p.input("z", i, j)[i, j]
    for k in range(more):
        p.output(N.max(z * float(k + 2), j), i)
    return p


def scaled_squares():
    """Until an element that no mask hides is seen, all that are hidden weigh 1, and their squares,
    1e37 each, overflow in rows that are longer than those of the check."""
    p, i, j, _ = rows()
    x = N.cast(p.input("x", i, j, dtype="bf16")[i, j], "f32")
    e, t = N.exp(x - N.max(x, j)), x * 1e-20
    p.output(t * N.rsqrt(N.sum(e * (t * t), j) / N.sum(e, j)), i, j)
    return p


def scaled_entropy():
    """Exponents of data times 1e-20: unit normals, and what is far from 0, are one number there."""
    p, i, j, read = rows()
    s = N.cast(read("x", "bf16"), "f32") * 1e-20
    m = N.maximum(N.max(s, j), N.cast(p.input("r", i, dtype="bf16")[i], "f32"))
    e = N.exp(s - m)
    total = N.sum(e, j)
    p.output(-N.sum(e / total * (s - m - N.log(total)), j), i)
    return p


def pooled(reference):
    """Weights that softmax divides, measured from their maximum and, or, something else."""
    p, i, j, read = rows()
    x, y, r = read("x"), read("y"), p.input("r", i)[i]
    e = N.exp(x - reference(N.max(x, j), r))
    p.output(N.sum(e / N.sum(e, j) * y, j), i)
    return p


def remarks_of(program):
    _, facts = compiler.lower_text(Source.of(program).text, "program", "cpu", None, "fused")
    return facts["remarks"]


def test_exponents_have_units_of_their_own():
    """One weight is e^43 times the others: sum(e s) - m sum(e) has lost them all."""
    import neptune_mlir as neptune

    x = np.full((5, 37), 0x4A80, np.uint16)  # 2^22 in bf16
    x[:, 20] = 0x6387  # 4.98e21, e^49.8
    found = neptune.compile(scaled_entropy())(x, np.zeros(5, np.uint16))
    assert np.abs(found / (36 * 49.8062 * np.exp(-49.8062)) - 1).max() < 1e-3


@pytest.mark.parametrize(
    ("reference", "fused"),
    [(N.maximum, False), (lambda m, r: r, False), (lambda m, r: m, True)],
    ids=["the larger one", "another", "their maximum"],
)
def test_weights_with_few_digits_are_divided_one_by_one(reference, fused):
    """Where all are 26 times the least number, p y has the digits of y, and e y has not. (Exponents
    that nothing limits lose it in the stress test already.)"""
    lost = ": alone, ", "'any size while exponents rise"
    found = [r for r in remarks_of(pooled(reference)) if any(name in r for name in lost)]
    assert bool(found) != fused


def test_weights_with_few_digits_are_drawn_again():
    """What is made of them hides how far they are off, on most data: s / sqrt(s s + c) is 1."""
    p, i, j, read = rows()
    x, y, r = read("x"), read("y"), p.input("r", i)[i]
    e = N.exp(x - N.maximum(N.max(x, j), r))
    s = 8.0 * N.sum(e / N.sum(e, j) * (y + 0.5), j)
    p.output(s * N.rsqrt(s * s + 1e-5), i)
    assert any(": alone, " in r for r in remarks_of(p))


def test_exponents_are_found_under_another_shape():
    """Else values that weights multiply would hold masks too, and grouped heads stay unfused."""
    source = ops.attention(head_dim=8, heads=6, kv_heads=2, alibi=True, dtype="bf16")
    module, (program,) = compiler.nests_of(source.to_mlir(), "grouped", "merge-rows")
    with module.context:
        found = exponents_of(program)
        made_of = {program.values.key(a) for a in program.block.arguments} & (found or set())
    assert made_of == {"slope"}


def test_sums_before_softmax_divides_them_stay_in_range():
    """37 squares of 1.15e37 overflow, 29 of them do not, nor do they where weights sum to 1."""
    import neptune_mlir as neptune

    p, i, j, read = rows()
    x, y = (N.cast(read(n, "bf16"), "f32") for n in "xy")
    s = x / (N.max(abs(x), j) + 1e-6) * 1e20
    e, t = N.exp(s - N.max(s, j)), x * 1e-20
    w = e / N.sum(e, j)
    p.output(N.max(abs(y - N.sum(w * (t * y), j) / (N.sum(w * (t * t), j) + 1e-6) * t), j), i)
    y = np.where(np.arange(37) % 2, 0x3F80, 0xBF00) * np.ones((5, 1))  # 1 and -0.5 in bf16
    found = neptune.compile(p)(np.full((5, 37), 0xFF7F, np.uint16), y.astype(np.uint16))
    assert np.abs(found - 28.5 / 37).max() < 1e-3


def weighted_norm():
    """Squares of x 1e20 overflow before softmax divides them, the program's own in some rows."""
    p, i, j, read = rows()
    x, r, v = read("x"), p.input("r", i)[i], p.input("v", j)[j]
    e, t = N.exp(x * r - N.max(x * r, j)), x * 1e20
    rate = N.rsqrt(N.sum(e / N.sum(e, j) * (t * t), j) + 1e-6)
    p.output(N.sum(t * rate * v, j), i)
    return p


def test_rows_that_are_lost_hide_no_other_rows():
    """With one row of which the unfused program makes 0, no row had a bound."""
    import neptune_mlir as neptune

    g = np.random.default_rng(0)
    x = np.exp(g.standard_normal((5, 37), np.float32)) / 61
    r, v = g.random(5, np.float32), np.ones(37, np.float32)
    found = neptune.compile(weighted_norm())(x, r, v)
    assert (found > 1).all()


def test_inputs_that_make_no_number_are_drawn_again():
    """By the sign of a sum of large numbers an exponential is 0, or infinite in float64, too."""
    step = sum_of(T.make("exp", T.read("x", T.index(0), T.index(1))))
    program = WholeProgram({"x": ((4, 24), "f32")}, {}, {"total": "f32"}, frozenset({"x"}))
    trial = whole._Trial(program, [step], program, [step])
    wrong, close = trial.verdict(trial.cases(11), whole.PLANS[0])
    assert not wrong and {"x: magnitude 1e+20", "x: moves widely"} <= close
    assert not any("mask" in name or ": one NaN" in name for name in close)


def test_rows_that_a_mask_hides_are_no_reason_to_draw_again():
    """The logarithm of a sum of nothing is -inf, whatever the numbers are that nobody sees."""
    at = T.index(0), T.index(1)
    shown = T.read("m", *at, dtype="i1")
    seen = T.make("select", shown, T.make("exp", T.read("x", *at)), T.const(0.0))
    steps = [
        sum_of(seen, "sum"),
        NestStep("total", None, T.make("log", T.read("sum", T.index(0))), (4,), (0,)),
    ]
    inputs = {"x": ((4, 24), "f32"), "m": ((4, 24), "i1")}
    program = WholeProgram(inputs, {}, {"total": "f32"}, frozenset({"x"}))
    trial = whole._Trial(program, steps, program, steps)
    wrong, close = trial.verdict(trial.cases(11), whole.PLANS[0])
    assert not wrong and {"x: magnitude 1e+20", "x: moves widely"} <= close
    hidden = {"m: shows nothing everywhere", "m: shows nothing start", "x: weights positive"}
    assert not hidden & close


def test_padding_adds_nothing_to_a_sum_of_what_is_infinite():
    """(x + r) of an r of -inf: 0 times that is a NaN where the row has ended."""
    import neptune_mlir as neptune
    from support.small_tiles import tiny

    p, i, j, read = rows()
    x, r = (N.cast(a, "f32") for a in (read("x", "bf16"), p.input("r", i, dtype="bf16")[i]))
    e = N.exp(x * 0.125 - N.maximum(N.max(x * 0.125, j), r))
    p.output(N.sum(e * (x + r), j) / N.sum(e, j), i)
    r = np.array([0xFF80, 0, 0x3F80, 0, 0xFF80], np.uint16)  # -inf, 0, 1
    with tiny():
        found = neptune.compile(p)(np.zeros((5, 37), np.uint16), r)
    assert [*found] == [-np.inf, 0.0, 1.0, 0.0, -np.inf]


@pytest.mark.parametrize("more", [0, 12])
def test_what_others_subtract_from_is_not_asked_of_the_results(more):
    """The residual that is summed up for a mean, which is subtracted from it, is refused before."""
    found = remarks_of(with_more(residual_spread, more))
    assert any("subtracts it from what it adds up, as that is rounded" in r for r in found)
    assert not any("fused with what it reads" in r for r in found)


@pytest.mark.parametrize(
    ("build", "lost"),
    [
        (masked_spread, "nan|ulps"),
        (partial(with_more, masked_spread, 12), "nan|ulps"),
        (scaled_squares, "nan"),
    ],
)
def test_what_the_results_do_not_bear_is_not_fused(build, lost):
    """Each remark has a place, the result that would be lost, by how much, and the input."""
    import re

    found = [r for r in remarks_of(build()) if "fused with what it reads" in r]
    assert found
    for text in found:
        assert re.search(rf":\d+:\d+: remark: not fused: .*'\w+': .*({lost}).*\(input '.*'\)", text)


def test_squares_that_a_divisor_keeps_in_range_stay_with_it():
    """Before a whole program is judged: without 1 / sum they overflow."""
    found = remarks_of(weighted_norm())
    assert any("'sum1' cannot be fused: range fails on" in r for r in found)
    assert not any("remark: fused" in r for r in found)


def test_what_they_bear_is_fused():
    p, i, j, read = rows()
    p.output(spread(read("x"), j)[0], i)
    found = remarks_of(p)
    assert any("fused 2 reductions" in r for r in found)
    assert not any("not fused" in r for r in found)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_weights_that_are_rounded_have_the_digits_of_that(dtype):
    """Parts of attention are f32, of weights that are not: near scores of 0 all of these are close
    to 1, and which way they are rounded moves with the reference, but not with the inputs."""
    found = remarks_of(split(ops.attention(head_dim=128, dtype=dtype), ["i", "j"]).local)
    assert any("fused 3 reductions" in r for r in found)
    assert not any("not fused" in r for r in found)


def test_alike_sums_are_kept_apart_together():
    """The difference of two log-sum-exps of equal data is 0 where both are added up alike."""
    at = T.index(0), T.index(1)

    def sums(key, scale):
        x = T.make("mul", T.read(key, *at), T.const(scale))
        e = T.make("exp", T.make("sub", x, T.ref(f"m{key}", T.index(0))))
        return [Reduction(f"m{key}", "max", x), Reduction(f"l{key}", "add", e)]

    chain = [*sums("x", 1.0), *sums("y", 2.0), *sums("z", 1.0)]
    blamed = SimpleNamespace(chain=chain, group=SimpleNamespace(stream=1))
    assert like_the_last(blamed) == ("lx", "lz")


@pytest.fixture
def seen(monkeypatch):
    """The programs that are judged as a whole."""
    found = []
    monkeypatch.setattr(
        "neptune_mlir.transforms.fusion.whole.wrong_values",
        lambda definition, *rest, refused: found.append(definition) or "",
    )
    return found


def test_rows_behind_which_factors_move_are_long(seen):
    """Nothing is fused: what 37 weights of e^-35 lose, 8 do not."""
    p, i, j, read = rows()
    r, v = p.input("r", i)[i], p.input("v", j)[j]
    p.output(N.sum(read("x") / r * v, j), i)
    assert any("deferred behind" in r for r in remarks_of(p))
    shapes = {shape for definition in seen for shape, _ in definition.inputs.values()}
    assert shapes == {(5, 37), (5,), (37,)}


def test_windows_of_images_are_evaluated_on_few_rows(seen):
    """Five short loops that nothing reduces are thousands of rows, of which a few say as much."""
    p = N.Program("windows")
    *window, h, c = (p.axis(f"a{k}", n) for k, n in enumerate((2, 8, 7, 8, 7, 3, 32)))
    x = p.input("x", *window, h, c)[(*window, h, c)]
    d = x - N.sum(x, h, c) / 96.0
    p.output(N.sum(d * d, h, c) / 96.0, *window)
    remarks_of(p)
    shapes = [shape for definition in seen for shape, _ in definition.inputs.values()]
    assert shapes and all(shape[:6] == (2, 2, 2, 2, 2, 3) for shape in shapes), shapes


def test_of_the_inputs_that_are_drawn_again_the_worst_are_judged():
    excess = np.arange(40.0) % 7
    found = worst_of("ab" * 20, excess, np.zeros(40, int), excess, 0.8)
    assert len(found) == 2 * JUDGED
    assert max(np.delete(excess, found)) <= min(excess[found])


def test_inputs_that_lack_numbers_for_certain_are_judged_before_those_of_luck():
    """Of 60 names one draw each, where all are infinite, and those that no luck excuses."""
    names = [f"{name}" for name in range(60) for _ in range(9)]
    lacking, off = np.zeros(len(names), int), np.zeros(len(names))
    lacking[[5, 7, 100]] = 1, 3, 2
    off[[8, 300]] = 5, 1e9
    found = worst_of(names, np.full(len(names), np.inf), lacking, off, 0.8)
    assert {*found[:5]} == {5, 7, 8, 100, 300} and len(found) == 5 + 58
    off[:] = 2.0
    found = worst_of(names, np.full(len(names), np.inf), lacking, off, 0.8)
    assert len(found) <= 2 * MOST_JUDGED + 12 and {7, 100} < {*found}


def test_errors_of_numbers_count_beside_elements_whose_infinity_is_luck():
    """A covariance is of the noise of one sum, and what divides it is 0 by luck in another row."""
    exact = np.ones((3, 3))
    unfused, in_order = exact.copy(), exact.copy()
    unfused[:, 0], in_order[2, 1] = np.inf, np.nan
    fused = np.array([[1, 1, 1], [1, 3, 1], [1, 3, 1.0]])
    asked = [np.ones((3, 3))], ("f32",), [[fused], [unfused], [exact]]
    found = excess_of_numbers(*asked, [in_order], ("f32",))
    assert found[0] == found[2] == 0 and found[1] > 1e5


def test_numbers_that_a_fused_program_lacks_count_where_no_order_overflows():
    number, lost = np.ones((3, 2)), np.array([[1, np.inf], [np.nan, np.inf], [np.inf, 1]])
    in_order = np.array([[1, 1], [1, np.inf], [np.inf, 1]])
    assert numbers_lacking([[lost], [number], [number]], [in_order]).tolist() == [1, 1, 0]


def test_sums_overflow_as_in_longer_rows():
    read = T.read("x", T.index(0), T.index(1))
    step, data = sum_of(read), {"x": np.full((1, 4, 24), 1e36)}
    for longer, lost in ((1.0, False), (64.0, True)):
        domain = Domain((4, 24), data, {}, np.float32, True, longer=longer)
        for plan in ((IN_ORDER, 0), (IN_ORDER, HALVES), whole.ONE_STEP):
            assert (np.isinf(step.run(domain, plan)["total"]) == lost).all()


def test_sums_in_halves():
    """3 c + 2 c, each rounded, is not 5 c one by one: in the check, and in what is compiled."""
    c = np.float32(8.986263764012835e19)
    p = N.Program("five")
    i, j = p.axis("i", 2), p.axis("j", 5)
    p.output(N.sum(p.input("x", i, j)[i, j], j), i)
    x = np.full((2, 5), c)
    wanted = np.float32((c + c + c) + (c + c))
    assert wanted != np.add.accumulate(x, axis=1)[0, -1]
    compiled = compiler.compile_unfused(p.to_mlir(), "five", None, vectorize=False, order=HALVES)
    np.testing.assert_array_equal(compiled(x), wanted)
    body = T.read("x", T.index(0), T.index(1))
    step = NestStep("total", "add", body, (2, 5), (0,))
    domain = Domain((2, 5), {"x": x[None].astype(float)}, {}, np.float32, True)
    np.testing.assert_array_equal(step.run(domain, (IN_ORDER, HALVES))["total"], wanted)


def test_sums_by_signs():
    """What overflows in some order does where all numbers above 0 come first."""
    p = N.Program("signs")
    i, j = p.axis("i", 3), p.axis("j", 5)
    p.output(N.sum(p.input("x", i, j)[i, j], j), i)
    x = np.array([[3e38, -3e38, 3e38, -3e38, 1], [3e38, -1, 3e38, -3e38, 1], [1e8, 2, -1e8, 3, 0]])
    wanted = np.array([np.nan, np.inf, 0], "f4")  # 3 one by one: 1e8 + 3 is rounded
    compiled = compiler.compile_unfused(p.to_mlir(), "signs", None, vectorize=False, order=SIGNS)
    np.testing.assert_array_equal(compiled(x.astype("f4")), wanted)
    step = NestStep("total", "add", T.read("x", T.index(0), T.index(1)), (3, 5), (0,))
    domain = Domain((3, 5), {"x": x[None]}, {}, np.float32, True)
    with np.errstate(all="ignore"):
        found = step.run(domain, (IN_ORDER, SIGNS))["total"]
    np.testing.assert_array_equal(found[0], wanted)


def test_products_that_overflow_within_a_sum():
    """-inf and a product over the largest number are -inf where both are rounded at once."""
    p = N.Program("products")
    i, j = p.axis("i", 1), p.axis("j", 4)
    p.output(N.sum(p.input("x", i, j)[i, j] * p.input("y", i, j)[i, j], j), i)
    x, y = np.array([[1e20, -1e20, 1, 2]], "f4"), np.array([[1e20, 1e20, 3, 4]], "f4")
    for order, makes in ((0, np.isnan), (1, np.isinf)):
        run = compiler.compile_unfused(p.to_mlir(), "products", None, vectorize=False, order=order)
        assert makes(run(x, y)).all()


def sum_of(body, key="total"):
    return NestStep(key, "add", body, (4, 24), (0,))


def variances():
    """A program, the variance as written, and the same multiplied out, which is no variance."""
    at = T.index(0), T.index(1)
    x, n = T.read("x", *at), T.const(24.0)
    mean = T.make("div", T.read("sum", T.index(0)), n)
    d = T.make("sub", x, mean)
    squares = T.make("mul", x, x)
    written = [sum_of(x, "sum"), sum_of(T.make("mul", d, d))]
    square = T.make("mul", T.read("sum", T.index(0)), mean)
    expanded = [
        sum_of(x, "sum"), sum_of(squares, "squares"),
        NestStep("total", None, T.make("sub", T.read("squares", T.index(0)),
                                       T.rename_axes(square, {})), (4,), (0,)),
    ]  # fmt: skip
    program = WholeProgram({"x": ((4, 24), "f32")}, {}, {"total": "f32"}, frozenset())
    return program, written, expanded


def test_sums_that_cancel_are_found():
    program, written, expanded = variances()
    assert not wrong_values(program, written, program, written)
    assert "'total'" in wrong_values(program, written, program, expanded)


def test_what_follows_a_refused_form_has_its_inputs_and_runs(monkeypatch):
    program, written, expanded = variances()
    more, drawn, refused = whole.further, [], []
    monkeypatch.setattr(whole, "further", lambda *given: drawn.append(given[3:]) or more(*given))

    def said(form):
        return wrong_values(program, written, program, form, refused=refused)

    token = store.set(None)  # no other test's verdict
    try:
        wrong = [said(expanded), said(expanded)]
        assert wrong[0] and wrong[0] == wrong[1] and len(refused) == 1
        assert [said(written), said(written)] == ["", ""] and not refused
    finally:
        store.reset(token)
    first, again = whole.SEED, whole.SEED + 1  # by the second plan nobody asks of what is wrong
    assert [seed for seed, only in drawn if only is None] == [first, again, first, again]


def test_what_is_far_off_is_found_before_all_inputs_are_evaluated(monkeypatch):
    program, written, expanded = variances()
    evaluated = set[int]()

    def part(self, many, part=whole._Run._part):
        if self.steps is expanded and not self.digits:
            evaluated.update(map(id, many))
        return part(self, many)

    monkeypatch.setattr(whole._Run, "_part", part)
    monkeypatch.setattr(whole, "FEWEST", 4)
    verdicts, counts = list[bool](), list[float]()
    for points in (1 << 18, 1):  # all inputs are evaluated together; four of them are
        monkeypatch.setattr(whole, "POINTS", points)
        cases = (trial := whole._Trial(program, written, program, expanded)).cases(whole.SEED)
        evaluated.clear()
        verdicts.append(bool(trial.verdict(cases, (3, 1))[0]))
        counts.append(len(evaluated & {id(case.arguments) for case in cases}) / len(cases))
    assert verdicts == [True, True] and counts[0] == 1.0 and counts[1] <= 0.5


def test_terms_that_cancel_in_each_element_are_tried():
    """(x c + r) v as c x v and r v is off by parts of these, and what it is divided by is not. By
    chance r is near -x c in one row of hundreds."""
    at, row = (T.index(0), T.index(1)), (T.index(0),)
    r = T.read("r", *row)
    size = sum_of(T.make("abs", T.read("x", *at)), "size")
    scaled = T.make("div", T.read("x", *at), T.read("size", *row))
    total = sum_of(T.make("mul", T.make("add", scaled, r), T.read("v", T.index(1))))
    inputs = {"x": ((4, 24), "f32"), "r": ((4,), "f32"), "v": ((24,), "f32")}
    program = WholeProgram(inputs, {}, {"total": "f32"}, frozenset())
    cases = whole._Trial(program, [size, total], program, [size, total]).cases(11)
    found = {c.name: c.arguments for c in cases if c.name.startswith("r: cancels; ")}
    assert len(found) == len(whole.CANCELLING)
    for name in ("mean 1e+02", "moves down at once (columns)"):
        x, r, _ = found[f"r: cancels; all floats: {name}"]
        left = np.abs(np.median(x / np.abs(x).sum(1, keepdims=True), axis=1) / r + 1)
        assert (left > 2.0**-7).all() and (left < 0.5).all()


def test_results_have_their_dimensions_in_order():
    at = T.index(1), T.index(0)
    step = NestStep("y", None, T.read("x", *at), (3, 4), (0, 1))
    program = WholeProgram({"x": ((4, 3), "f32")}, {}, {"y": "f32"}, frozenset())
    data = np.arange(24.0).reshape(2, 4, 3)
    (found,) = program.values([step], {"x": data}, np.float64)
    assert (found == data.transpose(0, 2, 1)).all()


@pytest.mark.parametrize("least", [3e18, 5e18, 6e18])
def test_a_row_that_is_wrong_beside_rows_whose_infinity_is_luck_is_found(least):
    """r r overflows in most rows at 1e20. Where it does not it is wrong in one of hundreds, and
    no luck excuses that; the infinities that it makes NaNs are excused."""
    r = T.read("r", T.index(0))
    square, size = T.make("mul", r, r), T.make("abs", r)
    below, above = (
        T.make("select", T.make("gt", size, T.const(c)), square, T.const(0.0))
        for c in (least, least + 6e17)
    )
    seldom = T.make("sub", below, above)
    written = [NestStep("total", None, square, (4,), (0,))]
    now = [NestStep("total", None, T.make("add", square, seldom), (4,), (0,))]
    program = WholeProgram({"r": ((4,), "f32")}, {}, {"total": "f32"}, frozenset())
    assert not wrong_values(program, written, program, written)
    assert "(input 'r: magnitude" in wrong_values(program, written, program, now)


def test_values_of_a_batch_go_with_it():
    """A cycle would keep them until Python looks for garbage: gigabytes, for it looks rarely."""
    steps = [
        NestStep("total", "add", T.read("sizes", T.index(0), T.index(1)), (3, 5), (0,)),
        NestStep("sizes", None, T.make("abs", T.read("x", T.index(0), T.index(1))), (3, 5), (0, 1)),
    ]
    program = WholeProgram({"x": ((3, 5), "f32")}, {}, {"total": "f32"}, None)
    x = -np.ones((2, 3, 5))
    kept = weakref.ref(x)
    gc.disable()
    try:
        (found,) = program.values(steps, {"x": x}, np.float64)
        assert (found == 5.0).all() and found.shape == (2, 3)
        del x
        assert kept() is None
    finally:
        gc.enable()


def test_inputs_of_a_seed_are_drawn_once(monkeypatch):
    """The plan for large numbers takes those of the first plan, and their results in float64."""
    drawn, evaluated = [], []
    monkeypatch.setattr(
        whole._Trial, "cases",
        lambda self, seed, *names, draw=whole._Trial.cases: (
            drawn.append((seed, *names)) or draw(self, seed, *names)
        ),
    )  # fmt: skip
    monkeypatch.setattr(
        whole._Run, "_part",
        lambda self, many, part=whole._Run._part: (
            evaluated.extend(many if self.kind is np.float64 and not self.digits else ())
            or part(self, many)
        ),
    )  # fmt: skip
    at = T.index(0), T.index(1)
    written = [sum_of(T.read("x", *at))]
    program = WholeProgram({"x": ((4, 24), "f32")}, {}, {"total": "f32"}, frozenset())
    plans = ((3, 1), (5, 1))
    assert not whole._wrong_values(whole._Trial(program, written, program, written), plans)
    at_first = [names for names in drawn if len(names) == 1]
    assert at_first == [(whole.SEED,), (whole.SEED + 1,)]
    assert len(evaluated) == len({id(arguments) for arguments in evaluated}) > 0
