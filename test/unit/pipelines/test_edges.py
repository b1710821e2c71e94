# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that hang over the edges of tensors: what is not there costs nothing, on a CPU."""

from __future__ import annotations

import time

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops, zoo
from neptune_mlir.driver import compiler

SHAPES = [
    (1, 1), (1, 7), (3, 5), (1, 1000), (1, 128), (129, 127), (128, 128), (130, 257), (17, 16),
    (16, 17), (257, 1), (500, 3), (2, 129), (33, 240),
]  # fmt: skip


@pytest.fixture(scope="module")
def softmax():
    return neptune.compile(ops.softmax())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_softmax_of_any_shape(softmax, shape, order):
    x = 3 * np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    weights = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    wanted = weights / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(softmax(np.asarray(x, order=order)), wanted, rtol=2e-6, atol=1e-9)


ROWS = """func.func @main(%x: tensor<?x?xf32>, %w: tensor<?xf32>, %s: tensor<?x?xf32>)
    -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %z = arith.constant 0.0 : f32
  %e = tensor.empty(%n) : tensor<?xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %w : tensor<?x?xf32>, tensor<?xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %p, %o : f32
    linalg.yield %q : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<?x?xf32>, tensor<?xf32>) outs(%s : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.subf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}"""


def test_rows_of_any_shape():
    kernel = neptune.compile(ROWS)
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        x = rng.standard_normal(shape).astype(np.float32)
        w = rng.standard_normal(shape[1]).astype(np.float32)
        wanted = x - (x.astype(np.float64) @ w)[:, None]
        np.testing.assert_allclose(kernel(x, w, np.zeros_like(x)), wanted, rtol=1e-5, atol=3e-4)


NAMES = ["logsumexp", "variance", "layer_norm", "cross_entropy"]


@pytest.mark.parametrize("name", NAMES)
def test_zoo_of_any_shape(name):
    (example,) = zoo.find([name])
    program = example.build()
    kernel = neptune.compile(program)
    first = example.inputs(np.random.default_rng(2))
    for rows, columns in SHAPES:
        arrays = [np.resize(a, [{37: rows, 251: columns}.get(n, n) for n in a.shape])
                  for a in first]  # fmt: skip
        arrays = [a % columns if a.dtype == np.int64 else a for a in arrays]
        wanted = program.reference(*arrays)
        np.testing.assert_allclose(kernel(*arrays), wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.first_of_each()
@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize("name", ["softmax", *NAMES])
def test_a_long_row_costs_what_it_has(name):
    """A tile of 128 rows took 128 times as long for one row."""
    (example,) = zoo.find([name])
    program = example.build()
    fused = neptune.compile(program)
    unfused = compiler.compile_unfused(program.to_mlir(), name, None)
    arrays = [np.resize(a, [{37: 1, 251: 300_000}.get(n, n) for n in a.shape])
              for a in example.inputs(np.random.default_rng(0))]  # fmt: skip

    def fastest(run) -> float:
        seconds = []
        for _ in range(12):
            start = time.perf_counter()
            run(*arrays)
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    assert fastest(fused) < 3 * fastest(unfused)
