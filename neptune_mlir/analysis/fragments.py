# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrices in memory as registers hold accumulators.

An accumulator has four elements of each 16 rows and 8 columns in a thread: two neighbours of row q,
and two of row q + 8, where q is a quarter of the lane. A matrix *in fragments* has these four one
behind the other, then the four of the next lane, block by block of 16 rows and 8 columns, and the
blocks of 16 rows one behind the other. So what a warp has of a block is 512 bytes of f32 in order,
16 of each lane: an access takes all of it.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.gpu_attributes import IN_FRAGMENTS
from neptune_mlir.ir.values import defining_op

ROWS, COLUMNS = 16, 8  # of a block
OF_LANE = 4  # elements of a block that a lane has, and as many lanes have a row's
NEIGHBOURS = 2  # elements of a row that are neighbours in memory


def is_in_fragments(forall: Any, tensor: Any, result: int) -> bool:
    """Whether a tensor that a kernel takes is in fragments: its result of that number, or (a number
    below 0) what another kernel has made."""
    if result >= 0:
        return result in IN_FRAGMENTS.find(forall, ())
    made = defining_op(tensor)
    if made is None or made.name != "scf.forall":
        return False
    return list(made.results).index(tensor) in IN_FRAGMENTS.find(made, ())
