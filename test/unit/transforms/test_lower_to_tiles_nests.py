# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lone nests and fused programs that are not attention, lowered to tiles and executed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from neptune_mlir.algebra import terms as T
from neptune_mlir.dialects.nests import DYNAMIC as D
from neptune_mlir.errors import LoweringError, ScheduleError
from neptune_mlir.ir.bindings import ir
from support.nest_programs import FUSE, Body, Builder, execute, module_of

op = T.make
rng = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def check(
    body: Body, arguments: Sequence[Any], results: Sequence[Any], inputs: Sequence[Any],
    want: Sequence[Any], passes: str = "", tolerance: float = 2e-6,
) -> None:  # fmt: skip
    got = execute(module_of(body, arguments, results), inputs, passes)
    for result, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("result", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("n", "k", "m"), [(D, D, D), (37, 70, 29)])
def test_matmul(n: int, k: int, m: int, result: tuple[int, int]) -> None:
    def body(f: Builder, x: Any, y: Any) -> list[Any]:
        product = op("mul", f.at(x, 0, 2), f.at(y, 2, 1))
        return [f.reduce("add", product, (x, 0), (y, 1), (x, 1), result=result)]

    x, y = normal(37, 70), normal(70, 29)
    want = (x.astype(np.float64) @ y).transpose(result)
    shape = [(n, m)[r] for r in result]
    check(body, [([n, k], "f32"), ([k, m], "f32")], [(shape, "f32")], [x, y], [want],
          tolerance=2e-5)  # fmt: skip


@pytest.mark.parametrize("shape", [(5, 7, 300), (1, 1, 1), (3, 0, 4), (2, 65, 3)])
@pytest.mark.parametrize("dynamic", [True, False])
def test_sum_of_everything(shape: tuple[int, ...], dynamic: bool) -> None:
    def body(f: Builder, x: Any) -> list[Any]:
        return [f.reduce("add", f.at(x, 0, 1, 2), (x, 0), (x, 1), (x, 2), result=[])]

    x = normal(*shape)
    kind = ([D] * 3 if dynamic else shape, "f32")
    check(body, [kind], [([], "f32")], [x], [x.astype(np.float64).sum()], tolerance=2e-4)


@pytest.mark.parametrize(
    ("name", "reference"), [("or", np.any), ("and", np.all), ("max", np.any), ("min", np.all)]
)
@pytest.mark.parametrize("shape", [[D, D], [5, 300]])
def test_booleans(name: str, reference: Any, shape: list[int]) -> None:
    def body(f: Builder, x: Any) -> list[Any]:
        return [f.reduce(name, f.at(x, 0, 1), (x, 0), (x, 1), result=[0])]

    x = rng.random((5, 300)) < np.array([0, 0.003, 0.5, 0.997, 1])[:, None]
    check(body, [(shape, "i1")], [(shape[:1], "i1")], [x], [reference(x, axis=1)])


@pytest.mark.parametrize(
    ("name", "reference"), [("max", np.max), ("min", np.min), ("add", np.sum), ("mul", np.prod)]
)
def test_integers(name: str, reference: Any) -> None:
    def body(f: Builder, x: Any) -> list[Any]:
        return [f.reduce(name, f.at(x, 0, 1), (x, 0), (x, 1), result=[0])]

    x = rng.choice([-3, -2, -1, 1, 2], (5, 70))
    kinds = [([D, D], "i64")], [([D], "i64")]
    check(body, *kinds, [x], [reference(x, axis=1)])


def test_padding_never_divides_by_zero() -> None:
    def body(f: Builder, x: Any, y: Any) -> list[Any]:
        quotient = op("div", f.at(x, 0, 1), f.at(y, 1, 0))
        return [f.map(quotient, (x, 0), (x, 1), result=[1, 0])]

    x, y = rng.integers(-50, 50, (5, 70)), rng.integers(1, 5, (70, 5))
    kinds = [([D, D], "i32")] * 2, [([D, D], "i32")]
    check(body, *kinds, [x, y], [np.trunc(x.T / y)])


def test_positions_and_captured_scalars() -> None:
    def body(f: Builder, x: Any, y: Any, w: Any) -> list[Any]:
        position = op("mul", T.index(0), op("add", T.index(1), f.scalar(w)))
        total = op("add", op("cast", position, dtype="f32"), f.at(x, 1))
        return [f.map(total, (y, 0), (x, 0))]

    x = normal(300)
    want = np.arange(6)[:, None] * (np.arange(300) + 4) + x.astype(np.float64)
    check(body, [([D], "f32"), ([D], "f32"), "index"], [([D, D], "f32")],
          [x, np.zeros(6), 4], [want])  # fmt: skip


@pytest.mark.parametrize("shape", [[D, D], [5, 300]])
def test_reduction_that_reads_nothing_along_its_loop(shape: list[int]) -> None:
    def body(f: Builder, x: Any, w: Any) -> list[Any]:
        short = op("lt", T.index(1), f.scalar(w))
        one = op("select", short, T.const(1.0), T.const(0.0))
        return [f.reduce("add", one, (x, 0), (x, 1), result=[0])]

    kinds = [(shape, "f32"), "index"], [(shape[:1], "f32")]
    check(body, *kinds, [normal(5, 300), 133], [np.full(5, 133.0)])


def test_rank_0() -> None:
    def body(f: Builder, x: Any, y: Any) -> list[Any]:
        return [f.map(op("add", f.at(x), f.at(y, T.const(3, "index"))))]

    check(body, [([], "f32"), ([5], "f32")], [([], "f32")], [np.float32(2), np.arange(5)], [5.0])


@pytest.mark.parametrize("heads", [D, 8])
def test_shared_heads(heads: int) -> None:
    def body(f: Builder, x: Any, y: Any) -> list[Any]:
        group = op("floordiv", T.index(0), T.const(4, "index"))
        return [f.map(op("add", f.at(x, 0, 1), f.at(y, group, 1)), (x, 0), (x, 1))]

    x, y = normal(8, 70), normal(2, 70)
    few = D if heads == D else 2
    want = x.astype(np.float64) + np.repeat(y, 4, 0)
    kinds = [([heads, D], "f32"), ([few, D], "f32")], [([heads, D], "f32")]
    check(body, *kinds, [x, y], [want])


def softmax(f: Builder, x: Any) -> list[Any]:
    dims = (x, 0), (x, 1)
    m = f.reduce("max", f.at(x, 0, 1), *dims, result=[0])
    e = f.map(op("exp", op("sub", f.at(x, 0, 1), f.at(m, 0))), *dims)
    total = f.reduce("add", f.at(e, 0, 1), *dims, result=[0])
    return [f.map(op("div", f.at(e, 0, 1), f.at(total, 0)), *dims), m]


@pytest.mark.parametrize("passes", [FUSE, f"{FUSE},privatize{{chunks=4}}", "inline-maps"])
@pytest.mark.parametrize(
    ("shape", "size"),
    [((D, D), (5, 300)), ((4, D), (4, 1)), ((17, 513),) * 2, ((D, 128), (3, 128)), ((0, 7),) * 2],
)
def test_softmax_sweeps_twice(passes: str, shape: Any, size: Any) -> None:
    x = normal(*size)
    z = x.astype(np.float64)
    m = z.max(1, initial=-np.inf)
    e = np.exp(z - m[:, None])
    check(softmax, [(shape, "f32")], [(shape, "f32"), (shape[:1], "f32")], [x],
          [e / e.sum(1, keepdims=True), m], passes)  # fmt: skip


@pytest.mark.parametrize("passes", [FUSE, ""])
def test_layer_norm(passes: str) -> None:
    def body(f: Builder, x: Any) -> list[Any]:
        dims = (x, 0), (x, 1)
        count = op("cast", f.scalar(f.dim(x, 1)), dtype="f32")
        total = f.reduce("add", f.at(x, 0, 1), *dims, result=[0])
        d = op("sub", f.at(x, 0, 1), op("div", f.at(total, 0), count))
        squares = f.reduce("add", op("mul", d, d), *dims, result=[0])
        variance = op("add", op("div", f.at(squares, 0), count), T.const(1e-5))
        return [f.map(op("mul", d, op("rsqrt", variance)), *dims)]

    x = normal(5, 300)
    z = x.astype(np.float64)
    want = (z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + 1e-5)
    check(body, [([D, D], "f32")], [([D, D], "f32")], [x], [want], passes, tolerance=5e-6)


@pytest.mark.parametrize("passes", [FUSE, f"{FUSE},privatize{{chunks=3}}"])
@pytest.mark.parametrize(("n", "d", "m"), [(D, D, D), (37, 133, 50)])
def test_rms_norm_then_matmul(n: int, d: int, m: int, passes: str) -> None:
    def body(f: Builder, x: Any, w: Any) -> list[Any]:
        dims = (x, 0), (x, 1)
        square = op("mul", f.at(x, 0, 1), f.at(x, 0, 1))
        total = f.reduce("add", square, *dims, result=[0])
        mean = op("add", op("div", f.at(total, 0), T.const(133.0)), T.const(1e-5))
        y = f.map(op("mul", f.at(x, 0, 1), op("rsqrt", mean)), *dims)
        product = op("mul", f.at(y, 0, 2), f.at(w, 2, 1))
        return [f.reduce("add", product, (x, 0), (w, 1), (x, 1), result=[0, 1])]

    x, w = normal(37, 133), normal(133, 50)
    z = x.astype(np.float64)
    want = z / np.sqrt((z * z).mean(1, keepdims=True) + 1e-5) @ w
    check(body, [([n, d], "f32"), ([d, m], "f32")], [([n, m], "f32")], [x, w], [want], passes,
          tolerance=5e-5)  # fmt: skip


LARGEST = """
func.func @f(%x: tensor<?x?xf32>, %n: index, %m: index) -> tensor<?xf32> {
  %r = "neptune.reduce"(%n, %m) ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
    %i = "neptune.index"() {dim = 1 : i64} : () -> index
    %c5 = arith.constant 5 : index
    %early = arith.cmpi ult, %i, %c5 : index
    %twice = arith.addf %a, %a : f32
    %z = arith.select %early, %twice, %a : f32
    "neptune.yield"(%z) : (f32) -> ()
  }, {
  ^bb0(%a: f32, %b: f32):
    %aa = math.absf %a : f32
    %bb = math.absf %b : f32
    %s = arith.maximumf %aa, %bb : f32
    "neptune.yield"(%s) : (f32) -> ()
  }) {combiner = "custom", identity = 0.0 : f32, result_axes = array<i64: RESULT>,
      domain = array<i64: -9223372036854775808, -9223372036854775808>}
     : (index, index) -> tensor<?xf32>
  return %r : tensor<?xf32>
}
"""


@pytest.mark.parametrize("result", [0, 1])
def test_custom_combiner_and_code_without_a_term(result: int) -> None:
    x = normal(70, 90)
    (got,) = execute(LARGEST.replace("RESULT", str(result)), [x, 70, 90])
    doubled = np.abs(x * np.where(np.arange(90) < 5, 2, 1))
    np.testing.assert_allclose(got, doubled.max(1 - result), rtol=1e-6)


MAP = """
func.func @f(%x: tensor<8x?xf32>, %y: tensor<2x?xf32>, %n: index) -> tensor<8x?xf32> {
  %r = "neptune.map"(%n) ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<8x?xf32>) -> f32
    %b = "neptune.read"(%y) {map = affine_map<(i, j) -> (i floordiv 4, j)>}
         : (tensor<2x?xf32>) -> f32
    %s = arith.addf %a, %b : f32
    "neptune.yield"(%s) : (f32) -> ()
  }) {domain = array<i64: 8, -9223372036854775808>, result_axes = array<i64: 0, 1>TILE}
     : (index) -> tensor<8x?xf32>
  return %r : tensor<8x?xf32>
}
"""


def test_tile_over_several_groups_is_refused() -> None:
    text = MAP.replace("TILE", ", neptune.tile = array<i64: 8, 16>")
    with pytest.raises(LoweringError, match="use a tile size that divides 4"):
        execute(text, [normal(8, 20), normal(2, 20), 20])


def test_run_time_extent_must_be_cut() -> None:
    text = MAP.replace("TILE", ", neptune.tile = array<i64: 1, 0>")
    with pytest.raises(ScheduleError, match="axis 'd1' has a run-time extent"):
        execute(text, [normal(8, 20), normal(2, 20), 20])


CONTINUED = """
func.func @f(%x: tensor<?x?xf32>, %s: tensor<?xf32>, %n: index, %m: index) -> tensor<?xf32> {
  %r = "neptune.accumulate"(%s, %n, %m) ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<?x?xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }, {}) {combiner = "max", identity = 0xFF800000 : f32, result_axes = array<i64: 0>,
      domain = array<i64: -9223372036854775808, -9223372036854775808>}
     : (tensor<?xf32>, index, index) -> tensor<?xf32>
  return %r : tensor<?xf32>
}
"""


@pytest.mark.parametrize("width", [5, 300])
def test_a_lone_accumulation_continues_its_running_value(width: int) -> None:
    x, s = normal(20, width), normal(20) + 2
    (got,) = execute(CONTINUED, [x, s, 20, width])
    np.testing.assert_array_equal(got, np.maximum(x.max(1), s))


SHIFTED = """
func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
  %r = "neptune.global"() ({
    %a = "neptune.map"() ({
      %e = "neptune.read"(%x) {map = affine_map<(i) -> (i)>} : (tensor<8xf32>) -> f32
      "neptune.yield"(%e) : (f32) -> ()
    }) {neptune.axes = array<i64: 1>, domain = array<i64: 8>, result_axes = array<i64: 0>}
      : () -> tensor<8xf32>
    %b = "neptune.map"() ({
      %e = "neptune.read"(%a) {map = affine_map<(i) -> (i floordiv 2)>} : (tensor<8xf32>) -> f32
      "neptune.yield"(%e) : (f32) -> ()
    }) {neptune.axes = array<i64: 1>, domain = array<i64: 8>, result_axes = array<i64: 0>}
      : () -> tensor<8xf32>
    "neptune.produce"(%b) {operandSegmentSizes =
      array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<8xf32>) -> ()
  }) {axis_names = ["c", "i"], domain = array<i64: 2, 8>, neptune.tile = array<i64: 0, 2>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}
    : () -> tensor<8xf32>
  return %r : tensor<8xf32>
}
"""


def test_a_value_of_another_program_cannot_be_read() -> None:
    with pytest.raises(LoweringError, match="which another program may hold"):
        execute(SHIFTED, [normal(8)])


def test_elementary_functions_run_over_their_own_loops_only():
    """Layer norm's 1/sqrt is of a row, though the result and other parts of it are of a tile."""
    from neptune_mlir import ops
    from neptune_mlir.driver.compiler import lower_text

    text = ops.layer_norm_matmul().to_mlir()
    module, _ = lower_text(text, "layer_norm_matmul", "cpu", None, "tile")
    ranks = []

    def visit(op):
        if op.name == "linalg.generic" and "math.rsqrt" in str(op):
            ranks.append(len(op.attributes["iterator_types"]))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    assert ranks == [1]
