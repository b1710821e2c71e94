# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on bf16 numbers themselves on the CPU: signs, choices, comparisons, casts to f64.

All of them are exact, so what they give is that of float64, infinities and NaN included.
"""

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.driver import compiler
from neptune_mlir.driver.inputs import bf16_bits, to_float64

# operation -> its MLIR on %a and %b, the type of its result, and what it is in float64
OPS = {
    "abs": ("math.absf %a : bf16", "bf16", lambda a, b: np.abs(a)),
    "neg": ("arith.negf %a : bf16", "bf16", lambda a, b: -a),
    "copysign": ("math.copysign %a, %b : bf16", "bf16", np.copysign),
    "max": ("arith.maximumf %a, %b : bf16", "bf16", np.maximum),
    "min": ("arith.minimumf %a, %b : bf16", "bf16", np.minimum),
    "select": ("arith.select %less, %a, %b : bf16", "bf16", lambda a, b: np.where(a < b, a, b)),
    "compare": ("arith.extui %less : i1 to i32", "i32", np.less),
    "isinf": ("arith.extui %odd : i1 to i32", "i32", lambda a, b: np.isinf(a)),
    "f64": ("arith.extf %a : bf16 to f64", "f64", lambda a, b: a),
}

PROGRAM = """
func.func @f(%x: tensor<?xbf16>, %y: tensor<?xbf16>) -> tensor<?x{t}> {{
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xbf16>
  %e = tensor.empty(%n) : tensor<?x{t}>
  %z = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
                                        affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
      ins(%x, %y : tensor<?xbf16>, tensor<?xbf16>) outs(%e : tensor<?x{t}>) {{
  ^bb0(%a: bf16, %b: bf16, %o: {t}):
    %less = arith.cmpf olt, %a, %b : bf16
    %odd = math.isinf %a : bf16
    %r = {op}
    linalg.yield %r : {t}
  }} -> tensor<?x{t}>
  return %z : tensor<?x{t}>
}}
"""

LARGEST = """
func.func @f(%x: tensor<?x?xbf16>) -> tensor<?xbf16> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x?xbf16>
  %low = arith.constant 0xFF80 : bf16
  %e = tensor.empty(%n) : tensor<?xbf16>
  %i = linalg.fill ins(%low : bf16) outs(%e : tensor<?xbf16>) -> tensor<?xbf16>
  %z = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xbf16>) outs(%i : tensor<?xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %s = math.absf %a : bf16
    %r = arith.maximumf %s, %o : bf16
    linalg.yield %r : bf16
  } -> tensor<?xbf16>
  return %z : tensor<?xbf16>
}
"""


def numbers(seed, shape):
    """bf16 numbers of any size, as their bits and as float64; every tenth is an odd one."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(shape) * 10.0 ** rng.integers(-38, 38, shape)
    odd = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40], shape)
    bits = bf16_bits(np.where(rng.random(shape) < 0.1, odd, found).astype(np.float32))
    return bits, to_float64(bits, "bf16")


def compiled(text, fused):
    return neptune_mlir.compile(text) if fused else compiler.compile_unfused(text, "f", None)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", OPS)
def test_elements(name, fused):
    op, dtype, reference = OPS[name]
    run = compiled(PROGRAM.format(op=op, t=dtype), fused)
    (x, a), (y, b) = numbers(0, 1003), numbers(1, 1003)  # whole vectors and a rest
    with np.errstate(invalid="ignore"):
        wanted = np.asarray(reference(a, b), np.float64)
    got = to_float64(run(x, y), dtype)
    np.testing.assert_array_equal(got, wanted)
    if name in ("abs", "neg", "copysign"):  # zeros too have the sign that they should
        known = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(wanted)[known])


@pytest.mark.parametrize("fused", [True, False])
def test_rows(fused):
    run = compiled(LARGEST, fused)
    x, a = numbers(2, (6, 131))
    np.testing.assert_array_equal(to_float64(run(x), "bf16"), np.abs(a).max(1))
    x[np.isnan(a)] = 0
    a[np.isnan(a)] = 0
    np.testing.assert_array_equal(to_float64(run(x), "bf16"), np.abs(a).max(1))
