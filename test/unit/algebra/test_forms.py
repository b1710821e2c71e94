# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which form is found for what, and the shape of what the loop then carries."""

from __future__ import annotations

import pytest

from neptune_mlir.algebra import solver
from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.numerics.stress import stress
from neptune_mlir.algebra.proofs.proof import REFUTED, Obligation, Proof, leaf_text
from neptune_mlir.algebra.solver import Reduction, Unsolvable, defer, solve_chain
from neptune_mlir.errors import InputError
from support.chains import (
    AXIS,
    ZOO,
    E,
    exp,
    i,
    j,
    l,
    m,
    maximum,
    n,
    read,
    reduction,
    ref,
    tanh,
    v,
    where,
    x,
)


def forms(solution):
    return {r.name: r.correction.form for r in solution.running if r.correction}


def text(t):
    return T.show(t, leaf_text)


def test_attention_is_flash_attention_2():
    solution = solve_chain(ZOO["attention"], AXIS)
    assert [r.name for r in solution.running] == ["m", "l", "o'"]
    assert forms(solution) == {"l": "exponential", "o'": "exponential"}
    o = solution.running[2]
    assert text(o.correction.h) == "(acc(o') * exp((m_old - m_new)))"
    assert o.correction.references == ("m",)
    assert text(solution.finals["o"]) == "(@o' / @l[i0])"


def test_probabilities_are_one_shared_subterm():
    _, l_, o = solve_chain(ZOO["causal"], AXIS).running
    assert l_.body in set(T.walk(o.body))


def test_guard_stands_only_where_the_maximum_may_be_empty():
    guarded = solve_chain(ZOO["causal"], AXIS).running[1].body
    assert any(t.op == "eq" for t in T.walk(guarded))
    capped = [reduction("m", "max", tanh(x)), reduction("l", "add", exp(tanh(x) - m))]
    assert not any(t.op == "eq" for t in T.walk(solve_chain(capped, AXIS).running[1].body))


def test_guard_of_the_program_is_the_reference():
    plain = solve_chain(ZOO["causal"], AXIS)
    guarded = solve_chain(ZOO["guarded by the program"], AXIS)
    assert plain.running == guarded.running


def test_variance_keeps_a_count_and_no_big_squares():
    solution = solve_chain(ZOO["variance"], AXIS)
    names = {r.name: r for r in solution.running}
    assert names["s.count"].body is T.const(1.0)
    assert names["s.count"].folded == (AXIS,)
    assert forms(solution)["q"] == "augmented"
    report = stress(ZOO["variance"], solution, AXIS, length=48, cases=("mean 1e+03",))
    assert report.fused["q"] <= 2 * report.unfused["q"] + 4


@pytest.mark.parametrize("hidden", [False, True])
def test_what_stays_along_the_stream_is_counted(hidden):
    """A sum of x + c is that of x and n c: c + c + ... has roundings that are all alike."""
    top, c = reduction("m", "max", x), read("c", 0)
    moves = x + c / ref("m") * 0.001
    if hidden:
        moves = E(T.make("select", (x > 0.0).term, moves.term, T.const(0.0)))
    solution = solve_chain([top, reduction("s", "add", moves)], AXIS)
    bodies = [text(r.body) for r in solution.running]
    assert ("where((x[i0, i1] > 0), 1, 0)" if hidden else "1") in bodies
    assert not any("c[" in body or "0.001" in body for body in bodies)
    chain = [top, reduction("s", "add", moves)]
    assert stress(chain, solution, AXIS, length=48, cases=("mean 1e+03 (x)", "normal (c)")).ok


def test_norms_into_matmuls_defer_their_scale():
    rms = solve_chain(ZOO["rms norm + matmul"], AXIS)
    assert forms(rms) == {}
    assert "rsqrt" in text(rms.finals["o"])
    layer = solve_chain(ZOO["layer norm + matmul"], AXIS)
    assert all("rsqrt" not in text(r.body) for r in layer.running)


def test_exponent_without_a_safe_reference_gets_its_own_maximum():
    solution = solve_chain(ZOO["unscaled exponent"], AXIS)
    assert "q.max" in [r.name for r in solution.running]
    report = stress(ZOO["unscaled exponent"], solution, AXIS, length=8, cases=("rising",))
    assert report.ok


def test_constant_addend_of_a_feature_map_stays_apart():
    solution = solve_chain(ZOO["performer"], AXIS)
    assert sorted(forms(solution).values()) == ["exponential"] * 2
    assert len(solution.running) == 5  # m, and a corrected and an uncorrected part each


def test_equal_reductions_share_an_accumulator():
    chain = [
        reduction("a", "max", x),
        reduction("b", "max", x),
        reduction("c", "add", exp(x - ref("b"))),
    ]
    solution = solve_chain(chain, AXIS)
    assert [r.name for r in solution.running] == ["a", "c"]
    assert solution.finals["b"] is T.ref("a")


def test_reference_that_never_moves_needs_no_correction():
    chain = [reduction("m", "max", x), reduction("s", "add", (x - m) + m)]
    with_cancel = solve_chain(chain, AXIS)
    assert forms(with_cancel) == {}


EAGER = {
    "multiplicative": [reduction("m", "max", x), reduction("l", "add", exp(x - m)),
                       reduction("o", "add", exp(x - m) / l * v)],
    "additive": [reduction("s", "add", x), reduction("o", "max", x - ref("s") / n)],
    "monotone": [reduction("s", "add", x), reduction("o", "max", exp(x - ref("s") / n) * 2.0)],
}  # fmt: skip


@pytest.mark.parametrize("form", EAGER)
def test_eager_forms(form):
    chain = EAGER[form]
    solution = solve_chain(chain, AXIS, deferral=False)
    assert forms(solution)["o"] == form
    assert solution.finals["o"] is T.ref("o")
    assert solution.proved
    cases = ("normal", "ties", "weights positive", "weights all the same", "rising", "falling")
    report = stress(chain, solution, AXIS, length=12, cases=cases, single=False)
    assert report.ok, str(report.failure)
    assert forms(solve_chain(chain, AXIS)).get("o") is None


@pytest.mark.parametrize("name", ZOO)
def test_zoo_is_proved_without_deferral(name):
    assert solve_chain(ZOO[name], AXIS, deferral=False).proved


def test_defer_pulls_invariant_factors_only():
    found = defer(ZOO["attention"][2], AXIS, lambda t: t.op == "ref")
    assert found is not None
    rest, finish = found
    assert "@l" not in T.show(rest.body)
    assert text(finish) == "(@o / @l[i0])"
    assert defer(ZOO["variance"][0], AXIS, lambda t: t.op == "ref") is None


def test_row_of_zeros_is_made_behind_the_loop():
    chain = ZOO["zero where all is masked"]
    solution = solve_chain(chain, AXIS)
    assert [r.name for r in solution.running] == ["m", "l", "none", "o'"]
    assert text(solution.finals["o"]) == "where(@none[i0], 0, (@o' / @l[i0]))"
    rest, finish = defer(chain[3], AXIS, lambda t: t.op == "ref")
    assert rest.body is T.make("mul", chain[1].body, v.term)
    assert text(finish) == "where(@none[i0], 0, (@o / @l[i0]))"


def test_condition_that_varies_or_divides_stays():
    none = E(T.ref("none", T.index(0), dtype="i1"))

    def deferred(body):
        return defer(reduction("o", "add", body), AXIS, lambda t: t.op == "ref")

    assert deferred(where(j <= i, x, 0.0)) is None
    assert deferred(v / where(none, x, 0.0)) is None
    assert deferred(where(none, x, v)) is None
    assert deferred(where(none, x, 0.0) + where(none, 0.0, v)) is None
    rest, finish = deferred(where(none, x, 0.0) - where(none, v, 0.0))
    assert (text(rest.body), text(finish)) == (text((x - v).term), "where(@none[i0], @o, 0)")


def test_what_is_rounded_to_16_bits_keeps_its_constants():
    def deferred(body):
        return defer(reduction("o", "add", body), AXIS, lambda t: t.op in ("ref", "const"))

    def half(value, dtype="f16"):
        return E(T.make("cast", value.term, dtype=dtype))

    factor = x * x * 0.001 / ref("l")
    rest, finish = deferred(half(factor) * v)
    assert rest.body is (half(x * x * 0.001) * v).term
    assert text(finish) == "(@o / @l[i0])"
    rest, _ = deferred(half(factor, "f32") * v)
    assert "0.001" not in text(rest.body)
    rest, finish = deferred(half(half(half(x), "f32") * 0.125) * v)  # had these bits already
    assert rest.body is (half(half(half(x), "f32")) * v).term
    assert text(finish) == "(@o * 0.125)"


def test_constants_stay_with_the_elements_of_one_tensor():
    """Without them x y overflows where 0.001 x y does not; a contraction gives its constants up."""

    def deferred(body):
        return defer(reduction("o", "add", body), AXIS, lambda t: t.op in ("ref", "const"))

    assert deferred(x * 0.001 * x) is None
    y = read("y", 0, 1)
    rest, finish = deferred(exp(x) / ref("l") * (x * 0.001 * y))
    assert rest.body is (exp(x) * (x * 0.001 * y)).term
    assert text(finish) == "(@o / @l[i0])"
    rest, finish = deferred(x * 0.001 * v)
    assert rest.body is (x * v).term and text(finish) == "(@o * 0.001)"


def test_reading_a_later_or_unknown_reduction_is_an_input_error():
    with pytest.raises(InputError, match="not an earlier reduction"):
        solve_chain([reduction("o", "add", exp(x - m))], AXIS)


def test_reading_a_reduction_along_the_stream_is_unsolvable():
    with pytest.raises(Unsolvable, match="another position"):
        solve_chain([reduction("m", "max", x), reduction("o", "add", x * ref("m", 1))], AXIS)


def test_reference_must_not_vary_along_any_folded_axis():
    inner = Reduction("m", "max", x.term, axes=(0,))
    total = Reduction("t", "add", exp(x - m).term, axes=())
    with pytest.raises(Unsolvable, match="another position"):
        solve_chain([inner, total], AXIS)


def test_message_names_reduction_obligation_subterm_and_remedy():
    chain = [reduction("m", "max", x), reduction("o", "add", maximum(x - m, 0.0))]
    with pytest.raises(Unsolvable) as caught:
        solve_chain(chain, AXIS)
    message = str(caught.value)
    assert "'o'" in message and "re-basing" in message and "max(" in message
    assert "hint: " in message


def test_double_precision_is_kept():
    wide = T.read("x", T.index(0), T.index(1), dtype="f64")
    mean = T.make("div", T.ref("s", T.index(0), dtype="f64"), T.sym("n", "f64"))
    d = T.make("sub", wide, mean)
    chain = [Reduction("s", "add", wide, "f64"), Reduction("q", "add", T.make("mul", d, d), "f64")]
    solution = solve_chain(chain, AXIS)
    assert solution.proved
    for r in solution.running:
        assert r.dtype == "f64"
        assert all(t.op != "cast" for t in T.walk(r.body)), r.body


def test_atoms_keep_double_precision():
    data = T.read("x", T.index(0), T.index(1), dtype="f64")
    size = T.make("add", T.make("abs", data), T.const(1.0, "f64"))
    total = T.ref("s", T.index(0), dtype="f64")
    chain = [
        Reduction("s", "add", T.make("mul", data, data), "f64"),
        Reduction("q", "max", T.make("div", total, size), "f64"),
    ]
    for r in solve_chain(chain, AXIS).running:
        assert all(t.dtype in ("f64", "index", "i1") for t in T.walk(r.body)), r.body


def test_what_is_refuted_is_not_fused(monkeypatch):
    wrong = Obligation("finish", "o", x.term, v.term, REFUTED, "counterexample: some")
    monkeypatch.setattr(solver, "finish_obligations", lambda *_: Proof((wrong,)))
    with pytest.raises(Unsolvable, match=r"finish fails on .*counterexample: some"):
        solve_chain(ZOO["attention"], AXIS)


@pytest.mark.parametrize("scale", [n, 12.0, 1 / 12.0])
def test_mean_of_data_far_from_zero_loses_nothing(scale):
    mean = ref("s") * scale if scale == 1 / 12.0 else ref("s") / scale
    chain = [
        reduction("s", "add", x),
        reduction("q", "add", (x - mean) * (x - mean)),
        reduction("o", "add", (x - mean) * v),
    ]
    solution = solve_chain(chain, AXIS)
    assert solution.proved
    report = stress(chain, solution, AXIS, length=12, cases=("mean 1e+03",))
    for name in ("q", "o"):
        assert report.fused[name] <= 2 * report.unfused[name] + 4


def test_reductions_over_several_axes_at_once():
    """FAVOR+ with one maximum over tokens (streamed) and features; a norm over both axes."""
    data = T.read("x", T.index(1), T.index(2))
    top = T.ref("m")
    feature = T.make("add", T.make("exp", T.make("sub", data, top)), T.const(1e-3))
    value = T.read("v", T.index(1), T.index(3))
    mean = T.make("div", T.ref("s"), T.sym("total"))
    centred = T.make("sub", data, mean)
    chain = [
        Reduction("m", "max", data, axes=()),
        Reduction("z", "add", feature, axes=(2,)),
        Reduction("c", "add", T.make("mul", feature, value), axes=(2, 3)),
        Reduction("s", "add", data, axes=()),
        Reduction("q", "add", T.make("mul", centred, centred), axes=()),
    ]
    solution = solve_chain(chain, AXIS, empty_rows=True)
    assert solution.proved
    running = {r.name: r for r in solution.running}
    assert running["m"].folded == (1, 2) and running["s.count"].folded == (1, 2)
    report = stress(chain, solution, AXIS, length=12, scalars={"total": 24.0})
    assert report.ok, str(report.failure)


def test_a_walk_may_end_at_some_ops():
    inside = T.read("a", T.index(0), dtype="f32")
    both = T.read("b", T.index(1), dtype="f32")
    body = T.make("add", T.make("exp", T.make("mul", inside, both)), both)
    found = list(T.walk_outside(body, ("exp", "read")))
    assert len(found) == len({*found}) == 3
    assert {n.op for n in found} == {"add", "exp", "read"} and inside not in found
    assert {*T.walk_outside(body, ())} == {*T.walk(body)}
