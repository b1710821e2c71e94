# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# ruff: noqa: E501
"""A reshape between kernels that no access can express is another view of the same memory."""

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.driver.compiler import compile_unfused
from neptune_mlir.errors import ArgumentError

PROGRAM = """
func.func @heads(%x: tensor<?x12xf32>, %w: tensor<12x20xf32>) -> (tensor<?x4xf32>, tensor<?x20xf32>) {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x12xf32>
  %e = tensor.empty(%n) : tensor<?x20xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x20xf32>) -> tensor<?x20xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x12xf32>, tensor<12x20xf32>) outs(%f : tensor<?x20xf32>) -> tensor<?x20xf32>
  %h = tensor.expand_shape %y [[0], [1, 2]] output_shape [%n, 4, 5] : tensor<?x20xf32> into tensor<?x4x5xf32>
  %se = tensor.empty(%n) : tensor<?x4xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%se : tensor<?x4xf32>) -> tensor<?x4xf32>
  %s = linalg.generic {
      indexing_maps = [affine_map<(i, h, d) -> (i, h, d)>, affine_map<(i, h, d) -> (i, h)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h : tensor<?x4x5xf32>) outs(%sf : tensor<?x4xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %q = arith.mulf %a, %a : f32
    %r = arith.addf %acc, %q : f32
    linalg.yield %r : f32
  } -> tensor<?x4xf32>
  return %s, %y : tensor<?x4xf32>, tensor<?x20xf32>
}
"""


def test_expanded_product():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((7, 12)), rng.standard_normal((12, 20))
    squares, product = neptune_mlir.compile(PROGRAM)(x.astype(np.float32), w.astype(np.float32))
    np.testing.assert_allclose(product, x @ w, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        squares, ((x @ w).reshape(7, 4, 5) ** 2).sum(-1), rtol=1e-5, atol=1e-5
    )


JOINED = """
func.func @f(%x: tensor<?x?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %z = tensor.collapse_shape %x [[0, 1]] : tensor<?x?xf32> into tensor<?xf32>
  %c0 = arith.constant 0 : index
  %n = tensor.dim %z, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %s = linalg.generic {
      indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%z, %y : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  return %s : tensor<?xf32>
}
"""


def test_other_numbers_of_elements_are_refused():
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(6, np.float32)
    kernel = neptune_mlir.compile(JOINED)
    np.testing.assert_array_equal(kernel(x, y), x.reshape(6) + 1)
    with pytest.raises(ArgumentError, match="elements"):
        kernel(x, y[:4].copy())


TAIL = """
func.func @f(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = tensor.dim %x, %c0 : tensor<?x?xf32>
  %columns = tensor.dim %x, %c1 : tensor<?x?xf32>
  %less = arith.subi %rows, %c1 : index
  %tail = tensor.extract_slice %x[1, 0] [%less, %columns] [1, 1] : tensor<?x?xf32> to tensor<?x?xf32>
  %z = tensor.collapse_shape %tail [[0, 1]] : tensor<?x?xf32> into tensor<?xf32>
  %w = tensor.collapse_shape %y [[0, 1]] : tensor<?x?xf32> into tensor<?xf32>
  %n = tensor.dim %z, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %s = linalg.generic {
      indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%z, %w : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.subf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<?xf32>
  return %s : tensor<?xf32>
}
"""


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (12, 1), (1, 12)])
def test_shapes_of_as_many_elements_need_not_be_alike(shape):
    """No call can check that a slice has the rows of another tensor: it is not taken for granted."""
    x, y = np.arange(16, dtype=np.float32).reshape(4, 4), np.arange(12, dtype=np.float32)
    got = neptune_mlir.compile(TAIL)(x, y.reshape(shape))
    np.testing.assert_array_equal(got, np.full(12, 4))


PUT = """
func.func @f(%x: tensor<3xf32>, %y: tensor<6xf32>) -> tensor<6xf32> {
  %z = tensor.insert_slice %x into %y[0] [3] [2] : tensor<3xf32> into tensor<6xf32>
  return %z : tensor<6xf32>
}
"""


def test_arguments_are_not_written():
    x, y = np.ones(3, np.float32), np.zeros(6, np.float32)
    for kernel in (neptune_mlir.compile(PUT), compile_unfused(PUT, "put", None)):
        np.testing.assert_array_equal(np.asarray(kernel(x, y)).ravel(), [1, 0] * 3)
        assert not y.any()
