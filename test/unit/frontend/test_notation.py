# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index notation: what it accepts, what it says, and that it means what it says."""

import inspect

import numpy as np
import pytest

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
        (lambda p, i, j, x: x[i, j + 1], "is indexed by"),
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
        (lambda p, i, j, x: x[i, j] & (i < j), "combine conditions"),
        (lambda p, i, j, x: ~x[i, j], "takes a condition"),
        (lambda p, i, j, x: x[i, j] // 2, "takes integers"),
        (lambda p, i, j, x: exp(3.0), "takes an expression"),
        (lambda p, i, j, x: 1 if x[i, j] > 0 else 2, "no truth value"),
        (lambda p, i, j, x: x[i, j] + "a", "cannot use a str"),
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
