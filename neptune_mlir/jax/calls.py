# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled programs as JAX calls: types of the results, and what runs when XLA executes one."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from neptune_mlir.driver.kernel import Kernel
from neptune_mlir.driver.on_demand import Coming
from neptune_mlir.errors import ToolError, UsageError
from neptune_mlir.frontend.program import Program
from neptune_mlir.jax.xla_ffi import CallFrame, CallMemory, handler
from neptune_mlir.runtime.arrays import ArrayView, contiguous, storage_dtype
from neptune_mlir.runtime.checks import check, check_equal
from neptune_mlir.runtime.gpu_arrays import DeviceArray
from neptune_mlir.runtime.memory import WORKSPACE_ALIGNMENT, Sizes
from neptune_mlir.targets.chips import TARGETS, best_for
from neptune_mlir.targets.gpu import MULTIPROCESSORS

CALL = "neptune_kernel"  # the name of the custom call; its attribute `site` says which
_PLATFORMS = {"cpu": "cpu", "gpu": "CUDA", "cuda": "CUDA", "rocm": "ROCM"}
_NAMED = {"bfloat16": "bf16", "float8_e4m3fn": "f8E4M3FN"}


@dataclass(frozen=True)
class _Site:
    """A call as traced: a kernel, and the arguments that are numbers (None: the next operand)."""

    kernel: Kernel
    numbers: tuple[Any, ...]
    # bytes of workspace by shapes of the operands
    workspaces: dict[tuple[tuple[int, ...], ...], int] = field(default_factory=dict)

    def arguments(self, operands: Sequence[Any]) -> list[Any]:
        left = iter(operands)
        return [next(left) if n is None else n for n in self.numbers]


_sites: dict[int, _Site] = {}
_numbers = itertools.count()
_known: dict[Any, int] = {}
_lock = threading.Lock()


def default_target() -> str:
    """The compiler's target for the device that JAX computes on.

    Raises:
        ToolError: there is none.
    """
    device: Any = getattr(jax.config, "jax_default_device", None) or jax.devices()[0]
    platform = getattr(device, "platform", device)
    if platform == "cpu":
        return "cpu"
    text = str(getattr(device, "compute_capability", ""))
    name = f"sm_{text.replace('.', '')}" if text[:1].isdigit() else text
    best = best_for(name)
    if best is None:
        raise ToolError(f"no target for JAX's device '{device}'", hint=", ".join(TARGETS))
    return best.name


def call(kernel: Kernel, arguments: Sequence[Any]) -> tuple[jax.Array, ...]:
    """The results of a kernel on arrays (traced ones too) and numbers of Python.

    Raises:
        ArgumentError: a wrong number, type or shape.
        UsageError: a number that is traced, for a kernel of a GPU.
    """
    wanted = kernel.plan.arguments
    arrays = [
        a if isinstance(a, jax.Array) or w.kind == "scalar" else jax.numpy.asarray(a)
        for a, w in zip(arguments, wanted, strict=False)
    ]
    arrays += arguments[len(wanted) :]
    numbers = tuple(
        None if not isinstance(a, (bool, int, float, np.generic)) else a for a in arrays
    )
    if kernel.target != "cpu" and any(
        w.kind == "scalar" and n is None for w, n in zip(wanted, numbers, strict=False)
    ):
        raise UsageError(
            "a number that is traced would have to come from the GPU before the launch",
            hint="pass it as a Python number (static_argnums), or make it an array of the program",
        )
    types = result_types(kernel, arrays)
    operands = [a for a, n in zip(arrays, numbers, strict=True) if n is None]
    _register(kernel.target)
    run = jax.ffi.ffi_call(CALL, types, vmap_method="sequential")
    return tuple(run(*operands, site=np.int64(_site(kernel, numbers))))


def coming_of(program: Program, target: str, arguments: Sequence[Any]) -> Coming | None:
    """A call with these arguments (traced ones too), where they are arrays of a GPU and fit the
    program, which says later what is wrong with them."""
    processors = None if target == "cpu" else getattr(jax.devices()[0], "core_count", None)
    wanted = list(program.inputs.values())
    if not processors or len(wanted) != len(arguments):
        return None
    pairs = list(zip(wanted, (np.shape(a) for a in arguments), strict=True))
    if any(isinstance(t, str) or len(t.shape) != len(shape) for t, shape in pairs):
        return None
    return Coming([shape for _, shape in pairs], (), int(processors))


def result_types(kernel: Kernel, arguments: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    """Shapes and types of a kernel's results, from those of arrays alone. Raises ArgumentError."""
    plan = kernel.plan
    stand_ins = [
        0 if w.kind == "scalar" and isinstance(a, jax.Array) else a
        for a, w in zip(arguments, plan.arguments, strict=False)
    ]
    views, scalars = check(plan, [*stand_ins, *arguments[len(stand_ins) :]], _shape_of)
    shapes = [None if v is None else v.shape for v in views]
    check_equal(plan, shapes, scalars)
    results = Sizes(plan, shapes, scalars, MULTIPROCESSORS).requirements.results
    return [jax.ShapeDtypeStruct(shape, storage_dtype(dtype)) for shape, dtype in results]


def _shape_of(value: Any, name: str) -> ArrayView:
    kind = _element_type(np.dtype(value.dtype))
    shape = tuple(value.shape)
    return ArrayView(0, kind, shape, contiguous(shape), True, None)


@functools.cache
def _element_type(dtype: np.dtype[Any]) -> str:
    if dtype.name in _NAMED:
        return _NAMED[dtype.name]
    if dtype == np.bool_:
        return "i1"
    letter = {"f": "f", "i": "i", "u": "ui"}.get(dtype.kind, dtype.kind)
    return f"{letter}{8 * dtype.itemsize}"


def _site(kernel: Kernel, numbers: tuple[Any, ...]) -> int:
    key = (id(kernel), tuple(map(type, numbers)), numbers)
    with _lock:
        if key not in _known:
            _known[key] = next(_numbers)
            _sites[_known[key]] = _Site(kernel, numbers)  # keeps the kernel, and so its id
        return _known[key]


@functools.cache
def _register(target: str) -> None:
    platform = "cpu" if target == "cpu" else jax.default_backend()
    run = _run_on_cpu if target == "cpu" else _run_on_gpu
    jax.ffi.register_ffi_target(CALL, handler(run), platform=_PLATFORMS.get(platform, platform))


def _find(frame: CallFrame) -> _Site:
    found = _sites.get(frame.site)
    if found is None:
        raise ToolError(
            "this program calls a kernel that another process compiled",
            hint="trace and compile it again here: kernels stand in no exported program",
        )
    return found


def _run_on_cpu(frame: CallFrame) -> None:
    site = _find(frame)
    operands = [_array(m) for m in frame.operands]
    site.kernel(*site.arguments(operands), out=[_array(m) for m in frame.results])


def _array(memory: CallMemory) -> np.ndarray[Any, Any]:
    dtype = memory.dtype
    view = ArrayView(memory.address, dtype, memory.shape, contiguous(memory.shape), False, None)
    return view.numpy()


def _run_on_gpu(frame: CallFrame) -> None:
    site = _find(frame)
    operands = [DeviceArray(m.address, m.dtype, m.shape) for m in frame.operands]
    arguments = site.arguments(operands)
    shapes = tuple(m.shape for m in operands)
    size = site.workspaces.get(shapes)
    if size is None:
        size = site.workspaces[shapes] = site.kernel.requirements(*arguments).workspace
    workspace = None
    if size:
        workspace = DeviceArray(frame.allocate(size, WORKSPACE_ALIGNMENT), "i8", (size,))
    out = [DeviceArray(m.address, m.dtype, m.shape) for m in frame.results]
    site.kernel(*arguments, out=out, workspace=workspace, stream=frame.stream())
