# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine code of NVIDIA as text, by NVIDIA's disassembler."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.errors import ToolError


def find_nvdisasm() -> Path:
    """The disassembler: the pip package's, that beside ptxas, $CUDA_HOME's, the PATH's.

    Raises:
        ToolError: there is none.
    """
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(r) for r in (spec.submodule_search_locations or [])] if spec else []
    found = [p for root in roots for p in sorted(root.glob("*/bin/nvdisasm"), reverse=True)]
    found.append(ptxas.find_ptxas().parent / "nvdisasm")
    if os.environ.get("CUDA_HOME"):
        found.append(Path(os.environ["CUDA_HOME"]) / "bin" / "nvdisasm")
    if on_path := shutil.which("nvdisasm"):
        found.append(Path(on_path))
    for path in found:
        if path.is_file():
            return path
    raise ToolError("no nvdisasm found", hint="pip install nvidia-cuda-nvdisasm")


def disassembly(cubin: bytes) -> str:
    """The instructions of a cubin, kernel by kernel. Raises ToolError."""
    with tempfile.NamedTemporaryFile(suffix=".cubin", prefix="neptune-") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [find_nvdisasm(), "-c", file.name], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise ToolError(f"nvdisasm failed: {(done.stderr or done.stdout).strip()[:300]}")
    return done.stdout
