# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""TTIR to machine code with the `triton` package, in a child process.

The package is an extra. `NEPTUNE_TRITON_PYTHON` names another interpreter that has it, for
example one whose torch pins another version.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neptune_mlir.errors import ToolError

_CHILD = Path(__file__).with_name("child.py")
# Triton's launchers pass two more pointers, to scratch memory that our kernels do not use.
HIDDEN_POINTERS = 2
_STAGES = {"ttgir": "ttgir", "llvm": "llir"}  # Triton's names of levels


@dataclass(frozen=True)
class Machine:
    """What Triton compiles for: its family ("cuda" or "hip"), architecture and wave width."""

    family: str
    arch: int | str
    wave: int


@dataclass(frozen=True)
class Binary:
    """One compiled kernel: a cubin or an HSA code object, and its text at the level asked for.
    Sizes are in bytes."""

    name: str
    code: bytes
    text: str
    threads: int
    shared: int
    registers: int
    spills: int  # bytes of local memory a thread
    tool: str


def machine(target: str) -> Machine:
    """The machine of a target like sm_90a or gfx942."""
    if target.startswith("sm_"):
        return Machine("cuda", int(target.removeprefix("sm_").rstrip("af")), 32)
    return Machine("hip", target, 64 if target.startswith("gfx9") else 32)


def interpreter() -> str:
    return os.environ.get("NEPTUNE_TRITON_PYTHON") or sys.executable


@functools.cache
def version(python: str) -> str | None:
    """The version of triton that an interpreter has, or None."""
    code = "from importlib.metadata import version; print(version('triton'))"
    try:
        done = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def compile_kernel(
    text: str, target: str, *, warps: int = 4, stages: int = 2, level: str = "",
    timeout: float = 300,
) -> Binary:  # fmt: skip
    """The machine code of a TTIR module with one function.

    Args:
        level: of the text: "ttgir", "llvm", or the assembly ("ptx", "amdgcn", the default).

    Raises:
        ToolError: triton is missing, refuses the module, dies on it, or takes too long.
    """
    python, chip = interpreter(), machine(target)
    if version(python) is None:
        raise ToolError(
            "the package triton is not installed",
            hint="pip install triton, or name an interpreter in NEPTUNE_TRITON_PYTHON",
        )
    request = {
        "text": text, "family": chip.family, "arch": chip.arch, "wave": chip.wave,
        "level": _STAGES.get(level) or ("ptx" if chip.family == "cuda" else "amdgcn"),
        "options": {"num_warps": warps, "num_stages": stages},
    }  # fmt: skip
    try:
        done = subprocess.run(
            [python, str(_CHILD)], input=json.dumps(request), capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ToolError(f"Triton did not finish in {timeout:g} s for {target}") from None
    if done.returncode:
        raise ToolError(f"Triton stopped for {target}: {_reason(done)}")
    answer = json.loads(done.stdout)
    if answer["global_scratch_size"] or answer["profile_scratch_size"]:
        raise ToolError(f"Triton's kernel for {target} wants scratch memory from its own runtime")
    code = base64.b64decode(answer["code"])
    figures = _nvidia_figures(code) if chip.family == "cuda" else _amd_figures(answer["amdgcn"])
    return Binary(
        answer["name"], code, answer["text"], answer["threads"], answer["shared"],
        *figures, answer["tool"],
    )  # fmt: skip


def _reason(done: Any) -> str:
    """The first error that Triton printed, or how it died."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or "LLVM ERROR" in line]
    if errors:
        return errors[0]
    status = f"signal {-done.returncode}" if done.returncode < 0 else "an error"
    return lines[-1] if lines else f"{status}, and no message"


# ---- figures

_REGISTER_COUNT, _FRAME_SIZE = 0x2F, 0x11  # attributes of the section .nv.info
_WORD_PAIR = 4  # format of an attribute: 16 bits of size, then that many bytes


def _nvidia_figures(cubin: bytes) -> tuple[int, int]:
    """Registers a thread and bytes of its stack frame, from the cubin's ELF section."""
    start, width, count, names = struct.unpack_from("<Q10xHHH", cubin, 40)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + k * width) for k in range(count)]
    strings = sections[names][4]
    registers = frame = 0
    for name, _, _, _, offset, size in sections:
        end = cubin.index(b"\0", strings + name)
        if cubin[strings + name : end] != b".nv.info":
            continue
        at = offset
        while at < offset + size:
            form, attribute, length = struct.unpack_from("<BBH", cubin, at)
            at += 4
            if form != _WORD_PAIR:
                continue
            if length == 8:
                value = struct.unpack_from("<I", cubin, at + 4)[0]
                if attribute == _REGISTER_COUNT:
                    registers = max(registers, value)
                elif attribute == _FRAME_SIZE:
                    frame = max(frame, value)
            at += length
    return registers, frame


def _amd_figures(assembly: str) -> tuple[int, int]:
    """Vector registers a thread and bytes of its scratch memory, from the code's metadata."""

    def figure(name: str) -> int:
        return max(map(int, re.findall(rf"\.{name}:\s+(\d+)", assembly)), default=0)

    return figure("vgpr_count"), figure("private_segment_fixed_size")
