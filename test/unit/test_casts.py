# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Casts from f64 to 16 bits on the CPU round once, scalars and vectors alike."""

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.driver import compiler

# type -> bits of the mantissa behind the point, least exponent, largest number
FORMATS = {"f16": (10, -14, 65504.0), "bf16": (7, -126, (2 - 2.0**-7) * 2.0**127)}

PROGRAM = """
func.func @f(%x: tensor<?xf64>) -> (tensor<?x{t}>, tensor<{t}>) {{
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf64>
  %e = tensor.empty(%n) : tensor<?x{t}>
  %y = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                       iterator_types = ["parallel"]}}
      ins(%x : tensor<?xf64>) outs(%e : tensor<?x{t}>) {{
  ^bb0(%a: f64, %o: {t}):
    %r = arith.truncf %a : f64 to {t}
    linalg.yield %r : {t}
  }} -> tensor<?x{t}>
  %zero = arith.constant 0.0 : f64
  %se = tensor.empty() : tensor<f64>
  %sf = linalg.fill ins(%zero : f64) outs(%se : tensor<f64>) -> tensor<f64>
  %s = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>],
                       iterator_types = ["reduction"]}}
      ins(%x : tensor<?xf64>) outs(%sf : tensor<f64>) {{
  ^bb0(%a: f64, %o: f64):
    %r = arith.maximumf %a, %o : f64
    linalg.yield %r : f64
  }} -> tensor<f64>
  %ze = tensor.empty() : tensor<{t}>
  %z = linalg.generic {{indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>],
                       iterator_types = []}}
      ins(%s : tensor<f64>) outs(%ze : tensor<{t}>) {{
  ^bb0(%a: f64, %o: {t}):
    %r = arith.truncf %a : f64 to {t}
    linalg.yield %r : {t}
  }} -> tensor<{t}>
  return %y, %z : tensor<?x{t}>, tensor<{t}>
}}
"""


def rounded(x, dtype):
    """x to the nearest number of the type, ties to even, in f64 (where each step is exact)."""
    bits, least, largest = FORMATS[dtype]
    _, exponent = np.frexp(x)
    unit = np.ldexp(1.0, np.maximum(exponent - 1, least) - bits)
    with np.errstate(all="ignore"):
        near = np.where(np.isfinite(x), np.rint(x / unit) * unit, x)
    return np.where(np.abs(near) > largest, np.copysign(np.inf, near), near)


def as_f64(result, dtype):
    result = np.asarray(result)
    if dtype == "bf16":  # its bits, whether or not ml_dtypes is there
        return (result.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return result.astype(np.float64)


def hard_numbers(dtype):
    """Ties between 16-bit numbers and what lies so close to them that f32 cannot tell."""
    bits, least, largest = FORMATS[dtype]
    rng = np.random.default_rng(0)
    exponent = rng.integers(least - bits - 2, int(np.log2(largest)) + 1, 2000)
    ties = np.ldexp(rng.integers(0, 2 << bits, 2000) + 0.5, exponent - bits)
    close = [ties * (1 + d) for d in (0.0, 2.0**-40, -(2.0**-40), 2.0**-24, -(2.0**-52))]
    edges = [0.0, -0.0, np.inf, -np.inf, largest, 1e300, -1e300, 1e-300, -1e-300, 5e-324]
    edges += [largest * (1 + 2.0 ** -(bits + 2)), largest * (1 + 2.0 ** -(bits + 2) - 2.0**-40)]
    return np.concatenate([*close, [-c for c in close[1]], edges, rng.standard_normal(1003)])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("fused", [True, False])
def test_one_rounding(dtype, fused):
    text = PROGRAM.format(t=dtype)
    function = (
        neptune_mlir.compile(text) if fused else compiler.compile_unfused(text, "casts", None)
    )
    x = hard_numbers(dtype)
    got, _ = function(x)
    wanted = rounded(x, dtype)
    np.testing.assert_array_equal(as_f64(got, dtype), wanted)
    assert (np.signbit(as_f64(got, dtype)) == np.signbit(x)).all()
    tie = np.array([1 + 2.0 ** -(FORMATS[dtype][0] + 1) + 2.0**-40])  # just over a tie
    _, scalar = function(tie)
    np.testing.assert_array_equal(as_f64(scalar, dtype), rounded(tie, dtype)[0])
    assert np.isnan(as_f64(function(np.array([np.nan] * 3))[0], dtype)).all()
