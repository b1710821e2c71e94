# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays and array libraries that stand in for those of a GPU: device memory is NumPy's."""

from __future__ import annotations

import contextlib
import ctypes
from types import SimpleNamespace
from typing import ClassVar

import numpy as np

_TYPESTR = {"float16": "<f2", "float32": "<f4", "uint8": "|u1", "uint16": "<u2", "int32": "<i4",
            "int8": "|i1", "float64": "<f8", "int64": "<i8", "bool": "|b1"}  # fmt: skip


def memory(address, shape, strides, dtype):
    """The elements at an address of fake device memory; strides count elements."""
    flat = np.ctypeslib.as_array((ctypes.c_uint8 * (1 << 20)).from_address(address))
    size = np.dtype(dtype).itemsize
    return np.lib.stride_tricks.as_strided(
        flat.view(dtype), shape, [s * size for s in strides], writeable=True
    )


class FakeArray:
    """An array on a fake GPU, with `__cuda_array_interface__` alone."""

    living: ClassVar[list] = []

    def __init__(self, array, device=0, stream=None, readonly=False):
        self.array, self.device, self.stream, self.readonly = array, device, stream, readonly
        FakeArray.living.append(self)

    @property
    def address(self):
        return self.array.__array_interface__["data"][0]

    @property
    def shape(self):
        return self.array.shape

    def holds(self, address):
        low, high = np.lib.array_utils.byte_bounds(self.array)
        return low <= address < high

    def reshape(self, shape):
        return type(self)(self.array.reshape(shape), self.device)

    @property
    def __cuda_array_interface__(self):
        found = {
            "shape": self.array.shape, "strides": self.array.strides, "version": 3,
            "typestr": _TYPESTR[self.array.dtype.name], "data": (self.address, self.readonly),
        }  # fmt: skip
        if self.stream is not None:
            found["stream"] = self.stream
        return found


class FakeDlpack:
    """An array on a fake GPU that lends itself through DLPack; `streams` has what was asked,
    `where` is DLPack's kind of device."""

    def __init__(self, array, device=0, versioned=True, readonly=False, where=2):
        from neptune_mlir.runtime import arrays

        self.array, self.device, self.where, self.versioned = array, device, where, versioned
        self.streams = []
        rank = array.ndim
        self._shape = (ctypes.c_int64 * rank)(*array.shape)
        self._strides = (ctypes.c_int64 * rank)(*(s // array.itemsize for s in array.strides))
        self._managed = arrays._Versioned(major=1, flags=int(readonly))
        tensor = self._managed.tensor
        tensor.data = array.__array_interface__["data"][0]
        tensor.device.kind, tensor.device.number = where, device
        tensor.ndim, tensor.lanes = rank, 1
        tensor.code = {"f": 2, "i": 0, "u": 1}[array.dtype.kind]
        tensor.bits = 8 * array.itemsize
        tensor.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
        tensor.strides = ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64))

    def __dlpack_device__(self):
        return self.where, self.device

    def __dlpack__(self, *, stream=None, **named):
        if named and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        start = self._managed if self.versioned else self._managed.tensor
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self._name = name  # the capsule holds the pointer
        return make(ctypes.addressof(start), self._name, None)


class FakeTensor(FakeArray):
    """What the runtime uses of a torch tensor."""

    is_cuda, layout = True, "strided"

    def is_neg(self):
        return False

    @property
    def dtype(self):
        return f"torch.{self.array.dtype.name}"

    def get_device(self):
        return self.device

    def data_ptr(self):
        return self.address

    def stride(self):
        return tuple(s // self.array.itemsize for s in self.array.strides)


def aligned(shape, dtype, unit=256):
    """NumPy memory at a multiple of `unit` bytes."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(count + unit, np.uint8)
    start = -raw.__array_interface__["data"][0] % unit
    return raw[start : start + count].view(dtype).reshape(shape)


def fake_torch(current=77, hip=None):
    """A module `torch`; `made` lists what was allocated, with the stream it was for. `hip`: the
    version of ROCm that it was built for."""
    made = []
    state = SimpleNamespace(stream=current)

    @contextlib.contextmanager
    def on(stream):
        before, state.stream = state.stream, stream
        yield
        state.stream = before

    def empty(shape, dtype, device):
        made.append((tuple(shape), dtype, device, state.stream))
        return FakeTensor(aligned(shape, dtype), int(device.removeprefix("cuda:")))

    kinds = {name: name for name in ("float16", "float32", "int8")}
    return SimpleNamespace(
        Tensor=FakeTensor, empty=empty, made=made, version=SimpleNamespace(hip=hip), **kinds,
        strided="strided", device="{}:{}".format, nn=SimpleNamespace(Parameter=FakeTensor),
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: state.stream),
        cuda=SimpleNamespace(stream=on, ExternalStream=lambda handle, device: handle),
    )  # fmt: skip


class CupyArray(FakeArray):
    pass


def fake_cupy(current=55):
    made = []

    @contextlib.contextmanager
    def on(*place):
        made.append(place)
        yield

    def empty(shape, dtype):
        device = next(place for place in reversed(made) if isinstance(place[0], int))[0]
        return CupyArray(aligned(shape, dtype), device)

    cuda = SimpleNamespace(
        get_current_stream=lambda device: SimpleNamespace(ptr=current),
        Device=on, Stream=SimpleNamespace(from_external=on),
    )  # fmt: skip
    return SimpleNamespace(ndarray=CupyArray, empty=empty, cuda=cuda, made=made)
