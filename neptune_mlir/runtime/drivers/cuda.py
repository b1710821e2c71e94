# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NVIDIA's driver (`cuda.h`): what it has of its own."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from neptune_mlir.errors import ToolError
from neptune_mlir.runtime.drivers.driver import (
    CONTEXT,
    ELSEWHERE,
    FOUND,
    OK,
    Driver,
    EntryPoints,
    Maker,
    PreparedLaunch,
    address_of,
    open_first,
)

# numbers of the driver's enumerations
_MAJOR, _MINOR, _MULTIPROCESSORS = 75, 76, 16  # CUdevice_attribute
_DYNAMIC_SHARED = 8  # CUfunction_attribute: the largest dynamic shared memory
_WRITE_WORD = 2  # CUstreamBatchMemOpType
_UNIFIED = 4  # CUmemorytype: whichever memory an address is in
# CUtensorMapDataType and the bytes of an element; of tf32 the copy engine rounds what it brings
_MAP_TYPES = {
    "f8E4M3FN": (0, 1), "i8": (0, 1), "f16": (6, 2), "bf16": (9, 2), "f32": (7, 4), "tf32": (11, 4),
}  # fmt: skip
_SWIZZLES = {64: 2, 128: 3}  # by the bytes of a row of a box
# How much the L2 cache fetches at once: 256 bytes, or 128 where rows are not aligned with its
# sectors (a row then touches a part more, and more again), and where a launch asks for it.
_FETCHED, _FETCHED_NARROW, _SECTOR = 3, 2, 32

TENSOR_MAP_BYTES, _TENSOR_MAP_ALIGNMENT = 128, 64

NVIDIA = Maker(
    name="NVIDIA", prefix="sm_", library="CUDA driver",
    get="install NVIDIA's driver; compiling for a GPU needs none",
    dlpack=(2, 13),  # kDLCUDA, kDLCUDAManaged
    default_stream=1, most_threads=((1 << 31) - 1) * 1024,
)  # fmt: skip


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


class CopyRows(ctypes.Structure):
    """CUDA_MEMCPY2D between addresses."""

    _fields_ = (
        *((f"{side}_{name}", kind) for side in ("source", "target") for name, kind in (
            ("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("memory", ctypes.c_int),
            ("host", ctypes.c_void_p), ("address", ctypes.c_void_p), ("array", ctypes.c_void_p),
            ("pitch", ctypes.c_size_t),
        )), ("width", ctypes.c_size_t), ("rows", ctypes.c_size_t),
    )  # fmt: skip


Box = tuple[int, int, int]  # an address, how far apart rows are, and layers, a multiple of that


class CopyBox(ctypes.Structure):
    """CUDA_MEMCPY3D between addresses."""

    _fields_ = (
        *((f"{side}_{name}", kind) for side in ("source", "target") for name, kind in (
            ("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("z", ctypes.c_size_t),
            ("level", ctypes.c_size_t), ("memory", ctypes.c_int), ("host", ctypes.c_void_p),
            ("address", ctypes.c_void_p), ("array", ctypes.c_void_p),
            ("reserved", ctypes.c_void_p), ("pitch", ctypes.c_size_t),
            ("height", ctypes.c_size_t),
        )), ("width", ctypes.c_size_t), ("rows", ctypes.c_size_t), ("layers", ctypes.c_size_t),
    )  # fmt: skip


class WriteWord(ctypes.Structure):
    """CUstreamBatchMemOpParams that writes a word."""

    _fields_ = (
        ("operation", ctypes.c_int), ("address", ctypes.c_uint64), ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint), ("alias", ctypes.c_uint64), ("pad", ctypes.c_uint64),
    )  # fmt: skip


def map_room() -> Any:
    """Memory for a tensor map, where the driver wants it: 128 bytes."""
    room = ctypes.create_string_buffer(TENSOR_MAP_BYTES + _TENSOR_MAP_ALIGNMENT)
    start = -ctypes.addressof(room) % _TENSOR_MAP_ALIGNMENT
    return (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer(room, start)


class CudaDriver(Driver):
    """See `Driver`. `launch`, `push` and `pop` are functions of the driver themselves."""

    maker = NVIDIA
    entries = EntryPoints(
        init="cuInit", error_name="cuGetErrorName", error_text="cuGetErrorString",
        count="cuDeviceGetCount", handle="cuDeviceGet", name="cuDeviceGetName",
        attribute="cuDeviceGetAttribute", pointer="cuPointerGetAttribute",
        allocate="cuMemAlloc_v2", copy="cuMemcpyHtoD_v2",
        load="cuModuleLoadData", function="cuModuleGetFunction",
        capturing="cuStreamIsCapturing", exchange="cuThreadExchangeStreamCaptureMode",
        event="cuEventCreate", record="cuEventRecord",
        wait="cuStreamWaitEvent", destroy="cuEventDestroy_v2",
    )  # fmt: skip
    multiprocessor_attribute = _MULTIPROCESSORS

    def __init__(self, library: Any = None) -> None:
        super().__init__(library)
        self._primary: dict[int, int] = {}
        # by the thread's own context (None: it has none) and the device
        self._contexts: dict[tuple[int | None, int], int] = {}
        self._lock = threading.Lock()
        self.launch = self.library.cuLaunchKernelEx  # fewer arguments to convert
        self.push = self.library.cuCtxPushCurrent_v2
        self.pop = self.library.cuCtxPopCurrent_v2

    @classmethod
    def open_library(cls) -> Any:
        found = open_first(("libcuda.so.1", "nvcuda.dll"))
        if found is None:
            raise ToolError("there is no CUDA driver on this machine", hint=NVIDIA.get)
        return found

    def architecture(self, device: int) -> str:
        return f"sm_{self.attribute(_MAJOR, device)}{self.attribute(_MINOR, device)}"

    def context(self, device: int) -> int:
        """The context that this thread works in when it is on `device`, else the device's
        primary one (which torch, CuPy and JAX use; kept for the life of the process)."""
        current = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(current))
        return self._contexts.get((current.value, device)) or self._context(current.value, device)

    def _context(self, current: int | None, device: int) -> int:
        handle = self.handle(device)
        if current:
            where = ctypes.c_int()
            self.call("cuCtxGetDevice", ctypes.byref(where))
            if where.value == handle:
                self._contexts[current, device] = current
                return current
        with self._lock:
            if device not in self._primary:
                primary = ctypes.c_void_p()
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(primary), handle)
                self._primary[device] = self._contexts[None, device] = primary.value or 0
            return self._primary[device]

    def _make_ready(self, context: int, function: ctypes.c_void_p, shared: int) -> int:
        """Allow the shared memory, all of which is dynamic, and put the code into memory."""
        self.inside(context, "cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
        if hasattr(self.library, "cuFuncLoad"):  # CUDA 12.4
            self.inside(context, "cuFuncLoad", function)
        return shared

    def copy_rows(
        self, target: int, source: int, width: int, rows: int, pitch: int, device: int, stream: int
    ) -> None:
        """Copy `rows` times `width` bytes, `pitch` apart on both sides, by a copy engine of a
        device."""
        asked = CopyRows(
            source_memory=_UNIFIED, source_address=source, source_pitch=pitch,
            target_memory=_UNIFIED, target_address=target, target_pitch=pitch, width=width,
            rows=rows,
        )  # fmt: skip
        context = self.context(device)
        self.inside(context, "cuMemcpy2DAsync_v2", ctypes.byref(asked), ctypes.c_void_p(stream))

    def allocation(self, address: int, device: int) -> int:
        """Where the memory that an address lies in begins, as the driver gave it out."""
        start = ctypes.c_uint64()
        self.inside(
            self.context(device), "cuMemGetAddressRange_v2", ctypes.byref(start), None,
            ctypes.c_uint64(address),
        )  # fmt: skip
        return start.value

    def copy_box(
        self, target: Box, source: Box, width: int, rows: int, layers: int, device: int,
        stream: int,
    ) -> None:  # fmt: skip
        """Copy `layers` times `rows` times `width` bytes, from where and to where a `Box` says, by
        one order to a copy engine of a device."""
        asked = CopyBox(
            source_memory=_UNIFIED, source_address=source[0], source_pitch=source[1],
            source_height=source[2] // source[1], target_memory=_UNIFIED,
            target_address=target[0], target_pitch=target[1],
            target_height=target[2] // target[1], width=width, rows=rows, layers=layers,
        )  # fmt: skip
        context = self.context(device)
        self.inside(context, "cuMemcpy3DAsync_v2", ctypes.byref(asked), ctypes.c_void_p(stream))

    def capture(self, device: int, stream: int) -> int:
        """The number of the graph that captures a stream of a device; 0: none does."""
        if not stream:
            return 0  # the default stream cannot be captured
        status, number = ctypes.c_int(), ctypes.c_uint64()
        self.inside(
            self.context(device), "cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream),
            ctypes.byref(status), ctypes.byref(number), None, None, None,
        )  # fmt: skip
        return number.value if status.value else 0

    def write_words(self, words: Sequence[tuple[int, int]], device: int, stream: int) -> None:
        """Write words of 32 bits (address, value), in this order, behind all that is on a stream of
        a device: what came before is there for who reads one."""
        asked = (WriteWord * len(words))(
            *(WriteWord(_WRITE_WORD, address, value) for address, value in words)
        )
        context = self.context(device)
        self.inside(
            context, "cuStreamBatchMemOp_v2", ctypes.c_void_p(stream), len(words), asked, 0
        )

    def launch_call(self, launch: PreparedLaunch, stream: int) -> tuple[Any, ...]:
        attributes = ctypes.addressof(EARLY) if launch.early else None
        config = LaunchConfig(
            launch.programs, 1, 1, launch.threads, 1, 1, launch.shared, stream, attributes,
            int(launch.early),
        )  # fmt: skip
        return ctypes.byref(config), launch.function, launch.addresses, None

    def launch_words(self, launch: PreparedLaunch) -> tuple[list[int], Any]:
        config = self.launch_call(launch, 0)[0]._obj
        places = ctypes.addressof(config), ctypes.addressof(launch.addresses)
        return [places[0], launch.function.value or 0, places[1]], (launch, config)

    def native_text(self) -> str:
        return _NATIVE.format(
            **{name: address_of(getattr(self.library, name, None)) for name in _CALLED},
            found=8 * FOUND, context=8 * CONTEXT, ok=OK, elsewhere=ELSEWHERE,
            stream=LaunchConfig.stream.offset, sector=_SECTOR - 1, fetched=_FETCHED,
            narrow=_FETCHED_NARROW,
        )  # fmt: skip

    def tensor_map(
        self, dtype: str, address: int, extents: Sequence[int], strides: Sequence[int],
        box: Sequence[int], *, narrow: bool = False,
    ) -> Any:  # fmt: skip
        made = map_room()
        words, tables = self.map_words(dtype, extents, strides, box, narrow=narrow)
        kind, rank, *_, swizzle, wide = words
        fetched = _FETCHED if wide and address % _SECTOR == 0 else _FETCHED_NARROW
        self.call(
            "cuTensorMapEncodeTiled", made, kind, rank, ctypes.c_void_p(address),
            *tables, 0, swizzle, fetched, 0,
        )  # fmt: skip
        return made

    def map_words(
        self, dtype: str, extents: Sequence[int], strides: Sequence[int], box: Sequence[int], *,
        narrow: bool = False,
    ) -> tuple[list[int], Any]:  # fmt: skip
        """All of a tensor map but its address, for the encoder: its type, its rank, where extents,
        strides, box and steps stand, the swizzle, and whether 256 bytes are fetched at once where
        the address is aligned with sectors, as strides are; and what has to stay in memory for
        these."""
        rank = len(extents)
        tables = (
            (ctypes.c_uint64 * rank)(*extents), (ctypes.c_uint64 * (rank - 1))(*strides),
            (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*[1] * rank),
        )  # fmt: skip
        steps = [n for n, m in zip(strides, extents[1:], strict=True) if m > 1]
        wide = not narrow and all(n % _SECTOR == 0 for n in steps)
        places = [ctypes.addressof(table) for table in tables]
        kind, size = _MAP_TYPES[dtype]
        return [kind, rank, *places, _SWIZZLES[box[0] * size], int(wide)], tables


_CALLED = ("cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuLaunchKernelEx",
           "cuTensorMapEncodeTiled")  # fmt: skip

# What `gpu_again` asks of a driver. A thread that is in a call's context already stays as it is.
_NATIVE = """
define internal i64 @is_mine(ptr %table) {{
  %found = getelementptr i8, ptr %table, i64 {found}
  %error = call i32 inttoptr (i64 {cuCtxGetCurrent} to ptr)(ptr %found)
  %now = load i64, ptr %found
  %seen = load i64, ptr %table
  %same = icmp eq i64 %now, %seen
  %answer = select i1 %same, i64 {ok}, i64 {elsewhere}
  ret i64 %answer
}}
define internal i1 @is_inside(ptr %table) {{
  %seen = load i64, ptr %table
  %at = getelementptr i8, ptr %table, i64 {context}
  %context = load i64, ptr %at
  %inside = icmp eq i64 %seen, %context
  ret i1 %inside
}}
define internal i32 @enter(ptr %table, ptr %before) {{
  %inside = call i1 @is_inside(ptr %table)
  br i1 %inside, label %stay, label %go
stay:
  ret i32 0
go:
  %at = getelementptr i8, ptr %table, i64 {context}
  %context = load i64, ptr %at
  %error = call i32 inttoptr (i64 {cuCtxPushCurrent_v2} to ptr)(i64 %context)
  ret i32 %error
}}
define internal void @leave(ptr %table, ptr %before) {{
  %inside = call i1 @is_inside(ptr %table)
  br i1 %inside, label %stay, label %go
go:
  call i32 inttoptr (i64 {cuCtxPopCurrent_v2} to ptr)(ptr %before)
  br label %stay
stay:
  ret void
}}
define internal i32 @launch(ptr %row, i64 %stream) {{
  %config = load ptr, ptr %row
  %stream.at = getelementptr i8, ptr %config, i64 {stream}
  store i64 %stream, ptr %stream.at
  %function.at = getelementptr i64, ptr %row, i64 1
  %function = load ptr, ptr %function.at
  %values.at = getelementptr i64, ptr %row, i64 2
  %values = load ptr, ptr %values.at
  %error = call i32 inttoptr (i64 {cuLaunchKernelEx} to ptr)(
    ptr %config, ptr %function, ptr %values, ptr null)
  ret i32 %error
}}
define internal i32 @encode(i64 %room, i64 %address, ptr %what) {{
  %w = load [8 x i64], ptr %what
  %type64 = extractvalue [8 x i64] %w, 0
  %type = trunc i64 %type64 to i32
  %rank64 = extractvalue [8 x i64] %w, 1
  %rank = trunc i64 %rank64 to i32
  %extents = extractvalue [8 x i64] %w, 2
  %strides = extractvalue [8 x i64] %w, 3
  %box = extractvalue [8 x i64] %w, 4
  %steps = extractvalue [8 x i64] %w, 5
  %swizzle64 = extractvalue [8 x i64] %w, 6
  %swizzle = trunc i64 %swizzle64 to i32
  %wide64 = extractvalue [8 x i64] %w, 7
  %wide = icmp ne i64 %wide64, 0
  %low = and i64 %address, {sector}
  %whole = icmp eq i64 %low, 0
  %aligned = and i1 %wide, %whole
  %fetched = select i1 %aligned, i32 {fetched}, i32 {narrow}
  %error = call i32 inttoptr (i64 {cuTensorMapEncodeTiled} to ptr)(
    i64 %room, i32 %type, i32 %rank, i64 %address, i64 %extents, i64 %strides, i64 %box,
    i64 %steps, i32 0, i32 %swizzle, i32 %fetched, i32 0)
  ret i32 %error
}}
"""
