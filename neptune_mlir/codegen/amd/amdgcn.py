# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LLVM IR text to AMD machine code: an object file from LLVM, linked into an HSACO by an lld."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from neptune_mlir.codegen import llvm_child
from neptune_mlir.errors import ToolError
from neptune_mlir.targets.amd import AmdTarget

TRIPLE = "amdgcn-amd-amdhsa"
CODE_OBJECT = 500  # version 5: what ROCm 6 and 7 load

PAIRED = 5000  # instructions of a block that are issued in pairs where the chip can
_LABEL = re.compile(r"[-\w.$]+:")

_UNUSED = 99999  # a number of metadata that no kernel reaches
_FLAGS = re.compile(r"^!llvm\.module\.flags = !\{(.*)\}$", re.MULTILINE)


def assembly(text: str, target: AmdTarget) -> str:
    """The assembly of an LLVM IR module. Raises ToolError."""
    return llvm_child.generate(
        _with_version(text), TRIPLE, target.name, form="assembly", option=_option(text)
    ).decode()


def hsaco(text: str, target: AmdTarget, unroll: bool = True) -> bytes:
    """An LLVM IR module as code that AMD's loader takes; `unroll`: LLVM may unroll loops.

    Raises:
        ToolError: LLVM refuses the module or dies on it; no linker; a name that nothing defines.
    """
    compiled = llvm_child.generate(
        _with_version(text), TRIPLE, target.name, form="object", unroll=unroll,
        option=_option(text),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="neptune-") as folder:
        source, output = Path(folder) / "kernels.o", Path(folder) / "kernels.hsaco"
        source.write_bytes(compiled)
        done = subprocess.run(
            [*find_linker(), "-shared", "--no-undefined", "-o", str(output), str(source)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            reason = (done.stdout + done.stderr).strip()
            raise ToolError(f"the linker failed for {target.name}: {reason}")
        return output.read_bytes()


def _option(text: str) -> str:
    """The option of LLVM that a module wants. Which instructions issue in pairs (RDNA 3 on) takes
    time that grows with the cube of a block: half a second for 5000, an hour for 50,000."""
    longest = length = 0
    for line in text.splitlines():
        if line.endswith(("{", ":")) or _LABEL.match(line):
            length = 0
        else:
            length += 1
            longest = max(longest, length)
    return "-amdgpu-enable-vopd=0" if longest > PAIRED else ""


def _with_version(text: str) -> str:
    """The module with the flag that says which version of code object to write."""
    flag = f'!{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT}}}'
    if not _FLAGS.search(text):
        return f"{text}\n!llvm.module.flags = !{{!0}}\n!0 = {flag}\n"
    listed = _FLAGS.sub(lambda m: f"!llvm.module.flags = !{{{m[1]}, !{_UNUSED}}}", text)
    return f"{listed}\n!{_UNUSED} = {flag}\n"


@functools.cache
def find_linker() -> tuple[str, ...]:
    """The command of an lld that writes ELF. Raises ToolError when there is none."""
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "ld.lld")
    for name in ("ld.lld", "iree-lld", *(f"ld.lld-{v}" for v in range(23, 16, -1))):
        found = shutil.which(name)
        if found:
            return (found, "-flavor", "gnu") if name == "iree-lld" else (found,)
    raise ToolError("no lld found to link AMD code", hint="pip install 'neptune-mlir[amd]'")


def linker_version() -> str:
    """What the linker calls itself."""
    command = [*find_linker(), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.split("(")[0].strip() or "lld of unknown version"
