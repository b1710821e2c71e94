# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads compiled bundles and runs them on arrays. Imports no MLIR and no compiler."""

from __future__ import annotations

from typing import Any

__all__ = ["CpuExecutable"]


def __getattr__(name: str) -> Any:
    if name == "CpuExecutable":  # on first use: the plan alone needs no loader
        from neptune_mlir.runtime.cpu import CpuExecutable

        return CpuExecutable
    raise AttributeError(f"module 'neptune_mlir.runtime' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
