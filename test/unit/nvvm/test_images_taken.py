# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every image of a bundle costs its compilation, so each is taken by some call."""

from __future__ import annotations

import itertools
import re

import pytest

from neptune_mlir import ops
from neptune_mlir.codegen.nvidia import nvptx, ptxas
from neptune_mlir.codegen.nvidia.ptxas import Cubin, Figures
from neptune_mlir.driver import compiler
from neptune_mlir.pipelines.all_lengths import leave_none
from neptune_mlir.pipelines.cases import Case
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from support import kept_code

ROWS = (1, 16, 100, 200, 1000, 5000)
# on both sides of each limit between tiles, with rows of whole chunks and others
COLS = sorted({n + d for n in (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192,
                               12288, 16384, 1 << 15) for d in (-16, -1, 1, 16)})  # fmt: skip
KERNEL = re.compile(r"define ptx_kernel void @(\w+)")


@pytest.fixture
def not_assembled(monkeypatch):
    def assembled(code, _):
        return Cubin(b"", {n: Figures(64, 0, 0, 0) for n in KERNEL.findall(code)}, (), "")

    monkeypatch.delenv(kept_code.ENVIRONMENT, raising=False)
    monkeypatch.setattr(nvptx, "ptx", lambda code, _: code)
    monkeypatch.setattr(ptxas, "assemble_without_spills", assembled)


@pytest.mark.first_of_each()
@pytest.mark.usefixtures("not_assembled")
@pytest.mark.parametrize(("name", "vectors", "most"), [
    ("softmax", 0, 30), ("layer_norm", 2, 27), ("logsumexp", 0, 35),
])  # fmt: skip
def test_each_image_is_taken(name, vectors, most):
    text = getattr(ops, name)().to_mlir()
    images = compiler.compile_text(text, name, "sm_90a", None, None).facts["images"]
    assert len(images) <= most
    taken = set()
    for rows, cols in itertools.product(ROWS, COLS):
        shapes = [(rows, cols), *[(cols,)] * vectors]
        found = [evaluate(i.get("when", 1), shapes, [], MULTIPROCESSORS) for i in images]
        taken.add(max(k for k, serves in enumerate(found) if serves))
    left = set(range(len(images))) - taken
    assert not left


LENGTH = ("dim", 0, 1)


def case(low=None, high=None, what=LENGTH, **more):
    condition = ["le", low, [*what]] if high is None else ["le", [*what], high]
    return Case("", condition, **more)


def test_when_no_call_is_left():
    assert leave_none([case(512), case(3072), case(high=256), case(high=511)])
    assert not leave_none([case(513), case(high=511)])  # 512 is left
    between = Case("", ["and", ["lt", 511, [*LENGTH]], ["le", [*LENGTH], 600]])
    assert leave_none([case(601), between, case(high=511)])
    assert not leave_none([case(602), between, case(high=511)])
    few = Case("", ["and", ["lt", 511, [*LENGTH]], ["le", ["dim", 0, 0], 600]])  # not all of these
    assert not leave_none([case(601), few, case(high=511)])
    assert not leave_none([case(high=511), case(512)])  # the first is for short ones
    assert not leave_none([case(512), case(high=511, what=("dim", 1, 0))])  # other lengths
    assert not leave_none([case(512), case(high=511, schedule="private")])  # a guess
    assert not leave_none([])
