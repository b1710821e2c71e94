# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of a PTX module, taken apart into its kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

BEGIN, END = "// begin inline asm", "// end inline asm"

_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(")
_THREADS = re.compile(r"\.maxntid\s+(\d+)")


@dataclass(frozen=True)
class PtxPart:
    """Lines of a module: a kernel, from its `.entry` to the brace that ends it, or, where `kernel`
    is empty, lines of what stands between kernels."""

    kernel: str
    lines: list[str]

    @property
    def threads(self) -> int:
        """Of a block."""
        found = _THREADS.search("\n".join(self.lines))
        return int(found[1]) if found else 1024

    @property
    def declaration(self) -> list[str]:
        """The kernel's name and parameters, for what stands in front of it."""
        end = next(k for k, line in enumerate(self.lines) if ")" in line)
        return [*self.lines[:end], self.lines[end] + ";"]

    @property
    def head(self) -> list[str]:
        """What stands in front of the first instruction."""
        return self.lines[: self._begin]

    @property
    def body(self) -> list[str]:
        return self.lines[self._begin :]

    @property
    def _begin(self) -> int:
        return 1 + max(k for k, line in enumerate(self.lines) if line.startswith("\t.reg"))


def parts_of(ptx: str) -> Iterator[PtxPart]:
    lines = iter(ptx.splitlines())
    for line in lines:
        found = _ENTRY.search(line)
        if not found:
            yield PtxPart("", [line])
            continue
        head = [line]
        while ")" not in head[-1]:
            head.append(next(lines))
        declared = head[-1].endswith(";")  # here, and written elsewhere
        yield PtxPart("", head) if declared else PtxPart(found[1], [*head, *_rest(lines)])


def _rest(lines: Iterator[str]) -> Iterator[str]:
    """The rest of a kernel, up to the brace in the first column that ends it."""
    inline = False  # which may have such a brace too
    for line in lines:
        yield line
        inline = line.strip() == BEGIN or (inline and line.strip() != END)
        if line.startswith("}") and not inline:
            return
