# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the threads of a warp group hold the elements of accumulators and left factors."""

from __future__ import annotations

import numpy as np

from neptune_mlir.algebra.numerics.float8 import float8_values
from support.chips import simt

GROUP = 128  # threads
QUAD, LANE = np.arange(GROUP) % 4, np.arange(GROUP) % 32 // 4
FIRST_ROW = np.arange(GROUP) // 32 * 16 + LANE  # of those that a thread of a group holds


def row_of(i: int) -> np.ndarray:
    """Of an accumulator's register, in each thread of a group."""
    return FIRST_ROW + 8 * (i // 2 % 2)


def column_of(i: int) -> np.ndarray:
    return 8 * (i // 4) + 2 * QUAD + i % 2


def from_words(words: list[np.ndarray], dtype: str) -> np.ndarray:
    """A left factor in registers, [64, 16] (DEEP columns)."""
    if dtype == "e4m3":
        found = np.zeros((64, 32), np.float32)
        for i, word in enumerate(words):
            four = float8_values(np.ascontiguousarray(word, np.int32).view(np.uint8).reshape(-1, 4))
            for j in range(4):
                found[FIRST_ROW + 8 * (i % 2), 16 * (i // 2) + 4 * QUAD + j] = four[:, j]
        return found
    if dtype == "tf32":
        found = np.zeros((64, 8), np.float32)
        for i, word in enumerate(words):
            found[FIRST_ROW + 8 * (i % 2), 4 * (i // 2) + QUAD] = tf32(word)
        return found
    found = np.zeros((64, 16), np.float32)
    for i, word in enumerate(words):
        pair = simt.from_bytes(simt.to_bytes(word, "i32"), dtype).astype(np.float32)
        for j in range(2):
            found[FIRST_ROW + 8 * (i % 2), 8 * (i // 2) + 2 * QUAD + j] = pair[:, j]
    return found


def tf32(words: np.ndarray) -> np.ndarray:
    """Words as instructions take them: their last bits count for nothing, so they have none."""
    assert not (words & 0x1FFF).any(), "a factor that was not rounded"
    return words.astype(np.int32).view(np.float32)
