# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions with few results and many elements, on the simulator: each is cut into chunks, also
one that is not fused, over several axes, and over rows. Norms over an axis across arrays are held.
"""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir.frontend import notation as n
from neptune_mlir.pipelines import nvvm
from neptune_mlir.pipelines.lowering import RaisedProgram
from support.chips.run_kernels import Simulated
from support.chips.scalar_ops import bf16_round


def simulated(program):
    return simulated_text(program.to_mlir(), program.name)


def simulated_text(text, name):
    raised = RaisedProgram(text, name)
    lowering = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")[-2:-1]))
    return Simulated(lowering.module, target="sm_90a")


def check(program, *shapes, dtype="f32"):
    """Check a program's kernels on random numbers; returns the programs of each launch."""
    run = simulated(program)
    random = np.random.default_rng(7)
    given = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    given = [bf16_round(x) for x in given] if dtype == "bf16" else given
    wanted = program.reference(*(x.astype(float) for x in given))
    found = run(*given)
    limit = 5e-3 if dtype == "bf16" else 1e-5
    assert np.linalg.norm(found - wanted) <= limit * np.linalg.norm(wanted)
    return [np.prod(launch.grid) for launch in run.plan.launches]


def norm(shape, reduced, dtype, size):
    """What deviates from the mean, over the mean size of it."""
    p = n.Program("norm")
    axes = [p.axis(name, size) for name, size in zip("bcs", shape, strict=False)]
    x = p.input("x", *axes, dtype=dtype)[tuple(axes)] * 1.0
    over = [axes[k] for k in reduced]
    centred = x - n.mean(x, *over)
    p.output(centred / n.sqrt(n.mean(size(centred), *over) + 1e-5), *axes, dtype=dtype)
    return p


@pytest.mark.parametrize(
    ("shape", "reduced", "programs"),
    [((2, 4200), (1,), [4, 1, 4, 4]), ((5, 3, 900), (0, 2), [6, 1, 6, 20])],
    ids=["rows", "channels"],
)
def test_reductions_that_are_not_fused_are_cut(shape, reduced, programs):
    """A mean and how far numbers are from it: neither has a program for a row alone."""
    assert check(norm(shape, reduced, "bf16", n.abs), shape, dtype="bf16") == programs


def test_reductions_of_short_rows_that_are_not_fused_share_a_kernel():
    assert check(norm((5, 264), (1,), "bf16", n.abs), (5, 264), dtype="bf16") == [3]


def test_a_variance_is_fused_with_its_mean_whatever_the_type():
    """Inputs whose squares leave the range are lost in the program as written, in 16 bits too."""
    program = norm((2, 4200), (1,), "bf16", lambda x: x * x)
    assert check(program, (2, 4200), dtype="bf16") == [4, 4]


def test_what_is_cut_is_read_as_it_lies_in_memory():
    """Of the axes that a number is reduced over, the one with most pieces."""
    p = n.Program("mean")
    i, j = p.axis("i", 40), p.axis("j", 520)
    x, w = p.input("x", i, j)[i, j], p.input("w", j)[j]
    p.output(n.mean(x * x * w, i, j))
    assert check(p, (40, 520), (520,)) == [10, 1]


def test_axes_that_are_reduced_together_are_cut_as_one():
    p = n.Program("mean")
    i, j, k = p.axis("i", 40), p.axis("j", 26), p.axis("k", 20)
    x = p.input("x", i, j, k)[i, j, k]
    p.output(n.mean(x * x, i, j, k))
    assert check(p, (40, 26, 20)) == [6, 1]


def test_sums_over_rows_are_cut():
    p = n.Program("columns")
    i, j = p.axis("i", 1100), p.axis("j", 40)
    p.output(n.sum(p.input("x", i, j)[i, j], i), j)
    chunks, *joins = check(p, (1100, 40))
    assert chunks > 16 and len(joins) == 1


def test_a_norm_over_an_axis_across_arrays_loads_them_once():
    p = n.Program("channels")
    b, c, s = p.axis("b", 2), p.axis("c", 24), p.axis("s", 300)
    x = p.input("x", b, c, s)[b, c, s]
    p.output(x * n.rsqrt(n.mean(x * x, c) + 1e-5), b, c, s)
    check(p, (2, 24, 300))
    loads = [line for line in simulated(p).assigned.splitlines() if "extract_slice %arg0" in line]
    assert len(loads) == 1


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_sums_over_rows_that_threads_do_not_share(dtype):
    """A thread has 16 bytes of each row, unless its columns would be few programs."""
    def columns(count):
        p = n.Program("columns")
        i, j = p.axis("i", 40), p.axis("j", count)
        p.output(2.0 * n.sum(p.input("x", i, j, dtype=dtype)[i, j] * 1.0, i), j)
        return p

    check(columns(1024), (40, 1024), dtype=dtype)
    assert "gpu.barrier" in str(simulated(columns(1024)).module)
    assert "gpu.barrier" not in str(simulated(columns(131072)).module)


def test_rows_that_are_reduced_together_share_what_stands_beside_them():
    p = n.Program("hinge")
    i, j = p.axis("i", 24), p.axis("j", 600)
    x, y = p.input("x", i, j)[i, j], p.input("y", j)[j]
    p.output(n.mean(n.maximum(1.0 - x * y, 0.0), i, j))
    check(p, (24, 600), (600,))


def argmax_over_rows(combiner, odd, rows=192, columns=40):
    """The first row of each column that is its extremum (or no number), as front ends write it."""
    identity = {"max": "0xFF800000", "min": "0x7F800000"}[combiner]
    odd_text = "%o = arith.cmpf une, %a, %a : f32\n%c = arith.ori %s, %o : i1" if odd else ""
    return f"""
#x = affine_map<(b, j, i) -> (b, i, j)>
#m = affine_map<(b, j, i) -> (b, j)>
func.func @place(%x: tensor<2x{rows}x{columns}xf32>) -> tensor<2x{columns}xi64> {{
  %m = "neptune.reduce"() ({{
    %a = "neptune.read"(%x) {{map = #x}} : (tensor<2x{rows}x{columns}xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }}, {{}}) {{combiner = "{combiner}", identity = {identity} : f32,
          domain = array<i64: 2, {columns}, {rows}>,
          result_axes = array<i64: 0, 1>}} : () -> tensor<2x{columns}xf32>
  %p = "neptune.reduce"() ({{
    %a = "neptune.read"(%x) {{map = #x}} : (tensor<2x{rows}x{columns}xf32>) -> f32
    %e = "neptune.read"(%m) {{map = #m}} : (tensor<2x{columns}xf32>) -> f32
    %{"s" if odd else "c"} = arith.cmpf oeq, %a, %e : f32
    {odd_text}
    %i = "neptune.index"() {{dim = 2 : i64}} : () -> index
    %at = arith.index_cast %i : index to i64
    %n = arith.constant {rows} : i64
    %r = arith.select %c, %at, %n : i64
    "neptune.yield"(%r) : (i64) -> ()
  }}, {{}}) {{combiner = "min", identity = 9223372036854775807 : i64,
          domain = array<i64: 2, {columns}, {rows}>,
          result_axes = array<i64: 0, 1>}} : () -> tensor<2x{columns}xi64>
  return %p : tensor<2x{columns}xi64>
}}"""


@pytest.mark.parametrize(("combiner", "odd"), [("max", True), ("min", True), ("max", False)])
def test_where_columns_have_an_extremum_is_found_in_one_pass(combiner, odd):
    """Ties, zeros of both signs, columns of infinities and what is no number."""
    run = simulated_text(argmax_over_rows(combiner, odd), "place")
    loads = [line for line in run.assigned.splitlines() if "extract_slice %expanded" in line]
    assert len(loads) == 1
    x = np.random.default_rng(3).integers(-3, 4, (2, 192, 40)).astype(np.float32)
    x[0, :, 3], x[1, :, 4], x[0, :, 5] = -np.inf, np.inf, 0.0
    x[0, ::2, 5], x[1, 150:, 6], x[1, 7, 7], x[0, :, 8] = -0.0, 5.0, np.nan, np.nan
    extremum = x.max(1) if combiner == "max" else x.min(1)
    hit = (x == extremum[:, None]) | (odd & np.isnan(x))
    wanted = np.where(hit.any(1), hit.argmax(1), 192)
    np.testing.assert_array_equal(run(x), wanted)


PART = """
#all = affine_map<(b, c, s) -> (b, c, s)>
#row = affine_map<(b, c, s) -> (b)>
func.func @part(%x: tensor<2x3x2048xf32>) -> tensor<2xf32> {
  %zero = arith.constant 0.0 : f32
  %count = arith.constant 3072.0 : f32
  %y = tensor.extract_slice %x[0, 0, 0] [2, 3, 1024] [1, 1, 1] : tensor<2x3x2048xf32> to tensor<2x3x1024xf32>
  %e = tensor.empty() : tensor<2xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%y : tensor<2x3x1024xf32>) outs(%z : tensor<2xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<2xf32>
  %squares = linalg.generic {indexing_maps = [#all, #row, #row], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%y, %sum : tensor<2x3x1024xf32>, tensor<2xf32>) outs(%z : tensor<2xf32>) {
  ^bb0(%a: f32, %s: f32, %o: f32):
    %m = arith.divf %s, %count : f32
    %d = arith.subf %a, %m : f32
    %q = arith.mulf %d, %d : f32
    %t = arith.addf %o, %q : f32
    linalg.yield %t : f32
  } -> tensor<2xf32>
  return %squares : tensor<2xf32>
}
"""  # noqa: E501


def test_chunks_of_a_part_of_a_tensor_are_chunks_of_the_tensor():
    run = simulated_text(PART, "part")
    x = np.random.default_rng(7).standard_normal((2, 3, 2048)).astype(np.float32) + 3
    y = x[:, :, :1024].astype(float)
    wanted = ((y - y.mean((1, 2), keepdims=True)) ** 2).sum((1, 2))
    assert np.allclose(run(x), wanted, rtol=1e-5)
    assert run.plan.launches[0].grid != run.plan.launches[-1].grid  # chunks, and their join
