# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches in 8 bits, trees of guesses and checked tables on the CPU, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import neptune_mlir
from neptune_mlir import ops
from neptune_mlir.algebra.numerics.float8 import float8_bits, float8_values
from neptune_mlir.algebra.numerics.floats import rounded
from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.driver.bounds import checked
from neptune_mlir.errors import ArgumentError, InputError, UsageError
from neptune_mlir.frontend.expr import convert
from neptune_mlir.frontend.notation import Program, cast
from support.serving_cases import Paged, in_bytes, of_tree

PAGE = 16
LENGTHS = [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE]


@pytest.mark.first_of_each("kind")
@pytest.mark.parametrize(
    ("kind", "scales", "dtype"),
    [("e4m3", None, "f32"), ("e4m3", "token", "f32"), ("int8", "page", "f32"),
     ("int8", "head", "f16"), ("e4m3", "token", "f16")],
)  # fmt: skip
def test_caches_in_8_bits(kind, scales, dtype):
    """What is widened is exact, so f32 is as right as with a cache of f32 (2e-6)."""
    case = Paged(LENGTHS, PAGE, dtype=np.float32 if dtype == "f32" else np.float16)
    arguments, wanted = in_bytes(case, kind, scales)
    program = ops.paged_attention(
        head_dim=case.dim, page_size=PAGE, group=2, scale=0.05, dtype=dtype, kv_dtype=kind,
        kv_scales=scales,
    )  # fmt: skip
    got = neptune_mlir.compile(program)(*arguments)
    tolerance = (2e-6 if dtype == "f32" else 2e-3) * max(1.0, np.abs(wanted).max())
    np.testing.assert_allclose(np.asarray(got, np.float64), wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "stored"), [("f32", np.float16), ("f64", np.float32)])
def test_caches_narrower_than_the_queries(dtype, stored):
    """Weights are not rounded to the type of the cache."""
    case = Paged(LENGTHS, PAGE, dtype=stored)
    kind = {np.float16: "f16", np.float32: "f32"}[stored]
    sizes = {"head_dim": case.dim, "page_size": PAGE, "group": 2}
    q, *rest = case.arguments
    kernel = neptune_mlir.compile(ops.paged_attention(**sizes, dtype=dtype, kv_dtype=kind))
    got = kernel(q.astype({"f32": np.float32, "f64": np.float64}[dtype]), *rest)
    np.testing.assert_allclose(got, case.expected()[0], atol=2e-6 if dtype == "f32" else 1e-13)


def test_scaled_values_of_queries_in_f64():
    """A value times its scale has more digits than f32."""
    case = Paged(LENGTHS, PAGE, dtype=np.float64)
    arguments, wanted = in_bytes(case, "int8", "token")
    sizes = {"head_dim": case.dim, "page_size": PAGE, "group": 2, "scale": 0.05, "dtype": "f64"}
    program = ops.paged_attention(**sizes, kv_dtype="int8", kv_scales="token")
    got = neptune_mlir.compile(program)(*arguments)
    np.testing.assert_allclose(got, wanted, atol=1e-13)


def test_ragged_keys_in_8_bits():
    rng = np.random.default_rng(0)
    starts = np.array([0, 5, 20], np.int32)
    q = rng.standard_normal((20, 2, 8)).astype(np.float32)
    k, v = (rng.integers(-100, 100, (20, 1, 8)).astype(np.int8) for _ in range(2))
    k_scales, v_scales = (rng.uniform(0.01, 0.02, (20, 1)).astype(np.float32) for _ in range(2))
    program = ops.ragged_attention(head_dim=8, group=2, kv_dtype="int8", kv_scales="token")
    arguments = (q, k, v, starts, starts, k_scales, v_scales)
    wanted = program.reference(*arguments)
    np.testing.assert_allclose(neptune_mlir.compile(program)(*arguments), wanted, atol=1e-5)


@pytest.mark.first_of_each()
@pytest.mark.parametrize(("scales", "shape"), [("page", (6,)), ("head", (1,))])
def test_latents_in_8_bits(scales, shape):
    rng = np.random.default_rng(0)
    sizes = {"latent_dim": 16, "rope_dim": 8, "page_size": 4, "scale": 0.2}
    pages = float8_bits(rng.standard_normal((6, 4, 24)))
    table, lengths = np.array([[4, 1], [3, -9]], np.int32), np.array([7, 3], np.int32)
    queries = [rng.standard_normal((2, 3, 1, n)).astype(np.float32) for n in (16, 8)]
    program = ops.latent_attention(**sizes, kv_dtype="e4m3", kv_scales=scales)
    given = (*queries, pages, table, lengths, rng.uniform(1, 2, shape).astype(np.float32))
    got = neptune_mlir.compile(program)(*given)
    np.testing.assert_allclose(got, program.reference(*given), atol=1e-5)


def test_every_byte_is_widened_exactly():
    every = np.arange(256, dtype=np.uint8).reshape(8, 32)
    for dtype in ("f16", "bf16", "f32"):
        p = Program("widen")
        i, j = p.axes("i j")
        x = p.input("x", i, j, dtype="f8E4M3FN")
        p.output(cast(cast(x[i, j], dtype), "f32"), i, j)
        np.testing.assert_array_equal(neptune_mlir.compile(p)(every), float8_values(every))
    numbers = every[:, :31]
    np.testing.assert_array_equal(float8_bits(float8_values(numbers)), numbers)


def test_no_result_is_in_8_bits():
    p = Program("narrow")
    i = p.axis("i")
    x = p.input("x", i)
    with pytest.raises(InputError, match="an output of f8E4M3FN"):
        p.output(x[i], i, dtype="f8E4M3FN")


def test_a_tree_of_guesses():
    case = Paged([0, 3, 5, 15, 17, 21], PAGE, q_len=5)
    tree = np.random.default_rng(1).random((6, 5, 5)) < 0.5
    program = ops.paged_attention(head_dim=case.dim, page_size=PAGE, group=2, q_len=5, tree=True)
    got = neptune_mlir.compile(program)(*case.arguments, tree)
    np.testing.assert_allclose(got, of_tree(case, tree), atol=2e-6)


def test_joined_parts_are_one_softmax():
    rng = np.random.default_rng(0)
    program = ops.join_attention(v_dim=4, return_lse=True)
    first, second = (rng.standard_normal((2, 3, 1, 4)).astype(np.float32) for _ in range(2))
    one, two = (rng.standard_normal((2, 3, 1)).astype(np.float32) * 30 for _ in range(2))
    one[0, 0], first[0, 0] = -np.inf, np.nan  # no keys
    one[0, 1] = two[0, 1] = -np.inf
    out, lse = neptune_mlir.compile(program)(first, one, second, two)
    a, b = (np.exp(x.astype(np.float64)) for x in (one, two))
    with np.errstate(all="ignore"):
        parts = a[..., None] * np.nan_to_num(first) + b[..., None] * second
        wanted = np.nan_to_num(parts / (a + b)[..., None])
        np.testing.assert_allclose(out, wanted, atol=1e-5)
        np.testing.assert_allclose(lse, np.log(a + b), rtol=1e-5)


def test_tables_are_checked_in_a_debug_build():
    """A release build reads some page that exists, and the other sequences keep their bits."""
    case = Paged(LENGTHS, PAGE)
    kernel = neptune_mlir.compile(ops.paged_attention(head_dim=8, page_size=PAGE, group=2))
    debug = checked(kernel)
    right = kernel(*case.arguments)
    assert debug.checks == 2
    np.testing.assert_array_equal(debug(*case.arguments), right)
    q, k, v, table, lengths = case.arguments
    for wrong in (len(k), -3):
        bad = table.copy()
        bad[4, 1] = wrong
        message = f"position {wrong} in dimension 0 of 'k_pages', which has {len(k)}"
        with pytest.raises(ArgumentError, match=message) as caught:
            debug(q, k, v, bad, lengths)
        assert "table[b, (j // 16)]" in (caught.value.hint or "")
        np.testing.assert_array_equal(kernel(q, k, v, bad, lengths)[:4], right[:4])


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kv_scales": "row", "kv_dtype": "int8"}, "kv_scales is 'row'"),
     ({"kv_scales": "head"}, "scales of a cache of f32"),
     ({"tree": True, "q_len": None}, "a tree of any number of queries"),
     ({"tree": True, "q_len": 65}, "a tree of 65 queries")],
)  # fmt: skip
def test_options_that_mean_nothing(options, message):
    with pytest.raises(UsageError, match=message):
        ops.paged_attention(**{"head_dim": 8, "page_size": PAGE, **options})


def test_numbers_are_rounded_to_the_nearest_of_e4m3():
    """All ties, what is too small or too large, infinities and NaN. What a program writes has NaN
    where a number is too large; what may be rounded before it is scaled, the largest number."""
    p = Program("round")
    i = p.axis("i")
    x = p.input("x", i, dtype="f32")
    for made in (cast(x[i], FLOAT8), convert(x[i], FLOAT8)):
        p.output(cast(made, "f32"), i, dtype="f32")
    known = float8_values(np.arange(0x7F, dtype=np.uint8))
    ties = (known[1:] + known[:-1]) / 2
    near = np.concatenate([np.nextafter(ties.astype(np.float32), s) for s in (-np.inf, np.inf)])
    some = np.concatenate([known, ties, near, [449, 1e30, np.inf, 2.0**-30, 0]])
    some = np.concatenate([some, -some, [np.nan]]).astype(np.float32)
    found, loose = neptune_mlir.compile(p, "cpu")(some)
    np.testing.assert_array_equal(loose, rounded(some, FLOAT8).astype(np.float32))
    with np.errstate(invalid="ignore"):
        want = some.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(found, want)
