# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products that sum over several axes, whose tiles at 16 points of one exceed shared memory. (The
factors have these axes in another order each: else they were one.)"""

import pytest

import neptune_mlir
from neptune_mlir.errors import OutOfMemory
from neptune_mlir.pipelines import nvvm, rocdl
from neptune_mlir.targets.chips import TARGETS
from neptune_mlir.targets.nvidia import nvidia

PROGRAM = """
#x = affine_map<(i, j, k, l, m) -> (i, k, l, m)>
#w = affine_map<(i, j, k, l, m) -> (j, l, k, m)>
#y = affine_map<(i, j, k, l, m) -> (i, j)>
#z = affine_map<(i, j) -> (i, j)>
func.func @classes(%x: tensor<4x16x5x5xf32>, %w: tensor<{n}x5x16x5xf32>) -> tensor<4x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x{n}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x{n}xf32>) -> tensor<4x{n}xf32>
  %y = linalg.generic {{
      indexing_maps = [#x, #w, #y],
      iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction"]}}
      ins(%x, %w : tensor<4x16x5x5xf32>, tensor<{n}x5x16x5xf32>)
      outs(%f : tensor<4x{n}xf32>) {{
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %q = arith.mulf %a, %b : f32
    %r = arith.addf %acc, %q : f32
    linalg.yield %r : f32
  }} -> tensor<4x{n}xf32>
  %z = linalg.generic {{indexing_maps = [#z, #z], iterator_types = ["parallel", "parallel"]}}
      ins(%y : tensor<4x{n}xf32>) outs(%e : tensor<4x{n}xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %r = arith.maximumf %a, %zero : f32
    linalg.yield %r : f32
  }} -> tensor<4x{n}xf32>
  return %z : tensor<4x{n}xf32>
}}
"""


def test_tiles_fit():
    bundle = neptune_mlir.compile(PROGRAM.format(n=120), target="sm_90a").bundle
    images = bundle.facts["images"]
    most = max(k["shared"] for image in images for k in image["kernels"].values())
    assert most <= nvidia("sm_90a").shared_block


@pytest.mark.parametrize("schedule", ["private", "ahead_private"])
def test_tiles_of_streams_in_chunks_fit_where_the_schedule_is_told_what_there_is(schedule):
    """A stream of 4 points is not cut, and one tile had all of it: 64 and 192 rows of 384."""
    text = PROGRAM.replace("5x16x5", "96x4x1").replace("16x5x5", "4x96x1")
    text = text.replace("tensor<4x", "tensor<64x").format(n=192)
    with pytest.raises(OutOfMemory, match="397312 bytes"):
        neptune_mlir.compile(text, target="sm_90a", schedule=schedule)
    room = nvidia("sm_90a").shared_block
    knobs = {"shared": room >> 10}
    bundle = neptune_mlir.compile(text, target="sm_90a", schedule=schedule, knobs=knobs).bundle
    kernels = [k for image in bundle.facts["images"] for k in image["kernels"].values()]
    assert 0 < max(k["shared"] for k in kernels) <= room


@pytest.mark.parametrize(("pipeline", "target"), [(nvvm, "sm_90a"), (rocdl, "gfx942")])
def test_the_last_resort_fits(pipeline, target, monkeypatch):
    """Reductions alone, whose factors are cut along what they sum over."""
    *_, last = pipeline.ways(target)
    monkeypatch.setattr(pipeline, "ways", lambda target: (last,))
    bundle = neptune_mlir.compile(PROGRAM.format(n=120), target=target).bundle
    assert bundle.facts["provenance"]["schedule"]["name"] == "unfused"
    kernels = [k for image in bundle.facts["images"] for k in image["kernels"].values()]
    assert len(kernels) == 2
    assert max(k["shared"] for k in kernels) <= TARGETS[target].shared_block
