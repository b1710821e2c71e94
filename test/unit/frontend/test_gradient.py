# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune.grad`: against torch's autograd in float64, on rows that hurt, and what it refuses.

Where no kernel is made, gradients are the float64 evaluation of the gradient program; what
differs from autograd is then a wrong rule (tolerance 1e-9 relative, rounding is 1e-15).
"""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.proofs.proof import Proof
from neptune_mlir.cli import main
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.frontend import notation as N
from neptune_mlir.frontend.from_nests import program_of
from neptune_mlir.frontend.gradient import reverse
from neptune_mlir.zoo import ZOO, differences, relative_error
from support.random_programs import arrays as random_arrays
from support.random_programs import described, programs

torch_reference = pytest.importorskip("support.torch_reference", exc_type=ImportError)


def as_list(value):
    return list(value) if isinstance(value, tuple) else [value]


def with_cotangents(program, arrays, rng):
    results = zip(as_list(program.reference(*arrays)), program.outputs, strict=True)
    return [rng.standard_normal(np.shape(r)) for r, o in results if T.is_float(o.term.dtype)]


def compare(program, arrays, seed=0, tolerance=1e-9):
    """The gradient in float64, where autograd's is finite, against it; returns ours."""
    rng = np.random.default_rng(seed)
    cotangents = with_cotangents(program, arrays, rng)
    gradient = neptune.grad(program)
    got = as_list(gradient.reference(*arrays, *cotangents))
    names = [o.name.removeprefix("d_") for o in gradient.outputs]
    wanted = torch_reference.gradients(program, names, arrays, cotangents)
    for name, g, w in zip(names, got, wanted, strict=True):
        assert g.shape == w.shape, name
        usable = np.isfinite(w)
        scale = max(np.linalg.norm(w[usable]), 1e-3)  # a gradient of 0 is rounding alone
        assert np.linalg.norm(g[usable] - w[usable]) < tolerance * scale, name
    return dict(zip(names, got, strict=True))


@pytest.mark.parametrize("hard", [
    pytest.param(False, id="plain"), pytest.param(True, id="hard", marks=pytest.mark.nightly),
])  # fmt: skip
@pytest.mark.parametrize("example", ZOO, ids=lambda e: e.name)
def test_zoo(example, hard):
    make = example.hard if hard and example.hard else example.inputs
    compare(example.build(), make(np.random.default_rng(1)))


OPTIONS = {
    "gqa": {"heads": 4, "kv_heads": 2},
    "gqa_at_run_time": {"group": 2},
    "mqa": {"heads": 4, "kv_heads": 1, "causal": True},
    "start": {"align": "start", "causal": True},
    "window": {"window": 5, "causal": True},
    "everything": {"heads": 4, "kv_heads": 2, "causal": True, "window": 9, "softcap": 3.0,
                   "alibi": True, "sink": True, "return_lse": True},
    "bias": {"score_mod": lambda s, b, h, q, kv, bias: s + bias[b, h, q, kv],
             "inputs": {"bias": ops.Extra("b h q kv")}},
    "row_bias": {"score_mod": lambda s, b, h, q, kv, bias: s + bias[h, kv],
                 "inputs": {"bias": ops.Extra("h kv")}},
    "temperature": {"score_mod": lambda s, b, h, q, kv, t: s * t, "inputs": {"t": ops.Extra("")}},
    "masked": {"mask_mod": lambda b, h, q, kv, seen: seen[q, kv] > 0,
               "inputs": {"seen": ops.Extra("q kv", "i32")}},
}  # fmt: skip


def inputs_of(program, rng, sizes):
    made = []
    for argument in program.inputs.values():
        if isinstance(argument, str):
            made.append(rng.uniform(0.5, 1.5))
            continue
        shape = [sizes[a.name] if a.static is None else a.static for a in argument.shape]
        integers = not argument.dtype.startswith(("f", "bf"))
        made.append(rng.integers(0, 2, shape) if integers else rng.standard_normal(shape))
    return made


@pytest.mark.parametrize("name", OPTIONS)
def test_attention_with_every_option(name):
    program = ops.attention(head_dim=8, **OPTIONS[name])
    sizes = {"b": 2, "h": 4, "hk": 2, "i": 13, "j": 17}
    compare(program, inputs_of(program, np.random.default_rng(2), sizes))


@pytest.mark.parametrize("examples", [
    pytest.param(50, id="some"), pytest.param(500, id="many", marks=pytest.mark.nightly),
])  # fmt: skip
def test_random_programs(examples):
    """Chains of 2 to 5 reductions and maps, masked, shared and broadcast at random."""

    @settings(
        max_examples=int(os.environ.get("NEPTUNE_EXAMPLES", examples)), derandomize=True,
        database=None, deadline=None, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(programs(), st.integers(0, 2**16))
    def check(program, seed):
        note(described(program))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare(program, random_arrays(program, np.random.default_rng(seed)), seed, 1e-7)

    check()


@pytest.mark.nightly
@pytest.mark.usefixtures("small_tiles")
@settings(
    max_examples=100, derandomize=True, database=None, deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(programs(), st.integers(0, 2**16))
def test_random_programs_compiled(program, seed):
    note(described(program))
    rng = np.random.default_rng(seed)
    arrays = random_arrays(program, rng)
    cotangents = with_cotangents(program, arrays, rng)
    gradient = neptune.grad(program)
    wanted = as_list(gradient.reference(*arrays, *cotangents))
    got = as_list(neptune.compile(gradient)(*arrays, *cotangents))
    for g, w in zip(got, wanted, strict=True):
        usable = np.isfinite(w)
        assert relative_error(np.asarray(g)[usable], w[usable]) < 1e-6


# ---- planted faults


def without_sums(self, d, axes):
    return T.rename_axes(d, {a: T.const(0, "index") for a in axes})


def always_free(name, reductions, results):
    return T.read(name, T.index(0), dtype="f64"), Proof()


FAULTS = {
    "a sum is left out": (reverse.Reverse, "_summed", without_sums),
    "a maximum that matters has no adjoint": (reverse, "free_value", always_free),
    "ties get all": (reverse, "over", lambda a, b: a),
    "a known sum is wrong": (reverse, "known_sum", lambda *_: T.const(0.0, "f64")),
}


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_a_wrong_rule_is_caught(fault, monkeypatch):
    p = N.Program("p")
    i, j = p.axes("i j")
    x = p.input("x", i, j, dtype="f64")[i, j]
    p.output(N.sum(x * x * N.max(x, j), j), i)
    data = np.array([[1.0, 3.0, 3.0], [-2.0, 0.5, 1.0]])
    if fault is None:
        compare(p, [data])
        return
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError):
        compare(p, [data])


# ---- rows that hurt


def test_rows_that_see_nothing_have_no_gradient():
    """More queries than keys, causal: the first rows see no key."""
    program = ops.attention(head_dim=4, causal=True, return_lse=True)
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 2, n, 4)) for n in (9, 5, 5))
    cotangents = [rng.standard_normal((1, 2, 9, 4)), np.zeros((1, 2, 9))]
    dq, dk, dv = neptune.grad(program).reference(q, k, v, *cotangents)
    assert not dq[:, :, :4].any() and all(np.isfinite(g).all() for g in (dq, dk, dv))
    assert np.abs(dq[:, :, 4:]).min() >= 0 and dk.any() and dv.any()


def test_a_row_that_sees_nothing_without_a_guard():
    """Its result is NaN. What multiplies a sum over its keys has been divided by 0."""
    p = N.Program("p")
    i, j = p.axes("i j")
    x, r = p.input("x", i, j, dtype="f64"), p.input("r", i, dtype="f64")
    score = N.where(j > i, x[i, j] * r[i], -N.inf)
    weight = N.exp(score - N.max(score, j))
    p.output(N.sum(weight / N.sum(weight, j), j), i)
    rng = np.random.default_rng(8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compare(p, [rng.standard_normal(n) for n in ((4, 4), 4)])
    assert not found["x"][3].any() and found["r"][3] == 0


def test_scores_of_minus_infinity():
    program = ops.attention(head_dim=4, **OPTIONS["bias"])
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((1, 1, 6, 4)) for _ in range(3))
    bias = rng.standard_normal((1, 1, 6, 6))
    bias[0, 0, 2, :3] = -np.inf
    bias[0, 0, 4] = -np.inf  # a row without a live key
    d = rng.standard_normal((1, 1, 6, 4))
    gradients = neptune.grad(program).reference(q, k, v, bias, d)
    assert all(np.isfinite(g).all() for g in gradients)
    dq, _, _, dbias = gradients
    assert not dq[0, 0, 4].any() and not dbias[0, 0, 4].any() and not dbias[0, 0, 2, :3].any()


def test_an_axis_of_one_element_is_streamed():
    """What is outside of the loop reads its only element, and is made there."""
    p = N.Program("p")
    j, e = p.axes("j e", j=21, e=1)
    g, v, u = p.input("g", e)[e], p.input("v", j, e)[j, e], p.input("u", j)[j]
    score = N.sum(g / (abs(u) + 1.0), j)
    p.output(N.sum(N.exp(score - N.max(score, e)) * v, j), e)
    gradient = neptune.grad(p)
    rng = np.random.default_rng(9)
    arrays = [a.astype("f4") for a in map(rng.standard_normal, (1, (21, 1), 21, 1))]
    wanted = gradient.reference(*(a.astype("f8") for a in arrays))
    for found, exact in zip(neptune.compile(gradient)(*arrays), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-6)


@pytest.mark.parametrize("example", ZOO, ids=lambda e: e.name)
def test_axes_of_length_one(example):
    """One row, one column, one key; maxima of one number."""
    program = example.build()
    sizes = {a.name: 1 for a in program.axis_list if a.static is None}
    arrays = inputs_of(program, np.random.default_rng(5), sizes)
    arrays = [np.zeros_like(a) if a.dtype.kind == "i" else a for a in map(np.asarray, arrays)]
    for name, gradient in compare(program, arrays).items():
        assert np.isfinite(gradient).all(), name


# ---- single rules


def check_rows(body, data=None, **sizes):
    p = N.Program("p")
    i, j = p.axes("i j", **sizes)
    x = p.input("x", i, j, dtype="f64")[i, j]
    value = body(p, x, i, j)
    p.output(value, *value.axes)
    data = np.random.default_rng(6).standard_normal((4, 5)) if data is None else data
    return compare(p, [data])["x"]


def test_products_with_and_without_zeros():
    data = np.array([[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 3.0, 0.0]])
    found = check_rows(lambda p, x, i, j: N.prod(x, j), data)
    assert np.count_nonzero(found[0]) == 3
    assert np.count_nonzero(found[1]) == 1 and not found[2].any()


def test_ties_of_a_maximum_are_shared_evenly():
    data = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    found = check_rows(lambda p, x, i, j: N.max(x, j), data)
    assert found[0, 1] == found[0, 2] and found[0, 0] == 0 and len(set(found[1])) == 1


def test_a_number_beside_nan_has_all_of_the_adjoint():
    p = N.Program("p")
    (i,) = p.axes("i")
    a, b = p.input("a", i, dtype="f64"), p.input("b", i, dtype="f64")
    p.output(N.maximum(a[i], b[i]) + N.minimum(a[i], b[i]), i)
    data = np.array([1.0, np.nan, 2.0]), np.array([np.nan, 3.0, 2.0])
    for found in neptune.grad(p).reference(*data, np.array([5.0, 7.0, 9.0])):
        assert np.array_equal(found, [10, 14, 9])


def test_extents_in_the_program():
    check_rows(lambda p, x, i, j: N.mean(x, j) * 2.0 + N.sum(N.mean(x, i), j))


def test_sums_over_what_does_not_vary():
    check_rows(lambda p, x, i, j: N.sum(N.max(x, j) * 1.5 + j, j))


def test_reads_at_other_places():
    """A number, an axis divided, an axis twice, and an input read along two axes."""
    p = N.Program("p")
    i, j, g, m = p.axes("i j g m", i=6, j=6, g=3, m=4)
    x = p.input("x", i, j, dtype="f64")
    y = p.input("y", g, m, dtype="f64")
    z = p.input("z", m, dtype="f64")
    p.output(N.sum(x[i, j] * x[j, i] * y[i // 2, 1] + x[j, j] * z[j // 2], j), i)
    rng = np.random.default_rng(7)
    compare(p, [rng.standard_normal(s) for s in ((6, 6), (3, 4), (4,))])


def test_integers_and_conditions_have_no_gradient():
    p = N.Program("p")
    i, j = p.axes("i j")
    x, n = p.input("x", i, j, dtype="f64")[i, j], p.input("n", i, dtype="i32")[i]
    p.output(N.sum(N.where((x > 0) & (j != n), x * N.cast(n, "f64"), N.floor(x)), j), i)
    p.output(N.sum(x > 0, j), i)  # counts: no cotangent
    rng = np.random.default_rng(8)
    arrays = [rng.standard_normal((4, 5)), rng.integers(0, 5, 4)]
    gradient = neptune.grad(p)
    assert list(gradient.inputs) == ["x", "n", "d_out0"]
    wanted = torch_reference.gradients(p, ["x"], arrays, [np.ones(4)])
    np.testing.assert_allclose(gradient.reference(*arrays, np.ones(4)), wanted[0])


def test_16_bit_operands_stay_16_bit():
    """Both factors of every product over scores are f16: matrix instructions take them."""
    gradient = neptune.grad(ops.attention(head_dim=16, dtype="f16"))
    contractions = [s for s in gradient.steps[4:] if s.body.op == "mul" and len(s.removed) == 1]
    assert len(contractions) >= 4
    rounded = [
        all(a.op == "cast" and a.args[0].dtype == "f16" for a in s.body.args) for s in contractions
    ]
    assert sum(rounded) >= 4
    assert [o.term.dtype for o in gradient.outputs] == ["f16"] * 3


# ---- derived structure


def test_exchange_of_sums_is_found():
    """Softmax's inner sum over the keys becomes one over the columns of the result."""
    gradient = neptune.grad(ops.softmax_weighted_sum())
    assert any(n.startswith("exchange of sums") and "proved" in n for n in gradient.notes)
    j, e = (next(a.number for a in gradient.axis_list if a.name == n) for n in "je")
    of_rows = [s for s in gradient.steps[3:] if len(s.kept) == 1]
    assert [s.removed for s in of_rows] == [(e,)] and j not in of_rows[0].removed


def test_deviations_from_a_mean_add_up_to_nothing():
    gradient = neptune.grad(ops.variance())
    assert len(gradient.steps) == 2
    assert any(n.endswith("= 0    (from sums that are known)") for n in gradient.notes)


@pytest.mark.parametrize("along", ["columns", "rows"])
def test_a_known_sum_is_not_divided_by_a_factor(along):
    """The sum of exp(u - max) is that of exp(u - max) * g over g, but g may be 0 (and varies along
    what the sum does not)."""
    p = N.Program("p")
    i, j = p.axes("i j")
    e = p.axis("e") if along == "columns" else i
    u, g = p.input("u", i, j, dtype="f64"), p.input("g", e, dtype="f64")
    weighed = N.sum(N.exp(u[i, j] - N.max(u[i, j], j)) * g[e], j)
    p.output(weighed * weighed, *dict.fromkeys((i, e)))
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((3, 5))
    compare(p, [rows, np.array([2.0, 0.0, -1.0])])


def test_the_same_program_has_the_same_text():
    def text():
        return neptune.grad(ops.attention(head_dim=8, causal=True)).to_mlir()

    assert text().split("loc(")[0] == text().split("loc(")[0]


def test_differences_notice_a_wrong_gradient():
    program = ops.logsumexp()
    rng = np.random.default_rng(9)
    x, d = rng.standard_normal((3, 8)), rng.standard_normal(3)
    gradient = neptune.grad(program).reference(x, d)
    assert differences(program, [x], [d], 0, gradient, rng) < 1e-8
    assert differences(program, [x], [d], 0, gradient * 1.001, rng) > 1e-5


SAVES = ("softmax_weighted_sum", "attention_lse", "layer_norm_matmul", "performer")


@pytest.mark.parametrize("example", [
    pytest.param(e, id=e.name, marks=[] if e.name in SAVES else pytest.mark.nightly) for e in ZOO
])  # fmt: skip
def test_saving_changes_nothing(example):
    """Backward from what forward saved is the gradient; nothing as large as scores is saved."""
    program = example.build()
    forward, backward = neptune.vjp(program)
    rng = np.random.default_rng(10)
    arrays = example.inputs(rng)
    results = as_list(forward.reference(*arrays))
    names = {o.name: r for o, r in zip(forward.outputs, results, strict=True)}
    saved = [names[n] for n in backward.inputs if n in names]
    cotangents = with_cotangents(program, arrays, rng)
    got = as_list(backward.reference(*arrays, *saved, *cotangents))
    wanted = as_list(neptune.grad(program).reference(*arrays, *cotangents))
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12 * np.abs(w).max())
    largest = max(np.size(x) for x in (*arrays, *results[: len(program.outputs)]))
    assert saved or len(program.steps) < 3
    assert all(np.size(s) <= largest for s in saved)


@pytest.mark.parametrize("options", [
    {"causal": True}, {"sink": True, "softcap": 5.0}, {"group": 2, "return_lse": True},
    {"window": 2, "alibi": True},
])  # fmt: skip
def test_a_softmax_saves_its_log_sum_exp_alone(options):
    """The reference for which the sum is 1, and the result: also of rows without a live key."""
    program = ops.attention(head_dim=4, dtype="f64", heads=2, **options)
    forward, backward = neptune.vjp(program)
    assert [n for n in backward.inputs if n in {o.name for o in forward.outputs}] == [
        "out0",
        "saved0",
    ]
    divisors = [n.args[1] for s in backward.steps for n in T.walk(s.body) if n.op == "div"]
    assert all(d.is_const for d in divisors)
    rng = np.random.default_rng(11)
    # more queries than keys: causal rows at the front see nothing
    shapes = {"q": (1, 2, 7, 4), "k": (1, 2 // options.get("group", 1), 5, 4), "slope": (2,),
              "sink": (2,)}  # fmt: skip
    shapes["v"] = shapes["k"]
    arrays = [rng.standard_normal(shapes[n]) for n in program.inputs]
    results = as_list(forward.reference(*arrays))
    cotangents = with_cotangents(program, arrays, rng)
    saved = [r for o, r in zip(forward.outputs, results, strict=True) if o.name in backward.inputs]
    got = as_list(backward.reference(*arrays, *saved, *cotangents))
    wanted = as_list(neptune.grad(program).reference(*arrays, *cotangents))
    for g, w in zip(got, wanted, strict=True):
        assert np.isfinite(g).all()
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12)


# ---- programs that came as MLIR

INPUTS = Path(__file__).parents[2] / "inputs"
# As array languages and torch's exporter write them; the others are larger or alike.
MLIR = ("cross_entropy_gather", "decode_gqa", "embedding", "layernorm", "reduce_several_axes",
        "softmax_map", "torch_alibi", "torch_batch_norm", "torch_sdpa_bool_mask")  # fmt: skip
REFUSED = ("argmax_used", "convolution", "running_sum")


@pytest.mark.parametrize("name", [
    pytest.param(f.stem, marks=[] if f.stem in MLIR else pytest.mark.nightly, id=f.stem)
    for f in sorted(INPUTS.glob("*.mlir"))
])  # fmt: skip
def test_mlir(name):
    """The program in index notation means the same, and its gradient is right; or it is refused,
    at the op."""
    path = INPUTS / f"{name}.mlir"
    try:
        program = program_of(path)
    except InputError as error:
        assert name not in MLIR
        assert "no nest models it" in error.message and path.name in str(error.loc)
        return
    rng = np.random.default_rng(0)
    sizes = {a.name: 9 for a in program.axis_list if a.static is None}
    compare(program, inputs_of(program, rng, sizes))


@pytest.mark.parametrize("name", REFUSED)
def test_mlir_that_no_nest_models(name):
    with pytest.raises(InputError, match="has no gradient"):
        neptune.grad(INPUTS / f"{name}.mlir")


def test_mlir_means_the_same_as_a_program():
    """Out into MLIR and back: the same arguments, the same values."""
    program = ops.attention(head_dim=8, causal=True, group=2, sink=True)
    again = program_of(program.to_mlir())
    assert list(again.inputs) == list(program.inputs)
    sizes = {"b": 2, "h": 4, "hk": 2, "i": 5, "j": 7}
    arrays = inputs_of(program, np.random.default_rng(1), sizes)
    np.testing.assert_allclose(again.reference(*arrays), program.reference(*arrays), rtol=1e-5)


def test_an_axis_that_no_input_has_as_its_own():
    """x[i, k] * x[j, k]: the extent of j is that of the dimension which it indexes."""
    p = N.Program("gram")
    i, j, k = p.axes("i j k")
    x = p.input("x", i, k)
    p.output(N.sum(x[i, k] * x[j, k], k), i, j)
    again = program_of(p.to_mlir())
    arrays = [np.random.default_rng(2).standard_normal((5, 3))]
    np.testing.assert_allclose(again.reference(*arrays), arrays[0] @ arrays[0].T)


def test_explain_shows_the_derivation(capsys):
    assert main.main(["explain", str(INPUTS / "softmax_map.mlir"), "--grad"]) == 0
    shown = capsys.readouterr().out
    assert "derivation of" in shown and "no adjoint" in shown


# ---- what it takes and refuses


@pytest.mark.parametrize("build", [
    ops.softmax, ops.logsumexp, ops.variance, lambda: ops.attention(head_dim=4, causal=True),
])  # fmt: skip
def test_a_gradient_has_a_gradient(build):
    program = neptune.grad(build())
    sizes = {"i": 5, "j": 6, "b": 1, "h": 2}
    compare(program, inputs_of(program, np.random.default_rng(11), sizes), tolerance=1e-8)


def test_some_inputs_alone():
    program = ops.softmax_weighted_sum()
    gradient = neptune.grad(program, wrt=["v"])
    assert [o.name for o in gradient.outputs] == ["d_v"]
    assert len(gradient.outputs) == 1
    assert [o.name for o in neptune.grad(program, ["v", "x"]).outputs] == ["d_v", "d_x"]


@pytest.mark.parametrize(
    ("wrt", "said"), [(["nothing"], "nothing"), (["target"], "target"), ([], "no float")]
)
def test_inputs_that_have_no_gradient(wrt, said):
    with pytest.raises(UsageError, match=said):
        neptune.grad(ops.cross_entropy(), wrt)


def test_a_program_of_integers():
    p = N.Program("p")
    i, j = p.axes("i j")
    x = p.input("x", i, j)[i, j]
    p.output(N.sum(x > 0, j), i)
    with pytest.raises(UsageError, match="no float result"):
        neptune.grad(p)


def test_an_input_that_nothing_depends_on():
    p = N.Program("p")
    i = p.axis("i")
    x, y = p.input("x", i)[i], p.input("y", i)[i]
    p.output(x * 2.0, i)
    p.output(N.floor(y), i, name="steps")
    gradient = neptune.grad(p)
    assert list(gradient.inputs)[2:] == ["d_out0", "d_steps"]
    dx, dy = gradient.reference(*(np.ones(3) for _ in range(4)))
    assert dx.tolist() == [2, 2, 2] and dy.tolist() == [0, 0, 0]
