# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes in words of registers: four of a thread's elements in 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.codegen.gpu.memory import Memory


def words_of(memory: Memory, values: Sequence[Any]) -> list[Any]:
    """Words of four bytes each; of two pairs that were made together (`Memory.pair_of`) by one
    move."""
    s, found = memory.s, []
    for k in range(0, len(values), 4):
        pairs = [memory.pair_of.get(tuple(values[j : j + 2])) for j in (k, k + 2)]
        both = pairs if all(p is not None for p in pairs) else values[k : k + 4]
        found.append(s.op("llvm.bitcast", [memory.pack(both)], s.i32))
    return found
