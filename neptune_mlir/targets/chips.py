# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every GPU that code can be made for, by name: those of the makers' tables, and those that
packages add (docs/extending.md)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from neptune_mlir import plugins
from neptune_mlir.errors import UsageError
from neptune_mlir.targets import added, amd, nvidia
from neptune_mlir.targets.gpu import GpuTarget

_TABLES: tuple[Any, ...] = (amd.TARGETS, nvidia.TARGETS)  # (listed from the last to the first)
TARGETS: Mapping[str, GpuTarget] = ChainMap(*_TABLES)


def gpu_target(name: str) -> GpuTarget:
    """The chip called `name`. Raises UsageError when there is none."""
    return added.find(TARGETS, name, "GPU target")


def is_known(name: str) -> bool:
    """Whether there is a chip of this name, of a package too."""
    return name in TARGETS or name in plugins.entries(plugins.TARGETS)


def register(target: GpuTarget) -> None:
    """Add a chip: an `NvidiaTarget` or `AmdTarget`, whose name is what its maker's tools take.

    Raises:
        UsageError: another chip has the name, or no maker's tools make code for it.
    """
    for kind, table in ((nvidia.NvidiaTarget, nvidia.TARGETS), (amd.AmdTarget, amd.TARGETS)):
        if isinstance(target, kind):
            added.add(table, target.name, target)
            return
    raise UsageError(f"'{target.name}' is neither an NvidiaTarget nor an AmdTarget")


def running_on(architecture: str) -> list[GpuTarget]:
    """The chips whose code a device runs, those of packages among them."""
    for name in plugins.entries(plugins.TARGETS):
        gpu_target(name)
    return [target for target in TARGETS.values() if target.runs_on(architecture)]


def best_for(architecture: str) -> GpuTarget | None:
    """The best of the chips whose code a device runs; None where there is none."""
    return max(running_on(architecture), key=lambda target: target.rank, default=None)
