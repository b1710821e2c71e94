# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code that the loader puts into this process, wherever memory is free."""

import subprocess
import sys

import pytest

# Code of more than a page, and constants of less: only single pages are free at the top of the
# address space, and the next free memory lies 4 GiB below.
APART = r"""
import ctypes
from neptune_mlir.codegen.cpu import native
from neptune_mlir.runtime.loader import load
from neptune_mlir.targets import cpu

COUNT, PAGE, FAR = 900, 4096, 4 << 30
lines = ["define float @f(float %x0) {"]
lines += [f"  %x{k + 1} = fadd float %x{k}, {k}.5" for k in range(COUNT)]
text = "\n".join([*lines, f"  ret float %x{COUNT}", "}"])
call = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)
code = native.object_code(text, cpu.host(), vectorize=False)
kept, (address,) = load(code, ["f"])  # all that LLVM needs is there now
wanted = call(address)(1)

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
kept_too, (address,) = load(code, ["f"])
assert call(address)(1) == wanted
print("right")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="takes addresses as Linux gives them")
def test_code_and_its_constants_lie_side_by_side():
    """Code reaches its constants over 2 GiB at most, however far apart free memory lies."""
    made = subprocess.run([sys.executable, "-c", APART], capture_output=True, text=True, timeout=300)
    assert (made.returncode, made.stdout) == (0, "right\n"), made.stderr[-1000:]
