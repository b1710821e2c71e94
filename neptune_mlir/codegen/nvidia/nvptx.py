# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LLVM IR text to PTX."""

from __future__ import annotations

import re

from neptune_mlir.codegen import llvm_child
from neptune_mlir.errors import ToolError
from neptune_mlir.targets.nvidia import NvidiaTarget

_INTRINSIC = re.compile(r"\.extern\s+\.func[^;]*?\b(llvm\.[\w.]+)")


def ptx(text: str, target: NvidiaTarget) -> str:
    """The PTX of an LLVM IR module, optimised for `target`.

    Raises:
        ToolError: LLVM refuses the module, dies on it, or leaves an intrinsic unselected.
    """
    # shared-memory addresses as 32-bit numbers: half the registers for address arithmetic
    code = llvm_child.generate(
        text, "nvptx64-nvidia-cuda", target.name, target.ptx,
        form="assembly", option="--nvptx-short-ptr",
    ).decode()  # fmt: skip
    missing = sorted(set(_INTRINSIC.findall(code)))
    if missing:
        raise ToolError(
            f"LLVM's NVPTX code generator does not know {', '.join(missing)}",
            hint="install a newer llvmlite",
        )
    return code
