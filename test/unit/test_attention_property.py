# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fused attention on the CPU against its definition in float64, on random shapes and inputs.

Lengths, batch and heads are run-time values, so each kernel is compiled once and serves every
example. Tolerances: results are weighted means of v, so errors are relative to max |v|; a
float32 dot product of d terms of size s carries an error of about s * eps, which exp turns
into a relative error of the weights, so the bound grows with the largest score.
"""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neptune_mlir
from neptune_mlir import ops
from neptune_mlir.targets.cpu import EFFORT

EPS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10}
NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16}

lengths = st.one_of(
    st.sampled_from([1, 2, 3, 63, 64, 65, 127, 128, 129, 251, 300]), st.integers(1, 300)
)
common = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def kernel(dtype="f32", **options):
    return _kernel(EFFORT.get(), dtype, **options)


@functools.cache
def _kernel(effort, dtype, **options):
    program = ops.attention(dtype=dtype, **options)
    return program, neptune_mlir.compile(program)


def draw(rng, shape, dtype, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(NUMPY[dtype])


def check(program, compiled, arrays, dtype, largest_score=1.0):
    got = np.asarray(compiled(*arrays), np.float64)
    wanted = program.reference(*arrays)
    assert not np.isnan(got).any()
    size = np.abs(np.asarray(arrays[2], np.float64)).max(initial=1e-30)
    bound = (16 + 4 * largest_score) * max(EPS[dtype], EPS["f32"] if dtype != "f64" else 0) * size
    assert np.abs(got - wanted).max(initial=0.0) <= bound
    masked = (wanted == 0).all(-1)
    assert (got[masked] == 0).all(), "a query that sees no key gives exactly 0"


@pytest.mark.usefixtures("as_shipped")
@common
@given(st.integers(1, 2), st.integers(1, 3), lengths, lengths, st.integers(0, 2**32 - 1))
def test_causal_of_any_lengths(batch, heads, queries, keys, seed):
    program, compiled = kernel(head_dim=32, causal=True)
    rng = np.random.default_rng(seed)
    q = draw(rng, (batch, heads, queries, 32), "f32")
    k, v = (draw(rng, (batch, heads, keys, 32), "f32") for _ in range(2))
    check(program, compiled, (q, k, v), "f32", 6)


@pytest.mark.usefixtures("as_shipped")
@common
@given(lengths, lengths, st.sampled_from([1.0, 100.0, 1e4]), st.integers(0, 2**32 - 1))
def test_large_logits(queries, keys, largest, seed):
    program, compiled = kernel(head_dim=32)
    rng = np.random.default_rng(seed)
    q = draw(rng, (1, 2, queries, 32), "f32")
    k, v = (draw(rng, (1, 2, keys, 32), "f32") for _ in range(2))
    scores = np.einsum("bhid,bhjd->bhij", q, k) * 32**-0.5
    q *= np.float32(largest / np.abs(scores).max())
    check(program, compiled, (q, k, v), "f32", largest)


DIMS = [(1, 1), (7, 3), (40, 72), (130, 130)]
SOME = list(zip(("f64", "f16", "f32", "f32"), DIMS, strict=True))
ALL = list(itertools.product(("f64", "f32", "f16"), DIMS))


@pytest.mark.parametrize(
    "kernels", [SOME, pytest.param(ALL, marks=pytest.mark.nightly)], ids=["some", "all"]
)
@common
@given(st.integers(0, 11), lengths, st.integers(0, 2**32 - 1))
def test_head_dims_and_types(kernels, number, length, seed):
    dtype, dims = kernels[number % len(kernels)]
    program, compiled = kernel(dtype, head_dim=dims[0], v_dim=dims[1], causal=True)
    rng = np.random.default_rng(seed)
    q, k = (draw(rng, (1, 2, length, dims[0]), dtype) for _ in range(2))
    v = draw(rng, (1, 2, length, dims[1]), dtype)
    check(program, compiled, (q, k, v), dtype, 8)


@common
@given(st.sampled_from([2, 5]), lengths, lengths, st.integers(0, 2**32 - 1))
def test_grouped_heads(group, queries, keys, seed):
    program, compiled = kernel(head_dim=16, group=group, causal=True, softcap=5.0)
    rng = np.random.default_rng(seed)
    q = draw(rng, (1, 2 * group, queries, 16), "f32")
    k, v = (draw(rng, (1, 2, keys, 16), "f32") for _ in range(2))
    check(program, compiled, (q, k, v), "f32", 6)


@common
@given(lengths, st.integers(0, 300), st.integers(0, 2**32 - 1))
def test_run_time_window_and_alibi(length, window, seed):
    program, compiled = kernel(head_dim=16, causal=True, window="window", alibi=True)
    rng = np.random.default_rng(seed)
    q, k, v = (draw(rng, (1, 2, length, 16), "f32") for _ in range(3))
    slope = np.array([0.5, 0.01], np.float32)
    # a window of 0 shows no key to anybody: every row is 0
    arrays = (q, k, v, *(slope if n == "slope" else window for n in list(program.inputs)[3:]))
    check(program, compiled, arrays, "f32", 60)


@common
@given(lengths, st.sampled_from(["transposed", "sliced", "reversed", "broadcast"]),
       st.integers(0, 2**32 - 1))  # fmt: skip
def test_strides(length, layout, seed):
    program, compiled = kernel(head_dim=32, causal=True)
    rng = np.random.default_rng(seed)

    def tensor():
        match layout:
            case "transposed":  # [batch, length, heads, dim] in memory
                return draw(rng, (2, length, 3, 32), "f32").transpose(0, 2, 1, 3)
            case "sliced":
                return draw(rng, (2, 3, length, 64), "f32")[..., ::2]
            case "reversed":
                return draw(rng, (2, 3, length, 32), "f32")[:, :, ::-1, ::-1]
        return np.broadcast_to(draw(rng, (1, 3, 1, 32), "f32"), (2, 3, length, 32))

    check(program, compiled, tuple(tensor() for _ in range(3)), "f32", 40)


def test_one_compilation_serves_a_hundred_lengths(monkeypatch):
    from neptune_mlir.driver import compiler

    compilations = []
    original = compiler.compile_text
    monkeypatch.setattr(
        compiler, "compile_text", lambda *a, **k: compilations.append(a) or original(*a, **k)
    )
    program = ops.attention(head_dim=8, causal=True, name="hundred_lengths")
    compiled = neptune_mlir.compile(program)
    rng = np.random.default_rng(0)
    for length in range(1, 101):
        arrays = tuple(draw(rng, (1, 2, length, 8), "f32") for _ in range(3))
        check(program, compiled, arrays, "f32", 6)
    assert len(compilations) <= 1  # 0 from the on-disk cache


@pytest.mark.parametrize("queries", [1, 5])
def test_no_keys_at_all(queries):
    _, compiled = kernel(head_dim=32)
    q, k = np.ones((1, 1, queries, 32), np.float32), np.ones((1, 1, 0, 32), np.float32)
    np.testing.assert_array_equal(compiled(q, k, k), 0)
