# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles that get images when calls take them, on a fake driver."""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from dataclasses import replace

import pytest

from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.gpu import GpuExecutable
from neptune_mlir.runtime.plan import Argument, Buffer, Constant, Launch, Plan
from support.chips.fake_drivers import FakeGpu
from support.chips.fake_gpu import FakeArray, aligned

SHAPE = (["dim", 0, 0], ["dim", 0, 1])
TABLE = Constant("f16", (8,), "0" * 64, "table")
PLAN = Plan(
    "copy", (Argument("tensor", "f16", (None, None), "x"),), (), (Buffer("f16", SHAPE),),
    (Launch("copy", (SHAPE[0],), (["argument", 0], ["buffer", 0])),), (["buffer", 0],),
    constants=(TABLE,),
)  # fmt: skip
KERNEL = {"copy": {"threads": 32, "shared": 0, "registers": 8, "spills": 0}}
IMAGE = {"target": "sm_90a", "size": 4, "kernels": KERNEL}
KERNELS = {"copy": ((c_void_p, c_int64, c_void_p, c_int64), lambda *values: None)}
STREAM = 0x7F01_2345_6789
FEW, LONG = ["le", SHAPE[0], 4], ["le", 100, SHAPE[1]]


class Later:
    """Images for calls with few rows and with long ones; the second counts more."""

    def __init__(self):
        self.bundle = Bundle(
            "sm_90a", PLAN, b"any ", {"images": [{**IMAGE, "offset": 0}], "alignment": []},
            {TABLE.sha256: bytes(16)},
        )  # fmt: skip
        self.asked, self.target = [], "sm_90a"
        self.other = None  # what another thread does at the same time

    def grow(self, code, shapes, scalars, multiprocessors):
        self.asked.append((code, shapes[0]))
        (rows, columns), had = shapes[0], self.bundle.code
        if columns >= 100 and b"long" not in had:
            self._add(b"long", LONG, last=True)
        elif rows <= 4 and b"few " not in had and had[code:].startswith(b"any "):
            self._add(b"few ", FEW, last=False)
        if self.other:
            self.other()

    def _add(self, code, when, last):
        bundle = self.bundle
        place = {"target": self.target, "offset": len(bundle.code)}
        made = {**IMAGE, **place, "when": when, "alignment": []}
        first, *rest = bundle.facts["images"]
        images = [first, *rest, made] if last else [first, made, *rest]
        self.bundle = replace(
            bundle, code=bundle.code + code, facts={**bundle.facts, "images": images}
        )


@pytest.fixture
def later():
    return Later()


@pytest.fixture
def gpu():
    return FakeGpu(KERNELS)


@pytest.fixture
def run(gpu, later):
    return GpuExecutable(later.bundle, gpu.driver, later)


def call(run, rows, columns):
    x, out = (FakeArray(aligned((rows, columns), "f2")) for _ in range(2))
    run(x, out=out, stream=STREAM)


def codes(gpu):
    return [code for _, code in gpu.loads]


def when(run, rows, columns):
    x, out = (FakeArray(aligned((rows, columns), "f2")) for _ in range(2))
    return run.prepare(x, out=out, stream=STREAM).image.when


def test_a_call_gets_its_image_and_nothing_is_loaded_twice(run, gpu, later):
    call(run, 8, 16)
    assert codes(gpu) == [b"any "]
    call(run, 2, 16)
    call(run, 2, 200)
    call(run, 8, 200)
    assert codes(gpu) == [b"any ", b"few ", b"long"]
    assert len(gpu.stored) == 1  # the constant
    asked = len(later.asked)
    for rows, columns, wanted in ((8, 16, None), (2, 16, FEW), (2, 200, LONG), (8, 200, LONG)):
        assert when(run, rows, columns) == wanted
        call(run, rows, columns)
    assert codes(gpu) == [b"any ", b"few ", b"long"]
    assert len(later.asked) - asked <= 4  # once for each shape since the last image came


def test_a_later_image_counts_more(run, gpu):
    call(run, 2, 200)
    assert codes(gpu) == [b"any ", b"long"] and when(run, 2, 200) == LONG
    call(run, 2, 16)
    assert when(run, 2, 200) == LONG and when(run, 2, 16) == FEW


def test_the_image_for_any_call_may_come_later(gpu, later):
    """Where it is not there, a call that no image serves gets it, at once or behind a better one;
    so does one whose arrays lie in memory as no image of these takes them."""
    own = {**IMAGE, "offset": 0, "when": LONG, "alignment": [["argument", 0, 16]]}
    later.bundle = replace(
        later.bundle, code=b"long", facts={**later.bundle.facts, "images": [own]}
    )

    def grow(code, shapes, scalars, multiprocessors):
        later.asked.append(code)
        if code is None:
            later.bundle = later.bundle.adding(
                replace(later.bundle, code=b"any ", facts={"images": [{**IMAGE, "offset": 0}],
                                                           "alignment": []}), None
            )  # fmt: skip
            *rest, base = later.bundle.facts["images"]
            later.bundle.facts["images"][:] = [base, *rest]

    later.grow = grow
    run = GpuExecutable(later.bundle, gpu.driver, later)
    call(run, 8, 200)
    assert codes(gpu) == [b"long"] and later.asked == [0]
    call(run, 8, 16)
    assert codes(gpu) == [b"long", b"any "] and None in later.asked
    assert when(run, 8, 16) is None and when(run, 8, 200) == LONG
    gpu, later.bundle = FakeGpu(KERNELS), replace(
        later.bundle, code=b"long", facts={**later.bundle.facts, "images": [own]}
    )  # fmt: skip
    run = GpuExecutable(later.bundle, gpu.driver, later)
    odd = FakeArray(aligned((8, 201), "f2")[:, 1:])
    made = run.prepare(odd, out=FakeArray(aligned((8, 200), "f2")), stream=STREAM)
    assert made.image.when is None and codes(gpu) == [b"long", b"any "]


@pytest.mark.parametrize("maker", ["NVIDIA", "AMD"])
def test_a_capture_gets_its_image(maker, later):
    """Code and constants come while a graph is captured (the fake driver asks for the mode of
    capture that allows it), and the thread is in its own mode again."""
    chips = {"NVIDIA": ("sm_90a", (9, 0)), "AMD": ("gfx942", "gfx942")}
    target, device = chips[maker]
    gpu = FakeGpu(KERNELS, maker, [device])
    images = [{**IMAGE, "target": target, "offset": 0}]
    later.bundle = replace(
        later.bundle, target=target, facts={**later.bundle.facts, "images": images}
    )
    later.target = target
    run = GpuExecutable(later.bundle, gpu.driver, later)
    gpu.capturing, mode = STREAM, gpu.mode
    call(run, 2, 16)
    assert codes(gpu) == [b"any ", b"few "] and gpu.mode == mode
    assert when(run, 2, 16) == FEW


def test_another_thread_at_the_same_time(run, gpu, later):
    """It made the image while this call waited for its own."""

    def other():
        later.other = None
        call(run, 2, 200)

    later.other = other
    call(run, 2, 16)
    assert codes(gpu) == [b"any ", b"few ", b"long"]
    assert when(run, 2, 16) == FEW and when(run, 2, 200) == LONG


def test_each_device_gets_it():
    gpu, later = FakeGpu(KERNELS, devices=((9, 0), (9, 0))), Later()
    run = GpuExecutable(later.bundle, gpu.driver, later)
    for device in (0, 1):
        arrays = [FakeArray(aligned((2, 16), "f2"), device=device) for _ in range(2)]
        run(arrays[0], out=arrays[1])
    contexts = [gpu.context(device) for device in (0, 1)]
    first, second = ([code for c, code in gpu.loads if c == context] for context in contexts)
    assert first == second == [b"any ", b"few "]
