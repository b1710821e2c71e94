# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LLVM IR text to PTX, and what a kernel computes before it waits for the kernel before it.

    griddepcontrol.wait;                        mad.lo.s64 %rd3, %rd1, %rd2, %rd0;
    mad.lo.s64 %rd3, %rd1, %rd2, %rd0;    ->    @%p bra ON; trap;              (never taken)
    ld.global.b32 %r1, [%rd3];                  ON: griddepcontrol.wait;
                                                ld.global.b32 %r1, [%rd3];

A kernel that joins chunks has little to do, and its addresses are most of its instructions. They
depend on nothing that the kernel before it writes, so they are for the time that it waits anyway.
The assembler puts the wait as early as it can, as loads hang on it, and the addresses behind it. It
moves nothing across the end of a block, so one ends here, in a branch that it cannot decide.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from neptune_mlir.codegen import llvm_child
from neptune_mlir.errors import ToolError
from neptune_mlir.targets.nvidia import NvidiaTarget

_INTRINSIC = re.compile(r"\.extern\s+\.func[^;]*?\b(llvm\.[\w.]+)")
_WAIT = "griddepcontrol.wait;"
_ENTRY = re.compile(r"(?=\.visible \.entry)")
_END = re.compile(r"\s*(\$\w+:|@|bra|ret|\}$)")  # of a block
_ORDERED = re.compile(r"\b(st|bar|atom|red|cp|fence|membar)\.|begin inline")  # loads stay behind
_PURE = re.compile(
    r"\s*(ld\.param|mov|cvt|cvta|add|sub|mul|mad|shl|shr|and|or|xor|not|neg|setp|selp|min|max|div"
    r"|rem|bfe|shf)\b[^{]*$"
)
_REGISTER = re.compile(r"%(?:r|rd|p|f|rs)\d+")
_LOAD = re.compile(r"\s*ld\.global\S*\s+(?P<made>.*),\s*\[(?P<address>[^\]]*)\]")


def ptx(text: str, target: NvidiaTarget) -> str:
    """The PTX of an LLVM IR module, optimised for `target`; what waits for another kernel knows by
    then where it loads.

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
    return use_waits(code)


def use_waits(text: str) -> str:
    """PTX whose kernels are ready for what they wait for."""
    numbers = itertools.count()
    head, *kernels = _ENTRY.split(text)
    for kernel in kernels:
        lines = kernel.split("\n")
        _before_waits(lines, numbers)
        head += "\n".join(lines)
    return head


def _cut(numbers: Iterator[int]) -> list[str]:
    """The end of a block."""
    label = f"$neptune_block{next(numbers)}"
    return ["\t{", "\t.reg .b32 \t%blocks;", "\t.reg .pred \t%some;",
            "\tmov.u32 \t%blocks, %nctaid.x;", "\tsetp.ne.s32 \t%some, %blocks, 0;",
            f"\t@%some bra \t{label};", "\ttrap;", "\t}", f"{label}:"]  # fmt: skip


def _before_waits(lines: list[str], numbers: Iterator[int]) -> None:
    for at in [k for k, line in enumerate(lines) if line.strip() == _WAIT][::-1]:
        end = next(k for k in range(at + 2, len(lines)) if _END.match(lines[k]))
        block = lines[at + 2 : end]  # behind the comment that ends the inline assembly
        ahead = _addresses(block)
        if ahead:
            rest = [x for k, x in enumerate(block) if k not in ahead]
            first = [block[k] for k in sorted(ahead)]
            lines[at - 1 : end] = [*first, *_cut(numbers), *lines[at - 1 : at + 2], *rest]


def _addresses(block: Sequence[str]) -> set[int]:
    """Which lines compute the addresses of a block's first loads from what stands before it."""
    made: dict[str, int] = {}  # by register: the line that computes it
    needs: dict[int, set[int]] = {}  # of these lines: others
    seen: set[str] = set()
    stays: set[str] = set()  # registers that other lines make, or use
    found: set[int] = set()
    for k, line in enumerate(block):
        if _ORDERED.search(line):
            break
        load, names = _LOAD.match(line), _REGISTER.findall(line)
        if load:
            address = _REGISTER.findall(load["address"])
            if not stays & set(address):
                found |= {made[r] for r in address if r in made}
            stays |= set(_REGISTER.findall(load["made"]))
        elif _PURE.match(line) and names and not stays & set(names) and names[0] not in seen:
            needs[k] = {made[r] for r in names[1:] if r in made}
            made[names[0]] = k
        else:  # a number of a loop, say
            stays |= set(names)
        seen |= set(names)
    left = [*found]
    while left:
        more = needs[left.pop()] - found
        found |= more
        left += more
    return found
