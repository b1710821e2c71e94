# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linalg ops that no nest models, as kernels of their own: on the simulator, against the CPU."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.driver import compiler
from neptune_mlir.driver.inputs import random_inputs
from neptune_mlir.errors import ToolError
from neptune_mlir.pipelines import gpu, rocdl
from neptune_mlir.runtime import CpuExecutable
from neptune_mlir.transforms.tiling.lower_to_tiles import FEWER
from support.chips.run_kernels import Simulated
from support.often import often

INPUTS = Path(__file__).parents[2] / "inputs"
CHIPS = ["sm_80", "sm_90a", "gfx942", "gfx1100"]
NAMES = ["argmax_used", "convolution", "running_sum", "lookup_attention_argmax"]
LEFT = {name: (INPUTS / f"{name}.mlir").read_text() for name in NAMES}

# with run-time extents
DYNAMIC = {
    "argmax": """
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @argmax(%x: tensor<?x?xf32>) -> tensor<?xi64> {
  %zero = arith.constant 0 : i64
  %ninf = arith.constant 0xFF800000 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %e1 = tensor.empty(%n) : tensor<?xf32>
  %e2 = tensor.empty(%n) : tensor<?xi64>
  %mf = linalg.fill ins(%ninf : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %af = linalg.fill ins(%zero : i64) outs(%e2 : tensor<?xi64>) -> tensor<?xi64>
  %r:2 = linalg.generic {indexing_maps = [#id, #row, #row],
      iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%mf, %af : tensor<?xf32>, tensor<?xi64>) {
  ^bb0(%a: f32, %m: f32, %k: i64):
    %j = linalg.index 1 : index
    %ji = arith.index_cast %j : index to i64
    %m2 = arith.maximumf %a, %m : f32
    %gt = arith.cmpf ogt, %a, %m : f32
    %k2 = arith.select %gt, %ji, %k : i64
    linalg.yield %m2, %k2 : f32, i64
  } -> (tensor<?xf32>, tensor<?xi64>)
  return %r#1 : tensor<?xi64>
}
""",
    "embedding": """
func.func @embedding(%table: tensor<?x?xf32>, %ids: tensor<?xi64>, %last: index)
    -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %ids, %c0 : tensor<?xi64>
  %d = tensor.dim %table, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%n, %d) : tensor<?x?xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(n, d) -> (n)>, affine_map<(n, d) -> (n, d)>],
      iterator_types = ["parallel", "parallel"]} ins(%ids : tensor<?xi64>)
      outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: i64, %u: f32):
    %j = linalg.index 1 : index
    %i = arith.index_cast %a : i64 to index
    %rows = tensor.dim %table, %c0 : tensor<?x?xf32>
    %inside = arith.cmpi slt, %i, %rows : index
    %v = scf.if %inside -> (f32) {
      %w = tensor.extract %table[%i, %j] : tensor<?x?xf32>
      scf.yield %w : f32
    } else {
      %w = tensor.extract %table[%last, %j] : tensor<?x?xf32>
      scf.yield %w : f32
    }
    linalg.yield %v : f32
  } -> tensor<?x?xf32>
  return %x : tensor<?x?xf32>
}
""",
    "convolution": """
func.func @conv(%x: tensor<2x?x?x3xf32>, %w: tensor<3x2x3x4xf32>, %h: index, %v: index)
    -> tensor<2x?x?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%h, %v) : tensor<2x?x?x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x?x?x4xf32>) -> tensor<2x?x?x4xf32>
  %y = linalg.conv_2d_nhwc_hwcf {strides = dense<[2, 1]> : tensor<2xi64>,
      dilations = dense<[1, 2]> : tensor<2xi64>}
      ins(%x, %w : tensor<2x?x?x3xf32>, tensor<3x2x3x4xf32>)
      outs(%f : tensor<2x?x?x4xf32>) -> tensor<2x?x?x4xf32>
  return %y : tensor<2x?x?x4xf32>
}
""",
}

@pytest.mark.parametrize("path", often(sorted(INPUTS.glob("*.mlir"))), ids=lambda path: path.stem)
def test_every_input_has_kernels(path):
    """As many kernels as the file says, those of points where ops are left outside of nests, and
    nothing of the program outside of them: the plan launches each."""
    text = path.read_text()
    module, _ = compiler.lower_text(text, path.name, "gfx1100", None, "tile")
    code = rocdl.emit_tiles(module, "target", target="gfx1100")
    kernels = re.findall(r"gpu\.func @(\w+)", code)
    plan = gpu.plan_of(module)
    assert kernels == list(dict.fromkeys(launch.kernel for launch in plan.launches))
    always = [kernel for kernel in kernels if not kernel.endswith(FEWER)]  # other forms of a join
    assert len(always) == int(re.search(r"^// kernels: (\d+)", text, re.M)[1])
    points = [kernel for kernel in kernels if "_points_" in kernel]
    assert bool(points) == (path.stem in NAMES)
    assert not re.search(r'"?linalg\.|"?neptune\.(map|reduce|stream)|scf\.forall', code)


def draw(shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@cache
def on_cpu(text):
    """The program for this machine, whichever chip it is compared with."""
    bundle = compiler.compile_text(text, "test", "cpu", None, None)
    return bundle.plan, CpuExecutable(bundle)


def compare(text, target, arguments):
    """Run a program on the simulator and on the CPU; returns the names of its kernels."""
    module, _ = compiler.lower_text(text, "test", target, None, "tile")
    run = Simulated(module, target=target)
    got, wanted = run(*arguments), on_cpu(text)[1](*arguments)
    pairs = [(got, wanted)] if isinstance(got, np.ndarray) else zip(got, wanted, strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return [launch.kernel for launch in run.plan.launches]


@pytest.mark.first_of_each("name")
@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("name", LEFT)
def test_inputs(name, target):
    text = LEFT[name]
    kernels = compare(text, target, random_inputs(on_cpu(text)[0], 5))
    assert any("_points_" in kernel for kernel in kernels)
    assert len(kernels) == int(re.search(r"^// kernels: (\d+)", text, re.M)[1])


# more points than one block has threads
ARGUMENTS = {
    "argmax": [draw((300, 7))],
    "embedding": [draw((5, 37)), np.arange(11) % 7, 2],
    "convolution": [draw((2, 9, 11, 3)), draw((3, 2, 3, 4)), 4, 9],
}


@pytest.mark.first_of_each("name")
@pytest.mark.parametrize("target", CHIPS[::-1])
@pytest.mark.parametrize("name", DYNAMIC)
def test_run_time_extents(name, target):
    compare(DYNAMIC[name], target, ARGUMENTS[name])


@pytest.mark.parametrize("target", CHIPS)
def test_between_fused_kernels(target):
    """Two of them in sequence, a kernel of attention between."""
    arguments = [draw((11, 16)), np.arange(9) % 11, draw((21, 16)), draw((21, 16))[::-1].copy()]
    kernels = compare(LEFT["lookup_attention_argmax"], target, arguments)
    fused = [name for name in kernels if name in ("lookup_0", "lookup_1")]
    assert fused == ["lookup_0", "lookup_1"] and kernels[-1].startswith("lookup_points_")
    assert len(kernels) == 5


def test_machine_code():
    """An image for each chip, of every maker."""
    try:
        ptxas.find_ptxas()
    except ToolError:
        pytest.skip("no ptxas here")
    for text in LEFT.values():
        bundle = compiler.compile_text(text, "test", "sm_80,sm_90a,gfx942,gfx1100", None, None)
        assert [image["target"] for image in bundle.facts["images"]] == CHIPS
        for image in bundle.facts["images"]:
            points = [k for k in image["kernels"] if "_points_" in k]
            assert points and all(image["kernels"][k]["threads"] == 128 for k in points)
