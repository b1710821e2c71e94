# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index notation: what it accepts, what it says, and that it means what it says."""

import inspect

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.errors import ArgumentError, InputError, UsageError
from neptune_mlir.frontend.notation import (
    Program,
    abs,
    all,
    any,
    cast,
    exp,
    inf,
    max,
    maximum,
    mean,
    min,
    minimum,
    prod,
    sigmoid,
    sqrt,
    sum,
    where,
)
from neptune_mlir.ops import Extra, attention


def matrix(dtype="f32", **sizes):
    p = Program("test")
    i, j = p.axes("i j", **sizes)
    return p, i, j, p.input("x", i, j, dtype=dtype)


def plain_attention():
    p = Program("attention")
    b, h, i, j, d, e = p.axes("b h i j d e", d=16, e=16)
    q, k, v = p.input("q", b, h, i, d), p.input("k", b, h, j, d), p.input("v", b, h, j, e)
    s = where(j <= i, sum(q[b, h, i, d] * k[b, h, j, d], d) / 4, -inf)
    w = exp(s - max(s, j))
    p.output(sum(w / sum(w, j) * v[b, h, j, e], j), b, h, i, e)
    return p


def test_attention_takes_under_fifteen_lines():
    body = inspect.getsource(plain_attention).strip().splitlines()
    assert len(body) < 15


def test_attention_means_attention():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 3, 9, 16)) for _ in range(3))
    scores = np.einsum("bhid,bhjd->bhij", q, k) / 4
    scores[..., np.arange(9) > np.arange(9)[:, None]] = -np.inf
    w = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("bhij,bhje->bhie", w / w.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(plain_attention().reference(q, k, v), wanted, rtol=1e-12)


def test_text_is_deterministic():
    assert plain_attention().to_mlir() == plain_attention().to_mlir()


def test_equal_reductions_are_one():
    p, i, j, x = matrix()
    p.output(x[i, j] - max(x[i, j], j) + max(x[i, j], j), i, j)
    assert len(p.steps) == 1


def test_module_has_only_needed_reductions():
    p, i, j, x = matrix()
    sum(exp(x[i, j]), j)  # nobody asks for it
    p.output(max(x[i, j], j), i)
    assert str(p.module()).count("neptune.reduce") == 1


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda p, i, j, x: x[i], "has 2 dimensions"),
        (lambda p, i, j, x: x[i, j + 1], "not known to stay inside"),
        (lambda p, i, j, x: x[i, j - 1], "not known to stay inside"),
        (lambda p, i, j, x: x[i, i + j], "is indexed by"),
        (lambda p, i, j, x: x[i, x[i, j]], "is indexed by"),
        (lambda p, i, j, x: p.axis("z", j.size + x[i, j]), "make it of sizes"),
        (lambda p, i, j, x: sum(x[i, j]), "needs the axes"),
        (lambda p, i, j, x: sum(x[i, j], x), "is not an axis"),
        (lambda p, i, j, x: p.output(x[i, j], i), "varies along j"),
        (lambda p, i, j, x: p.output(sum(x[i, j], j), i, i), "listed twice"),
        (lambda p, i, j, x: p.axis("i"), "already has an axis"),
        (lambda p, i, j, x: p.axis("z", -1), "has size -1"),
        (lambda p, i, j, x: p.axes("a b", c=3), "which is not in"),
        (lambda p, i, j, x: p.input("x", i), "already has an input"),
        (lambda p, i, j, x: p.input("y", i, dtype="f8"), "unknown dtype"),
        (lambda p, i, j, x: p.input("y", 3), "is not an axis"),
        (lambda p, i, j, x: cast(x[i, j], "float"), "unknown dtype"),
        (lambda p, i, j, x: where(x[i, j], 1.0, 0.0), "takes a condition"),
        (lambda p, i, j, x: x[i, j] & (i < j), "takes conditions or integers"),
        (lambda p, i, j, x: ~x[i, j], "takes a condition"),
        (lambda p, i, j, x: x[i, j] // 2, "take integers"),
        (lambda p, i, j, x: exp(3.0), "takes an expression"),
        (lambda p, i, j, x: 1 if x[i, j] > 0 else 2, "no truth value"),
        (lambda p, i, j, x: x[i, j] + "a", "not a str"),
        (lambda p, i, j, x: x[i, j] + x, "not a Tensor"),
        (lambda p, i, j, x: x[i, j] + np.ones(3), "not a ndarray"),
        (lambda p, i, j, x: sum(3.0, j), "sum takes an expression"),
        (lambda p, i, j, x: mean(3.0, j), "takes an expression"),
        (lambda p, i, j, x: where(3.0, x[i, j], 0.0), "where takes an expression"),
        (lambda p, i, j, x: cast(3.0, "f32"), "cast takes an expression"),
        (lambda p, i, j, x: abs(3.0), "abs takes an expression"),
        (lambda p, i, j, x: maximum(1.0, 2.0), "at least one operand"),
        (lambda p, i, j, x: all(x[i, j], j), "take a condition"),
        (lambda p, i, j, x: i // 0, "division by 0"),
        (lambda p, i, j, x: i % 0, "division by 0"),
        (lambda p, i, j, x: x[i, j] % 2, "take integers"),
        (lambda p, i, j, x: x[i, 1.5], "is indexed by 1.5"),
        (lambda p, i, j, x: x[i, True], "is indexed by True"),
        (lambda p, i, j, x: x[i, j // -2], "is indexed by"),
        (lambda p, i, j, x: x[i, 5], "of unknown size"),
        (lambda p, i, j, x: p.input("y", p.axis("c", 3))[5], "reaches 5"),
        (lambda p, i, j, x: p.input("y", p.axis("c", 3))[-1], "reaches -1"),
        (lambda p, i, j, x: p.input("y", p.axis("c", 3))[p.axis("e", 8) // 2], "reaches 3"),
        (lambda p, i, j, x: x[i, matrix()[2]], "belongs to another program"),
        (lambda p, i, j, x: sum(x[i, j], matrix()[2]), "belongs to another program"),
        (lambda p, i, j, x: p.input("y", matrix()[2]), "belongs to another program"),
        (lambda p, i, j, x: p.output(x[i, j], i, matrix()[2]), "belongs to another program"),
        (lambda p, i, j, x: p.output(x[i, j], i, "j"), "is not an axis"),
        (lambda p, i, j, x: p.output(x[i, j], i, j, dtype="f8"), "unknown dtype"),
        (lambda p, i, j, x: p.output(3.0), "not an expression"),
        (lambda p, i, j, x: p.axis("z", 2.5), "has size 2.5"),
        (lambda p, i, j, x: p.axis("a b"), "not an identifier"),
        (lambda p, i, j, x: p.input("%0", i), "not an identifier"),
        (lambda p, i, j, x: Program(3), "not an identifier"),
        (lambda p, i, j, x: x[i, j] + Program("other").scalar("s"), "different programs"),
    ],
)
def test_mistakes_name_the_line_of_python(define, message):
    p, i, j, x = matrix()
    with pytest.raises(InputError, match=message) as caught:
        define(p, i, j, x)
    file, line, _ = caught.value.loc.rsplit(":", 2)
    assert file == __file__
    first = define.__code__.co_firstlineno
    assert first <= int(line) <= first + 1


def test_error_in_a_long_expression_names_its_own_line():
    p, i, j, x = matrix()
    with pytest.raises(InputError) as caught:
        p.output(
            x[i, j]
            + 1.0
            + exp(2.0),
            i, j,
        )  # fmt: skip
    raised = inspect.currentframe().f_lineno
    assert 2 < raised - int(caught.value.loc.rsplit(":", 2)[1]) < 6


def test_operations_point_at_their_lines():
    p, i, j, x = matrix()
    total = sum(x[i, j], j)
    line = inspect.currentframe().f_lineno - 1
    p.output(total * 2.0, i)
    text = p.to_mlir()
    assert f'"{__file__}":{line}:1' in text and f'"{__file__}":{line + 2}:1' in text


def test_unknown_extent_names_the_axis():
    p, i, j, x = matrix()
    z = p.axis("z")
    p.output(x[i, j] + cast(z, "f32"), i, j, z)
    with pytest.raises(InputError, match="axis 'z'"):
        p.module()


def test_no_output():
    with pytest.raises(InputError, match="no output"):
        Program("empty").module()


def test_reference_checks_its_arrays():
    p, i, j, x = matrix()
    y = p.input("y", j)
    p.output(x[i, j] * y[j], i, j)
    with pytest.raises(ArgumentError, match="2 inputs"):
        p.reference(np.ones((2, 3)))
    with pytest.raises(ArgumentError, match="two extents"):
        p.reference(np.ones((2, 3)), np.ones(4))
    with pytest.raises(ArgumentError, match="has 2 dimensions"):
        p.reference(np.ones(2), np.ones(3))


def test_a_foreign_axis_has_to_fit():
    p, i, j, x = matrix()
    y = p.input("y", i)
    p.output(x[i, j] + y[j], i, j)  # so i and j have to be alike
    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    wanted = square + np.arange(3)
    arrays = square, np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(p.reference(*arrays), wanted)
    np.testing.assert_array_equal(neptune_mlir.compile(p)(*arrays), wanted)
    with pytest.raises(ArgumentError):
        p.reference(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ArgumentError):
        neptune_mlir.compile(p)(np.ones((2, 3), np.float32), np.ones(2, np.float32))


def test_dtypes():
    p, i, j, x = matrix("f16")
    assert x[i, j].dtype == "f16"
    assert (x[i, j] * 2).dtype == "f32"
    assert exp(x[i, j]).dtype == "f32"
    assert (i + 1).dtype == "index"
    assert (i < j).dtype == "i1"
    assert (i / 2).dtype == "f32"
    assert sum(x[i, j], j).dtype == "f32"
    assert cast(x[i, j], "f64").dtype == "f64"
    y = p.input("y", i, dtype="f64")
    assert (x[i, j] + y[i]).dtype == "f64"


def test_conditions_count_as_zero_and_one():
    p, i, j, x = matrix()
    near, positive = abs(x[i, j]) < 1, x[i, j] > 0
    assert (near + positive).dtype == sum(near, j).dtype == (-near).dtype == "i64"
    assert (near & positive).dtype == (near == positive).dtype == "i1"
    p.output(sum(near, j), i, dtype="f32")
    p.output(near + positive * 2, i, j, dtype="f32")
    p.output(max(near, j) - min(near, j), i, dtype="f32")
    p.output(where(near == positive, 1.0, 0.0), i, j)
    data = np.random.default_rng(3).standard_normal((4, 300)).astype(np.float32)
    a, b = np.abs(data) < 1, data > 0
    wanted = [a.sum(1), a + 2 * b, a.max(1).astype(int) - a.min(1), a == b]
    for run in (p.reference, neptune_mlir.compile(p)):
        for got, right in zip(run(data), wanted, strict=True):
            np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers(dtype):
    p, i, j, x = matrix("i" + dtype[3:])
    p.output(sum(x[i, j], j), i, dtype="f32")
    p.output(x[i, j] % 3 + 7 // (abs(x[i, j]) + 1), i, j, dtype="f32")
    p.output(x[i, j] / 4, i, j)
    data = np.random.default_rng(4).integers(-100, 100, (3, 90)).astype(dtype)
    wide = data.astype(np.int64)  # sums of i8 do not wrap
    wanted = [wide.sum(1), wide % 3 + 7 // (np.abs(wide) + 1), wide / 4]
    for run in (p.reference, neptune_mlir.compile(p)):
        for got, right in zip(run(data), wanted, strict=True):
            np.testing.assert_array_equal(got, right)


def test_axes_of_no_elements():
    p, i, j, x = matrix()
    for over in (sum, prod, max, min):
        p.output(over(x[i, j], j), i)
    wanted = [0.0, 1.0, -np.inf, np.inf]
    for run in (p.reference, neptune_mlir.compile(p)):
        for got, right in zip(run(np.empty((3, 0), np.float32)), wanted, strict=True):
            np.testing.assert_array_equal(got, [right] * 3)


def test_powers_and_numbers_on_the_left():
    p, i, j, x = matrix()
    v = abs(x[i, j]) + 0.5
    p.output(v**2 + v**v + 2**v + v**0.5 + (1 - v) + 1 / v + np.float32(3) * v, i, j)
    data = np.random.default_rng(5).standard_normal((3, 5)).astype(np.float32)
    w = np.abs(data.astype(np.float64)) + 0.5
    wanted = w**2 + w**w + 2**w + w**0.5 + (1 - w) + 1 / w + 3 * w
    np.testing.assert_allclose(p.reference(data), wanted, rtol=1e-12)
    np.testing.assert_allclose(neptune_mlir.compile(p)(data), wanted, rtol=2e-6)


def test_sizes_and_positions_are_values():
    p, i, j, x = matrix()
    limit = p.scalar("limit", "index")
    p.output(sum(where(j < limit, x[i, j] * (j.size - j), 0.0), j) / i.size, i)
    data = np.random.default_rng(6).standard_normal((3, 11)).astype(np.float32)
    wanted = (data * (11 - np.arange(11)))[:, :4].sum(1) / 3
    np.testing.assert_allclose(p.reference(data, 4), wanted, rtol=1e-6)
    np.testing.assert_allclose(neptune_mlir.compile(p)(data, 4), wanted, rtol=1e-5)


def test_size_question_mark_is_run_time():
    p = Program("p")
    assert p.axis("a", "?").static is p.axis("b").static is None
    assert p.axis("c", np.int64(3)).static == 3


def test_every_function_against_numpy():
    p, i, j, x = matrix()
    v = x[i, j]
    p.output(
        minimum(maximum(v, 0.5), 2.0) + abs(v) + sigmoid(v) + sqrt(v * v + 1.0) + v**2,
        i, j,
    )  # fmt: skip
    p.output(min(v, j) + max(v, j) + mean(v, j) + prod(v, j), i)
    p.output(cast(all(v > 0, j) | any(v > 2, j), "f32"), i)
    data = np.random.default_rng(1).standard_normal((5, 7))
    elementwise, rows, truth = p.reference(data)
    wanted = np.clip(data, 0.5, 2) + np.abs(data) + 1 / (1 + np.exp(-data))
    wanted += np.sqrt(data**2 + 1) + data**2
    np.testing.assert_allclose(elementwise, wanted, rtol=1e-12)
    folded = data.min(1) + data.max(1) + data.mean(1) + data.prod(1)
    np.testing.assert_allclose(rows, folded, rtol=1e-12)
    np.testing.assert_array_equal(truth, (data > 0).all(1) | (data > 2).any(1))


def test_output_dimensions_in_any_order():
    p, i, j, x = matrix()
    p.output(x[i, j] * 2, j, i)
    data = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(p.reference(data), 2 * data.T)


def test_mods_take_captured_inputs():
    def score(s, b, h, q, kv, slope, bias):
        return s + slope[h] * (kv - q) + bias[b, h, q, kv]

    def mask(b, h, q, kv, keep):
        return (q >= kv) | (kv < keep)

    p = attention(
        head_dim=4, score_mod=score, mask_mod=mask,
        inputs={"slope": Extra("h"), "bias": Extra("b h q kv"), "keep": Extra(dtype="index")},
    )  # fmt: skip
    assert list(p.inputs) == ["q", "k", "v", "slope", "bias", "keep"]
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((1, 2, 5, 4)) for _ in range(3))
    slope, bias = rng.standard_normal(2), rng.standard_normal((1, 2, 5, 5))
    at = np.arange(5)
    s = np.einsum("bhid,bhjd->bhij", q, k) / 2 + bias
    s += slope[:, None, None] * (at - at[:, None])
    s = np.where((at[:, None] >= at) | (at < 2), s, -np.inf)
    w = np.exp(s - s.max(-1, keepdims=True))
    wanted = np.einsum("bhij,bhje->bhie", w / w.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(p.reference(q, k, v, slope, bias, 2), wanted, rtol=1e-12)


def test_mods_say_what_they_lack():
    with pytest.raises(UsageError, match="'bias'"):
        attention(head_dim=4, score_mod=lambda s, b, h, q, kv, bias: s)


def test_fully_masked_rows_are_zero():
    p = attention(head_dim=4, causal=True, return_lse=True)
    q, k = np.ones((1, 1, 4, 4)), np.ones((1, 1, 2, 4))
    out, lse = p.reference(q, k, k)
    # positions are aligned at the end: the first two queries come before every key
    np.testing.assert_array_equal(out[0, 0, :2], 0)
    np.testing.assert_array_equal(lse[0, 0, :2], -np.inf)
    assert np.isfinite(out).all()
