# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code that is being made is not made a second time."""

from __future__ import annotations

import threading

import pytest

from neptune_mlir.codegen.nvidia import nvptx, ptxas
from neptune_mlir.codegen.nvidia.ptxas import Cubin
from neptune_mlir.dialects.context import parse
from neptune_mlir.pipelines import gpu, nvvm
from support.tile_programs import attention


def test_work_is_shared_while_it_is_held():
    done = []

    def work():
        done.append(0)
        return len(done)

    first, second = (gpu.background(work, "one") for _ in range(2))
    assert (first(), second()) == (1, 1)
    assert gpu.background(work, "other")() == 2
    assert [gpu.background(work)() for _ in range(2)] == [3, 4]
    del first, second
    assert gpu.background(work, "one")() == 5  # nobody held it any more


def test_errors_are_shared():
    def fails():
        raise ValueError("as it is")

    waiting = [gpu.background(fails, "it") for _ in range(2)]
    for wait in waiting:
        with pytest.raises(ValueError, match="as it is"):
            wait()


@pytest.mark.parametrize(("others", "times"), [("sm_80", 1), ("sm_86", 2)])
def test_images_of_the_same_code_are_assembled_once(monkeypatch, others, times):
    made, asked = [], threading.Event()

    def assemble(code, chip):
        asked.wait(60)
        made.append(chip.name)
        return Cubin(b"code", {}, (), "")

    monkeypatch.setattr(nvptx, "ptx", lambda code, _: code)
    monkeypatch.setattr(ptxas, "assemble_without_spills", assemble)
    monkeypatch.setattr(gpu, "describe", lambda *_: {})
    begun = [
        nvvm.begin_tiles(parse(attention(64, 64, 64)), target=target, entry=None, facts=None)
        for target in ("sm_80", others)
    ]
    asked.set()
    assert [one.finish().code for one in begun] == [b"code"] * 2
    assert len(made) == times
