# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pads, joins and slices outside of kernels, and numbers that kernels read from tensors: on the
simulator and on the CPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir.driver import compiler
from neptune_mlir.runtime import CpuExecutable
from support.chips.run_kernels import Simulated

X = np.arange(20, dtype=np.float32).reshape(4, 5)
Y = -np.arange(33, dtype=np.float32).reshape(3, 11)


def _put(array, place, value):
    changed = array.copy()
    changed[place] = value
    return changed


PROGRAMS = {
    "copy": (  # what stores a whole array takes it as it is, once the condition has folded
        """
func.func @f(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0 : index
  %e = tensor.empty() : tensor<4x5xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x5xf32>) outs(%e : tensor<4x5xf32>) {
  ^bb0(%a: f32, %o: f32):
    %i = linalg.index 0 : index
    %c = arith.cmpi sle, %least, %i : index
    %r = arith.select %c, %a, %zero : f32
    linalg.yield %r : f32
  } -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}""",
        [X],
        lambda: X,
    ),
    "pad": (
        """
func.func @f(%x: tensor<4x?xf32>, %n: index) -> tensor<5x?xf32> {
  %p = tensor.pad %x low[1, %n] high[0, 2] {
  ^bb0(%i: index, %j: index):
    %k = arith.index_cast %j : index to i64
    %v = arith.sitofp %k : i64 to f32
    tensor.yield %v : f32
  } : tensor<4x?xf32> to tensor<5x?xf32>
  return %p : tensor<5x?xf32>
}""",
        [X, 3],
        lambda: np.where(
            np.pad(np.ones_like(X), ((1, 0), (3, 2))) > 0,
            np.pad(X, ((1, 0), (3, 2))), np.arange(10.0)),
    ),
    "concat": (
        """
func.func @f(%x: tensor<3x?xf32>, %y: tensor<3x?xf32>) -> tensor<3x?xf32> {
  %p = tensor.concat dim(1) %x, %y, %x
      : (tensor<3x?xf32>, tensor<3x?xf32>, tensor<3x?xf32>) -> tensor<3x?xf32>
  return %p : tensor<3x?xf32>
}""",
        [Y, X[:3].copy()],
        lambda: np.concatenate([Y, X[:3], Y], 1),
    ),
    "slices": (
        """
func.func @f(%x: tensor<4x5xf32>, %y: tensor<?x11xf32>, %n: index) -> tensor<?x11xf32> {
  %row = tensor.extract_slice %x[2, 0] [1, 3] [1, 2] : tensor<4x5xf32> to tensor<3xf32>
  %p = tensor.insert_slice %row into %y[%n, 1] [1, 3] [1, 4] : tensor<3xf32> into tensor<?x11xf32>
  return %p : tensor<?x11xf32>
}""",
        [X, Y, 1],
        lambda: _put(Y, (1, slice(1, None, 4)), X[2, ::2]),
    ),
    "generate": (
        """
func.func @f(%x: tensor<4x5xf32>, %n: index, %at: index) -> tensor<?x5xf32> {
  %three = arith.constant 3 : index
  %p = tensor.generate %n {
  ^bb0(%i: index, %j: index):
    %k = arith.subi %three, %i : index
    %v = tensor.extract %x[%k, %j] : tensor<4x5xf32>
    tensor.yield %v : f32
  } : tensor<?x5xf32>
  %v = arith.constant 7.0 : f32
  %q = tensor.insert %v into %p[%at, %at] : tensor<?x5xf32>
  return %q : tensor<?x5xf32>
}""",
        [X, 4, 2],
        lambda: _put(X[::-1], (2, 2), 7),
    ),
    "slice from data": (
        """
func.func @f(%x: tensor<4x5xf32>, %at: tensor<2xi64>, %v: f32)
    -> (tensor<2x5xf32>, tensor<4x5xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = tensor.extract %at[%c0] : tensor<2xi64>
  %i = arith.index_cast %a : i64 to index
  %rows = tensor.extract_slice %x[%i, 0] [2, 5] [1, 1] : tensor<4x5xf32> to tensor<2x5xf32>
  %b = tensor.extract %at[%c1] : tensor<2xi64>
  %j = arith.index_cast %b : i64 to index
  %put = tensor.insert %v into %x[%i, %j] : tensor<4x5xf32>
  return %rows, %put : tensor<2x5xf32>, tensor<4x5xf32>
}""",
        [X, np.array([1, 3]), 0.5],
        lambda: (X[1:3], _put(X, (1, 3), 0.5)),
    ),
    "scale from data": (
        """
func.func @f(%x: tensor<?x5xf32>, %y: tensor<5x11xf32>, %s: tensor<4xf32>, %at: tensor<1xi64>)
    -> tensor<?x11xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x5xf32>
  %a = tensor.extract %at[%c0] : tensor<1xi64>
  %i = arith.index_cast %a : i64 to index
  %v = tensor.extract %s[%i] : tensor<4xf32>
  %e = tensor.empty(%n) : tensor<?x11xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x11xf32>) -> tensor<?x11xf32>
  %m = linalg.matmul ins(%x, %y : tensor<?x5xf32>, tensor<5x11xf32>) outs(%f : tensor<?x11xf32>)
      -> tensor<?x11xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<?x11xf32>) outs(%e : tensor<?x11xf32>) {
  ^bb0(%a1: f32, %o: f32):
    %r = arith.mulf %a1, %v : f32
    linalg.yield %r : f32
  } -> tensor<?x11xf32>
  return %p : tensor<?x11xf32>
}""",
        [X, np.arange(55, dtype=np.float32).reshape(5, 11), np.arange(4, dtype=np.float32),
         np.array([2])],
        lambda: 2 * X @ np.arange(55, dtype=np.float32).reshape(5, 11),
    ),
    "from elements": (
        """
func.func @f(%a: f32, %b: f32) -> tensor<2x2xf32> {
  %p = tensor.from_elements %a, %b, %b, %a : tensor<2x2xf32>
  return %p : tensor<2x2xf32>
}""",
        [1.5, -2.0],
        lambda: np.array([[1.5, -2.0], [-2.0, 1.5]]),
    ),
}


@pytest.mark.parametrize("target", ["cpu", "sm_80", "gfx942"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_elements(name, target):
    text, arguments, want = PROGRAMS[name]
    if target == "cpu":
        run = CpuExecutable(compiler.compile_text(text, name, "cpu", None, None))
    else:
        module, _ = compiler.lower_text(text, name, target, None, "tile")
        run = Simulated(module, target=target)
        assert run.plan.launches
    got, wanted = run(*arguments), want()
    if isinstance(wanted, np.ndarray):
        got, wanted = [got], [wanted]
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
