# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PTX to cubin with NVIDIA's assembler, and what it says about registers and spills."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from neptune_mlir.errors import ToolError
from neptune_mlir.targets.nvidia import NvidiaTarget
from neptune_mlir.targets.resources import threads_with


@dataclass(frozen=True)
class Figures:
    """What one kernel takes, as ptxas reports it (bytes of stack and spills are per thread)."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True)
class Cubin:
    code: bytes
    figures: dict[str, Figures]  # by kernel name
    warnings: tuple[str, ...]
    tool: str  # version of ptxas


def _candidates() -> list[Path]:
    """Where ptxas may be: the pip package, $CUDA_HOME, the PATH, triton's own copy."""
    found = []
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        found += sorted(Path(root).glob("*/bin/ptxas"), reverse=True)
    if os.environ.get("CUDA_HOME"):
        found.append(Path(os.environ["CUDA_HOME"]) / "bin" / "ptxas")
    on_path = shutil.which("ptxas")
    if on_path:
        found.append(Path(on_path))
    triton = importlib.util.find_spec("triton")
    for root in (triton.submodule_search_locations or []) if triton else []:
        found.append(Path(root) / "backends" / "nvidia" / "bin" / "ptxas")
    return [p for p in found if p.is_file()]


@functools.cache
def find_ptxas() -> Path:
    """The assembler to use. Raises ToolError when there is none."""
    found = _candidates()
    if not found:
        raise ToolError(
            "no ptxas found", hint="pip install nvidia-cuda-nvcc  (or set CUDA_HOME)"
        )
    return found[0]


@functools.cache
def version() -> str:
    done = subprocess.run([find_ptxas(), "--version"], capture_output=True, text=True, check=True)
    match = re.search(r"V([\d.]+)", done.stdout)
    return f"ptxas {match[1] if match else 'of unknown version'}"


_KERNEL = re.compile(r"^\.visible \.entry ([^\s(]+)\(", re.MULTILINE)
_BRACE = re.compile("[{}]")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


def assemble(text: str, target: NvidiaTarget) -> Cubin:
    """Assemble PTX for `target`. Raises ToolError."""
    with tempfile.TemporaryDirectory(prefix="neptune-") as folder:
        source, output = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        source.write_text(text)
        done = subprocess.run(
            [find_ptxas(), f"-arch={target.name}", "-v", "-o", output, source],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        report = done.stdout + done.stderr
        if done.returncode:
            lines = [x for x in report.splitlines() if "error" in x or "fatal" in x]
            raise ToolError(f"ptxas failed for {target.name}: {'; '.join(lines[:3]) or report}")
        return Cubin(output.read_bytes(), read_report(report), _warnings(report), version())


def assemble_without_spills(text: str, target: NvidiaTarget) -> Cubin:
    """Assemble PTX, with fewer blocks a multiprocessor for kernels that would spill.

    A kernel's `.minnctapersm` bounds its registers; each retry lowers it by one, from what the
    assembler made room for where a kernel asks for nothing. What still spills with all the
    registers that a thread can have stays as it is. Raises ToolError.

    A retry assembles the kernels that spilled alone: a program may have dozens of others.
    """
    made, tried, asked = assemble(text, target), text, text
    while True:
        spilling = [
            name
            for name, used in made.figures.items()
            if (used.spill_stores or used.spill_loads) and used.registers < target.thread_registers
        ]
        before = asked
        for name in spilling:
            room = threads_with(target, made.figures[name].registers)
            asked = _fewer_blocks(asked, name, room)
        if asked == before:
            return made if asked == tried else assemble(asked, target)
        tried = _without_others(asked, spilling)
        made = assemble(tried, target)


def _without_others(text: str, kernels: list[str]) -> str:
    """PTX without the kernels that are not among `kernels`."""
    kept, at = [], 0
    for head in _KERNEL.finditer(text):
        if head[1] not in kernels:
            kept.append(text[at : head.start()])
            at = _end(text, head.end())
    return "".join((*kept, text[at:]))


def _end(text: str, at: int) -> int:
    """Where the body behind a position ends. (Assembly that is written out has blocks, too.)"""
    depth = 0
    for brace in _BRACE.finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return len(text)


def _fewer_blocks(text: str, kernel: str, threads: int = 0) -> str:
    """PTX in which `kernel` asks for one block a multiprocessor less, if it asks for several; if it
    asks for nothing, for one less than so many `threads` are."""
    head = rf"(\.entry\s+{re.escape(kernel)}\([^{{]*?"
    asks = re.compile(rf"{head}\.minnctapersm\s+)(\d+)", re.DOTALL)
    if asks.search(text):
        return asks.sub(lambda m: m[1] + str(max(1, int(m[2]) - 1)), text, count=1)
    size = re.compile(rf"{head}\.maxntid\s+(\d+)[^\n]*\n)", re.DOTALL)

    def ask(found: re.Match[str]) -> str:
        blocks = threads // int(found[2])
        return found[1] + (f".minnctapersm {blocks - 1}\n" if blocks > 1 else "")

    return size.sub(ask, text, count=1)


def read_report(report: str) -> dict[str, Figures]:
    """Figures per kernel from what `ptxas -v` prints."""
    figures: dict[str, Figures] = {}
    name, spills = "", (0, 0, 0)
    for line in report.splitlines():
        if match := _ENTRY.search(line):
            name, spills = match[1], (0, 0, 0)
        elif match := _SPILLS.search(line):
            spills = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _REGISTERS.search(line)) and name:
            figures[name] = Figures(int(match[1]), *spills)
    return figures


def _warnings(report: str) -> tuple[str, ...]:
    """Warnings, and the notes that mean lost speed (serialised wgmma, ignored setmaxnreg)."""
    marks = ("warning", "C75", "serializ", "setmaxnreg", "Potential Performance Loss")
    return tuple(x.strip() for x in report.splitlines() if any(m in x for m in marks))
