# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Softmax, losses and norms against formulas in plain NumPy, as defined and as fused."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neptune_mlir
from neptune_mlir import ops
from support.often import nightly_if


def softmax(x):
    w = np.exp(x - x.max(-1, keepdims=True))
    return w / w.sum(-1, keepdims=True)


def logsumexp(x):
    m = np.where(np.isneginf(x.max(-1)), 0, x.max(-1))
    with np.errstate(divide="ignore"):
        return m + np.log(np.exp(x - m[..., None]).sum(-1))


def standardized(x, eps=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)


def rms(x):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)


def cross_entropy(x, target):
    return logsumexp(x) - x[np.arange(len(x)), target]


def absmax_matmul(x, w):
    scale = np.abs(x).max(-1, keepdims=True)
    scale = np.where(scale == 0, 1, scale)
    return x / scale @ w, scale[:, 0]


def performer(q, k, v, w):
    of_q, of_k = (np.exp(x @ w.T - (x**2).sum(-1, keepdims=True) / 2) for x in (q, k))
    weights = of_q @ of_k.T
    return weights @ v / weights.sum(-1, keepdims=True)


def standardized_norms(x):
    z = x - x.mean(-1, keepdims=True)
    return (softmax(x) * z**2).sum(-1) / ((z**2).mean(-1) + 1e-5)


@dataclass(frozen=True)
class Case:
    """A program, its formula, and the shapes of its inputs in rows, cols and 7 (out, width)."""

    build: Callable[..., Any]
    formula: Callable[..., Any]
    shapes: Callable[[int, int], Sequence[tuple[int, ...]]]
    labels: bool = False


CASES = {
    "softmax": Case(ops.softmax, softmax, lambda n, m: [(n, m)]),
    "logsumexp": Case(ops.logsumexp, logsumexp, lambda n, m: [(n, m)]),
    "softmax_weighted_sum": Case(
        lambda: ops.softmax_weighted_sum(width=7), lambda x, v: softmax(x) @ v,
        lambda n, m: [(n, m), (m, 7)],
    ),
    "two_level_softmax": Case(
        ops.two_level_softmax, lambda x: softmax(logsumexp(x)), lambda n, m: [(n, 7, m)]
    ),
    "performer": Case(
        lambda: ops.performer(head_dim=7, features=11, v_dim=7), performer,
        lambda n, m: [(n, 7), (m, 7), (m, 7), (11, 7)],
    ),
    "cross_entropy": Case(ops.cross_entropy, cross_entropy, lambda n, m: [(n, m)], labels=True),
    "linear_cross_entropy": Case(
        lambda: ops.linear_cross_entropy(width=7), lambda x, w, t: cross_entropy(x @ w.T, t),
        lambda n, m: [(n, 7), (m, 7)], labels=True,
    ),
    "log_weighted_mean": Case(
        ops.log_weighted_mean, lambda x, y: np.log((softmax(x) * np.exp(y)).sum(-1)),
        lambda n, m: [(n, m), (n, m)],
    ),
    "variance": Case(ops.variance, lambda x: x.var(-1), lambda n, m: [(n, m)]),
    "layer_norm": Case(
        ops.layer_norm, lambda x, a, b: standardized(x) * a + b,
        lambda n, m: [(n, m), (m,), (m,)],
    ),
    "rms_norm": Case(ops.rms_norm, lambda x, a: rms(x) * a, lambda n, m: [(n, m), (m,)]),
    "rms_norm_matmul": Case(
        ops.rms_norm_matmul, lambda x, a, w: (rms(x) * a) @ w,
        lambda n, m: [(n, m), (m,), (m, 7)],
    ),
    "layer_norm_matmul": Case(
        ops.layer_norm_matmul, lambda x, a, b, w: (standardized(x) * a + b) @ w,
        lambda n, m: [(n, m), (m,), (m,), (m, 7)],
    ),
    "absmax_matmul": Case(ops.absmax_matmul, absmax_matmul, lambda n, m: [(n, m), (m, 7)]),
    "standardized_norms": Case(
        ops.standardized_norms, standardized_norms, lambda n, m: [(n, m)]
    ),
}  # fmt: skip


def draw(case, rows, cols, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(s).astype(dtype) for s in case.shapes(rows, cols)]
    return arrays + ([rng.integers(0, cols, rows)] if case.labels else [])


def wanted(case, arrays):
    return listed(case.formula(*(a.astype(np.float64) if a.dtype.kind == "f" else a
                                 for a in arrays)))  # fmt: skip


def listed(value):
    return list(value) if isinstance(value, tuple | list) else [value]


def test_every_program_is_here():
    assert set(CASES) == set(ops.__all__) - {
        "OPERATORS", "Extra", "attention", "decode_attention", "join_attention",
        "e4m3_attention", "latent_attention", "operator", "paged_attention", "ragged_attention",
    }  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(rows=st.integers(1, 9), cols=st.integers(1, 40), seed=st.integers(0, 99))
def test_definition(name, rows, cols, seed):
    case = CASES[name]
    arrays = draw(case, rows, cols, seed)
    for got, right in zip(listed(case.build().reference(*arrays)), wanted(case, arrays),
                          strict=True):  # fmt: skip
        np.testing.assert_allclose(got, right, rtol=1e-9, atol=1e-10)


# each way to correct a row; test_zoo_programs.py has all of them
QUICK = ("softmax", "two_level_softmax", "cross_entropy", "layer_norm_matmul", "absmax_matmul")


@pytest.mark.parametrize("name", nightly_if(lambda name: name not in QUICK, CASES))
def test_fused_at_any_size(name):
    case = CASES[name]
    compiled = neptune_mlir.compile(case.build())
    for rows, cols in [(1, 1), (3, 2), (5, 64), (29, 127), (2, 1009)]:
        arrays = draw(case, rows, cols, 1, np.float32)
        for got, right in zip(listed(compiled(*arrays)), wanted(case, arrays), strict=True):
            size = max(1.0, np.abs(right).max())
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize("name", ["softmax", "rms_norm_matmul", *(
    pytest.param(name, marks=pytest.mark.nightly)
    for name in ("logsumexp", "variance", "layer_norm", "rms_norm")
)])  # fmt: skip
def test_sixteen_bit(name):
    case = CASES[name]
    compiled = neptune_mlir.compile(getattr(ops, name)(dtype="f16"))
    arrays = draw(case, 5, 67, 2, np.float16)
    (right,) = wanted(case, arrays)
    got = compiled(*arrays)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(np.float64), right, rtol=2e-3, atol=1e-2)


def test_a_row_of_only_minus_infinity():
    x = np.zeros((2, 5), np.float32)
    x[0] = -np.inf
    for got in (ops.logsumexp().reference(x), neptune_mlir.compile(ops.logsumexp())(x)):
        np.testing.assert_allclose(got, [-np.inf, np.log(5)], rtol=1e-6)
    groups = np.stack([x, x[::-1]])  # a masked group takes no weight
    for run in (ops.two_level_softmax().reference, neptune_mlir.compile(ops.two_level_softmax())):
        np.testing.assert_allclose(run(groups), [[0, 1], [1, 0]], atol=1e-6)


def test_absmax_of_a_row_of_zeros():
    x, w = np.zeros((2, 5), np.float32), np.ones((5, 3), np.float32)
    out, scale = neptune_mlir.compile(ops.absmax_matmul())(x, w)
    np.testing.assert_array_equal(out, 0)
    np.testing.assert_array_equal(scale, 1)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("classes", [150, 128, 40])  # part of the last tile, whole ones, one
def test_deep_products_apart(classes):
    draw = np.random.default_rng(classes)
    x, w = draw.standard_normal((37, 600)), draw.standard_normal((classes, 600)) / 25
    target = draw.integers(0, classes, 37)
    program = ops.linear_cross_entropy(width=600, classes=classes)
    run = neptune_mlir.compile(program, target="cpu", schedule="apart")
    got = run(x.astype(np.float32), w.astype(np.float32), target)
    np.testing.assert_allclose(got, cross_entropy(x @ w.T, target), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mean", (6e4, -6e4))
def test_losses_of_logits_far_from_0(mean):
    """A loss is a difference of logits: it has its digits whatever their mean is."""
    x = (np.random.default_rng(0).standard_normal((7, 100)) + mean).astype(np.float32)
    target = np.arange(7)
    kernel = neptune_mlir.compile(ops.cross_entropy())
    np.testing.assert_allclose(kernel(x, target), cross_entropy(x.astype(float), target), rtol=1e-6)
