# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which image a product behind a norm takes: one that computes the norm ahead, one in clusters."""

from __future__ import annotations

import re

import pytest

from neptune_mlir import ops
from neptune_mlir.codegen.nvidia import nvptx, ptxas
from neptune_mlir.codegen.nvidia.ptxas import Cubin, Figures
from neptune_mlir.driver import compiler
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from support import kept_code

KERNEL = re.compile(r"define ptx_kernel void @(\w+)")
COLS, OUT = 4864, 1024


@pytest.fixture(scope="module")
def bundle():
    """Of RMS norm and a product in bf16 (f16 stores its rows), as text nobody assembles."""
    def assembled(code, _):
        return Cubin(b"", {n: Figures(64, 0, 0, 0) for n in KERNEL.findall(code)}, (), "")

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(kept_code.ENVIRONMENT, raising=False)
        patch.setattr(nvptx, "ptx", lambda code, _: code)
        patch.setattr(ptxas, "assemble_without_spills", assembled)
        text = ops.rms_norm_matmul(cols=COLS, out=OUT, dtype="bf16").to_mlir()
        return compiler.compile_text(text, "norm", "sm_90a", None, None)


@pytest.mark.parametrize(
    ("rows", "kernels", "cluster"),
    [
        (4096, 1, 1),  # programs compute the factor
        (512, 2, 2),  # for longer than a kernel stores it, and programs share what they load
        (256, 2, 3),  # or blocks a sum
        (16, 2, 1),  # chunks, and their join
    ],
)
def test_by_the_number_of_rows(bundle, rows, kernels, cluster):
    shapes, taken = taken_for(bundle, rows)
    launches = [
        launch for launch in bundle.plan_of(taken).launches
        if all(evaluate(n, shapes, (), MULTIPROCESSORS) for n in launch.grid)
    ]  # fmt: skip
    assert len(launches) == kernels
    assert max(taken["kernels"][x.kernel].get("cluster", 1) for x in launches) == cluster


@pytest.mark.parametrize(("rows", "small"), [(16, True), (64, True), (96, False)])
def test_tiles_of_16_rows_where_these_are_few(bundle, rows, small):
    shapes, taken = taken_for(bundle, rows)
    _, *tiles = bundle.plan_of(taken).launches[0].grid
    counts = [evaluate(n, shapes, (), MULTIPROCESSORS) for n in tiles]
    assert (counts[:1] == [rows // 16]) == small


def taken_for(bundle, rows):
    shapes = [(rows, COLS), (COLS,), (COLS, OUT)]
    *_, taken = (
        image for image in bundle.facts["images"]
        if evaluate(image.get("when", 1), shapes, (), MULTIPROCESSORS)
    )  # fmt: skip
    return shapes, taken
