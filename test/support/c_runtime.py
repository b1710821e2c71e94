# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime in C (c/) as a shared library, called through ctypes."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-I", "c/include",
         "-I", "c/src")  # fmt: skip
NAME = "libneptune_runtime.so"


def compiler() -> str | None:
    """The C compiler of this machine."""
    return shutil.which("cc")


def build(folder: Path) -> Path:
    """Make the library in a folder."""
    sources = sorted((ROOT / "c" / "src").glob("*.c"))
    command = [compiler(), *FLAGS, "-fPIC", "-shared", *sources, "-o", folder / NAME, "-lm", "-ldl",
               "-lpthread"]  # fmt: skip
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / NAME


class _Array(ctypes.Structure):
    """neptune_array"""

    _fields_ = (("data", ctypes.c_void_p), ("dtype", ctypes.c_char_p), ("rank", ctypes.c_int32),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)))  # fmt: skip


class _Value(ctypes.Structure):
    """neptune_value"""

    _fields_ = (("array", ctypes.POINTER(_Array)), ("is_float", ctypes.c_int32),
                ("integer", ctypes.c_int64), ("number", ctypes.c_double))  # fmt: skip


class _Result(ctypes.Structure):
    """neptune_result"""

    _fields_ = (("dtype", ctypes.c_char_p), ("rank", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 16))  # fmt: skip


class _Options(ctypes.Structure):
    """neptune_options"""

    _fields_ = (("workspace", ctypes.c_void_p), ("size", ctypes.c_size_t),
                ("stream", ctypes.c_void_p), ("threads", ctypes.c_int32))  # fmt: skip


def array(view: Any) -> _Array:
    """What the header calls an array, of a `runtime.arrays.ArrayView`."""
    extents = ctypes.c_int64 * len(view.shape)
    return _Array(view.address, view.dtype.encode(), len(view.shape), extents(*view.shape),
                  extents(*view.strides))  # fmt: skip


def _value(given: Any) -> _Value:
    if isinstance(given, _Array):
        return _Value(ctypes.pointer(given))
    whole = 0 if isinstance(given, float) else given
    return _Value(None, isinstance(given, float), whole, given)


class CKernel:
    """A bundle in the C runtime of a shared library."""

    def __init__(self, library: Path, data: bytes, results: int):
        self._library, self._results = ctypes.CDLL(str(library)), results
        self._library.neptune_error.restype = ctypes.c_char_p
        self._kernel = ctypes.c_void_p()
        self._check(self._library.neptune_open_memory(
            data, ctypes.c_size_t(len(data)), ctypes.byref(self._kernel)
        ))  # fmt: skip

    def _check(self, status: int) -> None:
        assert status == 0, self._library.neptune_error().decode()

    def requirements(self, arguments: Sequence[Any]) -> tuple[list[tuple[str, list[int]]], int]:
        """The type and shape of each result, and the bytes of workspace. Arrays are `array`s."""
        values = (_Value * len(arguments))(*map(_value, arguments))
        found, workspace = (_Result * self._results)(), ctypes.c_size_t()
        self._check(self._library.neptune_requirements(
            self._kernel, values, ctypes.c_size_t(len(arguments)), found, ctypes.byref(workspace)
        ))  # fmt: skip
        return [(r.dtype.decode(), list(r.shape[: r.rank])) for r in found], workspace.value

    def call(
        self, arguments: Sequence[Any], results: Sequence[_Array],
        workspace: tuple[int, int] = (0, 0), stream: int = 0,
    ) -> None:  # fmt: skip
        """`workspace`: its address and bytes."""
        values = (_Value * len(arguments))(*map(_value, arguments))
        outs = (_Array * len(results))(*results)
        options = _Options(*workspace, stream, 0)
        self._check(self._library.neptune_call(
            self._kernel, values, ctypes.c_size_t(len(arguments)), outs,
            ctypes.c_size_t(len(results)), ctypes.byref(options),
        ))  # fmt: skip

    def close(self) -> None:
        self._library.neptune_close(self._kernel)


def run_on_host(library: Path, bundle: Any, arguments: Sequence[Any]) -> list[np.ndarray]:
    """What a bundle for CPUs makes of NumPy arrays and numbers."""
    from neptune_mlir.runtime.arrays import storage_dtype, view

    kernel = CKernel(library, bundle.to_bytes(), len(bundle.plan.results))
    held = [np.asarray(a) if isinstance(a, (np.ndarray, np.generic)) else a for a in arguments]
    given = [array(view(a, "an array")) if isinstance(a, np.ndarray) else a for a in held]
    needed, _ = kernel.requirements(given)
    results = [np.empty(tuple(shape), storage_dtype(dtype)) for dtype, shape in needed]
    kernel.call(given, [array(view(r, "a result")) for r in results])
    kernel.close()
    return results
