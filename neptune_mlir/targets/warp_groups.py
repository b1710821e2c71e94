# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs of specialised warp groups rest on (sm_90a): panels, registers, staging."""

from __future__ import annotations

PANEL = 64  # columns of 16 bits: one swizzled row of 128 bytes
ROW = 128  # bytes of a row of a panel
ATOM = 1024  # bytes after which the swizzle repeats
# registers a thread of the producer and of the consumers, by how many consumer groups a block has,
# and how many blocks a multiprocessor
REGISTERS = {(1, 1): (56, 256), (2, 1): (24, 240), (3, 1): (32, 160), (1, 2): (40, 216)}
# registers of a thread of the consumers that products may have, by how many groups there are
PRODUCT_REGISTERS = {1: 216, 2: 216, 3: 128}
BESIDE_PRODUCTS = 24  # of these, for functions or two masks, where scores are live for long
TILE_BYTES = 208 << 10  # shared memory for the tiles of a block; results and barriers have the rest
RESULT_BYTES = 32 << 10  # shared memory that results pass through
RESERVED_BYTES = 2048  # shared memory for barriers and the queue of programs
STAGED_ROWS, STAGED_COLUMNS = 16, 64  # of results, a warp stages so many at once
STAGED = STAGED_ROWS * ROW  # bytes of shared memory that staging takes a warp
