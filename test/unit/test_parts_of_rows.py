# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions over parts of a row that a product gives: the gates of a recurrent layer."""

import numpy as np

import neptune_mlir

PROGRAM = """
#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (j, k)>
#c = affine_map<(i, j, k) -> (i, j)>
#m = affine_map<(i, j) -> (i, j)>
func.func @gates(%x: tensor<2x16xf32>, %w: tensor<64x16xf32>, %v: tensor<64x16xf32>) -> tensor<2x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64xf32>) -> tensor<2x64xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<2x16xf32>, tensor<64x16xf32>) outs(%f : tensor<2x64xf32>) {
  ^bb0(%p: f32, %q: f32, %acc: f32):
    %t = arith.mulf %p, %q : f32
    %r = arith.addf %acc, %t : f32
    linalg.yield %r : f32
  } -> tensor<2x64xf32>
  %first = tensor.extract_slice %y[0, 0] [2, 16] [1, 1] : tensor<2x64xf32> to tensor<2x16xf32>
  %last = tensor.extract_slice %y[0, 48] [2, 16] [1, 1] : tensor<2x64xf32> to tensor<2x16xf32>
  %he = tensor.empty() : tensor<2x16xf32>
  %h = linalg.generic {indexing_maps = [#m, #m, #m], iterator_types = ["parallel", "parallel"]}
      ins(%first, %last : tensor<2x16xf32>, tensor<2x16xf32>) outs(%he : tensor<2x16xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %u = math.tanh %p : f32
    %t = arith.mulf %u, %q : f32
    linalg.yield %t : f32
  } -> tensor<2x16xf32>
  %z = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %v : tensor<2x16xf32>, tensor<64x16xf32>) outs(%f : tensor<2x64xf32>) {
  ^bb0(%p: f32, %q: f32, %acc: f32):
    %t = arith.mulf %p, %q : f32
    %r = arith.addf %acc, %t : f32
    linalg.yield %r : f32
  } -> tensor<2x64xf32>
  return %z : tensor<2x64xf32>
}
"""  # noqa: E501


def test_parts_of_a_product():
    kernel = neptune_mlir.compile(PROGRAM)
    rng = np.random.default_rng(0)
    x, w, v = (rng.standard_normal(s).astype(np.float32) for s in ((2, 16), (64, 16), (64, 16)))
    y = x.astype(np.float64) @ w.T
    wanted = (np.tanh(y[:, :16]) * y[:, 48:]) @ v.T
    np.testing.assert_allclose(kernel(x, w, v), wanted, rtol=1e-5, atol=1e-5)
