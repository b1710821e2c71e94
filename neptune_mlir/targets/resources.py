# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a block takes of a multiprocessor: registers, shared memory, warps, stages.

The one place that reckons with these, for all chips. Passes and code generators say what a block
holds, and ask here how many warps, stages or neighbours that leaves; `GpuTarget` says what there
is. (What programs of warp groups take, by their tile sizes: `group_tiles`.)
"""

from __future__ import annotations

from neptune_mlir.targets.gpu import GpuTarget

# ---- registers

LOADED = 3  # registers for an element that is loaded for no product, and its address
BESIDE_HELD = 40  # registers of a thread for all else than accumulators, at least
MOST_HELD = 200  # registers of a thread that accumulators can take before more warps share them
WARPS = 4  # of a block, unless products hold too much
ROWS = 16  # of products, that a warp has for itself
# 32-bit registers of all threads of a block that products may take: three quarters of the 256 of a
# thread, of WARPS warps of 32, leave room for fragments, addresses and what is computed beside
# them. The others are for programs that spill all the same.
PRODUCT_WORDS = tuple(quarters * 64 * 32 * WARPS for quarters in (3, 2, 1))


def held_for(target: GpuTarget) -> int:
    """Registers of a thread that accumulators (and, where no copy is asynchronous, what is under
    way from memory) are to take: it has fragments and addresses as well."""
    return 144 if "cp.async" in target.copies else 128


def warps_of(
    target: GpuTarget, rows: int, words: int, held: int, loaded: int = 0, row: int = 0
) -> int:  # fmt: skip
    """Warps of a block: one for each ROWS rows of products, up to WARPS; twice as many where these
    lack registers for accumulators.

    Without matrix instructions it is a warp for each 32 words of a lane; of rows without products a
    warp for each 32 elements of a lane, as many as the chip has for them. Where few warps lack
    registers (for what is under way from memory too, if that is where it is), more share the
    columns.

    Args:
        rows: of products by matrix instructions; 0 without any.
        words: what a kernel without these holds, or points that it sums.
        held: elements of accumulators, at most.
        loaded: 32-bit words that products load, at most.
        row: elements of a tile of rows; 0 where there are products.
    """
    if rows >= WARPS * ROWS and held > WARPS * target.wave * MOST_HELD:
        return 2 * WARPS
    wanted = rows / ROWS if rows else words / (32 * target.wave)
    chosen = max(w for w in (1, 2, WARPS) if w == 1 or w <= wanted)
    while chosen < min(target.row_warps, row // (32 * target.wave)):
        chosen *= 2
    most = held if "cp.async" in target.copies else held + loaded
    while chosen < WARPS and most > chosen * target.wave * held_for(target):
        chosen *= 2
    return chosen


SCANNED = 32  # elements of a lane of a program that scans a row


def scanned(target: GpuTarget) -> int:
    """Elements of the longest row that a program scans in one pass: all of them are in registers,
    of as many warps as the chip has for rows."""
    return target.row_warps * target.wave * SCANNED


def scan_tile(target: GpuTarget) -> int:
    """Elements of a tile of short rows that a program scans."""
    return WARPS * target.wave * SCANNED // 2


# Of a row that is summed, what a lane has at most while others have rows of their own: chunks of 16
# bytes (fewer beside vectors), or elements where these are moved one by one.
ROW_CHUNKS, BESIDE_CHUNKS, ROW_ELEMENTS = 4, 2, 8


def row_lanes(target: GpuTarget, elements: int, chunk: int, beside: bool = False) -> int:
    """The fewest lanes that share a row of so many elements, so that little is exchanged between
    lanes, and little of a row that is no power of two is padding; `chunk` elements are in 16 bytes
    (1: rows are moved element by element). Where vectors lie `beside` rows a lane has less of more
    rows: all of these need the same part of them."""
    most = (BESIDE_CHUNKS if beside else ROW_CHUNKS) * chunk if chunk > 1 else ROW_ELEMENTS
    lanes = 1
    while lanes < target.wave and lanes * most < elements:
        lanes *= 2
    return lanes


# Rows that programs keep in shared memory while they read them again (`stashed.py`): so many of a
# multiprocessor at least, so that one loads while another computes (beside functions one is better
# than to load again); bytes of a block beside its row, for partial sums of warps and the launch's
# own; its warps, at least, and where it computes functions at most
KEPT_ROWS, BESIDE_ROW, ROW_WARPS, FUNCTION_WARPS = 2, 2048, 8, 16
COPIED = 16  # bytes that a thread asks for by one copy


def kept_row_warps(target: GpuTarget, size: int, functions: bool) -> int:
    """Warps of a block that keeps a row of so many bytes: those that give a multiprocessor all of
    its threads, or where these compute `functions`, and wait less, no more; 0: it has no room for
    KEPT_ROWS, or with functions for one."""
    blocks = target.shared_sm // (size + BESIDE_ROW) if "cp.async" in target.copies else 0
    if blocks < (1 if functions else KEPT_ROWS):
        return 0
    threads = target.threads // blocks
    below = max(ROW_WARPS, 1 << ((threads // target.wave).bit_length() - 1))
    if functions:
        warps = min(FUNCTION_WARPS, below)
    else:
        more = below if below * target.wave >= threads else 2 * below
        warps = min(target.row_warps, more)
    copied = warps * target.wave * COPIED  # at once: the last of a thread's may not exist
    room = -(-size // copied) * copied + BESIDE_ROW <= target.shared_block
    return warps if room else 0


def blocks_beside(target: GpuTarget, threads: int, held: int, shared: int) -> int:
    """How many blocks are to share a multiprocessor: as many as there is room for, while what a
    thread holds of products, or waits for, and BESIDE_HELD more registers still fit."""
    blocks = max(1, target.blocks_per_sm(threads, 1, shared))
    while blocks > 1 and target.registers < blocks * threads * (held + BESIDE_HELD):
        blocks -= 1
    return blocks


def threads_with(target: GpuTarget, registers: int) -> int:
    """Threads of a multiprocessor that have so many registers each."""
    return target.registers // registers


# ---- stages of what is loaded to shared memory

STAGES = 2  # tiles of a loop in shared memory at once: one is read while the next one comes
SLOTS = 4  # of a ring, where there is room
MOST_SLOTS = 8  # where a program loads nothing else, and all that it waits for is on its way
LATE_SLOTS = 3  # of one that two products read, one of them an iteration late: the third is loaded
RESULT_BYTES = 32 << 10  # shared memory that results pass through
UNDER_WAY = 32 << 10  # bytes that a program which waits for memory has on their way
MOST_STAGES = 6
WAITING = 2  # programs of a multiprocessor that keep memory busy with streams of 16-bit elements
WAITING_STREAM = 32  # such elements of their tiles, along the stream


def ring_slots(limit: int, once: int, streamed: int, late: int = 0) -> int:
    """Slots of the rings of a loop: SLOTS where shared memory has room, or STAGES; LATE_SLOTS where
    two products read a tile, or memory is waited for, and there is room beside the least for all
    else. Where nothing is loaded outside of loops, as many as there is room for, up to MOST_SLOTS.

    Args:
        limit: bytes of shared memory that the block can have.
        once: bytes of what is loaded outside of loops, which has two slots.
        streamed: bytes of what an iteration loads.
        late: bytes that all else takes at least; 0 where two slots do.
    """
    room = (limit - 2 * once - RESULT_BYTES) // streamed
    if room >= SLOTS:
        return SLOTS if once else min(MOST_SLOTS, room)
    return LATE_SLOTS if late and once + LATE_SLOTS * streamed + late <= limit else STAGES


def stages_under_way(streamed: int) -> int:
    """Stages that have UNDER_WAY bytes on their way, where an iteration loads `streamed`."""
    return max(STAGES, min(MOST_STAGES, 1 + -(-UNDER_WAY // streamed)))


def waiting(bits: int = 16) -> tuple[int, int]:
    """Programs of a multiprocessor that wait for memory, and how many elements their tiles have
    along the stream, for streams of elements of so many bits.

    Narrower elements come in tiles of as many bytes, so each copy is worth its instructions. A byte
    is more elements then, each of which is computed with: as many times more programs keep the
    memory busy.
    """
    return WAITING * 16 // bits, WAITING_STREAM * 16 // bits


def fitting_stages(limit: int, once: int, streamed: int, wanted: int) -> int:
    """The stages wanted, or as many as `limit` bytes hold, and one at least."""
    while wanted > 1 and once + wanted * streamed > limit:
        wanted -= 1
    return wanted
