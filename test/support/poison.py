# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory that kernels for CPUs are given holds NaNs, not what the last kernel left.

A kernel that reads what nobody wrote is right as long as zeros are there, as in a new process, and
is off by anything after other kernels. All tests give each call scratch memory and arrays for
results with all bits set: a NaN of every type of float. (Simulators of GPUs do the same.)
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

ALL_BITS = 0xFF


def install(byte: int = ALL_BITS) -> None:
    """Fill what calls are given with a byte, in this process from now on."""
    from neptune_mlir.runtime import cpu_call, workers

    # (as the product has them, whatever stands there now)
    scratch, unwritten = (getattr(f, "clean", f) for f in (workers.scratch, cpu_call.unwritten))

    def poisoned_scratch(size: int) -> int:
        address: int = scratch(size)
        ctypes.memset(address, byte, size)
        return address

    def poisoned_array(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        array: np.ndarray[Any, Any] = unwritten(shape, dtype)
        ctypes.memset(array.ctypes.data, byte, array.nbytes)
        return array

    poisoned_scratch.clean, poisoned_array.clean = scratch, unwritten  # type: ignore[attr-defined]
    workers.scratch, cpu_call.unwritten = poisoned_scratch, poisoned_array
