# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory that kernels for CPUs are given holds NaNs, not what the last kernel left.

A kernel that reads what nobody wrote is right as long as zeros are there, as in a new process, and
is off by anything after other kernels. All tests give each call scratch memory and arrays for
results with all bits set: a NaN of every type of float. (Simulators of GPUs do the same.)
"""

from __future__ import annotations

import ctypes
from typing import Any

ALL_BITS = 0xFF


def install(byte: int = ALL_BITS) -> None:
    """Fill what calls are given with a byte, in this process from now on."""
    from neptune_mlir.runtime import host_memory, workers

    # (as the product has it, whatever stands there now)
    scratch = getattr(workers.scratch, "clean", workers.scratch)

    def poisoned_scratch(size: int) -> int:
        address: int = scratch(size)
        ctypes.memset(address, byte, size)
        return address

    poisoned_scratch.clean = scratch  # type: ignore[attr-defined]
    workers.scratch = poisoned_scratch
    for kind in (host_memory.NumpyMemory, host_memory.TorchMemory):
        kind.maker = _poisoned(kind.maker, byte)  # type: ignore[method-assign]


def _poisoned(maker: Any, byte: int) -> Any:
    clean = getattr(maker, "clean", maker)

    def poisoned(self: Any, *given: Any) -> Any:
        make = clean(self, *given)

        def fill() -> Any:
            array = make()
            ctypes.memset(self.address(array), byte, array.nbytes)
            return array

        return fill

    poisoned.clean = clean  # type: ignore[attr-defined]
    return poisoned
