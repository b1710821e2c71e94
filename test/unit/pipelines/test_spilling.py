# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What becomes of a program whose code keeps registers in memory: it gets smaller tiles."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from neptune_mlir import compiler, ops
from neptune_mlir.kernel import Source
from neptune_mlir.pipelines import nvvm


@pytest.mark.parametrize(
    ("spills", "best", "builds"),
    [([0], 0, 1), ([100, 0], 0, 2), ([100, 8, 0], 0, 3), ([8, 100, 16], 8, 3)],
)
def test_smaller_tiles(monkeypatch, spills, best, builds):
    tiles = []

    def compile_tiles(module, **_):
        kernel = {"spills": spills[len(tiles)]}
        tiles.append(str(module))
        facts = {"images": [{"kernels": {"k": kernel}}], "remarks": []}
        return SimpleNamespace(facts=facts)

    monkeypatch.setattr(nvvm, "compile_tiles", compile_tiles)
    text = Source.of(ops.operator("prefill_causal")).text
    bundle = compiler.compile_text(text, "test", "sm_80", None, None)
    assert compiler._spilled(bundle) == best
    assert len(tiles) == len(set(tiles)) == builds
