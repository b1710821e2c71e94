# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the runtime asks of the library that the caller's arrays come from: the stream that it
works on, and arrays for results. Nothing is imported that the caller has not imported."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import contiguous

# MLIR element type -> name of the type in torch and CuPy
_NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i1": "bool",
          "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
          "f8E4M3FN": "float8_e4m3fn"}  # fmt: skip


class Library:
    """No library that we know: the default stream, and no memory."""

    allocates = False
    address: Callable[[Any], int]  # where an array that `empty` made lies

    def __init__(self, current_stream: Callable[[int], int] = lambda device: 0):
        # the handle of the stream that the library works on now, by device
        self.current_stream = current_stream
        # the device that the library works on now; -1 where it does not say quickly
        self.current_device: Callable[[], int] = lambda: -1

    def empty(self, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> Any:
        """A new array, for use on `stream`. Raises ArgumentError."""
        raise ArgumentError(
            "results need memory, and neither torch nor CuPy made the arguments",
            hint="pass out= (and workspace=, see requirements())",
        )

    def maker(
        self, shape: tuple[int, ...], dtype: str, device: int, order: Sequence[int] | None = None
    ) -> Callable[[int | None], Any]:
        """`empty` for one kind of array: a function of the stream (None: the library's own).

        Args:
            order: of the dimensions as the array is handed out; it lies in memory as `shape` says.
        """
        if order is not None:
            raise NotImplementedError

        def make(stream: int | None) -> Any:
            own = self.current_stream(device) if stream is None else stream
            return self.empty(shape, dtype, device, own)

        return make

    def quick_maker(
        self, shape: tuple[int, ...], dtype: str, order: Sequence[int] | None
    ) -> Callable[[], Any] | None:
        """`maker` on the library's own stream and current device, or None where it has no quicker
        way for that."""
        return None


class Torch(Library):
    allocates = True

    def __init__(self, torch: Any):
        self._torch = torch
        self._quick, where = _quick_of(torch)
        self.address = torch.Tensor.data_ptr
        # what torch's own compilers use: it makes no stream object
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        super().__init__(raw or (lambda d: torch.cuda.current_stream(d).cuda_stream))
        self.current_device = where or self.current_device

    def empty(self, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> Any:
        return self.maker(shape, dtype, device)(stream)

    def maker(
        self, shape: tuple[int, ...], dtype: str, device: int, order: Sequence[int] | None = None
    ) -> Callable[[int | None], Any]:
        torch, place = self._torch, self._torch.device("cuda", device)
        kind = getattr(torch, _NAMES[dtype])
        new = functools.partial(torch.empty, shape, dtype=kind, device=place)
        if order is not None:
            new = functools.partial(
                torch.empty_strided, *_laid_out(shape, order), dtype=kind, device=place
            )
        quick = self.quick_maker(shape, dtype, order)
        where = self.current_device

        def make(stream: int | None) -> Any:
            if stream is None or stream == self.current_stream(device):
                if quick and where() == device:
                    return quick()
                return new()
            with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=place)):
                return new()

        return make

    def quick_maker(
        self, shape: tuple[int, ...], dtype: str, order: Sequence[int] | None
    ) -> Callable[[], Any] | None:
        quick = self._quick
        kind = getattr(self._torch, _NAMES[dtype])
        return functools.partial(quick, *_laid_out(shape, order), kind) if quick else None


def _laid_out(
    shape: tuple[int, ...], order: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:  # fmt: skip
    """The shape and the strides of an array whose dimensions are handed out in an order."""
    steps = contiguous(shape)
    if order is None:
        return shape, steps
    return tuple(shape[k] for k in order), tuple(steps[k] for k in order)


def _quick_of(torch: Any) -> tuple[Any, Any]:
    """What torch's own compilers make arrays by: of a shape, strides and a type, on the device that
    the thread is on; and what tells that device. (None, None) where torch lacks one of them."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    found = getattr(guards, "_empty_strided_cuda", None), getattr(torch._C, "_cuda_getDevice", None)
    return (None, None) if None in found else found


class Cupy(Library):
    allocates = True

    def __init__(self, cupy: Any):
        self._cupy = cupy
        self.address = lambda array: int(array.data.ptr)
        super().__init__(lambda device: int(cupy.cuda.get_current_stream(device).ptr))

    def empty(self, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> Any:
        cuda = self._cupy.cuda
        name = "uint16" if dtype == "bf16" else _NAMES[dtype]  # CuPy has no bfloat16: its bits
        context: Any = contextlib.nullcontext()
        if stream != self.current_stream(device):
            make = getattr(cuda.Stream, "from_external", None)  # CuPy 14
            context = make(_Handle(stream)) if make else cuda.ExternalStream(stream, device)
        with cuda.Device(device), context:
            return self._cupy.empty(shape, dtype=name)


class _Handle:
    """A stream by its handle, as other libraries take it."""

    def __init__(self, handle: int):
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


_NONE = Library()
_known: dict[int, Library] = {}  # by the identity of the module


def library_of(values: Iterable[Any]) -> Library:
    """The library of the first array that is torch's, else of the first that is CuPy's."""
    values = [v for v in values if v is not None]
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(v, torch.Tensor) for v in values):
        return _get(torch, Torch)
    cupy = sys.modules.get("cupy")
    if cupy is not None and any(isinstance(v, cupy.ndarray) for v in values):
        return _get(cupy, Cupy)
    return _NONE


def _get(module: Any, kind: Any) -> Library:
    found = _known.get(id(module))
    if found is None:
        found = _known[id(module)] = kind(module)
    return found


def torch_type(torch: Any, dtype: str) -> Any:
    """torch's type for an MLIR element type, or None."""
    return getattr(torch, _NAMES[dtype], None) if dtype in _NAMES else None


def tensor_over(array: Any, dtype: str) -> Any:
    """A torch tensor over the memory of a NumPy array that holds elements of an MLIR type."""
    torch: Any = sys.modules["torch"]
    if dtype == "bf16":  # which torch does not take from NumPy, whatever holds it there
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if dtype == "f8E4M3FN":
        return torch.from_numpy(array.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(array)


def array_of(tensor: Any) -> Any:
    """A NumPy array over the memory of a torch tensor on the CPU; bf16 as its bits, uint16."""
    torch: Any = sys.modules["torch"]
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def stream_handle(stream: Any) -> int:
    """The handle of a stream: a number, or a stream of torch, CuPy or cuda-core.

    Raises:
        ArgumentError: something else.
    """
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise ArgumentError(
        f"stream= is a {type(stream).__name__}, not a stream",
        hint="pass a stream of torch or CuPy, or its handle as a number",
    )
