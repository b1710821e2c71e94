# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums and products of 16-bit tensors accumulate in f32, on the CPU and on simulated GPUs."""

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.driver.compiler import lower_text
from support.chips.run_kernels import Simulated

ml_dtypes = pytest.importorskip("ml_dtypes")
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
TARGETS = ["cpu", "sm_80", "gfx942"]

# {body} yields what is accumulated; the result starts from {init}
REDUCE = """
func.func @f(%x: tensor<{n}x{m}x{t}>) -> tensor<{n}x{t}> {{
  %start = arith.constant {init} : {t}
  %e = tensor.empty() : tensor<{n}x{t}>
  %f = linalg.fill ins(%start : {t}) outs(%e : tensor<{n}x{t}>) -> tensor<{n}x{t}>
  %s = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<{n}x{m}x{t}>) outs(%f : tensor<{n}x{t}>) {{
  ^bb0(%a: {t}, %o: {t}):
    {body}
    linalg.yield %r : {t}
  }} -> tensor<{n}x{t}>
  return %s : tensor<{n}x{t}>
}}
"""
SUM = "%r = arith.addf %a, %o : {t}"
PRODUCT = "%r = arith.mulf %a, %o : {t}"
SQUARES = "%q = arith.mulf %a, %a : {t}\n    %r = arith.addf %o, %q : {t}"


def run(text, target, *arguments):
    if target == "cpu":
        return np.asarray(neptune_mlir.compile(text)(*arguments))
    module, _ = lower_text(text, "test", target, None, "tile")
    got = np.asarray(Simulated(module, target=target)(*arguments))
    return got


def as_f64(array, dtype):
    array = np.asarray(array)
    if array.dtype == np.uint16:
        array = array.view(TYPES[dtype])
    return array.astype(np.float64)


def reduced(target, dtype, body, value, n, m, init="0.0"):
    text = REDUCE.format(n=n, m=m, t=dtype, body=body.format(t=dtype), init=init)
    x = np.full((n, m), value, TYPES[dtype])
    return as_f64(run(text, target, x), dtype), x.astype(np.float64)


def nearest(value, dtype):
    return np.asarray(value).astype(TYPES[dtype]).astype(np.float64)


@pytest.mark.first_of_each("target")
@pytest.mark.parametrize("dtype, value", [("bf16", 1.0), ("f16", 0.05)])
@pytest.mark.parametrize("target", TARGETS)
def test_many_small_numbers(target, dtype, value):
    """One row of 100,000: cut into chunks by several programs, and joined."""
    got, x = reduced(target, dtype, SUM, value, 1, 100_000)
    unit = np.spacing(nearest(x.sum(1), dtype).astype(TYPES[dtype])).astype(np.float64)
    assert np.abs(got - x.sum(1)) <= unit


@pytest.mark.first_of_each("body", "target")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body, value, init, wanted", [
    (SUM, 1.0, "0.0", 1000.0),
    (SUM, 1.0, "3.0", 1003.0),
    (SQUARES, 1.00390625, "0.0", 1000 * 1.00390625**2),
    (PRODUCT, 1.0078125, "1.0", 1.0078125**1000),
    (PRODUCT, 1.0078125, "0.5", 0.5 * 1.0078125**1000),
], ids=["sum", "sum from 3", "squares", "product", "product from a half"])  # fmt: skip
def test_rounded_once(target, dtype, body, value, init, wanted):
    value = float(nearest(value, dtype))
    if body == SQUARES:
        wanted = 1000 * value**2
    got, _ = reduced(target, dtype, body, value, 3, 1000, init)
    np.testing.assert_array_equal(got, nearest([wanted] * 3, dtype))


MATMUL = """
func.func @f(%x: tensor<20x300x{t}>, %w: tensor<300x16x{t}>) -> tensor<20x16x{t}> {{
  %zero = arith.constant 0.0 : {t}
  %e = tensor.empty() : tensor<20x16x{t}>
  %f = linalg.fill ins(%zero : {t}) outs(%e : tensor<20x16x{t}>) -> tensor<20x16x{t}>
  %y = linalg.matmul ins(%x, %w : tensor<20x300x{t}>, tensor<300x16x{t}>)
      outs(%f : tensor<20x16x{t}>) -> tensor<20x16x{t}>
  return %y : tensor<20x16x{t}>
}}
"""


@pytest.mark.first_of_each("target")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("target", TARGETS)
def test_products_of_matrices(target, dtype):
    rng = np.random.default_rng(0)
    x, w = (rng.random(s).astype(TYPES[dtype]) for s in ((20, 300), (300, 16)))
    got = as_f64(run(MATMUL.format(t=dtype), target, x, w), dtype)
    wanted = x.astype(np.float64) @ w.astype(np.float64)
    unit = np.spacing(wanted.astype(TYPES[dtype])).astype(np.float64)
    assert (np.abs(got - wanted) <= 0.51 * unit).all()
