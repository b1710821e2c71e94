# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle of two kernels, z = x * a + y, for fake drivers: its plan, code and arrays for it."""

from __future__ import annotations

from ctypes import c_float, c_int32, c_int64, c_void_p

import numpy as np

from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Argument, Buffer, Launch, Plan
from support.chips.fake_gpu import FakeArray, aligned, memory

# by way of an intermediate array of x * a
ROWS = ["dim", 0, 0]
GRID = (["ceildiv", ROWS, 4],)
PLAN = Plan(
    "axpy",
    (
        Argument("tensor", "f16", (None, 8), "x"), Argument("tensor", "f16", (None, 8), "y"),
        Argument("scalar", "f32", (), "a"),
    ),
    ((ROWS, ["dim", 1, 0]),),
    (Buffer("f32", (ROWS, 8)), Buffer("f16", (ROWS, 8))),
    (
        Launch("scale", GRID, (["argument", 0], ["buffer", 0], ["value", "f32", ["argument", 2]],
                               ["value", "index", ROWS])),
        Launch("add", GRID, (["buffer", 0], ["argument", 1], ["buffer", 1],
                             ["value", "index", ROWS])),
    ),
    (["buffer", 1],),
)  # fmt: skip


def _scale(x, xs, tmp, ts, a, rows, programs):
    assert programs == -(-rows // 4)
    memory(tmp, (rows, 8), (ts, 1), "f4")[:] = memory(x, (rows, 8), (xs, 1), "f2") * np.float32(a)


def _add(tmp, ts, y, ys, z, zs, rows, programs):
    sums = memory(tmp, (rows, 8), (ts, 1), "f4") + memory(y, (rows, 8), (ys, 1), "f2")
    memory(z, (rows, 8), (zs, 1), "f2")[:] = sums


ARRAY = (c_void_p, c_int64)
KERNELS = {
    "scale": ((*ARRAY, *ARRAY, c_float, c_int32), _scale),
    "add": ((*ARRAY, *ARRAY, *ARRAY, c_int32), _add),
}
CHIPS = {"NVIDIA": ("sm_80", "sm_90a"), "AMD": ("gfx90a", "gfx942")}
DEVICES = {  # for the second chip, for the first, for none
    "NVIDIA": ((9, 0), (8, 6), (7, 5)),
    "AMD": ("gfx942:sramecc+:xnack-", "gfx90a:sramecc+:xnack-", "gfx1030"),
}
OWN_SHARED = {"NVIDIA": {}, "AMD": {"scale": 64}}  # AMD's code has its shared memory itself


def bundle_for(*chips):
    images = [
        {"target": chip, "offset": 4 * k, "size": 4, "kernels": {
            "scale": {"threads": 128, "shared": 64, "registers": 32, "spills": 0},
            "add": {"threads": 64, "shared": 0, "registers": 32, "spills": 0},
        }}
        for k, chip in enumerate(chips)
    ]  # fmt: skip
    facts = {"images": images, "alignment": [["argument", 0, 16], ["buffer", 1, 16]]}
    return Bundle(",".join(chips), PLAN, b"ampehopp"[: 4 * len(chips)], facts)


BUNDLE = bundle_for(*CHIPS["NVIDIA"])
FACTS = BUNDLE.facts


def numbers(rows, dtype="f2"):
    made = aligned((rows, 8), dtype)
    made[:] = np.random.default_rng(rows).standard_normal((rows, 8))
    return made


def arrays(rows=10, kind=FakeArray, **options):
    """x, y, an output and a workspace."""
    scratch = aligned(((rows * 32 + 255) // 256 * 256,), "u1")
    made = [numbers(rows), numbers(rows + 1)[:rows], aligned((rows, 8), "f2"), scratch]
    return [kind(a, **options) for a in made]
