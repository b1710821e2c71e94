# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images that count on aligned arrays where that for any call does not: which calls take them."""

from __future__ import annotations

from ctypes import c_int64, c_void_p

import numpy as np
import pytest

from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.gpu import GpuExecutable
from neptune_mlir.runtime.plan import Argument, Buffer, Launch, Plan
from support.chips.fake_drivers import FakeGpu
from support.chips.fake_gpu import FakeArray, aligned

SHAPE = (["dim", 0, 0], ["dim", 0, 1])
PLAN = Plan(
    "copy", (Argument("tensor", "f16", (None, None), "x"),), (), (Buffer("f16", SHAPE),),
    (Launch("copy", (SHAPE[0],), (["argument", 0], ["buffer", 0])),), (["buffer", 0],),
)  # fmt: skip
KERNEL = {"copy": {"threads": 32, "shared": 0, "registers": 8, "spills": 0}}
IMAGE = {"target": "sm_90a", "size": 4, "kernels": KERNEL}
STRICT = {**IMAGE, "offset": 4, "when": 1, "alignment": [["argument", 0, 16]]}
BUNDLE = Bundle(
    "sm_90a", PLAN, b"anyxrows", {"images": [{**IMAGE, "offset": 0}, STRICT], "alignment": []}
)
KERNELS = {"copy": ((c_void_p, c_int64, c_void_p, c_int64), lambda *values: None)}


@pytest.fixture(scope="module")
def run():
    return GpuExecutable(BUNDLE, FakeGpu(KERNELS).driver)


def f16(rows, columns):
    return aligned((rows, columns), "f2")


@pytest.mark.parametrize(
    "array, taken",
    [
        (f16(4, 16), True),
        (f16(4, 12), False),  # rows of 24 bytes
        (f16(4, 24)[:, :12], True),  # 48 bytes from row to row
        (f16(4, 24)[:, 2:14], False),  # begins in the middle
        (f16(1, 12), True),  # no row but the first
        (f16(0, 12), True),
        (np.broadcast_to(f16(1, 12), (4, 12)), True),  # all rows are one
    ],
)
def test_which_calls_take_the_image(run, array, taken):
    """And calls that differ in alignment alone do not share what was found."""
    out = FakeArray(f16(*array.shape))
    assert bool(run.prepare(FakeArray(array), out=out).image.when) == taken
    again = f16(array.shape[0], 16)
    assert run.prepare(FakeArray(again), out=FakeArray(f16(*again.shape))).image.when == 1
