# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs of specialised warp groups rest on (sm_90a): panels, registers, staging."""

from __future__ import annotations

ELEMENT = 2  # bytes, of factors where nothing else is said; the other size is that of f32 (TF32)
PANEL = 64  # columns of 16 bits: one swizzled row of 128 bytes
HALF = 32  # columns of narrower panels, with rows of 64 bytes
CHUNK = 8  # elements of 16 bits that the copy engine moves at least
DEEP, WIDE = 16, 8  # what depths (of 16 bits) and widths of products are multiples of
WIDEST = 256  # columns of a product
ROW = 128  # bytes of a row of a panel
F32_PANEL = ROW // 4  # columns of f32 in one
ATOM = 1024  # bytes after which the swizzle repeats
# registers a thread of the producer and of the consumers, by how many consumer groups a block has,
# and how many blocks a multiprocessor
REGISTERS = {(1, 1): (56, 256), (2, 1): (24, 240), (3, 1): (32, 160), (1, 2): (40, 216)}
# registers of a thread of the consumers that products may have, by how many groups there are
PRODUCT_REGISTERS = {1: 216, 2: 216, 3: 128}
BESIDE_PRODUCTS = 24  # of these, for functions or two masks, where scores are live for long
BESIDE_MASK = 16  # of these, for a mask of three groups: 64x64 would spill, 32x32 does not
# streams that are worth a group more, if their tiles have so many points (measured on an H200)
LONG, LONG_TRIANGLE, WORTH = 2 << 10, 8 << 10, 96
# widths of results and factors whose streams are faster joined (registers of two groups hold them),
# and the points from which on the narrow ones are with a diagonal (measured on an H200)
JOINED_WIDTHS, JOINED_FROM = (64, 128), 2 << 10
SPILLED = 240  # bytes of a thread that kernels for long streams may keep in memory
SECTOR = 16  # elements of 16 bits that memory gives at once
TILE_BYTES = 208 << 10  # shared memory for the tiles of a block; results and barriers have the rest
SHARED_BYTES = 227 << 10  # that a block can have
RESERVED_BYTES = 2048  # shared memory for barriers and the queue of programs
GROUP_WARPS = 4
STAGED_ROWS, STAGED_COLUMNS = 16, 64  # of results, a warp stages so many at once
STAGED = STAGED_ROWS * ROW  # bytes of shared memory that staging takes a warp


def of_size(count: int, size: int) -> int:
    """As many elements of `size` bytes as `count` of 16 bits are in bytes."""
    return count * ELEMENT // size


def panel_of(columns: int, row: int, size: int = ELEMENT) -> int:
    """Columns of the panels of a loaded tile, of a tensor whose rows have `row` elements of `size`
    bytes: half as many where only these are filled, there too. (Half a panel is slow to bring where
    rows are not aligned: it touches a sector more of three, not of five.) Of what is wider than an
    instruction each group has a part: it begins with a panel."""
    half, whole = of_size(HALF, size), of_size(PANEL, size)
    part = columns // max(1, -(-columns // WIDEST))
    narrow = columns % whole or part % whole
    return half if narrow and columns % half == row % half == 0 else whole


def padded(extent: int) -> int:
    """A depth of products, as the pass `tile` pads it."""
    return -(-extent // DEEP) * DEEP


def whole_width(size: int, extent: int) -> int:
    """A size of a tile along columns of a product (0: all of the extent) that instructions take."""
    width = size or extent
    return -(-width // WIDE) * WIDE if width % WIDE else size


def panels(columns: int) -> int:
    """How many panels of 64 columns so many columns are; the last may be partly filled."""
    return -(-columns // PANEL)


def tile_bytes(rows: int, columns: int, panel: int, size: int = ELEMENT) -> int:
    """What a loaded tile of elements of `size` bytes takes in shared memory, in panels of so many
    columns."""
    return rows * -(-columns // panel) * panel * size
