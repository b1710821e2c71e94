# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks of rows that end between chunks of 16 bytes: one condition for the elements of a chunk."""

from __future__ import annotations

import re

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.analysis.layouts import parse
from neptune_mlir.pipelines import nvvm
from neptune_mlir.pipelines.lowering import RaisedProgram
from support.chips.run_kernels import Simulated
from support.variants import Variants


def kernel(name, cols=None, knob=""):
    """Of rows of a known length, or of those whose whole chunks only a call knows."""
    program = getattr(ops, name)(dtype="f16", **({"cols": cols} if cols else {}))
    raised = RaisedProgram(program.to_mlir(), name)
    if not cols:
        raised, _ = raised.of_chunks()
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")[-2:-1]))
    found = Variants(raised, base, "sm_90a")[knob]
    return program, Simulated(found.module, target="sm_90a")


def check(program, run, *given):
    wanted = program.reference(*(x.astype(float) for x in given))
    assert np.linalg.norm(run(*given) - wanted) <= 2e-3 * np.linalg.norm(wanted)


def f16(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float16)


def comparisons(run):
    return len(re.findall(r"arith\.cmpi", str(run.module)))


def test_of_a_known_length():
    """568 elements are 71 chunks on 32 lanes: of three a lane the last one may not exist. Squares
    that may not exist are added in one operation, like others."""
    program, run = kernel("layer_norm", 568)
    check(program, run, f16(5, 568), f16(568), f16(568))
    assert comparisons(run) <= 4  # 8 neighbours had a condition each
    assert str(run.module).count("fma") >= 20 + 24


@pytest.mark.parametrize("length", [1032, 1528])
def test_of_a_length_that_a_call_knows(length):
    program, run = kernel("softmax", knob="most:1536")
    check(program, run, f16(3, length))
    assert comparisons(run) <= 8  # of 24 elements a thread


def test_registers_that_lie_outside_in_the_same_threads():
    layout = parse("reg[0:8*1 0:3*256] lane[0:32*8] warp[]", (568,))
    assert layout.partial_like([0]) == dict.fromkeys(range(16, 24), 16)
    odd = parse("reg[0:8*1 0:3*256] lane[0:32*8] warp[]", (570,))
    assert set(odd.partial_like([0]).values()) == {16, 18}
    assert layout.chunk_along(0) == 8
    assert parse("reg[0:8*1] lane[0:32*12] warp[]", (384,)).chunk_along(0) == 4
