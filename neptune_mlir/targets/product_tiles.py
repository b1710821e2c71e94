# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long a plain product takes with tiles of some size, for warp groups: what choices of tiles
by the number of programs rest on.

A product of `rows` x `columns` results that sums over `length` elements has a program for each
tile. A multiprocessor runs one at a time, so programs take rounds, and the last round may leave
most of the chip idle. A step of PANEL elements of 16 bits (or as many bytes of others, whose
instructions take as much longer) takes a program the time of the matrix units where
few programs run; where all do, that in which the second-level cache gives the step's tiles to all.
A sum that is cut into chunks has more programs of fewer steps; what they make is written, read
again and added up by another kernel.

Times are expressions of the launch plan (`runtime/plan.py`), in cycles: numbers where the extents
are. No MLIR here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.targets.group_tiles import GROUP_ROWS
from neptune_mlir.targets.nvidia import Rates
from neptune_mlir.targets.warp_groups import ELEMENT, PANEL, of_size

Expression = Any
CHIP: Expression = ["multiprocessors"]

# Fitted to products behind norms on H200s, whose inputs lie in memory (docs/notebook/rows.md,
# "Tiles of products", the first and the last).
NEAR = 36  # bytes of a cycle that the second-level cache gives each multiprocessor, of all at once
FAR = 59  # bytes of a cycle that a multiprocessor loads at most, however few others do
STEP = 92  # cycles of a step that no matrix unit runs in
TOGETHER = 16  # more where two programs wait for each other
LEAST = 320  # of a step, whatever it multiplies: until it is known that its tiles are there
AROUND = 130  # cycles of a program in front of its first step and behind its last one
JOIN = 5500  # of the launch that joins chunks
JOINED = 12  # bytes of a cycle that a multiprocessor writes, and reads again, of chunks
REDUCED = 2  # cycles for 16 elements of a tile that is reduced
COMPUTED = 270  # of a step in which a group computes its factor
PAIR = 2  # blocks of a cluster that all multiprocessors have room for, and how many of these do
IN_CLUSTERS = 7, 8  # for larger ones (measured on an H200, as what follows)
MEET = 2150  # cycles in which the blocks of a cluster meet, twice
BESIDE = 11  # bytes of a cycle that a multiprocessor reads of another one's shared memory
AHEAD = 4600  # of the launch that computes a factor before
STORED = 64  # bytes of a cycle that a multiprocessor reads and writes there
WORD = 4  # bytes of an element of what is joined


@dataclass(frozen=True)
class Product:
    """Extents of a product: how many `others` there are of it (a batch), and the sum's `length`.

    Attributes:
        streamed: its columns are reduced (by exponentials, say), a chunk for each tile.
        cuts: its sums may be cut into chunks.
        size: bytes of an element of its factors.
        computed: whether programs compute the factor of the rows.
    """

    rows: Expression
    columns: Expression
    others: Expression
    length: Expression
    streamed: bool = False
    cuts: bool = True
    size: int = ELEMENT
    computed: bool = False

    @property
    def steps(self) -> Expression:
        """Of a program whose sum is not cut."""
        return ["ceildiv", self.length, of_size(PANEL, self.size)]

    @property
    def is_known(self) -> bool:
        """Whether these are numbers, not what a call says."""
        extents = (self.rows, self.columns, self.others, self.length)
        return all(isinstance(n, int) for n in extents)


@dataclass(frozen=True)
class ProductTile:
    """Rows and columns of a tile. `pairs`: two programs share what they load (`form-clusters`), of
    the same rows (1) or of the same columns (2). `sums`: how many blocks share a program's sum
    (`form-clusters`)."""

    rows: int
    columns: int
    pairs: int = 0
    sums: int = 1

    @property
    def knobs(self) -> str:
        """What schedules of products call it."""
        found = f"product_rows:{self.rows};product_columns:{self.columns}"
        found += f";pairs:{self.pairs}" if self.pairs else ""
        return f"{found};sums:{self.sums};resident:0" if self.sums > 1 else found

    @property
    def alone(self) -> int:
        """Cycles of a step of a program with the chip to itself."""
        wait = STEP + (TOGETHER if self.pairs else 0)
        multiplied = self.rows * self.columns * PANEL // Rates().multiply_adds
        return max(LEAST, self.brought // FAR, multiplied + wait)

    @property
    def computing(self) -> int:
        """The same where groups compute the factor of the rows, each its own."""
        groups = self.rows // GROUP_ROWS
        return max(self.alone, ProductTile(GROUP_ROWS, self.columns).alone + COMPUTED * groups)

    @property
    def beside(self) -> int:
        """Cycles in which the second-level cache brings the tiles of a step to each
        multiprocessor."""
        return self.brought // NEAR

    @property
    def brought(self) -> int:
        """Bytes of the tiles of a step, shared ones by half."""
        rows, columns = self.rows, self.columns
        return (rows + columns - (0, rows, columns)[self.pairs] // 2) * PANEL * ELEMENT


WHOLE = ProductTile(128, 256)  # what is taken where nothing else is better
WORTH = 64  # one part of so many is what another tile takes less: the model is not nearer than that
# The others: of sums that are not cut (where columns are streamed, groups of their own reduce them)
# and of those that are.
TILES = (
    ProductTile(3 * PANEL, 128), ProductTile(128, 3 * PANEL), ProductTile(128, 128),
    ProductTile(64, 128), ProductTile(64, 64), ProductTile(64, 3 * PANEL),
    ProductTile(3 * PANEL, 64),
)  # fmt: skip
# Those that share what they load; those whose sum blocks share, the first ones for any extents; and
# of products whose factor of the rows is computed ahead.
PAIRED = (
    ProductTile(3 * PANEL, 128, pairs=1), ProductTile(128, 3 * PANEL, pairs=2),
    ProductTile(64, 128, pairs=2),
)  # fmt: skip
# so does this, where all but the rows is known; and narrow ones with few results
KNOWN = (ProductTile(128, 256, pairs=2), ProductTile(128, 64))
SHARED = (
    ProductTile(64, 128, sums=2), ProductTile(64, 64, sums=2), ProductTile(128, 3 * PANEL, sums=2),
    ProductTile(3 * PANEL, 128, sums=2), ProductTile(128, 64, sums=3),
    ProductTile(128, 128, sums=2), ProductTile(128, 128, sums=4), ProductTile(64, 128, sums=4),
    ProductTile(128, 64, sums=2), ProductTile(128, 64, sums=4),
)  # fmt: skip  (four of wider ones spill)
ANY = 5
SCALED = (WHOLE, ProductTile(3 * PANEL, 128), ProductTile(128, 128), ProductTile(64, 128))
STREAMED = (ProductTile(128, 3 * PANEL), ProductTile(128, 128), ProductTile(64, 128))
CUT = (ProductTile(128, 128), ProductTile(64, 128))


def _within(product: Product, tile: ProductTile) -> ProductTile:
    """A tile no wider than the result."""
    known = isinstance(product.columns, int) and product.columns < tile.columns
    return replace(tile, columns=max(1, product.columns)) if known else tile


def tiles_of(product: Product, tile: ProductTile) -> Expression:
    rows, columns = (
        ["ceildiv", n, size]
        for n, size in ((product.rows, tile.rows), (product.columns, tile.columns))
    )
    if tile.pairs == 1:
        columns = ["mul", 2, ["ceildiv", columns, 2]]
    elif tile.pairs:
        rows = ["mul", 2, ["ceildiv", rows, 2]]
    return ["mul", ["mul", rows, columns], product.others]


def whole_cycles(product: Product, tile: ProductTile) -> Expression:
    """Of a product whose sums are not cut."""
    tile = _within(product, tile)
    steps, programs = product.steps, tiles_of(product, tile)
    around = AROUND + REDUCED * tile.rows * tile.columns // 16 if product.streamed else AROUND
    if tile.sums > 1:
        steps, programs = ["ceildiv", steps, tile.sums], ["mul", tile.sums, programs]
        around += MEET + WORD * tile.rows * tile.columns * (tile.sums - 1) // tile.sums // BESIDE
    return _rounds(product, programs, steps, tile, around)


def allowed_cycles(product: Product) -> Expression:
    """What a tile that is taken in place of WHOLE takes less than."""
    time = whole_cycles(product, WHOLE)
    return ["add", time, ["mul", -1, ["floordiv", time, WORTH]]]


def ahead_cycles(product: Product, tile: ProductTile) -> Expression:
    """Of a product whose factor of the rows another kernel computes before."""
    moved = ["mul", ["mul", product.rows, product.length], 2 * product.size]
    before = ["add", AHEAD, ["floordiv", ["floordiv", moved, STORED], CHIP]]
    return ["add", before, whole_cycles(replace(product, computed=False), tile)]


def cut_cycles(product: Product, tile: ProductTile, chunks: Expression) -> Expression:
    """Of a product whose sums are cut into so many chunks, and of joining these."""
    tile = _within(product, tile)
    programs = ["mul", chunks, tiles_of(product, tile)]
    steps = ["ceildiv", product.steps, chunks]
    join = join_cycles(programs, tile.rows * tile.columns)
    return ["add", _rounds(product, programs, steps, tile, AROUND), join]


def join_cycles(programs: Expression, elements: int) -> Expression:
    """Of joining what programs store in chunks, so many elements each."""
    moved = 2 * WORD * elements // JOINED
    return ["add", JOIN, ["floordiv", ["mul", programs, moved], CHIP]]


def _rounds(
    product: Product, programs: Expression, steps: Expression, tile: ProductTile, around: int
) -> Expression:
    """Full rounds, and the last one, in which fewer programs share the second-level cache."""
    alone = tile.computing if product.computed else tile.alone
    chip: Expression = CHIP
    if tile.sums > PAIR:  # which some multiprocessors have too few neighbours for
        chip = ["floordiv", ["mul", IN_CLUSTERS[0], CHIP], IN_CLUSTERS[1]]
    left = ["mod", programs, chip]
    last = ["max", ["mul", alone, ["min", left, 1]],
            ["floordiv", ["mul", tile.beside, left], CHIP]]  # fmt: skip
    full = ["mul", ["floordiv", programs, chip], max(alone, tile.beside)]
    beside = ["mul", ["ceildiv", programs, chip], around]
    return ["add", ["mul", steps, ["add", full, last]], beside]
