# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""neptune-mlir: fuses sequences of dependent reductions with proved corrections, on MLIR.

    import neptune_mlir as neptune

    kernel = neptune.compile(neptune.ops.attention(causal=True))
    out = kernel(q, k, v)

Everything loads on first use: importing this package imports neither MLIR nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from neptune_mlir.errors import NeptuneError
from neptune_mlir.version import __version__

if TYPE_CHECKING:
    from neptune_mlir import ops, passes
    from neptune_mlir.driver.kernel import Kernel, compile
    from neptune_mlir.frontend.gradient import grad
    from neptune_mlir.frontend.gradient.saved import vjp
    from neptune_mlir.passes import register

__all__ = [
    "Kernel", "NeptuneError", "__version__", "compile", "grad", "ops", "passes", "register", "vjp",
]  # fmt: skip

_HOME = {
    "compile": "neptune_mlir.driver.kernel",
    "Kernel": "neptune_mlir.driver.kernel",
    "register": "neptune_mlir.passes",
    "grad": "neptune_mlir.frontend.gradient",
    "vjp": "neptune_mlir.frontend.gradient.saved",
}


def __getattr__(name: str) -> Any:
    if name in ("ops", "passes"):
        return importlib.import_module(f"neptune_mlir.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'neptune_mlir' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
