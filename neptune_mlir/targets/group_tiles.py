# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs of warp groups take of a multiprocessor, by what their stream is like (`Shape`) and
by their tile sizes: registers of a thread for products, bytes of shared memory.

The rule for tile sizes (`transforms.schedule.group_sizes`), the tuner and the passes that place
rings and results ask here, so that none takes a program for possible that another refuses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from neptune_mlir.targets import resources
from neptune_mlir.targets.gpu import GpuTarget
from neptune_mlir.targets.nvidia import Rates
from neptune_mlir.targets.tuned import Choice, Shape
from neptune_mlir.targets.warp_groups import (
    BESIDE_PRODUCTS,
    ELEMENT,
    HALF,
    PANEL,
    PRODUCT_REGISTERS,
    REGISTERS,
    RESERVED_BYTES,
    SECTOR,
    SHARED_BYTES,
    STAGED,
    TILE_BYTES,
    WIDEST,
    of_size,
    padded,
    panel_of,
    tile_bytes,
)
from neptune_mlir.targets.warp_groups import DEEP as DEPTH

GROUP_ROWS = 64  # of a tile, for each group
GROUP_THREADS = 128
# Points of a sum beyond which a product's factors are cut along it where its columns are streamed:
# shared memory holds no more of the rows of a program beside two tiles of the stream.
DEEP = 256
BESIDE = 32  # registers that the only product of a program leaves for all else
MOST_STREAM = 128  # points of the stream in a tile, by the rule
BOXED = 2  # bytes of an element of a box


def is_plain(shape: Shape) -> bool:
    """Whether products sum over nothing but the stream."""
    return shape.depth == 1


def is_deep(shape: Shape) -> bool:
    """Whether factors are cut along what products sum over: their columns are the streamed axis."""
    return shape.depth > DEEP and not shape.width


def sharing(width: int) -> int:
    """Groups that share the rows of products so wide, each with a part of their columns: an
    instruction has WIDEST of them, and the accumulator of one group takes half of its registers
    then."""
    return max(1, -(-width // WIDEST))


def group_count(shape: Shape, rows: int) -> int:
    """Groups that tiles of so many rows are for."""
    return rows // GROUP_ROWS * sharing(shape.width)


def columns(shape: Shape) -> int:
    """Of a tile, where a result has more."""
    return WIDEST if is_plain(shape) else PANEL


def panel(shape: Shape) -> int:
    """Elements of a factor in a row of a whole panel."""
    return of_size(PANEL, shape.size)


def _columns(shape: Shape, cut: int) -> int:
    """Of a tile whose columns are `cut` (0: by the rule), where the result has as many."""
    return min(cut or columns(shape), shape.width or WIDEST)


# ---- registers

def registers(
    shape: Shape, stream: int, cut: int = 0, groups: int = 0, late: bool = True
) -> int:
    """Of a thread: for so many scores of a row (kept rounded as well) and for the results, or a
    part of these where groups share rows; for the only product of a program, its columns (`cut`, or
    by the rule) and what goes with them. Of so many `groups` (0: of few)."""
    if is_plain(shape):
        return _columns(shape, cut) // 2 + BESIDE
    if is_deep(shape):
        return stream // 2 + BESIDE
    scores = (_eighths(shape, groups) - (0 if late else 2)) * stream // 8
    return scores + _results(shape)


def _results(shape: Shape) -> int:
    """Registers of a thread for the results."""
    return shape.results * shape.width // (2 * sharing(shape.width))


def _eighths(shape: Shape, groups: int) -> int:
    """Eighths of a register, of a thread, that a point of the stream takes: half of one for each
    score, and a quarter for what is rounded of it for each result, or an eighth in 8 bits; of
    several results, what one is made of waits while another is made. What is loaded has an address,
    and what comes from shared memory is two elements of 16 bits in a register. A number of a point
    is that of every fourth one in a register: fewer groups have room for these beside their
    products."""
    loaded = 2 * resources.LOADED * shape.loads + shape.boxes
    loaded += shape.marks if groups == max(PRODUCT_REGISTERS) else 0
    quarters = 2 * shape.scores + 2 * shape.results - 1 + loaded
    return 2 * quarters - (shape.results if shape.size < ELEMENT else 0)


def has_registers(shape: Shape, choice: Choice) -> bool:
    """Whether the groups of a block have the registers that a choice takes."""
    groups = group_count(shape, choice.rows)
    needed = registers(shape, choice.stream, choice.columns, groups, choice.late > 0)
    return (groups, choice.blocks) in REGISTERS and needed <= PRODUCT_REGISTERS[groups]


# ---- shared memory

def once_bytes(shape: Shape, rows: int) -> int:
    """Of the tiles that a program loads once: of each product that makes a tile, one factor."""
    if is_plain(shape) or is_deep(shape):
        return 0
    if shape.once:
        return rows * shape.once * shape.size
    return rows * (_depth_bytes(shape) + (shape.scores - 1) * _width_bytes(shape))


def step_bytes(shape: Shape, rows: int, stream: int, cut: int = 0) -> int:
    """Of the tiles of a step of the stream, or of a sum, those of rows and streamed points too.
    `cut`: columns, 0 for the rule's."""
    if is_plain(shape):
        return stream * (rows + _columns(shape, cut)) * shape.size
    if is_deep(shape):
        return panel(shape) * (rows + stream) * shape.size
    return _streamed_bytes(shape, rows, stream)


def exchanged_bytes(shape: Shape, rows: int, stream: int) -> int:
    """Of the left factors that groups which share rows give each other."""
    return shape.results * rows * stream * shape.size if sharing(shape.width) > 1 else 0


def least_bytes(shape: Shape, choice: Choice) -> int:
    """That a block takes at least: a slot of tiles that it loads once, and the rings.

    Where no product runs an iteration late, all tiles of an iteration are read in it, so a ring of
    one slot is enough: shared memory that holds no more has that (`layout_stages`). Where one does
    that reads the factor of a score, too, that factor alone has a second slot (`partition-warps`).
    """
    step = step_bytes(shape, choice.rows, choice.stream, choice.columns)
    rings = (choice.slots or (resources.STAGES if choice.late else 1)) * step
    if choice.late and not choice.slots and shape.scores > 1 and not shape.streamed:
        rings = min(rings, step + choice.stream * _depth_bytes(shape))
    shared = exchanged_bytes(shape, choice.rows, choice.stream)
    return once_bytes(shape, choice.rows) + rings + shared + RESERVED_BYTES


def slots(target: GpuTarget, shape: Shape, choice: Choice) -> int:
    """Slots of the rings of streamed tiles where nobody says how many."""
    step = step_bytes(shape, choice.rows, choice.stream, choice.columns)
    limit = target.shared_for(choice.blocks)
    warps = group_count(shape, choice.rows) * (GROUP_THREADS // 32)
    late = STAGED * warps + RESERVED_BYTES if shape.scores > 1 else 0  # these share tiles
    return resources.ring_slots(limit, once_bytes(shape, choice.rows), step, late)


def share_memory(shape: Shape, choice: Choice) -> bool:
    """Whether that many blocks have room on a multiprocessor: each has the rows of both factors (or
    results pass through these), and two stages of what it streams."""
    streamed = _streamed_bytes(shape, choice.rows, choice.stream)
    taken = choice.rows * _row_bytes(shape) + resources.STAGES * streamed
    return taken * choice.blocks <= TILE_BYTES


def _streamed_bytes(shape: Shape, rows: int, stream: int) -> int:
    """For so many streamed points: a row of each factor, and the tiles that have both."""
    boxes = shape.boxes * tile_bytes(rows, stream, panel_of(stream, stream))  # of 16 bits
    return stream * _row_bytes(shape) + boxes


def _row_bytes(shape: Shape) -> int:
    """For a row of each factor."""
    if shape.streamed:
        return shape.streamed * shape.size
    return _depth_bytes(shape) + _width_bytes(shape)


def _depth_bytes(shape: Shape) -> int:
    """For a row of a factor along what its product sums over."""
    depth = padded(shape.depth)
    return tile_bytes(1, depth, panel_of(depth, shape.depth, shape.size), shape.size)


def _width_bytes(shape: Shape) -> int:
    """For a row of a factor along the columns of the result."""
    width = shape.width
    return tile_bytes(1, width, panel_of(width, width, shape.size), shape.size)


def once_slots(target: GpuTarget, blocks: int, warps: int, needed: int, resident: bool) -> int:
    """Slots of the tiles that are loaded once: two where blocks stay and memory allows, so that
    those of the next program are on their way while this one still runs.

    Args:
        warps: of the consumers, which stage results.
        needed: bytes of all rings, with two slots of these.
    """
    taken = needed + STAGED * warps + RESERVED_BYTES
    return 2 if resident and taken <= target.shared_for(blocks) else 1


def has_room(target: GpuTarget, blocks: int, taken: int) -> bool:
    """Whether a block can have tiles of so many bytes."""
    return taken + RESERVED_BYTES <= target.shared_for(blocks)


def staged_panels(target: GpuTarget, blocks: int, warps: int, taken: int, most: int) -> int:
    """Panels of results that a warp stages at a time, up to `most`, where `taken` bytes are taken;
    0 without room for one."""
    room = target.shared_for(blocks) - taken - RESERVED_BYTES
    return max(0, min(most, room // (STAGED * warps)))


# ---- both

def most_stream(shape: Shape, rows: int) -> int:
    """The most points of the stream, up to MOST_STREAM, that registers and shared memory hold."""
    if is_plain(shape) or is_deep(shape):
        return panel(shape) if is_plain(shape) else WIDEST
    groups, across = group_count(shape, rows), sharing(shape.width)
    left = PRODUCT_REGISTERS.get(groups, 0) - _results(shape)
    unit = max(DEPTH, of_size(DEPTH, shape.size))  # that an instruction sums over
    if shape.size < ELEMENT:  # registers, not memory, are what more points lack
        shape = replace(shape, size=ELEMENT)
    if shape.results > 1 and (shape.band or not shape.light):
        left -= BESIDE_PRODUCTS
    by_registers = left * 8 // _eighths(shape, groups)
    most = MOST_STREAM if across == 1 else PANEL  # of what groups share
    room = TILE_BYTES - once_bytes(shape, rows)
    boxes = shape.boxes * rows * BOXED
    each = resources.STAGES * (_row_bytes(shape) + boxes)
    if across > 1:  # with all that a block takes, for tiles are few
        # (where no tile is read by two products, one comes while the other one is multiplied)
        apart = shape.streamed >= padded(shape.depth) + shape.width
        each //= resources.STAGES if apart else 1
        room = SHARED_BYTES - RESERVED_BYTES - once_bytes(shape, rows)
        each += exchanged_bytes(shape, rows, 1)
    by_memory = room // max(1, each)
    unit = HALF if boxes or across > 1 else unit  # whole panels of these
    return max(unit, min(most, by_registers, by_memory) // unit * unit)


def groups_at_once(target: GpuTarget, shape: Shape, choice: Choice) -> int:
    """Consumer groups that a multiprocessor runs at once."""
    groups = group_count(shape, choice.rows)
    producer, consumer = REGISTERS[groups, choice.blocks]
    launched = (producer + groups * consumer) // (groups + 1)
    shared = least_bytes(shape, choice)
    return groups * target.blocks_per_sm((groups + 1) * GROUP_THREADS, launched, shared)


# ---- time

STEP = 256  # cycles of an iteration that no product runs in: waits, what lanes compute
LOADED_AT_ONCE = 16  # elements that caches give a multiprocessor in a cycle, where rows are short
COPIED = 6  # that a panel of a row takes to come which is no whole sectors (measured on an H200)


def copy_cycles(shape: Shape) -> float:
    """What a point of the stream takes to come of rows that are no whole sectors of memory, where
    that may be more than products take; 0: of others."""
    rows = [shape.depth] * shape.scores + [shape.width] * shape.results
    slow = any(n * shape.size % (SECTOR * ELEMENT) for n in rows)
    return COPIED * sum(-(-n // panel(shape)) for n in rows) if slow else 0


def cycles(shape: Shape, choice: Choice, paired: bool = False) -> float:
    """What a point of the stream takes of a multiprocessor, for the rows of a group: the time of
    the matrix units, or of shared memory where that is longer, and of an exponential for each row.

    A score has both factors in shared memory, the rows of one for each tile of the other; what
    a result is made of comes from registers and one tile, and elements of other loads from caches
    or from shared memory.
    Each iteration costs STEP besides. Rows that come slowly are what a program waits for, all of
    them or (`paired`) half.
    """
    rates = Rates()

    def product(columns: int, loaded: int) -> float:
        """Of an instruction: a group's rows, so many columns, DEPTH terms of which so many rows are
        loaded."""
        taken = loaded * DEPTH * shape.size / rates.shared
        rate = of_size(rates.multiply_adds, shape.size)
        return max(GROUP_ROWS * columns * DEPTH / rate, taken)

    n, width = choice.stream, padded(shape.width)
    scores = shape.scores * (padded(shape.depth) // DEPTH) * product(n, GROUP_ROWS + n)
    results = shape.results * n / DEPTH * product(width, width)
    read = shape.loads / LOADED_AT_ONCE + shape.boxes * BOXED / rates.shared
    beside = GROUP_ROWS * (1 / rates.special + read)
    groups = group_count(shape, choice.rows)
    products, step = (scores + results) / n + beside, STEP / groups / n
    coming = copy_cycles(shape) / (groups * (2 if paired else 1))
    return max(products, coming) + step


# ---- time of a launch

CHIP = ["multiprocessors"]
CLOSE = 9, 10  # times that the model does not tell apart
LONE = 4  # cycles that a group alone takes longer: no other one multiplies while it computes
UNIT = ["mul", 3, CHIP]  # of times of launches, that a cycle has
START = 3000  # cycles of a program beside its stream: the first tiles come, results leave
AHEAD = 128  # points that come in it
MET = 1024  # that two programs wait for each other, in front and behind


def launch_cycles(
    shape: Shape, choice: Choice, programs: Any, points: Any = None, even: Any = None,
    mean: Any = None, paired: bool = False,
) -> Any:  # fmt: skip
    """What a launch of so many programs takes (in a unit of its own), an expression of the launch
    plan: in all, of programs that stream so many `points`, or for each point of the stream.

    A multiprocessor runs a program at a time, so programs of one length take rounds. Where masks
    make them of all lengths, half as long in the mean, long ones begin first and short ones fill
    the rounds (but for a quarter of that time), and none ends before the longest does. Where the
    `mean` is known, each round has a START, and a seventh is what short ones do not fill. (Not in
    calls for which `even` holds, an expression: there they are of one length.) Measured on an H100,
    the latter on an H200. `paired`: two programs bring what both stream.
    """
    groups = group_count(shape, choice.rows)
    tile = round(cycles(shape, choice, paired) * groups + (LONE if groups == 1 else 0))
    start = START + (MET if paired else 0)
    if groups == 1 and points is not None and copy_cycles(shape):  # the first come in its start
        points = ["max", ["floordiv", points, 2], ["add", points, -AHEAD]]
    each = tile if points is None else ["add", start, ["mul", tile, points]]
    begun = ["mul", 3, ["mul", ["ceildiv", programs, CHIP], CHIP]]
    rounds = ["mul", each, begun]
    if not (shape.triangle or shape.marks):
        return rounds
    if mean is None or points is None:
        mixed = ["mul", each, ["max", ["mul", 3, CHIP], ["mul", 2, programs]]]
    else:
        streamed = ["mul", 7 * tile, ["floordiv", ["mul", programs, mean], 2]]
        mixed = ["max", ["mul", each, UNIT], ["add", ["mul", start, begun], streamed]]
    return mixed if even is None else ["select", even, rounds, mixed]
