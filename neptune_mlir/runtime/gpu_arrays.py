# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays on a GPU seen without a copy: torch tensors, DLPack, `__cuda_array_interface__` (which
AMD's libraries have, too).

A producer's protocol may name a stream on which the array becomes ready. DLPack's producer makes
the caller's stream wait for it; for `__cuda_array_interface__` we do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import (
    ArrayView,
    check_negated,
    contiguous,
    dlpack_errors,
    number_key,
    read_dlpack,
    torch_view,
)
from neptune_mlir.runtime.drivers.cuda import NVIDIA
from neptune_mlir.runtime.drivers.driver import Driver, Maker
from neptune_mlir.runtime.drivers.hip import AMD
from neptune_mlir.runtime.shards.in_two import ArraysInTwo

# bytes of an element by MLIR type
SIZES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8,
         "index": 8, "f8E4M3FN": 1, "ui8": 1, "ui16": 2, "ui32": 4, "ui64": 8}  # fmt: skip

_TYPESTR = {"f2": "f16", "f4": "f32", "f8": "f64", "b1": "i1", "i1": "i8", "i2": "i16",
            "i4": "i32", "i8": "i64", "u1": "ui8", "u2": "ui16", "u4": "ui32",
            "u8": "ui64", "V2": "bf16"}  # fmt: skip
_MAKERS = {kind: maker.name for maker in (NVIDIA, AMD) for kind in maker.dlpack}
_DEFAULT_STREAM = 1  # how `__cuda_array_interface__` spells the default stream, whose handle is 0

# `wait(producer)`: let the caller's stream wait for another
Wait = Callable[[int], None]


@dataclass(frozen=True)
class DeviceArray:
    """Contiguous elements at an address on a GPU. Whoever makes one keeps the memory alive, and
    orders its use."""

    address: int
    dtype: str
    shape: tuple[int, ...]


def glance(value: Any) -> tuple[Any, int | None] | None:
    """As `arrays.glance`, of arrays on a GPU; None where only `gpu_view` can say."""
    kind = type(value)
    if kind is float or kind is int:
        return number_key(value), None
    if kind is DeviceArray:
        return (value.dtype, value.shape), value.address
    torch = sys.modules.get("torch")
    if torch is None or not (kind is torch.Tensor or kind is torch.nn.Parameter):
        return None
    if not value.is_cuda or value.layout is not torch.strided or value.is_neg():
        return None
    return (value.dtype, value.shape, value.stride(), value.get_device()), value.data_ptr()


def gpu_view(
    value: Any, name: str, driver: Driver, stream: int | None, wait: Wait | None
) -> ArrayView:
    """The view of an array on a GPU, ready for use on `stream` (None: no work will follow).

    Raises:
        ArgumentError: not an array on a GPU, or of a type that no kernel takes.
    """
    if isinstance(value, ArraysInTwo):
        first, second = (gpu_view(x, name, driver, stream, wait) for x in value.arrays)
        return value.view(first, second, name)
    device = gpu_device(value, name, lambda: driver)
    if isinstance(value, DeviceArray):
        strides = contiguous(value.shape)
        return ArrayView(value.address, value.dtype, value.shape, strides, False, value, device)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        check_negated(value, name)
        return torch_view(value, name, device)
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value, name, device, stream, driver.maker)
    return _interface_view(value, name, device, wait)


def gpu_device(value: Any, name: str, driver: Callable[[], Driver]) -> int | None:
    """The number of the GPU that an array is on; None where it has no elements and does not say.

    Raises:
        ArgumentError: not an array on a GPU of the driver's maker.
    """
    if isinstance(value, ArraysInTwo):
        return gpu_device(value.arrays[0], name, driver)
    if isinstance(value, DeviceArray):
        return None if 0 in value.shape else driver().device_of(value.address)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if not value.is_cuda:
            raise ArgumentError(f"{name} is on {value.device}, not on a GPU", hint="call .cuda()")
        _check_maker(AMD.name if torch.version.hip else NVIDIA.name, name, driver())
        return int(value.get_device())
    if hasattr(value, "__dlpack_device__"):
        kind, device = value.__dlpack_device__()
        if int(kind) not in _MAKERS:
            place = getattr(value, "device", "the CPU")
            raise ArgumentError(f"{name} is on {place}, not on a GPU", hint="copy it there first")
        _check_maker(_MAKERS[int(kind)], name, driver())
        return int(device)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        raise ArgumentError(
            f"{name} is a {type(value).__name__}, not an array on a GPU",
            hint="pass an array of torch, CuPy or JAX, or one with __cuda_array_interface__",
        )
    return None if 0 in interface["shape"] else driver().device_of(interface["data"][0])


def _check_maker(maker: str, name: str, driver: Driver) -> None:
    if maker != driver.maker.name:
        raise ArgumentError(
            f"{name} is on a GPU of {maker}, and the code for {driver.maker.name} GPUs would run",
            hint="compile for the chip that the array is on, or copy the array",
        )


def _dlpack_view(
    value: Any, name: str, device: int | None, stream: int | None, maker: Maker
) -> ArrayView:
    ready = -1 if stream is None else stream or maker.default_stream  # -1: no waiting
    with dlpack_errors(name):
        found = read_dlpack(value, name, device, stream=ready)
    library = type(value).__module__.partition(".")[0]
    if library in ("jax", "jaxlib"):  # immutable, but lent without the flag that says so
        found = replace(found, readonly=True)
    return found


def _interface_view(value: Any, name: str, device: int | None, wait: Wait | None) -> ArrayView:
    interface = value.__cuda_array_interface__
    text = interface["typestr"]
    kind = _TYPESTR.get(text[1:])
    if kind is None or text[0] == ">" or interface.get("mask") is not None:
        raise ArgumentError(f"{name} has type {text}, which no kernel takes")
    shape, (address, readonly) = tuple(interface["shape"]), interface["data"]
    steps, size = interface.get("strides"), SIZES[kind]
    if steps is not None and any(s % size for s in steps):
        raise ArgumentError(f"{name} has elements that are not at whole element positions")
    strides = contiguous(shape) if steps is None else tuple(s // size for s in steps)
    producer = interface.get("stream")
    if producer is not None and wait is not None:
        wait(0 if producer == _DEFAULT_STREAM else producer)
    return ArrayView(address or 0, kind, shape, strides, bool(readonly), value, device)


def are_apart(one: ArrayView, other: ArrayView) -> bool:
    """Whether two arrays that reach over a common part of memory share no byte of it, as those
    that are interleaved."""
    work: Any = 10_000  # NumPy's stub knows two special values only
    try:
        return not np.shares_memory(one.numpy(), other.numpy(), max_work=work)
    except np.exceptions.TooHardError:
        return False


def repeats_elements(array: ArrayView) -> bool:
    """Whether two positions may be one element in memory, as in an expanded array."""
    if 0 in array.shape:
        return False
    reach = 0  # the farthest element of the dimensions seen so far, smallest stride first
    for stride, extent in sorted(
        (abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1
    ):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False
