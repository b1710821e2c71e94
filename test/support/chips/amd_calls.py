# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of AMD bundles on a fake HIP, compared with what the launch plan says.

A kernel's parameters are read as HIP reads them: as many, and of such sizes, as the notes of its
machine code list. What they should be is worked out here from the plan as data.
"""

from __future__ import annotations

import ctypes
import math
import struct

import numpy as np

from neptune_mlir.codegen.amd import hsaco
from neptune_mlir.runtime.arrays import storage_dtype
from neptune_mlir.runtime.gpu import GpuExecutable
from neptune_mlir.runtime.plan import evaluate
from support.chips.fake_drivers import FakeGpu
from support.chips.fake_gpu import FakeArray, aligned

_WORDS = {8: ctypes.c_uint64, 4: ctypes.c_uint32, 2: ctypes.c_uint16, 1: ctypes.c_uint8}
UNITS = 200  # compute units of the fake GPU
_FORMS = {"index": "<i", "i64": "<q", "i32": "<i", "f32": "<f", "f64": "<d", "f16": "<e"}


def gpu_for(bundle, chip, features=":sramecc+:xnack-"):
    """A fake AMD GPU that runs the bundle's images for a chip, and their notes by kernel."""
    notes = {}
    for image in bundle.facts["images"]:
        if image["target"] == chip:
            code = bundle.code[image["offset"] : image["offset"] + image["size"]]
            notes |= hsaco.read_notes(code)[1]
    kernels = {
        name: ([_WORDS[size] for _, size, _ in note.arguments], None)
        for name, note in notes.items()
    }
    shared = {name: note.shared for name, note in notes.items()}
    return FakeGpu(kernels, "AMD", (chip + features,), shared, UNITS), notes


def check_call(bundle, chip, inputs):
    """Call a bundle on arrays and compare each launch with the plan; returns how many there were.

    Args:
        inputs: NumPy arrays and numbers, in the order of the plan's arguments.
    """
    gpu, notes = gpu_for(bundle, chip)
    run = GpuExecutable(bundle, gpu.driver)
    arguments = [_on_gpu(x, a) for x, a in zip(inputs, bundle.plan.arguments, strict=True)]
    needs = run.requirements(*arguments)
    out = [FakeArray(aligned(s, bits(t))) for s, t in needs.results]
    scratch = FakeArray(aligned((max(needs.workspace, 1),), "u1"))
    call = run.prepare(*arguments, out=out, workspace=scratch, stream=0x7F00_0000_1230)
    call()
    assert not gpu.failures, gpu.failures
    plan, image = call.image.plan, call.image.facts
    shapes = [x.shape if isinstance(x, FakeArray) else None for x in arguments]
    scalars = [None if isinstance(x, FakeArray) else x for x in arguments]
    places = Places(plan, arguments, out, scratch)
    launched = iter(gpu.launches)
    for launch in plan.launches:
        programs = math.prod(int(evaluate(e, shapes, scalars, UNITS)) for e in launch.grid)
        if not programs:
            continue
        got, note, facts = next(launched), notes[launch.kernel], image["kernels"][launch.kernel]
        assert (got.name, got.programs, got.stream) == (launch.kernel, programs, 0x7F00_0000_1230)
        assert got.threads == note.threads == facts["threads"]
        assert (got.shared, note.shared) == (0, facts["shared"])  # the code has its own
        assert note.kernarg == sum(note.arguments[-1][:2])  # no hidden arguments follow
        values = iter(got.values)
        for kind, *which in launch.operands:
            if kind == "value":
                packed = struct.pack(_FORMS[which[0]], evaluate(which[1], shapes, scalars, UNITS))
                assert next(values) == int.from_bytes(packed, "little")
            else:
                shape = plan.arguments[which[0]].shape if kind == "argument" else (
                    plan.buffers[which[0]].shape)  # fmt: skip
                strides = max(len(shape) - 1, 0)
                got_array = [next(values), *(next(values) for _ in range(strides))]
                places.check(kind, which[0], got_array, shapes, scalars)
        assert next(values, None) is None
    assert next(launched, None) is None
    return len(gpu.launches)


class Places:
    """Where the arrays of a plan are; those in the workspace are learned as they are met."""

    def __init__(self, plan, arguments, out, scratch):
        self.plan, self.scratch, self.inner = plan, scratch, {}
        self.known = {("argument", k): x for k, x in enumerate(arguments)}
        for reference, array in zip(plan.results, out, strict=True):
            self.known.setdefault(self.root(*reference), array)

    def root(self, kind, number):
        while kind == "buffer" and self.plan.buffers[number].of:
            kind, number = self.plan.buffers[number].of
        return kind, number

    def check(self, kind, number, got, shapes, scalars):
        """`got`: address and strides of an operand."""
        place, array = self.root(kind, number), self.known.get(self.root(kind, number))
        if array is not None and kind == "argument":
            strides = [s // array.array.itemsize for s in array.array.strides]
            assert got == [array.address, *strides[:-1]]
            return
        shape = self.plan.buffers[number].shape
        extents = [int(evaluate(e, shapes, scalars, UNITS)) for e in shape]
        rows = [math.prod(extents[k + 1 :]) for k in range(len(extents) - 1)]
        assert got[1:] == rows  # contiguous
        if array is not None:
            assert got[0] == array.address
            return
        size = math.prod(extents) * storage_dtype(self.plan.buffers[number].dtype).itemsize
        low, high = self.inner.setdefault(place, (got[0], got[0] + size))
        assert low == got[0] and low % 256 == 0
        start = self.scratch.address
        assert start <= low and high <= start + self.scratch.array.size
        for other, (first, last) in self.inner.items():
            assert other == place or high <= first or last <= low


def _on_gpu(value, argument):
    if argument.kind != "tensor":
        return np.asarray(value).item()
    array = np.asarray(value)
    if argument.dtype == "bf16":
        array = array.view(np.uint16)
    made = aligned(array.shape, array.dtype)
    made[...] = array
    return FakeArray(made)


def bits(dtype):
    """The NumPy type of an MLIR element type; 16 bits for bf16."""
    return np.dtype(np.uint16) if dtype == "bf16" else storage_dtype(dtype)
