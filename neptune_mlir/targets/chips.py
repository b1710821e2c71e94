# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every GPU that code can be made for, by name."""

from __future__ import annotations

from neptune_mlir.errors import UsageError
from neptune_mlir.targets import amd, nvidia
from neptune_mlir.targets.gpu import GpuTarget

TARGETS: dict[str, GpuTarget] = {**nvidia.TARGETS, **amd.TARGETS}


def gpu_target(name: str) -> GpuTarget:
    """The chip called `name`. Raises UsageError when there is none."""
    if name not in TARGETS:
        raise UsageError(f"unknown GPU target '{name}'", hint=f"one of: {', '.join(TARGETS)}")
    return TARGETS[name]
