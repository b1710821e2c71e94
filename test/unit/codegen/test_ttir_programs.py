# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every program of the zoo and of test/inputs by way of Triton: what its TTIR means (run with
NumPy), and, where triton is installed, that Triton compiles it for both makers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neptune_mlir.algebra.numerics.accuracy import TOLERANCE
from neptune_mlir.algebra.numerics.norms import frobenius
from neptune_mlir.codegen.triton import tool
from neptune_mlir.driver.compiler import compile_text, compile_unfused, lower_text
from neptune_mlir.driver.inputs import random_inputs, to_float64
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir
from neptune_mlir.zoo import ZOO, Example
from support.chips import ttir_exec
from support.often import nightly_if, often

INPUTS = sorted((Path(__file__).parents[2] / "inputs").glob("*.mlir"))
SIZE = 37  # of dimensions that are `?`: a multiple of no tile
TRITON = tool.version(tool.interpreter())
needs_triton = pytest.mark.skipif(TRITON is None, reason="the package triton is not installed")


def tiles(text: str, name: str) -> Any:
    return lower_text(text, name, "triton:sm_90a", None, "tile")[0]


# functions of a score and masks that other attentions of the zoo have as well
LIKE_OTHERS = ("attention_window", "attention_alibi", "attention_softcap", "attention_lse")


@pytest.mark.parametrize(
    "example", nightly_if(lambda e: e.name in LIKE_OTHERS, ZOO), ids=lambda e: e.name
)
def test_zoo(example: Example) -> None:
    arrays = example.inputs(np.random.default_rng(0))
    program = example.build()
    got = ttir_exec.run(tiles(program.to_mlir(), example.name), arrays)
    want = program.reference(*map(_wide, arrays))
    want = want if isinstance(want, tuple) else (want,)
    for g, w in zip(got, want, strict=True):
        # constants of a program are f32, or else nothing rounds
        np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-6 * np.abs(w).max())


def _wide(array: Any) -> Any:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


@pytest.mark.parametrize("path", often(INPUTS), ids=lambda p: p.stem)
def test_inputs(path: Path) -> None:
    """As the program as written computes it; an op that no nest models is refused."""
    text = path.read_text()
    unfused = compile_unfused(text, str(path), None, vectorize=False)
    arguments = random_inputs(unfused.plan, SIZE)
    module = tiles(text, str(path))
    dtypes = result_types(module)
    try:
        got = ttir_exec.run(module, [
            to_float64(a, wanted.dtype) if wanted.dtype.startswith(("f", "bf")) else a
            for a, wanted in zip(arguments, unfused.plan.arguments, strict=True)
        ])  # fmt: skip
    except LoweringError as refusal:
        left = [op.operation.name for op in function_of(module).regions[0].blocks[0].operations]
        outside = any(name.startswith("linalg.") for name in left)
        assert ("outside of any kernel" if outside else "a write into a tile") in refusal.message
        return
    wanted = unfused(*arguments)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    for g, w, dtype in zip(got, wanted, dtypes, strict=True):
        wide = to_float64(w, dtype)
        assert not np.isnan(wide).any()
        error = frobenius(np.asarray(g, np.float64)[None], wide[None])
        assert error <= TOLERANCE.get(dtype, 0.0)


def result_types(module: Any) -> list[str]:
    """The element types of the results of a module's one function."""
    return [str(ir.RankedTensorType(t).element_type) for t in function_of(module).type.results]


def function_of(module: Any) -> Any:
    return next(op for op in module.body.operations if op.operation.name == "func.func")


@needs_triton
@pytest.mark.parametrize("chip", ["sm_90a", "gfx942"])
@pytest.mark.parametrize("example", ZOO, ids=lambda e: e.name)
def test_zoo_builds(example: Example, chip: str) -> None:
    bundle = compile_text(
        example.build().to_mlir(), example.name, f"triton:{chip}", None, None
    )
    (image,) = bundle.facts["images"]
    assert all(kernel["threads"] >= 64 for kernel in image["kernels"].values())
    spilled = sum(kernel["spills"] for kernel in image["kernels"].values())
    assert spilled <= 32, "tiles that do not fit in registers"


LOG_SUM = """
func.func @f(%x: tensor<37x?xf32>, %n: index) -> tensor<37xf32> {
  %r = "neptune.reduce"(%n) ({
    %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<37x?xf32>) -> f32
    %c2 = arith.constant 2.0 : f32
    %z = arith.mulf %a, %c2 : f32
    "neptune.yield"(%z) : (f32) -> ()
  }, {
  ^bb0(%a: f32, %b: f32):
    %one = arith.constant 1.0 : f32
    %high = arith.maximumf %a, %b : f32
    %low = arith.minimumf %a, %b : f32
    %apart = arith.subf %low, %high : f32
    %e = math.exp %apart : f32
    %more = arith.addf %one, %e : f32
    %l = math.log %more : f32
    %s = arith.addf %high, %l : f32
    "neptune.yield"(%s) : (f32) -> ()
  }) {combiner = "custom", identity = -1.0e30 : f32, result_axes = array<i64: 0>,
      domain = array<i64: 37, -9223372036854775808>} : (index) -> tensor<37xf32>
  return %r : tensor<37xf32>
}
"""


@pytest.mark.parametrize("count", [1, 77, 200])
def test_combiner_of_several_ops(count: int) -> None:
    """log(exp a + exp b), which is no single op: a region of `tt.reduce`."""
    x = np.random.default_rng(1).normal(size=(37, count))
    (got,) = ttir_exec.run(tiles(LOG_SUM, "log_sum"), [x, count])
    np.testing.assert_allclose(got, np.log(np.exp(2 * x).sum(1)), rtol=1e-12)


@needs_triton
@pytest.mark.parametrize("chip", ["sm_90a", "gfx942"])
def test_combiner_of_several_ops_builds(chip: str) -> None:
    bundle = compile_text(LOG_SUM, "log_sum", f"triton:{chip}", None, None)
    assert bundle.code
