# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of other libraries seen without a copy: address, shape, strides and type."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir.errors import ArgumentError

# MLIR element type -> NumPy type that holds it
_STORAGE = {
    "f16": "float16", "bf16": "uint16", "f32": "float32", "f64": "float64", "i1": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "index": "int64",
    "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
}  # fmt: skip
_NAMES = {name: kind for kind, name in _STORAGE.items() if kind not in ("bf16", "index")} | {
    "bfloat16": "bf16"
}


def storage_dtype(kind: str) -> np.dtype[Any]:
    """The NumPy type for an MLIR element type (bf16: `ml_dtypes.bfloat16`, else its bits)."""
    if kind == "bf16":
        try:
            import ml_dtypes
        except ImportError:
            pass
        else:
            return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(_STORAGE[kind])


@dataclass(frozen=True)
class ArrayView:
    """Memory of an array. Strides count elements; `owner` keeps the memory alive."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool
    owner: Any

    def descriptor(self) -> ctypes.Array[ctypes.c_int64]:
        """MLIR's memref descriptor: allocated, aligned, offset, sizes, strides."""
        fields = (self.address, self.address, 0, *self.shape, *self.strides)
        return (ctypes.c_int64 * len(fields))(*fields)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A NumPy array over the same memory."""
        kind = storage_dtype(self.dtype)
        low, high = self.span()
        memory: Any = (ctypes.c_uint8 * (high - low)).from_address(low) if high > low else b""
        strides = tuple(s * kind.itemsize for s in self.strides)
        return np.ndarray(self.shape, kind, memory, self.address - low, strides)

    def span(self) -> tuple[int, int]:
        """The addresses of the first and past the last byte that the array touches."""
        if 0 in self.shape:
            return self.address, self.address
        size = storage_dtype(self.dtype).itemsize
        ends = [(n - 1) * s * size for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.address + sum(e for e in ends if e < 0)
        return low, self.address + sum(e for e in ends if e > 0) + size


def view(value: Any, name: str) -> ArrayView:
    """The view of a NumPy array or of anything with DLPack.

    Raises:
        ArgumentError: not an array in this machine's memory.
    """
    if isinstance(value, np.ndarray):
        return _numpy(value, name)
    if hasattr(value, "__dlpack__"):
        return _dlpack(value, name)
    if isinstance(value, (list, tuple, int, float, np.generic)):
        return _numpy(np.asarray(value), name)
    raise ArgumentError(
        f"{name} is a {type(value).__name__}, not an array",
        hint="pass a NumPy array or an object with __dlpack__",
    )


def _numpy(array: np.ndarray[Any, Any], name: str) -> ArrayView:
    kind = _NAMES.get(array.dtype.name)
    if kind is None or not array.dtype.isnative:
        raise ArgumentError(f"{name} has type {array.dtype}, which no kernel takes")
    size = array.dtype.itemsize
    address = array.__array_interface__["data"][0]
    if any(s % size for s in array.strides) or address % size:
        array = np.array(array)  # fields of records and the like: not at element positions
        address = array.__array_interface__["data"][0]
    strides = tuple(s // size for s in array.strides)
    return ArrayView(address, kind, array.shape, strides, not array.flags.writeable, array)


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Tensor(ctypes.Structure):
    """DLTensor of DLPack's C header."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_CODES = {0: "i", 1: "ui", 2: "f", 4: "bf", 6: "i"}  # DLDataTypeCode; 6 is bool
_HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _dlpack(value: Any, name: str) -> ArrayView:
    try:
        device = value.__dlpack_device__()
        if int(device[0]) not in _HOST_DEVICES:
            raise ArgumentError(
                f"{name} is not in this machine's memory", hint="copy it to the CPU first"
            )
        capsule = value.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"{name} gives no DLPack view: {error}") from None
    tensor = _Tensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    kind = f"{_CODES.get(tensor.code, '?')}{tensor.bits}"
    kind = "i1" if tensor.code == 6 else kind
    if kind not in _STORAGE or tensor.lanes != 1:
        raise ArgumentError(f"{name} has a DLPack type that no kernel takes")
    shape = tuple(tensor.shape[d] for d in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[d] for d in range(tensor.ndim))
    else:
        strides = contiguous(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return ArrayView(address, kind, shape, strides, False, (value, capsule))


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(shape[d + 1], 1)
    return tuple(strides)
