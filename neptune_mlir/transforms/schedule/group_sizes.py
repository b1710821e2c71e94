# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile sizes of streams for warp groups of 64 rows: measured ones, else a rule.

The table (`targets/tuned.py`) has what was measured to be best, by what a stream is like (`Shape`),
the chip, and how long it is. The rule serves all else. It takes three groups where a thread's
registers hold the products of a tile of 128, no function but exp is computed beside them, and no
mask depends on the position in the stream (a causal mask wastes the part of a tile above the
diagonal). Otherwise it takes two; but three again where streams are long, if these have registers
for a tile of WORTH points: each tile that is loaded then serves more rows, and what 64 rows more
waste at the diagonal or at the end of the rows is little. (Over triangles streams have to be longer
for that, unless rows are not aligned with sectors of memory: such tiles come slowly.) It streams as
many elements as registers and shared memory hold (two stages, 16-bit elements). Plain products,
which sum over nothing but the stream, and deep ones, whose factors are cut along what they sum
over, have as many columns as an instruction takes: each element that a program loads is then
multiplied most often.

For launches of few programs one group has a block of its own, and tries to keep no reference (few
tiles are not worth the code). Where streams are short as well, over triangles, and where three
groups would share a block, tiles are small, and two blocks share a multiprocessor: what tiles waste
counts, how soon the first product comes, and that one block computes while the other waits. (Bands
have these alone: loops at both ends of a stream make long code, and three kernels too much of it.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets import tuned, warp_groups
from neptune_mlir.targets.tuned import Choice, Entry, Question, Shape
from neptune_mlir.targets.warp_groups import (
    BESIDE_PRODUCTS,
    LONG,
    LONG_TRIANGLE,
    PANEL,
    PRODUCT_REGISTERS,
    SECTOR,
    TILE_BYTES,
    WORTH,
    padded,
    panel_of,
    tile_bytes,
)
from neptune_mlir.transforms.registry import remark
from neptune_mlir.transforms.schedule.tile_room import contractions

ROWS = (0, *(64 * groups for groups in PRODUCT_REGISTERS))  # to ask for; 0 for the rule's
ROOMY = {"tanh", "sin", "cos", "erf", "log"}  # take registers of their own
WIDE = 256  # columns of one instruction
DEEP = 512  # points of a sum from which on a product's factors are cut along it


def shape_of(
    nests: Sequence[FusedNest], domain: Sequence[int], stream: int, column: int | None
) -> Shape:
    """`stream`, `column`: the streamed axis, and the result's column axis unless it is cut."""
    depths = [
        math.prod(domain[a] for a in nest.reduced_axes if a != stream and domain[a] != DYNAMIC)
        for nest, *_ in contractions(nests)
    ]
    terms = [t for nest in nests if nest.body is not None for t in T.walk(nest.body)]
    masks = {t for t in terms if t.op in ("lt", "le", "gt", "ge") and len(T.axes_of(t)) > 1}
    summed = [
        stream in nest.reduced_axes for nest, left, right in contractions(nests)
        if T.axes_of(left) - T.axes_of(right) and T.axes_of(right) - T.axes_of(left)
    ]  # a sum of squares is no product of a matrix instruction
    return Shape(
        max(depths, default=0), 0 if column is None else domain[column], bool(masks),
        not any(t.op in ROOMY for t in terms), len(masks) > 1,
        max(1, summed.count(False)), max(1, summed.count(True)),
    )  # fmt: skip


def choose(chip: str, shape: Shape, length: int, few: int = 0) -> Choice:
    """What to take for streams of at least `length` points; for launches of `few` programs, and
    (2) short streams."""
    known = [e for e in _known(chip, shape) if e.start <= length and not few]
    entry = known[-1] if known and _is_possible(shape, known[-1].choice) else None
    choice = entry.choice if entry else rule(shape, few, length)
    tuned.note(Question(chip, shape, length, bool(few), choice, entry))
    return choice


def _is_possible(shape: Shape, choice: Choice) -> bool:
    """Whether registers hold a choice; a remark says so of an entry that somebody else wrote."""
    groups = choice.rows // 64
    if (groups, choice.blocks) in warp_groups.REGISTERS:
        needed = 0 if is_plain(shape) or is_deep(shape) else registers(shape, choice.stream)
        if needed <= PRODUCT_REGISTERS[groups]:
            return True
    text = f"the tuning table says {choice} for {shape}, which registers do not hold: not taken"
    remark(ir.Location.unknown(), text, "warning")
    return False


def rule(shape: Shape, few: int = 0, length: int = 0) -> Choice:
    """What is taken where nothing was measured (the rest as in `choose`)."""
    if is_plain(shape):
        return Choice(64 if few else 128, PANEL)
    if is_deep(shape):
        return Choice(128, WIDE)
    fits = shape.width and registers(shape, 128) <= PRODUCT_REGISTERS[3]
    groups = 3 if shape.light and fits and not shape.triangle else 2
    if not few and length >= (_long(shape) or length + 1):
        groups = 3
    if (few == 2 or (few and shape.band)) and (shape.triangle or groups == 3):
        small = Choice(64, 64, keeps=False, resident=False, blocks=2)
        if _share_memory(shape, small):
            return small
    rows = 64 * (1 if few else groups)
    return Choice(rows, _fitting(shape, rows), keeps=not few)


def _long(shape: Shape) -> int:
    """The length from which on the rule takes three groups where it takes two for less; 0: none."""
    if is_plain(shape) or is_deep(shape) or shape.band or not shape.light or not shape.width:
        return 0
    always = not shape.triangle and registers(shape, 128) <= PRODUCT_REGISTERS[3]
    if always or _fitting(shape, ROWS[-1]) < WORTH:
        return 0
    aligned = shape.depth % SECTOR == shape.width % SECTOR == 0
    return LONG_TRIANGLE if shape.triangle and aligned else LONG


def resized(shape: Shape, choice: Choice, rows: int, stream: int) -> Choice:
    """A choice with the sizes that somebody asked for (0: did not) and what fits beside these."""
    if rows and rows != choice.rows:
        choice = replace(choice, rows=rows, stream=_fitting(shape, rows))
    choice = replace(choice, stream=stream or choice.stream)
    together = (choice.rows // 64, choice.blocks) in warp_groups.REGISTERS
    fits = choice.blocks == 1 or (together and _share_memory(shape, choice))
    return choice if fits else replace(choice, blocks=1)


def _fitting(shape: Shape, rows: int) -> int:
    """The most points of the stream, up to 128, that registers and shared memory hold."""
    if is_plain(shape) or is_deep(shape):
        return PANEL if is_plain(shape) else WIDE
    left = PRODUCT_REGISTERS[rows // 64] - shape.results * shape.width // 2
    if shape.results > 1 and (shape.band or not shape.light):
        left -= BESIDE_PRODUCTS
    by_registers = left * 4 // _quarters(shape)
    # of each product that makes a tile, one factor stays
    stays = _deep_bytes(rows, shape.depth)
    stays += (shape.scores - 1) * tile_bytes(rows, shape.width, panel_of(shape.width, shape.width))
    by_memory = (TILE_BYTES - stays) // max(1, 2 * _row_bytes(shape))
    return max(16, min(128, by_registers, by_memory) // 16 * 16)


def _share_memory(shape: Shape, choice: Choice) -> bool:
    """Whether that many blocks have room on a multiprocessor: each has the rows and their results,
    and two stages of what it streams."""
    taken = (choice.rows + 2 * choice.stream) * _row_bytes(shape)
    return taken * choice.blocks <= TILE_BYTES


def _row_bytes(shape: Shape) -> int:
    """Of shared memory, for a row of each factor."""
    width = tile_bytes(1, shape.width, panel_of(shape.width, shape.width))
    return _deep_bytes(1, shape.depth) + width


def _deep_bytes(rows: int, depth: int) -> int:
    """Of shared memory, for rows of a factor along what its product sums over."""
    return tile_bytes(rows, padded(depth), panel_of(padded(depth), depth))


def columns(shape: Shape) -> int:
    """Of a tile, where a result has more."""
    return WIDE if is_plain(shape) else PANEL


def is_plain(shape: Shape) -> bool:
    """Whether products sum over nothing but the stream."""
    return shape.depth == 1


def is_deep(shape: Shape) -> bool:
    """Whether factors are cut along what products sum over: their columns are the streamed axis."""
    return shape.depth > DEEP and not shape.width


def registers(shape: Shape, stream: int) -> int:
    """Of a thread, for so many scores of a row (kept rounded as well) and for the results."""
    return _quarters(shape) * stream // 4 + shape.results * shape.width // 2


def _quarters(shape: Shape) -> int:
    """Quarters of a register, of a thread, that a point of the stream takes: half of one for each
    score, and a quarter for what is rounded of it for each result; of several results, what one
    is made of waits while another is made."""
    return 2 * shape.scores + 2 * shape.results - 1


def lengths(chip: str, shape: Shape) -> list[int]:
    """From which lengths on other choices are better than for any length."""
    starts, own = [e.start for e in _known(chip, shape)], _long(shape)
    if own and own < min(starts, default=own + 1):
        starts.insert(0, own)
    return [start for start in starts if start]


def _known(chip: str, shape: Shape) -> list[Entry]:
    return tuned.current().of(chip, shape)
