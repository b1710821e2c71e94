# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scans along rows: a program has whole rows, and computes all prefixes in one pass."""

import numpy as np
import pytest

from neptune_mlir.driver import compiler
from support.chips.run_kernels import Simulated

SCAN = """
func.func @f(%x: tensor<{rows}x{n}x{dtype}>) -> tensor<{rows}x{n}x{dtype}> {{
  %e = tensor.empty() : tensor<{rows}x{n}x{dtype}>
  %a = tensor.empty() : tensor<{rows}x{dtype}>
  %y:2 = tm_tensor.scan dimension(1) inclusive({inclusive})
      ins(%x : tensor<{rows}x{n}x{dtype}>)
      outs(%e, %a : tensor<{rows}x{n}x{dtype}>, tensor<{rows}x{dtype}>) {{
  ^bb0(%l: {dtype}, %r: {dtype}):
    %s = {op} %l, %r : {dtype}
    tm_tensor.yield %s : {dtype}
  }} -> tensor<{rows}x{n}x{dtype}>, tensor<{rows}x{dtype}>
  return %y#0 : tensor<{rows}x{n}x{dtype}>
}}
"""
UFUNCS = {"arith.addf": np.add, "arith.mulf": np.multiply, "arith.maximumf": np.maximum,
          "arith.addi": np.add}  # fmt: skip
CASES = [
    ("sm_80", 3, 1000, "arith.addf", True, "f32"),  # warps follow each other, the last is padded
    ("sm_80", 37, 100, "arith.addf", False, "f32"),  # rows in lanes
    ("sm_90a", 5, 4096, "arith.mulf", True, "f32"),
    ("sm_80", 2, 331, "arith.maximumf", False, "f32"),  # element by element
    ("sm_80", 9, 513, "arith.addi", True, "i32"),
    ("sm_80", 4, 768, "arith.addf", True, "f16"),  # summed in f32
    ("gfx942", 3, 1000, "arith.addf", True, "f32"),
    ("gfx1100", 6, 200, "arith.addf", False, "f32"),
]

FLIP = """
  %{to}e = tensor.empty() : tensor<3x300xf32>
  %{to} = linalg.generic {{
      indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}}
      ins(%{of} : tensor<3x300xf32>) outs(%{to}e : tensor<3x300xf32>) {{
  ^bb0(%v: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %k = arith.subi %last, %j : index
    %r = tensor.extract %{of}[%i, %k] : tensor<3x300xf32>
    linalg.yield %r : f32
  }} -> tensor<3x300xf32>"""


def exact(x, op, inclusive):
    """In float64; the identity stands before the first."""
    found = UFUNCS[op].accumulate(x.astype(np.int64 if x.dtype.kind == "i" else np.float64), axis=1)
    if inclusive:
        return found
    first = {"arith.mulf": 1, "arith.maximumf": -np.inf}.get(op, 0)
    return np.concatenate([np.full((len(x), 1), first), found[:, :-1]], axis=1)


@pytest.mark.parametrize(("target", "rows", "n", "op", "inclusive", "dtype"), CASES)
def test_scan(target, rows, n, op, inclusive, dtype):
    text = SCAN.format(rows=rows, n=n, op=op, inclusive=str(inclusive).lower(), dtype=dtype)
    module, _ = compiler.lower_text(text, "scan", target, None, "tile")
    assert str(module).count("scf.forall (") == 1  # one kernel reads and writes each element once
    draw = np.random.default_rng(0)
    kind = {"f32": np.float32, "f16": np.float16, "i32": np.int32}[dtype]
    x = draw.integers(-9, 9, (rows, n)) if dtype == "i32" else draw.uniform(0.97, 1.03, (rows, n))
    x = x.astype(kind)
    got = np.asarray(Simulated(module, target=target)(x))
    want = exact(x, op, inclusive)
    bound = {"f16": 5e-4, "f32": 1e-5}.get(dtype, 0)
    np.testing.assert_allclose(got.astype(want.dtype), want, rtol=bound, atol=0)


def test_a_scan_from_the_end():
    """Flips around a scan are part of it."""
    text = SCAN.format(rows=3, n=300, op="arith.addf", inclusive="true", dtype="f32")
    head, _, body = text.partition("{\n")
    body = body.replace("ins(%x", "ins(%fx").replace("return %y#0", "return %fy")
    body = body.replace("  return", FLIP.format(of="y#0", to="fy") + "\n  return")
    last = "  %last = arith.constant 299 : index" + FLIP.format(of="x", to="fx")
    same = "#same = affine_map<(i, j) -> (i, j)>"
    module, _ = compiler.lower_text(
        f"{same}\n{head}{{\n{last}\n{body}", "scan", "sm_80", None, "tile"
    )
    assert str(module).count("scf.forall (") == 1
    x = np.random.default_rng(0).uniform(0.5, 1.5, (3, 300)).astype(np.float32)
    got = np.asarray(Simulated(module)(x))
    np.testing.assert_allclose(got, np.cumsum(x[:, ::-1], axis=1)[:, ::-1], rtol=1e-5)
