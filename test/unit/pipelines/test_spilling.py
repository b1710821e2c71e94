# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What becomes of a program whose code keeps registers in memory: it gets smaller tiles."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from neptune_mlir import ops
from neptune_mlir.dialects.program import streams
from neptune_mlir.driver import compiler, family
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import ToolError
from neptune_mlir.ir.bindings import ir
from neptune_mlir.pipelines import gpu, nvvm
from neptune_mlir.pipelines.gpu import Begun, Compiled
from neptune_mlir.transforms.schedule.tile import TILE_WORDS


@pytest.mark.parametrize(
    ("spills", "best", "builds"),
    [([0], 0, 1), ([100, 0], 0, 2), ([100, 8, 0], 0, 3), ([8, 100, 16], 8, 3)],
)
def test_smaller_tiles(monkeypatch, spills, best, builds):
    tiles = []

    def compile_tiles(module, **_):
        kernel = {"spills": spills[len(tiles)]}
        tiles.append(str(module))
        facts = {"images": [{"kernels": {"k": kernel}}], "remarks": [], "provenance": {}}
        made = SimpleNamespace(facts=facts)
        made.with_data = lambda data: made
        return made

    monkeypatch.setattr(nvvm, "compile_tiles", compile_tiles)
    text = Source.of(ops.operator("prefill_causal")).text
    bundle = compiler.compile_text(text, "test", "sm_80", None, None, cases=False)
    assert family.spilled(bundle) == best
    assert len(tiles) == len(set(tiles)) == builds


def test_ways_that_share_a_tile_program_compile_it_once(monkeypatch):
    """Each way has images for some calls, whose tiles are the same for all."""
    asked, made = [], []
    begin = gpu.begin_images

    def begin_images(module, *arguments, **named):
        asked.append(str(module))
        return begin(module, *arguments, **named)

    def begin_one(module, chip, entry):
        made.append(str(module))
        plan = gpu.sketch(module, chip.name, entry)
        kernels = {launch.kernel: {"spills": 8, "consumers": 0} for launch in plan.launches}
        return Begun(plan, lambda: Compiled(b"", kernels, plan, {}, [], []))

    monkeypatch.setattr(gpu, "begin_images", begin_images)
    monkeypatch.setattr(nvvm, "_begin_one", begin_one)
    text = Source.of(ops.operator("prefill_causal")).text
    bundle = compiler.compile_text(text, "test", "sm_80", None, None)
    assert family.spilled(bundle) > 0
    assert len(asked) > len(set(asked)) == len(made) == len(set(made))


BATCH_NORM = (Path(__file__).parents[2] / "inputs/torch_batch_norm.mlir").read_text()


@pytest.mark.first_of_each()
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "gfx942"])
def test_reductions_over_several_axes(chip):
    """Each of the axes is short; together they were more than threads can hold."""
    try:
        bundle = compiler.compile_text(BATCH_NORM, "batch_norm", chip, None, None)
    except ToolError:
        pytest.skip("no assembler here")
    assert family.spilled(bundle) == 0


@pytest.mark.parametrize("target", ["cpu", "sm_80", "gfx942"])
def test_tiles_of_images(target):
    """Statistics of 64 channels of 32 images: no tile holds whole ones."""
    text = BATCH_NORM.replace("8x6x5x7", "32x64x56x56").replace("1x6x1x1", "1x64x1x1")
    text = text.replace("tensor<6x", "tensor<64x").replace("[6, 1, 1]", "[64, 1, 1]")
    module, _ = compiler.lower_text(text, "images", target, None, "fused")
    (stream,) = streams(module)
    sizes = list(ir.DenseI64ArrayAttr(stream.operation.attributes["neptune.tile"]))
    elements = math.prod(n or whole for n, whole in zip(sizes, stream.domain, strict=True))
    assert elements <= TILE_WORDS[target != "cpu"]


@pytest.mark.nightly
def test_long_streams_are_worth_some_spilled_registers():
    """The tiles that the shipped table has for long streams of 8-bit floats are in the bundle."""
    text = Source.of(ops.e4m3_attention(head_dim=128, batch=1)).text
    try:
        bundle = compiler.compile_text(text, "test", "sm_90a", None, None)
    except ToolError:
        pytest.skip("no assembler here")
    assert 0 < family.spilled(bundle) <= family.SPILLED
