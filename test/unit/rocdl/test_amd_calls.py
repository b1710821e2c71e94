# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of AMD bundles on a fake HIP: each launch gets what the plan says and the code expects, and
the code uses no scratch memory."""

from __future__ import annotations

import ctypes
import functools

import pytest

from neptune_mlir.codegen.amd import amdgcn, hsaco
from neptune_mlir.errors import ToolError
from neptune_mlir.runtime import gpu
from neptune_mlir.runtime.parameters import parameters
from support.amd_programs import CHIPS, every_program
from support.chips import amd_calls
from support.chips.emulator import compiled

try:
    amdgcn.find_linker()
except ToolError:
    pytest.skip("no lld here", allow_module_level=True)


@functools.cache
def made(name, chip, numerics):
    case = PROGRAMS[name]()
    return compiled(case.program, chip, numerics), case.inputs


def check(name, chip, numerics="default"):
    bundle, inputs = made(name, chip, numerics)
    assert amd_calls.check_call(bundle, chip, inputs) > 0
    for image in bundle.facts["images"]:
        code = bundle.code[image["offset"] : image["offset"] + image["size"]]
        for kernel, found in hsaco.read_notes(code)[1].items():
            assert found.scratch == 0, kernel
            assert found.spills == 0 or name in MAY_SPILL, kernel


PROGRAMS = every_program()
# Some keep scalar registers in lanes of vector registers, which is no memory: where a lane has all
# 16 rows of a tile, an offset of 64 bits and a condition for each row (two_level_softmax: 62 on
# gfx1201); others put arguments away during a loop that does not use them (the backward pass of
# attention: 5 on gfx942). docs/notebook/amd.md has all that do.
MAY_SPILL = {n for n in PROGRAMS if n.startswith(("gradient", "serving", "zoo", "backward"))}
# tables, numbers that the program finds, results that a later launch reads; products that once
# spilled scalar registers on every chip; a gradient that is summed over three axes at once, whose
# tiles take shared memory by the product of three extents; one with a sum of what it computes of
# five arrays, whose tiles waves of 32 have no registers for
CHOSEN = {
    "zoo: softmax": "gfx942",
    "serving: paged decode": "gfx950",
    "serving: latent decode": "gfx90a",
    "backward: attention, grouped": "gfx942",
    "rms norm matmul": "gfx1100",
    "gradient: attention_alibi": "gfx942",
    "gradient: linear_cross_entropy": "gfx1100",
}


# Whether what it fuses is accurate is asked for half a minute, of any target: `test_every_program`
# asks, and has the same code.
UNASKED = {"gradient: attention_alibi"}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_few_programs(name):
    check(name, CHOSEN[name], "fast" if name in UNASKED else "default")


@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program(name, chip):
    """test_amd_compile.py has the operators of real size."""
    check(name, chip)


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
        check("zoo: softmax", "gfx942")
