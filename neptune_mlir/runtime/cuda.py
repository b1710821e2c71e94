# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs an NVIDIA bundle on arrays: checks the arguments, evaluates the plan, launches.

Arrays are torch tensors or anything with `__cuda_array_interface__` (CuPy, JAX, Numba), used in
place, of any strides whose innermost is 1. Batch, heads, lengths and strides are read at each
call, so one bundle serves them all. Nothing here imports MLIR; `cuda.bindings` is imported on
first use.

    run = CudaExecutable(bundle)
    o = run(q, k, v)                        # results are allocated with torch
    run(q, k, v, out=o, stream=s)           # nothing is allocated but intermediate buffers
    call = run.prepare(q, k, v, out=o)      # checked once
    call(); call(stream)                    # only launches: for CUDA graphs and short kernels
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.errors import ArgumentError, ToolError
from neptune_mlir.runtime.arrays import contiguous
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Argument, Plan, describe, evaluate

_SIZES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
_TYPESTR = {"f2": "f16", "f4": "f32", "f8": "f64", "b1": "i1", "i1": "i8", "i2": "i16",
            "i4": "i32", "i8": "i64", "u1": "i8", "u2": "i16", "u4": "i32",
            "u8": "i64"}  # fmt: skip
_TORCH = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "i1",
          "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "i8"}  # fmt: skip


@dataclass(frozen=True)
class GpuArray:
    """Memory of an array on a GPU; strides count elements."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int | None
    owner: Any


def gpu_array(value: Any, name: str) -> GpuArray:
    """The view of a torch tensor or of `__cuda_array_interface__`. Raises ArgumentError."""
    if hasattr(value, "data_ptr") and hasattr(value, "is_cuda"):
        if not value.is_cuda:
            raise ArgumentError(f"{name} is on {value.device}, not on a GPU")
        kind = _TORCH.get(str(value.dtype).removeprefix("torch."))
        if kind is None:
            raise ArgumentError(f"{name} has type {value.dtype}, which no kernel takes")
        return GpuArray(
            value.data_ptr(), kind, tuple(value.shape), tuple(value.stride()),
            value.device.index, value,
        )  # fmt: skip
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        raise ArgumentError(
            f"{name} is a {type(value).__name__}, not an array on a GPU",
            hint="pass a torch tensor or an object with __cuda_array_interface__",
        )
    code = interface["typestr"][1:]
    kind = "bf16" if code in ("V2",) else _TYPESTR.get(code)
    if kind is None:
        raise ArgumentError(f"{name} has type {interface['typestr']}, which no kernel takes")
    shape = tuple(interface["shape"])
    steps = interface.get("strides")
    strides = contiguous(shape) if steps is None else tuple(s // _SIZES[kind] for s in steps)
    return GpuArray(interface["data"][0], kind, shape, strides, None, value)


class CudaExecutable:
    """A compiled function on NVIDIA GPUs (any number of devices; safe from several threads)."""

    def __init__(self, bundle: Bundle | bytes):
        self.bundle = Bundle.from_bytes(bundle) if isinstance(bundle, bytes) else bundle
        self.plan: Plan = self.bundle.plan
        self.images = self.bundle.facts["images"]
        self._alignment = {tuple(k): n for *k, n in self.bundle.facts["alignment"]}
        self._modules: dict[int, tuple[Any, dict[str, Any], Any]] = {}
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = None) -> Any:
        call = self.prepare(*arguments, out=out)
        call(stream)
        return call.results[0] if len(call.results) == 1 else call.results

    def prepare(self, *arguments: Any, out: Any = None) -> PreparedCall:
        """Check the arguments and fix the launches; the arrays must stay where they are.

        Raises:
            ArgumentError: a wrong number, type, shape, stride, alignment, device, or overlap.
        """
        arrays, scalars = self._check(arguments)
        shapes = [a.shape if a else None for a in arrays]
        names = [a.name for a in self.plan.arguments]
        for left, right in self.plan.equal:
            a, b = evaluate(left, shapes, scalars), evaluate(right, shapes, scalars)
            if a != b:
                raise ArgumentError(
                    f"{describe(left, names)} is {a}, but {describe(right, names)} is {b}: "
                    "they must be equal"
                )
        device = self._device_of(arrays)
        targets = self._targets(out, shapes, scalars)
        buffers: list[GpuArray] = []
        for k, buffer in enumerate(self.plan.buffers):
            shape = tuple(int(evaluate(e, shapes, scalars)) for e in buffer.shape)
            value = targets.get(k)
            if value is None:
                value = _allocate(shape, buffer.dtype, device)
            name = "out" if k in targets else "a buffer"
            array = gpu_array(value, name)
            wanted = Argument("tensor", buffer.dtype, shape, name)
            self._check_array(array, wanted, ("buffer", k))
            if k in targets:
                _check_overlap(array, arrays, name, names)
            buffers.append(array)
        functions, infos = self._load(device)
        launches = [
            self._launch(launch, arrays, buffers, shapes, scalars, functions, infos)
            for launch in self.plan.launches
        ]
        results = tuple(
            (buffers if kind == "buffer" else arrays)[k].owner for kind, k in self.plan.results
        )
        keep = (arguments, [b.owner for b in buffers])
        return PreparedCall([x for x in launches if x is not None], results, keep)

    # ---- checks

    def _check(self, arguments: Sequence[Any]) -> tuple[list[GpuArray | None], list[Any]]:
        if len(arguments) != len(self.plan.arguments):
            raise ArgumentError(
                f"{self.plan.entry} takes {len(self.plan.arguments)} arguments, "
                f"{len(arguments)} were given"
            )
        arrays: list[GpuArray | None] = []
        scalars: list[Any] = []
        for k, (value, wanted) in enumerate(zip(arguments, self.plan.arguments, strict=True)):
            if wanted.kind == "tensor":
                array = gpu_array(value, wanted.name)
                self._check_array(array, wanted, ("argument", k))
                arrays.append(array)
                scalars.append(None)
            else:
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise ArgumentError(f"{wanted.name} is a {type(value).__name__}, not a number")
                arrays.append(None)
                scalars.append(value)
        return arrays, scalars

    def _check_array(self, array: GpuArray, wanted: Argument, place: tuple[str, int]) -> None:
        shape = f"[{', '.join('?' if n is None else str(n) for n in wanted.shape)}]"
        if len(array.shape) != len(wanted.shape) or any(
            n is not None and n != m for n, m in zip(wanted.shape, array.shape, strict=True)
        ):
            raise ArgumentError(f"{wanted.name} has shape {list(array.shape)}, not {shape}")
        if array.dtype != wanted.dtype:
            raise ArgumentError(f"{wanted.name} has type {array.dtype}, not {wanted.dtype}")
        if array.shape and array.shape[-1] > 1 and array.strides[-1] != 1:
            raise ArgumentError(
                f"{wanted.name} has stride {array.strides[-1]} along its last dimension, not 1",
                hint="make it contiguous along that dimension",
            )
        unit, size = self._alignment.get(place, 1), _SIZES[array.dtype]
        if array.address % unit:
            raise ArgumentError(f"{wanted.name} is not aligned to {unit} bytes")
        for d, (n, stride) in enumerate(zip(array.shape[:-1], array.strides[:-1], strict=True)):
            if n > 1 and stride * size % unit:
                raise ArgumentError(
                    f"{wanted.name} has stride {stride} along dimension {d}: {stride * size} "
                    f"bytes, not a multiple of {unit}"
                )

    def _device_of(self, arrays: Sequence[GpuArray | None]) -> int:
        found = {a.device for a in arrays if a is not None and a.device is not None}
        if len(found) > 1:
            raise ArgumentError(f"the arrays are on several devices: {sorted(found)}")
        return found.pop() if found else _current_device()

    def _targets(self, out: Any, shapes: Any, scalars: Any) -> dict[int, Any]:
        """The arrays of `out=` by buffer."""
        if out is None:
            return {}
        given = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(given) != len(self.plan.results):
            wanted = len(self.plan.results)
            raise ArgumentError(f"out= has {len(given)} arrays for {wanted} results")
        return {
            k: value
            for (kind, k), value in zip(self.plan.results, given, strict=True)
            if kind == "buffer"
        }

    # ---- code

    def _load(self, device: int) -> tuple[dict[str, Any], dict[str, Any]]:
        with self._lock:
            if device not in self._modules:
                self._modules[device] = self._load_module(device)
            _, functions, infos = self._modules[device]
            return functions, infos

    def _load_module(self, device: int) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        cu = _driver()
        _make_current(device)
        handle = _checked(cu.cuDeviceGet(device))
        kind = cu.CUdevice_attribute
        capability = tuple(
            _checked(cu.cuDeviceGetAttribute(a, handle))
            for a in (kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                      kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        )  # fmt: skip
        image = choose_image(self.images, capability)
        modules: dict[tuple[int, int], Any] = {}
        functions = {}
        for name, info in image["kernels"].items():
            # the kernels of an image share a module, unless each has its own (Triton's do)
            start, size = (info.get(key, image[key]) for key in ("offset", "size"))
            if (start, size) not in modules:
                code = self.bundle.code[start : start + size]
                modules[start, size] = _checked(cu.cuModuleLoadData(code))
            module = modules[start, size]
            functions[name] = _checked(cu.cuModuleGetFunction(module, name.encode()))
            if info["shared"] > 48 * 1024:
                limit = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                _checked(cu.cuFuncSetAttribute(functions[name], limit, info["shared"]))
        return modules, functions, image["kernels"]

    def _launch(
        self, launch: Any, arrays: Any, buffers: Any, shapes: Any, scalars: Any, functions: Any,
        infos: Any,
    ) -> Launch | None:  # fmt: skip
        programs = 1
        for extent in launch.grid:
            programs *= int(evaluate(extent, shapes, scalars))
        if programs <= 0:
            return None
        if programs >= 1 << 31:
            raise ArgumentError(f"{programs} programs are more than one launch can have")
        values: list[Any] = []
        for operand in launch.operands:
            if operand[0] == "value":
                value = evaluate(operand[2], shapes, scalars)
                values.append(_c_scalar(operand[1], value))
            elif operand[0] == "map":
                kind, number, *box = operand[1:]
                array = (buffers if kind == "buffer" else arrays)[number]
                values.append(tensor_map(array, *box))
            else:
                array = (buffers if operand[0] == "buffer" else arrays)[operand[1]]
                values.append(ctypes.c_void_p(array.address))
                values += [ctypes.c_int64(s) for s in array.strides[:-1]]
        info = infos[launch.kernel]
        values += [ctypes.c_void_p(0) for _ in range(info.get("hidden", 0))]
        addresses = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        return Launch(
            functions[launch.kernel], programs, info["threads"], info["shared"], addresses, values
        )


_MAPS: dict[Any, Any] = {}  # tensor maps by array and box; encoding one takes microseconds
_MAPS_LIMIT = 4096


def tensor_map(array: GpuArray, rows_dim: int, rows: int, columns: int) -> Any:
    """What the copy engine needs to bring boxes of `rows` whole rows: 128 bytes.

    Its axes: 64 columns (128 bytes, swizzled), the rows, the panels of 64 columns, then the other
    dimensions from the innermost outwards. Rows that do not exist come as 0.
    """
    key = (array.address, array.dtype, array.shape, array.strides, rows_dim, rows, columns)
    if key not in _MAPS:
        if len(_MAPS) >= _MAPS_LIMIT:
            _MAPS.clear()
        _MAPS[key] = _encode_map(array, rows_dim, rows, columns)
    return _MAPS[key]


def _encode_map(array: GpuArray, rows_dim: int, rows: int, columns: int) -> Any:
    cu = _driver()
    panel, size = 64, _SIZES[array.dtype]
    inner = len(array.shape) - 1
    rest = [d for d in reversed(range(inner)) if d != rows_dim]
    extents = [panel, array.shape[rows_dim], columns // panel, *(array.shape[d] for d in rest)]
    # an axis of one element may have any stride, but the encoding checks it
    steps = [
        array.strides[d] * size if array.shape[d] > 1 else 16 for d in (rows_dim, *rest)
    ]  # fmt: skip
    strides = [steps[0], panel * size, *steps[1:]]
    box = [panel, rows, columns // panel, *(1 for _ in rest)]
    kinds = cu.CUtensorMapDataType
    kind = {
        "f16": kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        "bf16": kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    }[array.dtype]
    made = _checked(
        cu.cuTensorMapEncodeTiled(
            kind, len(box), array.address, [cu.cuuint64_t(max(1, n)) for n in extents],
            [cu.cuuint64_t(n) for n in strides], [cu.cuuint32_t(n) for n in box],
            [cu.cuuint32_t(1)] * len(box),
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )  # fmt: skip
    return (ctypes.c_char * 128).from_buffer_copy(ctypes.string_at(int(made.getPtr()), 128))


def choose_image(images: Sequence[Any], capability: tuple[int, int]) -> Any:
    """The best code for a device: of the newest architecture that runs there."""
    from neptune_mlir.targets.nvidia import nvidia

    fitting = [i for i in images if nvidia(i["target"]).runs_on(capability)]
    if not fitting:
        have = ", ".join(i["target"] for i in images)
        raise ArgumentError(
            f"the bundle holds code for {have}; this device is sm_{capability[0]}{capability[1]}"
        )
    return max(fitting, key=lambda i: (nvidia(i["target"]).capability, nvidia(i["target"]).exact))


@dataclass
class Launch:
    function: Any
    programs: int
    threads: int
    shared: int
    addresses: Any
    values: list[Any]  # what `addresses` points to


class PreparedCall:
    """Checked launches. Calling it enqueues them on a stream (default: torch's current one)."""

    def __init__(self, launches: Sequence[Launch], results: tuple[Any, ...], keep: Any):
        self.launches = launches
        self.results = results
        self._keep = keep
        self._launch = _driver().cuLaunchKernel

    def __call__(self, stream: Any = None) -> None:
        handle = _stream(stream)
        for x in self.launches:
            (error,) = self._launch(
                x.function, x.programs, 1, 1, x.threads, 1, 1, x.shared, handle,
                ctypes.addressof(x.addresses), 0,
            )  # fmt: skip
            if error:
                raise ToolError(f"a kernel launch failed: {error}")


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError:
        raise ToolError(
            "the package cuda-bindings is not installed", hint="pip install cuda-bindings"
        ) from None
    return driver


def _checked(result: Any) -> Any:
    error, *values = result
    if error:
        raise ToolError(f"a CUDA call failed: {error}")
    return values[0] if len(values) == 1 else tuple(values) or None


def _make_current(device: int) -> None:
    """Make sure that a context of `device` is current in this thread."""
    cu = _driver()
    _checked(cu.cuInit(0))
    context = _checked(cu.cuCtxGetCurrent())
    if int(context) == 0 or int(_checked(cu.cuCtxGetDevice())) != device:
        primary = _checked(cu.cuDevicePrimaryCtxRetain(_checked(cu.cuDeviceGet(device))))
        _checked(cu.cuCtxSetCurrent(primary))


def _current_device() -> int:
    cu = _driver()
    _checked(cu.cuInit(0))
    if int(_checked(cu.cuCtxGetCurrent())) == 0:
        return 0
    return int(_checked(cu.cuCtxGetDevice()))


def _stream(stream: Any) -> int:
    """The handle of a torch, CuPy or cuda-core stream, or a number."""
    if stream is None:
        import sys

        torch = sys.modules.get("torch")
        return torch.cuda.current_stream().cuda_stream if torch is not None else 0
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)


def _allocate(shape: tuple[int, ...], dtype: str, device: int) -> Any:
    try:
        import torch
    except ImportError:
        raise ArgumentError(
            "results need memory, and torch is not installed to allocate it", hint="pass out="
        ) from None
    name = next(t for t, kind in _TORCH.items() if kind == dtype)
    return torch.empty(shape, dtype=getattr(torch, name), device=f"cuda:{device}")


def _span(array: GpuArray) -> tuple[int, int]:
    if 0 in array.shape:
        return array.address, array.address
    last = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    return array.address, array.address + (last + 1) * _SIZES[array.dtype]


def _check_overlap(out: GpuArray, arrays: Any, name: str, names: Sequence[str]) -> None:
    low, high = _span(out)
    for array, other in zip(arrays, names, strict=True):
        if array is not None:
            first, last = _span(array)
            if low < last and first < high:
                raise ArgumentError(f"{name} overlaps {other}, which the kernels read")


def _c_scalar(dtype: str, value: Any) -> Any:
    if dtype == "f32":
        return ctypes.c_float(value)
    if dtype == "f64":
        return ctypes.c_double(value)
    if dtype == "index":
        if not -(1 << 31) <= value < 1 << 31:
            raise ArgumentError(f"a size or position of {value} does not fit 32 bits")
        return ctypes.c_int32(value)
    if dtype in ("i1", "i8", "i16", "i32", "i64"):
        return {"i1": ctypes.c_int8, "i8": ctypes.c_int8, "i16": ctypes.c_int16,
                "i32": ctypes.c_int32, "i64": ctypes.c_int64}[dtype](value)  # fmt: skip
    raise ArgumentError(f"scalars of type {dtype} cannot be passed", hint="use f32")
