# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The few functions of the CUDA driver that the runtime needs, through ctypes.

Handles (contexts, functions, streams) are integers here. Every method raises ToolError when the
driver reports an error, except `launch`, `push` and `pop`: these are the driver's own functions,
so that a prepared call has no Python frame between itself and the driver.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from typing import Any

from neptune_mlir.errors import ToolError

# numbers of the driver's enumerations (cuda.h)
_MAJOR, _MINOR, _MULTIPROCESSORS = 75, 76, 16  # CUdevice_attribute
_DEVICE_ORDINAL = 9  # CUpointer_attribute
_DYNAMIC_SHARED = 8  # CUfunction_attribute: the largest dynamic shared memory
_NO_TIMING = 2  # CUevent_flags
_MAP_TYPES = {"f16": 6, "bf16": 9}  # CUtensorMapDataType
_SWIZZLE_128B, _L2_256B = 3, 3

TENSOR_MAP_BYTES, _TENSOR_MAP_ALIGNMENT = 128, 64


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute with a value that is one int."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


# programmatic stream serialization: a kernel may start while the one before it still runs
EARLY = LaunchAttribute(6, 0, (1,))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid_x", ctypes.c_uint), ("grid_y", ctypes.c_uint), ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint), ("block_y", ctypes.c_uint), ("block_z", ctypes.c_uint),
        ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p), ("attribute_count", ctypes.c_uint),
    )  # fmt: skip


class Driver:
    """The driver of this machine, initialised.

    `launch(address of a LaunchConfig, function, addresses of the parameters, None)`,
    `push(context)` and `pop(address of a handle)` take ctypes objects and return an error
    number, which `fail` turns into an exception.
    """

    def __init__(self) -> None:
        self._library = _open()
        self._primary: dict[int, int] = {}
        self._lock = threading.Lock()
        self.call("cuInit", 0)
        self.launch: Any = self._library.cuLaunchKernelEx  # fewer arguments to convert
        self.push: Any = self._library.cuCtxPushCurrent_v2
        self.pop: Any = self._library.cuCtxPopCurrent_v2

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver by name, with ctypes objects and small integers."""
        error = getattr(self._library, name)(*arguments)
        if error:
            self.fail(error, name)

    def fail(self, error: int, what: str) -> None:
        """Raise ToolError for an error number of the driver."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self._library.cuGetErrorName(error, ctypes.byref(name))
        self._library.cuGetErrorString(error, ctypes.byref(text))
        reason = (text.value or b"unknown error").decode()
        raise ToolError(f"{what} failed: {(name.value or b'').decode()} ({error}), {reason}")

    # ---- devices and contexts

    def device_names(self) -> list[str]:
        """The devices' names, by their number."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        names = []
        for device in range(count.value):
            text = ctypes.create_string_buffer(256)
            self.call("cuDeviceGetName", text, len(text), self._handle(device))
            names.append(text.value.decode())
        return names

    def multiprocessors(self, device: int) -> int:
        return self._attribute(_MULTIPROCESSORS, device)

    def _attribute(self, number: int, device: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self._handle(device))
        return value.value

    def capability(self, device: int) -> tuple[int, int]:
        """Compute capability, for example (9, 0)."""
        found = [self._attribute(number, device) for number in (_MAJOR, _MINOR)]
        return found[0], found[1]

    def _handle(self, device: int) -> int:
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), device)
        return handle.value

    def context(self, device: int) -> int:
        """The context that this thread works in when it is on `device`, else the device's
        primary one (which torch, CuPy and JAX use; kept for the life of the process)."""
        current = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(current))
        handle = self._handle(device)
        if current.value:
            where = ctypes.c_int()
            self.call("cuCtxGetDevice", ctypes.byref(where))
            if where.value == handle:
                return current.value
        with self._lock:
            if device not in self._primary:
                primary = ctypes.c_void_p()
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(primary), handle)
                self._primary[device] = primary.value or 0
            return self._primary[device]

    def device_of(self, address: int) -> int:
        """The number of the device whose memory an address is in."""
        number = ctypes.c_int(-1)
        self.call(
            "cuPointerGetAttribute", ctypes.byref(number), _DEVICE_ORDINAL,
            ctypes.c_uint64(address),
        )  # fmt: skip
        return number.value

    # ---- code

    def load(self, context: int, code: bytes) -> int:
        """A module of machine code in a context."""
        module = ctypes.c_void_p()
        self._inside(context, "cuModuleLoadData", ctypes.byref(module), code)
        return module.value or 0

    def function(self, context: int, module: int, name: str, shared: int) -> int:
        """A kernel of a module, in memory and allowed `shared` bytes of shared memory: nothing
        is left for its first launch, which a graph may be capturing."""
        found = ctypes.c_void_p()
        handle = ctypes.c_void_p(module)
        self._inside(context, "cuModuleGetFunction", ctypes.byref(found), handle, name.encode())
        self._inside(context, "cuFuncSetAttribute", found, _DYNAMIC_SHARED, shared)
        if hasattr(self._library, "cuFuncLoad"):  # CUDA 12.4
            self._inside(context, "cuFuncLoad", found)
        return found.value or 0

    def _inside(self, context: int, name: str, *arguments: Any) -> None:
        self.call("cuCtxPushCurrent_v2", ctypes.c_void_p(context))
        try:
            self.call(name, *arguments)
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    # ---- order, and tensor maps

    def is_capturing(self, stream: int) -> bool:
        """Whether what a stream is given becomes part of a graph."""
        status = ctypes.c_int()
        if not stream:
            return False  # the default stream cannot be captured
        self.call("cuStreamIsCapturing", ctypes.c_void_p(stream), ctypes.byref(status))
        return status.value != 0

    def wait(self, context: int, stream: int, producer: int) -> None:
        """Let what `stream` does next wait for what `producer` has been given so far."""
        event = ctypes.c_void_p()
        self._inside(context, "cuEventCreate", ctypes.byref(event), _NO_TIMING)
        self._inside(context, "cuEventRecord", event, ctypes.c_void_p(producer))
        self._inside(context, "cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
        self._inside(context, "cuEventDestroy_v2", event)

    def tensor_map(
        self, dtype: str, address: int, extents: Sequence[int], strides: Sequence[int],
        box: Sequence[int],
    ) -> Any:  # fmt: skip
        """128 bytes that tell the copy engine how to bring or write boxes of an array.

        Args:
            dtype: f16 or bf16.
            extents, box: elements along each axis, innermost first; rows of a box are 128 bytes
                and lie swizzled in shared memory; what is outside of the array comes as 0, and is
                never written.
            strides: bytes between neighbours along each axis but the innermost.
        """
        room = ctypes.create_string_buffer(TENSOR_MAP_BYTES + _TENSOR_MAP_ALIGNMENT)
        start = -ctypes.addressof(room) % _TENSOR_MAP_ALIGNMENT
        made = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer(room, start)
        rank = len(extents)
        self.call(
            "cuTensorMapEncodeTiled", made, _MAP_TYPES[dtype], rank, ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*extents), (ctypes.c_uint64 * (rank - 1))(*strides),
            (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*[1] * rank),
            0, _SWIZZLE_128B, _L2_256B, 0,
        )  # fmt: skip
        return made


@functools.cache
def driver() -> Driver:
    """The driver. Raises ToolError where there is none."""
    return Driver()


def _open() -> Any:
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise ToolError(
        "there is no CUDA driver on this machine", hint="compiling for a GPU needs none"
    )
