# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Habits of exporters that used to refuse or slow down a whole program."""

from __future__ import annotations

import numpy as np

import neptune_mlir as neptune
from neptune_mlir.driver import compiler

DIAGONAL = """
func.func @main(%x: tensor<5x5xf32>) -> (tensor<5xf32>, tensor<5xf32>) {
  %new = tensor.empty() : tensor<5xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      outs(%new : tensor<5xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %e = tensor.extract %x[%i, %i] : tensor<5x5xf32>
    linalg.yield %e : f32
  } -> tensor<5xf32>
  %twice = linalg.add ins(%d, %d : tensor<5xf32>, tensor<5xf32>) outs(%new : tensor<5xf32>) -> tensor<5xf32>
  return %d, %twice : tensor<5xf32>, tensor<5xf32>
}
"""  # noqa: E501


def test_a_diagonal_stays_outside_of_nests():
    x = np.random.default_rng(0).standard_normal((5, 5)).astype(np.float32)
    kernel = neptune.compile(DIAGONAL)
    diagonal, twice = kernel(x)
    assert np.array_equal(diagonal, np.diag(x)) and np.array_equal(twice, 2 * np.diag(x))
    (said,) = (r for r in kernel.facts["remarks"] if "diagonal" in r)
    assert "<program>:4:8: remark: 'linalg.generic' is not raised" in said
    for target in ("sm_80", "gfx942"):
        compiler.compile_text(DIAGONAL, "d", target, None, None)


DISTANCE = """
#row = affine_map<(i, j) -> (i, j)>
func.func @main(%x: tensor<9x40xf32>) -> tensor<9xf32> {
  %zero = arith.constant 0.0 : f32
  %three = arith.constant 3 : i64
  %new = tensor.empty() : tensor<9x40xf32>
  %w = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<9x40xf32>) outs(%new : tensor<9x40xf32>) {
  ^bb0(%e: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %k = arith.index_cast %i : index to i64
    %l = arith.index_cast %j : index to i64
    %d = arith.subi %k, %l : i64
    %a = math.absi %d : i64
    %near = arith.cmpi sle, %a, %three : i64
    %f = arith.sitofp %a : i64 to f32
    %p = arith.mulf %e, %f : f32
    %r = arith.select %near, %p, %zero : f32
    linalg.yield %r : f32
  } -> tensor<9x40xf32>
  %rows = tensor.empty() : tensor<9xf32>
  %start = linalg.fill ins(%zero : f32) outs(%rows : tensor<9xf32>) -> tensor<9xf32>
  %s = linalg.reduce { arith.addf } ins(%w : tensor<9x40xf32>) outs(%start : tensor<9xf32>)
      dimensions = [1]
  return %s : tensor<9xf32>
}
"""


def test_distances_of_positions():
    x = np.random.default_rng(0).standard_normal((9, 40)).astype(np.float32)
    away = np.abs(np.arange(9)[:, None] - np.arange(40)[None])
    wanted = np.where(away <= 3, x.astype(np.float64) * away, 0).sum(1)
    kernel = neptune.compile(DISTANCE)
    np.testing.assert_allclose(kernel(x), wanted, atol=1e-5)  # sums of at most 7 terms below 10
    program = kernel.ir("neptune")
    # the window is two comparisons of positions, so that masks are seen
    assert program.count("arith.cmpi sle") == 1 and program.count("arith.cmpi sge") == 1
    compiler.compile_text(DISTANCE, "d", "sm_80", None, None)
