# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs of specialised warp groups rest on (sm_90a): panels, registers, staging."""

from __future__ import annotations

PANEL = 64  # columns of 16 bits: one swizzled row of 128 bytes
ROW = 128  # bytes of a row of a panel
ATOM = 1024  # bytes after which the swizzle repeats
# registers a thread of the producer and of the consumers, by how many consumer groups a block has,
# and how many blocks a multiprocessor
REGISTERS = {(1, 1): (56, 256), (2, 1): (24, 240), (3, 1): (32, 160), (1, 2): (40, 216)}
STAGED_ROWS, STAGED_COLUMNS = 16, 64  # of results, a warp stages so many at once
STAGED = STAGED_ROWS * ROW  # bytes of shared memory that staging takes a warp
