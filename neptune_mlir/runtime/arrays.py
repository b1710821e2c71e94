# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of other libraries seen without a copy: address, shape, strides and type.

`view` takes arrays in this machine's memory; `gpu_view`, in `gpu_arrays.py`, those on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neptune_mlir.errors import ArgumentError

# MLIR element type -> NumPy type that holds it
_STORAGE = {
    "f16": "float16", "bf16": "uint16", "f32": "float32", "f64": "float64", "i1": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "index": "int64",
    "f8E4M3FN": "uint8", "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
}  # fmt: skip
ELEMENT_TYPES = tuple(_STORAGE)  # what arrays of a call may be made of
# types that NumPy lacks: their names in other libraries, `ml_dtypes` one of them
_AS_BITS = {"bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn"}
_NAMES = {
    name: kind for kind, name in _STORAGE.items() if kind not in (*_AS_BITS, "index")
} | {name: kind for kind, name in _AS_BITS.items()}


@functools.cache
def storage_dtype(kind: str) -> np.dtype[Any]:
    """The NumPy type for an MLIR element type (those that NumPy lacks: the type of `ml_dtypes`,
    else unsigned bits)."""
    if kind in _AS_BITS:
        try:
            import ml_dtypes
        except ImportError:
            pass
        else:
            return np.dtype(getattr(ml_dtypes, _AS_BITS[kind]))
    return np.dtype(_STORAGE[kind])


@dataclass(frozen=True)
class Behind:
    """The second of two arrays that are one along dimension `dim`, where it begins there, and what
    of both is still on its way: positions from `low` to `high`. The word at address `word` counts
    the lanes of it that have come, or with `step` the positions of all lanes, from the last one
    down: so many, then the rest. A kernel waits for them `timeout` milliseconds. `last`: see
    `ArraysInTwo`."""

    view: ArrayView
    dim: int
    begin: int
    low: int = 0
    high: int = 0
    word: int = 0
    timeout: int = 0
    step: int = 0
    last: int = 0


@dataclass(frozen=True)
class ArrayView:
    """Memory of an array. Strides count elements; `owner` keeps the memory alive; `device` is the
    number of a GPU, or None. `behind`: the rest of an array that lies in two (`in_two`); address
    and strides are those of the first one then."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool
    owner: Any
    device: int | None = None
    behind: Behind | None = None

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

    def first(self) -> ArrayView:
        """The first array where it lies in two."""
        if self.behind is None:
            return self
        shape, dim = list(self.shape), self.behind.dim
        shape[dim] = self.behind.begin
        return replace(self, shape=tuple(shape), behind=None)

    def span(self) -> tuple[int, int]:
        """The addresses of the first and past the last byte that the array touches."""
        if 0 in self.shape:
            return self.address, self.address
        low, high = 0, 1
        for extent, stride in zip(self.first().shape, self.strides, strict=True):
            if stride < 0:
                low += (extent - 1) * stride
            else:
                high += (extent - 1) * stride
        size = storage_dtype(self.dtype).itemsize
        return self.address + low * size, self.address + high * size


def unwritten(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """New memory, for a kernel to write all of it."""
    return np.empty(shape, storage_dtype(dtype))


def elements(raw: bytes, dtype: str, shape: tuple[int, ...]) -> ArrayView:
    """Bytes as a read-only array of a type and a shape."""
    memory = np.frombuffer(raw, np.uint8)
    address = memory.__array_interface__["data"][0]
    return ArrayView(address, dtype, shape, contiguous(shape), True, memory)


def view(value: Any, name: str) -> ArrayView:
    """The view of a NumPy array or of anything with DLPack.

    Raises:
        ArgumentError: not an array in this machine's memory.
    """
    if isinstance(value, np.ndarray):
        return _numpy(value, name)
    torch = sys.modules.get("torch")
    if torch is not None and _is_plain(torch, value):
        return torch_view(value, name, None)
    if hasattr(value, "__dlpack__"):
        return _dlpack(value, name)
    if isinstance(value, (list, tuple, int, float, np.generic)):
        return _numpy(np.asarray(value), name)
    raise ArgumentError(
        f"{name} is a {type(value).__name__}, not an array",
        hint="pass a NumPy array or an object with __dlpack__",
    )


def _interface_address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _header_address(array: np.ndarray[Any, Any]) -> int:
    return ctypes.c_void_p.from_address(id(array) + object.__basicsize__).value or 0


def _choose_address() -> Callable[[np.ndarray[Any, Any]], int]:
    """`PyArrayObject` of NumPy's ABI begins with the address, and to read it there takes a seventh
    of the time of `__array_interface__`, which makes a dictionary. Asked of an array first."""
    probe = np.zeros(3)[1:]
    if sys.implementation.name == "cpython" and _header_address(probe) == _interface_address(probe):
        return _header_address
    return _interface_address


address_of = _choose_address()  # where the first element of a NumPy array lies


def number_key(value: Any) -> Any:
    """A number as a part of a key: True, 1 and 1.0 differ, and so do 0.0 and -0.0."""
    return (type(value), value, str(value)) if value == 0 else (type(value), value)


def glance(value: Any) -> tuple[Any, int | None] | None:
    """What of an argument decides how a call goes (to be hashed), and the address of an array; None
    where only `view` can say. A fifth of its time."""
    kind = type(value)
    if kind is np.ndarray:
        address = address_of(value)
        if not value.itemsize or address % value.itemsize:
            return None
        return (value.dtype, value.shape, value.strides, value.flags.writeable), address
    if kind is float or kind is int:
        return number_key(value), None
    torch = sys.modules.get("torch")
    if torch is not None and _is_plain(torch, value):
        return (value.dtype, value.shape, value.stride()), value.data_ptr()
    return None


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Whether this is a tensor whose memory says all: asking DLPack for the rest takes ten times as
    long."""
    kind = type(tensor)
    return (
        (kind is torch.Tensor or kind is torch.nn.Parameter)
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_neg() or tensor.is_conj())
    )


_TORCH_NAMES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
                "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
                "float8_e4m3fn": "f8E4M3FN",
                "uint8": "ui8", "uint16": "ui16", "uint32": "ui32", "uint64": "ui64"}  # fmt: skip
_torch_types: dict[Any, str] = {}  # torch.dtype -> MLIR type, filled on first use


def torch_view(value: Any, name: str, device: int | None) -> ArrayView:
    """The view of a torch tensor; `device` is its GPU, or None. Raises ArgumentError for a type
    that no kernel takes."""
    kind = _torch_types.get(value.dtype) or _torch_type(value.dtype)
    if kind is None:
        raise ArgumentError(f"{name} has type {value.dtype}, which no kernel takes")
    return ArrayView(
        value.data_ptr(), kind, tuple(value.shape), value.stride(), False, value, device
    )


def _torch_type(dtype: Any) -> str | None:
    kind = _TORCH_NAMES.get(str(dtype).removeprefix("torch."))
    if kind is not None:
        _torch_types[dtype] = kind
    return kind


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


class DLTensor(ctypes.Structure):
    """That of DLPack's C header."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_CODES = {0: "i", 1: "ui", 2: "f", 4: "bf"}  # DLDataTypeCode
_WHOLE = {6: "i1", 10: "f8E4M3FN"}  # those that have one width
_HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost

_capsule_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype = ctypes.c_void_p
capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of DLPack 1.0."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", DLTensor),
    )  # fmt: skip


_READ_ONLY = 1  # of _Versioned.flags


def check_negated(value: Any, name: str) -> None:
    """Refuse a torch tensor whose memory holds the numbers with the other sign, which DLPack does
    not say. Raises ArgumentError."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.is_neg():
        raise ArgumentError(f"{name} is negated lazily", hint="pass x.resolve_neg()")


def _dlpack(value: Any, name: str) -> ArrayView:
    check_negated(value, name)
    with dlpack_errors(name):
        if int(value.__dlpack_device__()[0]) not in _HOST_DEVICES:
            raise ArgumentError(
                f"{name} is not in this machine's memory", hint="copy it to the CPU first"
            )
        return read_dlpack(value, name)


@contextlib.contextmanager
def dlpack_errors(name: str) -> Iterator[None]:
    """What an array raises when it cannot be lent becomes an ArgumentError."""
    try:
        yield
    except ArgumentError:
        raise
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(f"{name} gives no DLPack view: {error}") from None


def read_dlpack(value: Any, name: str, device: int | None = None, **named: Any) -> ArrayView:
    """The view of an array that `__dlpack__` lends; `named` goes to it. Raises ArgumentError."""
    try:
        capsule = value.__dlpack__(max_version=(1, 0), **named)
    except TypeError:  # from before DLPack 1.0
        capsule = value.__dlpack__(**named)
    readonly = False
    if _capsule_is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
        tensor, readonly = managed.tensor, bool(managed.flags & _READ_ONLY)
    else:
        tensor = DLTensor.from_address(capsule_pointer(capsule, b"dltensor"))
    kind = f"{_CODES.get(tensor.code, '?')}{tensor.bits}"
    kind = _WHOLE.get(tensor.code, kind)
    if kind not in _STORAGE or tensor.lanes != 1:
        raise ArgumentError(f"{name} has a DLPack type that no kernel takes")
    shape = tuple(tensor.shape[d] for d in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[d] for d in range(tensor.ndim))
    else:
        strides = contiguous(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return ArrayView(address, kind, shape, strides, readonly, (value, capsule), device)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(shape[d + 1], 1)
    return tuple(strides)


def reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The strides with which the same memory has another shape of as many elements; None where
    it would have to be copied."""
    if 0 in shape:
        return contiguous(new)
    # runs of dimensions that are one in memory: [elements, stride of the innermost]
    runs: list[list[int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == extent * stride:
            runs[-1] = [runs[-1][0] * extent, stride]
        else:
            runs.append([extent, stride])
    found: list[int] = []
    left, stride = 1, 1  # of the run being cut, from the inside
    for extent in reversed(new):
        if extent == 1:
            found.insert(0, stride)
            continue
        if left == 1:
            left, stride = runs.pop()
        if left % extent:
            return None
        found.insert(0, stride)
        left, stride = left // extent, stride * extent
    return tuple(found)
