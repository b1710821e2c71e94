# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Drivers of GPUs that stand in for the makers': shared libraries whose functions have the
parameters of `cuda.h` and of `hip_runtime_api.h`, and are Python inside.

The runtime's own driver classes run over them, so what reaches a function went through the calling
convention of C: a handle that was cut to 32 bits or a parameter too few is seen.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from ctypes import (
    POINTER,
    c_char_p,
    c_int,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
    create_string_buffer,
)
from types import SimpleNamespace

from neptune_mlir.runtime.drivers.cuda import CudaDriver
from neptune_mlir.runtime.drivers.hip import HipDriver
from support.chips.fake_gpu import FakeArray

INT, HANDLE = POINTER(c_int), POINTER(c_void_p)
MODULES, FUNCTIONS, EVENTS = 0x1_0000_0000_0000, 0x7F00_0000_0000, 0x6E00_0000_0000
NO_DEVICE, UNKNOWN = 100, 999
RELAXED = 2


class _Threads(threading.local):
    """What a thread entered and did not leave; with HIP, on which device it is and was."""

    def __init__(self):
        self.inside, self.on, self.before = [], 0, 0


class FakeGpu:
    """Devices of one maker, and what was asked of them.

    Args:
        kernels: a name to the types of its parameters and a function of their values and the
            number of programs, or None.
        maker: "NVIDIA" or "AMD".
        devices: what they are: compute capabilities, or names of architectures.
        own_shared: bytes of shared memory that the code itself has, by kernel.
        units: multiprocessors of each.

    Attributes:
        driver: the runtime's driver, over a fake library.
        loads: context and beginning of the code, of each module.
        stored: context and memory of each allocation.
        launches: what was launched, in order.
        waits: context, stream, producer.
        maps: the tensor maps that were encoded.
        calls: what happened, by name: enter, leave, launch, early.
        inside: contexts that the thread entered and did not leave.
        error: what a launch is to report.
        capturing: the stream that is being captured, and `mode`: how.
        current: the context that a thread made its own, on device 0 (NVIDIA's).
        limit: bytes of code that are kept of each module.
    """

    def __init__(self, kernels, maker="NVIDIA", devices=((9, 0),), own_shared=None, units=4):
        self.kernels, self.devices, self.own_shared = kernels, devices, own_shared or {}
        self.units = units
        self.loads, self.launches, self.waits, self.maps, self.calls = [], [], [], [], []
        self.fetched = []  # 3: the cache fetches 256 bytes at once for a map; 2: 128
        self.stored = []
        self.dynamic = {}  # by kernel, what was allowed
        self.functions, self.events, self.failures = {}, {}, []
        self.error, self.capturing, self.limit = 0, None, 4
        self.mode = 0  # of captures: global
        self.current = None
        self.threads = _Threads()
        self._kind, table = {"NVIDIA": (CudaDriver, CUDA), "AMD": (HipDriver, HIP)}[maker]
        self.library = FakeLibrary(table, self)

    @functools.cached_property
    def driver(self):
        return self._kind(self.library)

    inside = property(lambda self: self.threads.inside)

    def context(self, device):
        return self.driver.context(device)

    def enter(self, context):
        self.calls.append("enter")
        self.inside.append(context)

    def leave(self):
        self.calls.append("leave")
        self.inside.pop()

    def load(self, code):
        """The code is read as the drivers read it: its length is its own affair."""
        assert self.capturing is None or self.mode == RELAXED
        self.loads.append((self.inside[-1], ctypes.string_at(code, self.limit)))
        return MODULES + len(self.loads)

    def function(self, module, name):
        assert 0 < module - MODULES <= len(self.loads)
        assert self.capturing is None or self.mode == RELAXED
        number = FUNCTIONS + len(self.functions)
        self.functions[number] = name.decode()
        return number

    def own_shared_of(self, function):
        return self.own_shared.get(self.functions[function], 0)

    def wait(self, stream, event):
        self.waits.append((self.inside[-1], stream or 0, self.events[event] or 0))

    def launch(self, function, sides, shared, stream, addresses, early=False):
        x, y, z, threads, *rest = sides
        assert (y, z, *rest) == (1, 1, 1, 1)
        name = self.functions[function]
        kinds, work = self.kernels[name]
        values = [k.from_address(addresses[i]).value for i, k in enumerate(kinds)]
        self.calls.append("early" if early else "launch")
        self.launches.append(
            SimpleNamespace(
                name=name, programs=x, threads=threads, shared=shared, stream=stream or 0,
                values=values, context=self.inside[-1],
            )
        )  # fmt: skip
        if not self.error and work:
            work(*values, x)
        return self.error


class FakeLibrary:
    """Functions of C by name. An exception in one is an error of the driver, and is kept."""

    def __init__(self, table, gpu):
        self._kept = []
        for name, (kinds, body) in table.items():
            self._add(name, kinds, body, gpu)

    def _add(self, name, kinds, body, gpu):
        def call(*values):
            try:
                return body(gpu, *values) or 0
            except Exception as error:
                gpu.failures.append(f"{name}: {error!r}")
                return UNKNOWN

        function = ctypes.CFUNCTYPE(c_int, *kinds)(call)
        self._kept.append(function)
        address = ctypes.cast(function, c_void_p).value
        setattr(self, name, ctypes.CFUNCTYPE(c_int)(address))  # as ctypes finds it in a library


def _set(place, value):
    place[0] = value


def _text(gpu, error, place):
    gpu.text = create_string_buffer(f"error {error}".encode())  # a driver's texts are its own
    place[0] = ctypes.addressof(gpu.text)


def _name(gpu, room, size, device):
    ctypes.memmove(room, f"GPU {device}".encode() + b"\0", len(f"GPU {device}") + 1)


def _device_of(gpu, place, attribute, address):
    assert attribute == 9
    _set(place, next(a.device for a in FakeArray.living if a.holds(address)))


def _capturing(gpu, stream, place):
    _set(place, int(stream == gpu.capturing))


def _exchange(gpu, place):
    gpu.mode, before = place[0], gpu.mode
    _set(place, before)


def _event(gpu, place, flags):
    assert flags == 2
    number = EVENTS + len(gpu.events)
    gpu.events[number] = None
    _set(place, number)


def _record(gpu, event, stream):
    gpu.events[event] = stream


def _wait(gpu, stream, event, flags):
    assert flags == 0
    gpu.wait(stream, event)


def _load(gpu, place, code):
    _set(place, gpu.load(code))


def _allocate(gpu, place, size):
    assert size
    gpu.stored.append((gpu.inside[-1], create_string_buffer(size)))
    _set(place, ctypes.addressof(gpu.stored[-1][1]))


def _copy(gpu, address, data, size):
    ctypes.memmove(address, data, size)


def _function(gpu, place, module, name):
    _set(place, gpu.function(module, name))


def _count(gpu, place):
    _set(place, len(gpu.devices))


def _handle(gpu, place, device):
    assert device < len(gpu.devices)
    _set(place, device)


ALLOCATE, COPY = (POINTER(c_uint64), c_size_t), (c_uint64, c_void_p, c_size_t)

# functions with the same parameters, by the end of their name
_BOTH = {
    "Init": ((c_uint,), lambda gpu, flags: 0 if gpu.devices else NO_DEVICE),
    "DeviceGet": ((INT, c_int), _handle),
    "DeviceGetName": ((c_void_p, c_int, c_int), _name),
    "PointerGetAttribute": ((INT, c_int, c_uint64), _device_of),
    "ModuleLoadData": ((HANDLE, c_void_p), _load),
    "ModuleGetFunction": ((HANDLE, c_void_p, c_char_p), _function),
    "StreamIsCapturing": ((c_void_p, INT), _capturing),
    "ThreadExchangeStreamCaptureMode": ((INT,), _exchange),
    "EventRecord": ((c_void_p, c_void_p), _record),
    "StreamWaitEvent": ((c_void_p, c_void_p, c_uint), _wait),
}


# ---- cuda.h

CONTEXTS = 0x5500_0000_0000  # the primary context of a device is this and its number


def _cuda_attribute(gpu, place, number, device):
    major, minor = gpu.devices[device]
    _set(place, {75: major, 76: minor, 16: gpu.units}[number])


def _cuda_pop(gpu, place):
    place[0] = gpu.inside[-1]
    gpu.leave()


def _cuda_allow(gpu, function, attribute, size):
    assert attribute == 8
    gpu.dynamic[gpu.functions[function]] = size


class _Config(ctypes.Structure):
    _fields_ = (
        ("sides", c_uint * 6), ("shared", c_uint), ("stream", c_void_p),
        ("attributes", POINTER(c_int)), ("count", c_uint),
    )  # fmt: skip


def _cuda_launch(gpu, config, function, addresses, extra):
    asked = config[0]
    assert extra is None and asked.shared <= gpu.dynamic[gpu.functions[function]]
    if asked.count:  # id, padding, value
        assert asked.count == 1 and asked.attributes[:3] == [6, 0, 1]
    return gpu.launch(
        function, asked.sides[:], asked.shared, asked.stream, addresses, bool(asked.count)
    )


INVALID_CONTEXT = 201


def _cuda_map(gpu, room, dtype, rank, address, extents, strides, box, steps, *rest):
    if not gpu.inside and gpu.current is None:
        return INVALID_CONTEXT
    assert room % 64 == 0 and steps[:rank] == [1] * rank
    axes = zip(strides[: rank - 1], extents[1:rank], strict=True)
    aligned = all(step % 32 == 0 for step, count in axes if count > 1)  # with sectors of the cache
    # no interleaving, swizzled by what a row has, 256 or 128 bytes fetched at once, zeros outside
    assert rest in [(0, {64: 3, 32: 2}[box[0]], n, 0) for n in ((3, 2) if aligned else (2,))]
    gpu.fetched.append(rest[2])
    gpu.maps.append((dtype, address, tuple(extents[:rank]), tuple(strides[: rank - 1]),
                     tuple(box[:rank])))  # fmt: skip
    ctypes.memmove(room, b"map" + address.to_bytes(8, "little"), 11)


class _Rows(ctypes.Structure):
    """CUDA_MEMCPY2D_v2, as cuda.h has it."""

    _fields_ = (
        ("srcXInBytes", c_size_t), ("srcY", c_size_t), ("srcMemoryType", c_int),
        ("srcHost", c_void_p), ("srcDevice", c_uint64), ("srcArray", c_void_p),
        ("srcPitch", c_size_t), ("dstXInBytes", c_size_t), ("dstY", c_size_t),
        ("dstMemoryType", c_int), ("dstHost", c_void_p), ("dstDevice", c_uint64),
        ("dstArray", c_void_p), ("dstPitch", c_size_t), ("WidthInBytes", c_size_t),
        ("Height", c_size_t),
    )  # fmt: skip


def _cuda_copy_rows(gpu, asked, stream):
    a = asked.contents
    unified = 4
    assert (a.srcMemoryType, a.dstMemoryType) == (unified, unified)
    assert not (a.srcXInBytes or a.srcY or a.dstXInBytes or a.dstY)
    gpu.calls.append(f"rows on {stream or 0}")
    for row in range(a.Height):
        source, target = a.srcDevice + row * a.srcPitch, a.dstDevice + row * a.dstPitch
        ctypes.memmove(target, source, a.WidthInBytes)


def _range_of(gpu, start, size, address):
    _set(start, next(a.address for a in FakeArray.living if a.holds(address)))


class _Box(ctypes.Structure):
    """CUDA_MEMCPY3D_v2, as cuda.h has it."""

    _fields_ = (
        ("srcXInBytes", c_size_t), ("srcY", c_size_t), ("srcZ", c_size_t), ("srcLOD", c_size_t),
        ("srcMemoryType", c_int), ("srcHost", c_void_p), ("srcDevice", c_uint64),
        ("srcArray", c_void_p), ("reserved0", c_void_p), ("srcPitch", c_size_t),
        ("srcHeight", c_size_t), ("dstXInBytes", c_size_t), ("dstY", c_size_t),
        ("dstZ", c_size_t), ("dstLOD", c_size_t), ("dstMemoryType", c_int),
        ("dstHost", c_void_p), ("dstDevice", c_uint64), ("dstArray", c_void_p),
        ("reserved1", c_void_p), ("dstPitch", c_size_t), ("dstHeight", c_size_t),
        ("WidthInBytes", c_size_t), ("Height", c_size_t), ("Depth", c_size_t),
    )  # fmt: skip


def _cuda_copy_box(gpu, asked, stream):
    a = asked.contents
    unified = 4
    assert (a.srcMemoryType, a.dstMemoryType) == (unified, unified)
    assert not (a.srcXInBytes or a.srcY or a.srcZ or a.dstXInBytes or a.dstY or a.dstZ)
    assert min(a.srcPitch, a.dstPitch) >= a.WidthInBytes and min(a.srcHeight, a.dstHeight) > 0
    gpu.calls.append(f"box on {stream or 0}")
    for layer in range(a.Depth):
        for row in range(a.Height):
            source = a.srcDevice + (layer * a.srcHeight + row) * a.srcPitch
            target = a.dstDevice + (layer * a.dstHeight + row) * a.dstPitch
            ctypes.memmove(target, source, a.WidthInBytes)


class _Word(ctypes.Structure):
    """CUstreamMemOpWriteValueParams, in the union that cuda.h has it in."""

    _fields_ = (
        ("operation", c_uint), ("address", c_uint64), ("value", c_uint), ("high", c_uint),
        ("flags", c_uint), ("alias", c_uint64), ("pad", c_uint64),
    )  # fmt: skip


def _cuda_capture(gpu, stream, status, number, *_):
    _set(status, int(stream == gpu.capturing))
    _set(number, 5)


def _cuda_write_words(gpu, stream, count, words, flags):
    assert ctypes.sizeof(_Word) == 48 and not flags
    write_value_32 = 2
    gpu.calls.append(f"words on {stream or 0}")
    for k in range(count):
        assert words[k].operation == write_value_32 and not words[k].flags
        c_uint.from_address(words[k].address).value = words[k].value


CUDA = {f"cu{name}": row for name, row in _BOTH.items()} | {
    "cuGetErrorName": ((c_int, HANDLE), _text),
    "cuGetErrorString": ((c_int, HANDLE), _text),
    "cuDeviceGetCount": ((INT,), _count),
    "cuDeviceGetAttribute": ((INT, c_int, c_int), _cuda_attribute),
    "cuCtxGetCurrent": ((HANDLE,), lambda gpu, place: _set(place, gpu.current)),
    "cuCtxGetDevice": ((INT,), lambda gpu, place: _set(place, 0)),
    "cuDevicePrimaryCtxRetain": (
        (HANDLE, c_int), lambda gpu, place, device: _set(place, CONTEXTS + device)),
    "cuCtxPushCurrent_v2": ((c_void_p,), lambda gpu, context: gpu.enter(context)),
    "cuCtxPopCurrent_v2": ((HANDLE,), _cuda_pop),
    "cuEventCreate": ((HANDLE, c_uint), _event),
    "cuEventDestroy_v2": ((c_void_p,), lambda gpu, event: gpu.events.pop(event) and 0),
    "cuFuncSetAttribute": ((c_void_p, c_int, c_int), _cuda_allow),
    "cuMemAlloc_v2": (ALLOCATE, _allocate),
    "cuMemcpyHtoD_v2": (COPY, _copy),
    "cuMemcpy2DAsync_v2": ((POINTER(_Rows), c_void_p), _cuda_copy_rows),
    "cuMemcpy3DAsync_v2": ((POINTER(_Box), c_void_p), _cuda_copy_box),
    "cuMemGetAddressRange_v2": ((POINTER(c_uint64), c_void_p, c_uint64), _range_of),
    "cuStreamGetCaptureInfo_v2": (
        (c_void_p, INT, POINTER(c_uint64), c_void_p, c_void_p, c_void_p), _cuda_capture),
    "cuStreamBatchMemOp_v2": (
        (c_void_p, c_uint, POINTER(_Word), c_uint), _cuda_write_words),
    "cuLaunchKernelEx": ((POINTER(_Config), c_void_p, HANDLE, c_void_p), _cuda_launch),
    "cuTensorMapEncodeTiled": (
        (c_void_p, c_int, c_uint, c_uint64, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint),
         POINTER(c_uint), c_int, c_int, c_int, c_int), _cuda_map),
}  # fmt: skip


# ---- hip_runtime_api.h

SHARED_SIZE, PROPERTIES = 1, 1472  # of hipFunction_attribute; bytes of hipDeviceProp_tR0600


def _hip_properties(gpu, room, device):
    text = gpu.devices[device].encode() + b"\0"
    ctypes.memmove(room, b"\xff" * PROPERTIES, PROPERTIES)
    ctypes.memmove(room + 1160, text, len(text))


def _hip_attribute(gpu, place, number, device):
    assert number == 10015
    _set(place, gpu.units)


def _hip_get_device(gpu, place):
    _set(place, gpu.threads.on)


def _hip_set_device(gpu, device):
    """HIP only knows on which device a thread is; who enters one has to come back."""
    if gpu.inside:
        assert device == gpu.threads.before
        gpu.leave()
    else:
        gpu.threads.before = gpu.threads.on
        gpu.enter(device)
    gpu.threads.on = device


def _hip_own_shared(gpu, place, attribute, function):
    assert attribute == SHARED_SIZE
    _set(place, gpu.own_shared_of(function))


def _hip_launch(gpu, function, x, y, z, bx, by, bz, shared, stream, addresses, extra):
    assert extra is None and x * bx < 1 << 32
    return gpu.launch(function, (x, y, z, bx, by, bz), shared, stream, addresses)


HIP = {f"hip{name}": row for name, row in _BOTH.items()} | {
    "hipMalloc": (ALLOCATE, _allocate),
    "hipMemcpyHtoD": (COPY, _copy),
    "hipDrvGetErrorName": ((c_int, HANDLE), _text),
    "hipDrvGetErrorString": ((c_int, HANDLE), _text),
    "hipGetDeviceCount": ((INT,), _count),
    "hipDeviceGetAttribute": ((INT, c_int, c_int), _hip_attribute),
    "hipGetDevicePropertiesR0600": ((c_void_p, c_int), _hip_properties),
    "hipGetDevice": ((INT,), _hip_get_device),
    "hipSetDevice": ((c_int,), _hip_set_device),
    "hipEventCreateWithFlags": ((HANDLE, c_uint), _event),
    "hipEventDestroy": ((c_void_p,), lambda gpu, event: gpu.events.pop(event) and 0),
    "hipFuncGetAttribute": ((INT, c_int, c_void_p), _hip_own_shared),
    "hipModuleLaunchKernel": (
        (c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_void_p, HANDLE,
         c_void_p), _hip_launch),
}  # fmt: skip
