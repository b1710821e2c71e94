# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AMD's HIP runtime (`hip_runtime_api.h` of ROCm 6 and 7): what it has of its own.

HIP's contexts are its devices. A thread is on one (`hipSetDevice`), and a module belongs to the
device that the thread which loads it is on. (HIP's own functions to push and pop contexts are
deprecated, and popping does not bring the device before back.)
"""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Any

from neptune_mlir.errors import ToolError
from neptune_mlir.runtime.drivers.driver import (
    CONTEXT,
    OK,
    Driver,
    EntryPoints,
    Maker,
    PreparedLaunch,
    address_of,
    open_first,
)

# hipDeviceAttribute_t, PhysicalMultiProcessorCount: compute units, also on RDNA, where HIP's other
# number counts pairs of them
_MULTIPROCESSORS = 10015
_OWN_SHARED = 1  # hipFunction_attribute: bytes of shared memory that the code itself has
# hipDeviceProp_tR0600, the structure of ROCm 6 and 7: the field gcnArchName, and room for more
_ARCHITECTURE, _ARCHITECTURE_SIZE, _PROPERTIES_ROOM = 1160, 256, 8192
_LIBRARY = "libamdhip64.so"
_KFD = "/dev/kfd"  # AMD's compute driver

AMD = Maker(
    name="AMD", prefix="gfx", library="HIP runtime",
    get="install ROCm 6 or newer; compiling for a GPU needs none",
    dlpack=(10,),  # kDLROCM
    default_stream=0,  # 1 and 2 are not allowed
    most_threads=(1 << 32) - 1,
)  # fmt: skip


class HipDriver(Driver):
    """See `Driver`. A context is the number of a device."""

    maker = AMD
    entries = EntryPoints(
        init="hipInit", error_name="hipDrvGetErrorName", error_text="hipDrvGetErrorString",
        count="hipGetDeviceCount", handle="hipDeviceGet", name="hipDeviceGetName",
        attribute="hipDeviceGetAttribute", pointer="hipPointerGetAttribute",
        allocate="hipMalloc", copy="hipMemcpyHtoD",
        load="hipModuleLoadData", function="hipModuleGetFunction",
        capturing="hipStreamIsCapturing", exchange="hipThreadExchangeStreamCaptureMode",
        event="hipEventCreateWithFlags",
        record="hipEventRecord", wait="hipStreamWaitEvent", destroy="hipEventDestroy",
    )  # fmt: skip
    multiprocessor_attribute = _MULTIPROCESSORS

    def __init__(self, library: Any = None) -> None:
        super().__init__(library)
        self._before = threading.local()  # devices that this thread was on
        self._code: list[bytes] = []
        self.launch = self.library.hipModuleLaunchKernel
        self._get_device, self._set_device = self.library.hipGetDevice, self.library.hipSetDevice

    @classmethod
    def open_library(cls) -> Any:
        folder = Path(os.environ.get("ROCM_PATH") or "/opt/rocm") / "lib"
        names = [_LIBRARY, *(f"{_LIBRARY}.{version}" for version in (7, 6))]
        try:
            mapped = loaded_path(Path("/proc/self/maps").read_text())
        except OSError:
            mapped = ""
        found = open_first([p for p in (mapped, str(folder / _LIBRARY), *names) if p])
        if found is None:
            raise ToolError(f"there is no HIP runtime ({_LIBRARY}) on this machine", hint=AMD.get)
        return found

    @staticmethod
    def why_no_device() -> str:
        return why_no_device(_KFD)

    def architecture(self, device: int) -> str:
        """The chip's name without its features (`gfx942` of `gfx942:sramecc+:xnack-`): our code
        says nothing of features, so it runs with any."""
        room = ctypes.create_string_buffer(_PROPERTIES_ROOM)
        self.call("hipGetDevicePropertiesR0600", room, device)
        text = room.raw[_ARCHITECTURE : _ARCHITECTURE + _ARCHITECTURE_SIZE]
        return text.partition(b"\0")[0].decode().partition(":")[0]

    def context(self, device: int) -> int:
        return device

    def push(self, context: ctypes.c_void_p) -> int:
        """Put the thread on a device until `pop`."""
        before = ctypes.c_int()
        error: int = self._get_device(ctypes.byref(before))
        error = error or self._set_device(context.value or 0)
        if not error:
            if not hasattr(self._before, "devices"):
                self._before.devices = []
            self._before.devices.append(before.value)
        return error

    def pop(self, left: Any) -> int:
        """Put the thread on the device where it was before `push`."""
        error: int = self._set_device(self._before.devices.pop())
        return error

    def load(self, context: int, code: bytes) -> int:
        module = super().load(context, code)
        self._code.append(code)  # HIP keeps the address, and makes no copy
        return module

    def _make_ready(self, context: int, function: ctypes.c_void_p, shared: int) -> int:
        """The part of the shared memory that the code does not have of its own: none of ours, all
        of Triton's."""
        own = ctypes.c_int()
        self.inside(context, "hipFuncGetAttribute", ctypes.byref(own), _OWN_SHARED, function)
        return max(shared - own.value, 0)

    def launch_call(self, launch: PreparedLaunch, stream: int) -> tuple[Any, ...]:
        # a kernel that could start early waits for the one before it by the order of the stream
        return (
            launch.function, launch.programs, 1, 1, launch.threads, 1, 1, launch.shared,
            ctypes.c_void_p(stream), launch.addresses, None,
        )  # fmt: skip

    def launch_words(self, launch: PreparedLaunch) -> tuple[list[int], Any]:
        words = [launch.function.value, launch.programs, launch.threads, launch.shared]
        return [*words, ctypes.addressof(launch.addresses)], launch

    def native_text(self) -> str:
        called = {name: address_of(getattr(self.library, name)) for name in _CALLED}
        return _NATIVE.format(**called, context=8 * CONTEXT, ok=OK)


def loaded_path(maps: str) -> str:
    """The file of the HIP runtime that this process has loaded already, or "": a second one, as
    torch may bring, would know nothing of the first one's streams and memory.

    Args:
        maps: the text of /proc/self/maps.
    """
    for line in maps.splitlines():
        path = line.partition("/")
        if path[1] and Path(path[2]).name.startswith(_LIBRARY):
            return f"/{path[2]}"
    return ""


def why_no_device(kfd: str) -> str:
    """What keeps a machine from having an AMD GPU to compute on, and what to do.

    Args:
        kfd: the file of AMD's compute driver.
    """
    if not os.path.exists(kfd):
        return f"there is no {kfd}: the machine has no AMD GPU, or its kernel no amdgpu driver"
    if not os.access(kfd, os.R_OK | os.W_OK):
        return f"this user may not open {kfd}: join the group 'render' (or 'video')"
    return "rocminfo lists what the driver sees; HIP_VISIBLE_DEVICES hides devices"


_CALLED = ("hipGetDevice", "hipSetDevice", "hipModuleLaunchKernel")

# What `gpu_again` asks of a driver. There are no tensor maps.
_NATIVE = """
define internal i64 @is_mine(ptr %table) {{
  ret i64 {ok}
}}
define internal i32 @enter(ptr %table, ptr %before) {{
  %asked = call i32 inttoptr (i64 {hipGetDevice} to ptr)(ptr %before)
  %at = getelementptr i8, ptr %table, i64 {context}
  %device = load i32, ptr %at
  %moved = call i32 inttoptr (i64 {hipSetDevice} to ptr)(i32 %device)
  %error = or i32 %asked, %moved
  ret i32 %error
}}
define internal void @leave(ptr %table, ptr %before) {{
  %device = load i32, ptr %before
  call i32 inttoptr (i64 {hipSetDevice} to ptr)(i32 %device)
  ret void
}}
define internal i32 @launch(ptr %row, i64 %stream) {{
  %w = load [5 x i64], ptr %row
  %function = extractvalue [5 x i64] %w, 0
  %programs64 = extractvalue [5 x i64] %w, 1
  %programs = trunc i64 %programs64 to i32
  %threads64 = extractvalue [5 x i64] %w, 2
  %threads = trunc i64 %threads64 to i32
  %shared64 = extractvalue [5 x i64] %w, 3
  %shared = trunc i64 %shared64 to i32
  %values = extractvalue [5 x i64] %w, 4
  %error = call i32 inttoptr (i64 {hipModuleLaunchKernel} to ptr)(
    i64 %function, i32 %programs, i32 1, i32 1, i32 %threads, i32 1, i32 1, i32 %shared,
    i64 %stream, i64 %values, ptr null)
  ret i32 %error
}}
define internal i32 @encode(i64 %room, i64 %address, ptr %what) {{
  ret i32 1
}}
"""
