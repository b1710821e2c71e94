# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels ask for their own code.

Code that nobody ran for a while is in memory alone, and a short call executes most of its
instructions once: it waits for lines of code from memory, runs them, and waits for the next ones.
So the first threads of a launch ask the second-level cache for all lines at once: those of the
kernel, and of the kernels behind it in the module, which are launched after it.

How long a kernel is, the assembler decides later; `INSTRUCTIONS` of the machine for each statement
of PTX cover the kernels that there are. A line behind the end is a neighbour's, or is nothing,
which a prefetch may ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neptune_mlir.codegen.ptx.text import PtxPart, parts_of
from neptune_mlir.targets.nvidia import NvidiaTarget

LINE = 128  # bytes that one prefetch brings
INSTRUCTIONS = 1.25  # for each statement
BYTES = 16  # of an instruction


def ask_for_code(ptx: str, target: NvidiaTarget) -> str:
    """PTX whose kernels begin by asking for code, on the targets where that was measured."""
    if target.capability < (9, 0):
        return ptx
    parts = list(parts_of(ptx))
    return "\n".join(line for k in range(len(parts)) for line in _asking(parts[k:])) + "\n"


def _asking(parts: Sequence[PtxPart]) -> Iterator[str]:
    """The first part, which asks for its code and for that of kernels behind it."""
    part, *others = parts
    if not part.kernel:
        yield from part.lines
        return
    kernels = [part, *(other for other in others if other.kernel)]
    for other in kernels[1:]:
        yield from other.declaration
    yield from part.head
    yield from (
        "\t.reg .b64 %code_at;",
        "\t.reg .b32 %code_line, %code_thread;",
        "\t.reg .pred %code_there;",
        "\tmov.u32 %code_line, %ctaid.x;",
        "\tmov.u32 %code_thread, %tid.x;",
        f"\tmad.lo.u32 %code_line, %code_line, {part.threads}, %code_thread;",
        f"\tsetp.ge.u32 %code_there, %code_line, {sum(map(_lines_of, kernels))};",
        "\t@%code_there bra $L_code_asked;",
    )
    for kernel in kernels:
        count = _lines_of(kernel)
        yield from (
            f"\tsetp.lt.u32 %code_there, %code_line, {count};",
            f"\tmov.u64 %code_at, {kernel.kernel};",
            f"\tmad.wide.u32 %code_at, %code_line, {LINE}, %code_at;",
            "\t@%code_there prefetch.global.L2 [%code_at];",
        )
        if kernel is not kernels[-1]:  # a line in front of the next kernel's is a large number
            yield f"\tsub.u32 %code_line, %code_line, {count};"
    yield "$L_code_asked:"
    yield from part.body


def _lines_of(part: PtxPart) -> int:
    statements = sum(line.count(";") for line in part.body)
    return -(-int(statements * INSTRUCTIONS) * BYTES // LINE)
