# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code that the loader puts into this process, wherever memory is free."""

import ctypes
import gc
import subprocess
import sys

import pytest

from neptune_mlir.codegen.cpu import native
from neptune_mlir.errors import ToolError
from neptune_mlir.runtime.loader import load
from neptune_mlir.targets import cpu
from support.process import is_mapped

# Code of more than a page, and constants of less: only single pages are free at the top of the
# address space, and the next free memory lies 4 GiB below.
APART = r"""
import ctypes
from neptune_mlir.codegen.cpu import native
from neptune_mlir.runtime.loader import compile_text, load
from neptune_mlir.targets import cpu

COUNT, PAGE, FAR = 900, 4096, 4 << 30
lines = ["define float @f(float %x0) {"]
lines += [f"  %x{k + 1} = fadd float %x{k}, {k}.5" for k in range(COUNT)]
text = "\n".join([*lines, f"  ret float %x{COUNT}", "}"])
call = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)
code = native.object_code(text, cpu.host(), vectorize=False)
ways = [lambda: load(code, ["f"]), lambda: compile_text(text, ["f"])]
kept = [way() for way in ways]  # all that LLVM needs is there now
wanted = [call(address)(1) for _, (address,) in kept]

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def take(size):
    return libc.mmap(None, size, 0, 0x4022, -1, 0)  # private, anonymous, reserves nothing

wall = take(FAR)
size = 1 << 30
while size >= PAGE:
    if take(size) < wall:
        size //= 2
for page in range(1, 33, 2):
    libc.munmap(wall + FAR - page * PAGE, PAGE)
kept += [way() for way in ways]
assert [call(address)(1) for _, (address,) in kept] == wanted * 2
print("right")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="takes addresses as Linux gives them")
def test_code_and_its_constants_lie_side_by_side():
    """Code of an object reaches its constants over 2 GiB at most, however far apart free memory
    lies."""
    command = [sys.executable, "-c", APART]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (made.returncode, made.stdout) == (0, "right\n"), made.stderr[-1000:]


def test_code_leaves_memory_with_who_holds_it():
    """Loaded code is unmapped when nobody has it; a function that is not there is an error."""
    text = "define i64 @f() {\n  ret i64 7\n}"
    code = native.object_code(text, cpu.host(), vectorize=False)
    kept, (address,) = load(code, ["f"])
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(address)() == 7
    assert is_mapped(address)
    del kept
    gc.collect()
    assert sys.platform != "linux" or not is_mapped(address)
    with pytest.raises(ToolError, match="has not what its plan names"):
        load(code, ["g"])
