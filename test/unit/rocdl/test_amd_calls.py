# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of AMD bundles on a fake HIP: each launch gets what the plan says and the code expects."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest

from neptune_mlir import ops, zoo
from neptune_mlir.codegen.amd import amdgcn
from neptune_mlir.errors import ToolError
from neptune_mlir.runtime import gpu
from neptune_mlir.runtime.parameters import parameters
from support import ten_operators as ten
from support.chips import amd_calls
from support.chips.emulator import compiled

try:
    amdgcn.find_linker()
except ToolError:
    pytest.skip("no lld here", allow_module_level=True)

CHIPS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


@functools.cache
def made(example, chip):
    return compiled(example.build(), chip)


def check(example, chip):
    inputs = list(example.inputs(np.random.default_rng(0)))
    assert amd_calls.check_call(made(example, chip), chip, inputs) > 0


@pytest.mark.parametrize("example", zoo.ZOO[::9], ids=lambda e: e.name)
def test_a_few_of_the_zoo(example):
    check(example, "gfx942")


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("example", zoo.ZOO, ids=lambda e: e.name)
def test_zoo(example, chip):
    check(example, chip)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", ops.OPERATORS)
def test_the_ten_operators(name, chip):
    """With few heads; test_amd_compile.py has those of real size."""
    bundle = compiled(ten.small(name, head_dim=64), chip)
    for length in (1, 64, 197):
        assert amd_calls.check_call(bundle, chip, ten.inputs(name, length, 64)) > 0


WRONG = {
    "order": lambda made: [made[1], made[0], *made[2:]],
    # (what the driver reads behind the last parameter is memory of its own, not of somebody else)
    "one left out": lambda made: [*made[1:], ctypes.c_uint64(0)],
    "another address": lambda made: [ctypes.c_void_p(made[0].value + 16), *made[1:]],
    "another stride": lambda made: [made[0], ctypes.c_int64(made[1].value + 1), *made[2:]],
    "another extent": lambda made: [*made[:-1], ctypes.c_int32(made[-1].value + 1)],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_parameters_are_seen(monkeypatch, name):
    change = WRONG[name]
    monkeypatch.setattr(gpu, "parameters", lambda *given: change(parameters(*given)))
    with pytest.raises((AssertionError, ToolError)):
        check(zoo.ZOO[0], "gfx942")
