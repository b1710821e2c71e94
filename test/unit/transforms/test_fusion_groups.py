# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# ruff: noqa: E501
"""Which reductions share a loop nest, where the answer is not plain."""

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.frontend.notation import Program, exp, inf, max, sum, where
from neptune_mlir.zoo import fusions


def test_two_sets_of_queries_are_two_kernels():
    """They read the same keys, but one grid over both would do everything once for each pair."""
    p = Program("two")
    i, c, j, d, e = p.axes("i c j d e", d=16, e=16)
    k, v = p.input("k", j, d), p.input("v", j, e)

    def attention(name, row):
        s = sum(p.input(name, row, d)[row, d] * k[j, d], d)
        w = exp(s - max(s, j))
        p.output(sum(w / sum(w, j) * v[j, e], j), row, e)

    attention("q", i)
    attention("r", c)
    found = fusions(p)
    assert [len(f.group.running) for f in found] == [3, 3]
    assert [len(f.group.axes) for f in found] == [4, 4]


def test_members_line_up_where_they_read_each_other():
    """`v` alone says nothing about rows; the sum's read of the maximum does."""
    p = Program("rows")
    i, j, e = p.axes("i j e")
    p.input("x", i, j)
    v = p.input("v", j, e)[j, e]
    logits = where(j <= i, v, -inf)
    total = sum(exp(logits - max(logits, j)), j)
    p.output(sum(v * total, j), i, e)
    for fusion in fusions(p):
        rows = [k for k, axis in enumerate(fusion.group.axes) if axis.name == "i"]
        assert len(rows) <= 1


def test_another_width_joins_where_it_is_not_cut():
    """Two value matrices under one softmax: the weights are computed once."""
    p = Program("values")
    i, j, d, e = p.axes("i j d e", d=8, e=16)
    x = p.input("x", i, j)[i, j]
    w = exp(x - max(x, j))
    w = w / sum(w, j)
    p.output(sum(w * p.input("u", j, d)[j, d], j), i, d)
    p.output(sum(w * p.input("v", j, e)[j, e], j), i, e)
    assert [len(f.group.running) for f in fusions(p)] == [4]


def runs_right(reduction):
    """Each of two streams has something that the other one needs."""
    p = Program("two_ways")
    i, j = p.axes("i j")
    p.input("x", i, j)
    r, u = p.input("r", i)[i], p.input("u", j)[j]
    peak, total = max(r, i), sum(u, j)
    p.output(sum(r * total, i))
    p.output(reduction(exp(r - peak) * u, j), i)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((7, 11), (7,), (11,))]
    for got, wanted in zip(neptune_mlir.compile(p)(*arrays), p.reference(*arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_fused_ops_do_not_need_each_other():
    runs_right(max)


def test_a_sum_for_each_row_is_not_the_one_for_all():
    runs_right(sum)


GATHERED = """
func.func @f(%x: tensor<{n}x5xf32>, %w: tensor<{c}x5xf32>, %at: tensor<{n}xi64>) -> tensor<{n}x{c}xf32> {{
  %zero = arith.constant 0.0 : f32
  {sizes}
  %e = tensor.empty({given}) : tensor<{n}x{c}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{n}x{c}xf32>) -> tensor<{n}x{c}xf32>
  %y = linalg.generic {{
      indexing_maps = [affine_map<(i, c, k) -> (i, k)>, affine_map<(i, c, k) -> (c, k)>, affine_map<(i, c, k) -> (i, c)>],
      iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%x, %w : tensor<{n}x5xf32>, tensor<{c}x5xf32>) outs(%f : tensor<{n}x{c}xf32>) {{
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %acc, %p : f32
    linalg.yield %r : f32
  }} -> tensor<{n}x{c}xf32>
  %t = linalg.generic {{
      indexing_maps = [affine_map<(i, c) -> (i, c)>, affine_map<(i, c) -> (i, c)>], iterator_types = ["parallel", "parallel"]}}
      ins(%y : tensor<{n}x{c}xf32>) outs(%e : tensor<{n}x{c}xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %r = math.tanh %a : f32
    linalg.yield %r : f32
  }} -> tensor<{n}x{c}xf32>
  %g = linalg.generic {{
      indexing_maps = [affine_map<(i, c) -> (i)>, affine_map<(i, c) -> (i, c)>], iterator_types = ["parallel", "parallel"]}}
      ins(%at : tensor<{n}xi64>) outs(%e : tensor<{n}x{c}xf32>) {{
  ^bb0(%k: i64, %o: f32):
    %row = arith.index_cast %k : i64 to index
    %column = linalg.index 1 : index
    %r = tensor.extract %t[%row, %column] : tensor<{n}x{c}xf32>
    linalg.yield %r : f32
  }} -> tensor<{n}x{c}xf32>
  %z = linalg.generic {{
      indexing_maps = [affine_map<(i, c) -> (i, c)>, affine_map<(i, c) -> (i, c)>, affine_map<(i, c) -> (i, c)>],
      iterator_types = ["parallel", "parallel"]}}
      ins(%y, %g : tensor<{n}x{c}xf32>, tensor<{n}x{c}xf32>) outs(%e : tensor<{n}x{c}xf32>) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  }} -> tensor<{n}x{c}xf32>
  return %z : tensor<{n}x{c}xf32>
}}
"""
DIMS = """%c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x5xf32>
  %c = tensor.dim %w, %c0 : tensor<?x5xf32>"""


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("n, c", [(6, 4), (6, 1), (1, 4), (1, 1)])
def test_gather_between_a_product_and_what_reads_both(n, c, known):
    """What reads the gathered rows cannot end the kernel that they are gathered from."""
    if known:
        text = GATHERED.format(n=n, c=c, sizes="", given="")
    else:
        text = GATHERED.format(n="?", c="?", sizes=DIMS, given="%n, %c")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((k, 5)).astype(np.float32) for k in (n, c))
    at = rng.integers(0, n, n)
    y = x @ w.T
    got = neptune_mlir.compile(text)(x, w, at)
    np.testing.assert_allclose(got, y + np.tanh(y)[at], rtol=1e-5, atol=1e-5)
