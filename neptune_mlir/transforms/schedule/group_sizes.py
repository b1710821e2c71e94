# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile sizes of streams for warp groups of 64 rows: measured ones, else a rule.

The table (`targets/tuned.py`) has what was measured to be best, by what a stream is like (`Shape`),
the chip, and how long it is. The rule serves all else. It takes three groups where a thread's
registers hold the products of a tile of 128, no function but exp is computed beside them, and no
mask depends on the position in the stream (a causal mask wastes the part of a tile above the
diagonal). Otherwise it takes two (for 64 rows alone, where results are wider than an instruction:
these share the rows, and each has a part of the columns); but three again where streams are long,
if these have registers for a tile of WORTH points: each tile that is loaded then serves more rows,
and what 64 rows more waste at the diagonal or at the end of the rows is little. (Over triangles
streams have to be longer for that, unless three groups hold the widest tile beside a mask, or rows
are not aligned with sectors of memory: such tiles come slowly.) It streams as many elements as
registers and shared memory hold (two stages, 16-bit elements). Plain products, which sum over
nothing but the stream, and deep ones, whose factors are cut along what they sum over, have as many
columns as an instruction takes: each element that a program loads is then multiplied most often.

For launches of few programs one group has a block of its own, and tries to keep no reference (few
tiles are not worth the code). Where streams are short as well, over triangles, and where three
groups would share a block, tiles are small, and two blocks share a multiprocessor: what tiles waste
counts, how soon the first product comes, and that one block computes while the other waits. (Bands
have these alone: loops at both ends of a stream make long code, and three kernels too much of it.)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import FLOAT8, Term
from neptune_mlir.analysis.fused_nests import FusedNest, contractions
from neptune_mlir.analysis.masks import masked_load
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets import tuned
from neptune_mlir.targets.group_tiles import (
    GROUP_ROWS,
    MOST_STREAM,
    group_count,
    has_registers,
    is_deep,
    is_plain,
    most_stream,
    panel,
    registers,
    share_memory,
    sharing,
)
from neptune_mlir.targets.tuned import ALL_AHEAD, Choice, Entry, Question, Shape
from neptune_mlir.targets.warp_groups import (
    BESIDE_MASK,
    CHUNK,
    ELEMENT,
    LONG,
    LONG_TRIANGLE,
    PANEL,
    PRODUCT_REGISTERS,
    REGISTERS,
    SECTOR,
    WIDEST,
    WORTH,
    of_size,
    padded,
)
from neptune_mlir.transforms.registry import remark

ROWS = (0, *(GROUP_ROWS * groups for groups in PRODUCT_REGISTERS))  # to ask for; 0 for the rule's
HALF = ALL_AHEAD // 2  # of the instructions of a product
ROOMY = {"tanh", "sin", "cos", "erf", "log"}  # take registers of their own


def shape_of(
    nests: Sequence[FusedNest], domain: Sequence[int], stream: int, column: int | None,
    aligned: bool = False, whole: Collection[int] = (),
) -> Shape:  # fmt: skip
    """What a stream is like.

    Args:
        stream, column: the streamed axis, and the result's column axis unless it is cut.
        aligned: whether rows whose length only a call knows begin at multiples of 16 bytes.
        whole: axes along which they do in any case (`assume-chunks`).
    """
    shared, nests = sum(nest.spreads for nest in nests), [n for n in nests if not n.spreads]
    depths = [
        math.prod(domain[a] for a in nest.reduced_axes if a != stream and domain[a] != DYNAMIC)
        for nest, *_ in contractions(nests)
    ]
    terms = [t for nest in nests if nest.body is not None for t in T.walk(nest.body)]
    masks = {t for t in terms if t.op in ("lt", "le", "gt", "ge") and len(T.axes_of(t)) > 1}
    summed = [
        stream in nest.reduced_axes
        for nest, left, right in contractions(nests)
        if T.axes_of(left) - T.axes_of(right) and T.axes_of(right) - T.axes_of(left)
    ]  # a sum of squares is no product of a matrix instruction
    row_axes = {
        a for nest, left, right in contractions(nests) if stream not in nest.reduced_axes
        for a in (T.axes_of(left) ^ T.axes_of(right)) & set(nest.result_axes)
    }  # fmt: skip
    made = {nest.key for nest in nests}
    factors = {f for _, *both in contractions(nests) for f in both}
    loads = {
        r for nest in nests for r in nest.reads
        if r.attr not in made and r not in factors
        and stream in T.axes_of(r) and T.axes_of(r) & (row_axes - {stream})
    }  # fmt: skip
    once = {  # a tile for all iterations
        r for nest in nests for r in nest.reads
        if r.attr not in made and r not in factors and stream not in T.axes_of(r)
        and len(T.axes_of(r) & row_axes) > 1
    }  # fmt: skip
    every = {*range(len(domain))} if aligned else whole
    boxes = {r for r in loads | once if _is_box(r, domain, every)}
    compared = {r for t in terms if t.op in T.COMPARISONS for r in T.walk(t)}
    marks = [
        r for r in {r for nest in nests for r in nest.reads} & compared - loads
        if r.attr not in made and stream in T.axes_of(r)
    ]  # fmt: skip
    groups = {a for a in range(len(domain)) if all(a in T.axes_of(f) for f in factors)}
    vectors = [
        r for r in {r for nest in nests for r in nest.reads} - compared - factors
        if r.attr not in made and {stream} <= T.axes_of(r) <= groups | {stream}
    ]  # fmt: skip
    width = 0 if column is None else domain[column]
    once_bytes, streamed = _loaded(nests, domain, stream) if sharing(width) > 1 else (0, 0)
    return Shape(
        max(depths, default=0), width, bool(masks),
        not any(t.op in ROOMY and stream in T.axes_of(t) for t in terms), len(masks) > 1,
        max(1, summed.count(False)), max(1, summed.count(True)), len(loads - boxes), len(boxes),
        len(marks), len(vectors), once_bytes, streamed, shared, factor_size(nests),
    )  # fmt: skip


def factor_size(nests: Sequence[FusedNest]) -> int:
    """Bytes of an element of a factor: 1 where all are in e4m3, 4 where both of a product are f32.
    (One of f32 beside one of 16 bits is rounded to these.)"""
    found = list(contractions(nests))
    if found and all(_in_bytes(factor) for nest, *_ in found for factor in nest.body.args):
        return 1
    return 4 if any(left.dtype == right.dtype == "f32" for _, left, right in found) else ELEMENT


def _in_bytes(factor: Term) -> bool:
    """Whether a factor is read in e4m3, or rounded to it."""
    while factor.op == "cast" and factor.dtype != FLOAT8:
        factor = factor.args[0]
    return bool(factor.dtype == FLOAT8)


def _loaded(nests: Sequence[FusedNest], domain: Sequence[int], stream: int) -> tuple[int, int]:
    """Elements that factors of products load of a row once, and of a streamed point: those that two
    factors have are loaded once."""
    made = {nest.key: nest.body for nest in nests}
    found: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
    for _, *factors in contractions(nests):
        for factor in factors:
            read, body = factor, made.get(factor.attr)
            if factor.attr in made:
                load = masked_load(body) if body is not None else None
                if load is None:
                    continue
                read = load[0]
            axes = T.axes_of(read.args[-1])
            sizes = {a: domain[a] for a in axes}
            place = read.attr, _with_extents(read.args[-1], sizes)
            found[stream in T.axes_of(read)][place] = padded(math.prod(sizes.values()))
    return sum(found[0].values()), sum(found[1].values())


def _with_extents(position: T.Term, sizes: dict[int, int]) -> Any:
    """A position, axes told by their extents alone."""
    if position.op == "index":
        return sizes[position.attr]
    return position.op, position.attr, *(_with_extents(a, sizes) for a in position.args)


def _is_box(read: T.Term, domain: Sequence[int], whole: Collection[int]) -> bool:
    """Whether the copy engine can bring tiles of a tensor to the panels that factors have, too.
    `whole`: axes whose extents are whole chunks where only a call knows them."""
    last = read.args[-1]
    if read.dtype not in ("f16", "bf16") or last.op != "index":
        return False
    extent = domain[last.attr]
    return last.attr in whole if extent == DYNAMIC else extent % CHUNK == 0


def panel_of(nests: Sequence[FusedNest]) -> int:
    """Elements of a factor in a row of a whole panel."""
    return of_size(PANEL, factor_size(nests))


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
    if has_registers(shape, choice):
        return True
    text = f"the tuning table says {choice} for {shape}, which registers do not hold: not taken"
    remark(ir.Location.unknown(), text, "warning")
    return False


def rule(shape: Shape, few: int = 0, length: int = 0) -> Choice:
    """What is taken where nothing was measured (the rest as in `choose`)."""
    if is_plain(shape):
        return Choice(64 if few else 128, panel(shape))
    if is_deep(shape):
        return Choice(128, WIDEST)
    if shape.shared:  # measured: one product late, where registers have room for it
        wide = shape.width > PANEL
        masks = shape.band or shape.marks  # in many tiles: their loops spill
        if not wide and not few and shape.light and not masks:
            return Choice(128, 2 * PANEL, late=0, slots=2, beside=HALF, adder=1)
        if wide:
            beside = ALL_AHEAD if shape.triangle else HALF
            return Choice(
                128, PANEL, keeps=not few, late=0, early=True, beside=beside, adder=1,
                apart=not shape.triangle,
            )  # fmt: skip
        return Choice(128, PANEL, keeps=not few, late=1)
    fits = shape.width and _has_room_for_three(shape)
    groups = 3 if shape.light and fits and not shape.triangle else 2
    if sharing(shape.width) > 1:
        return Choice(GROUP_ROWS, most_stream(shape, GROUP_ROWS), keeps=not few)
    if not few and length >= (_long(shape) or length + 1):
        groups = 3
    if (few == 2 or (few and shape.band)) and (shape.triangle or groups == 3):
        small = Choice(64, 64, keeps=False, resident=False, blocks=2)
        if share_memory(shape, small):
            return small
    rows = 64 * (1 if few else groups)
    return Choice(rows, most_stream(shape, rows), keeps=not few)


def _has_room_for_three(shape: Shape) -> bool:
    """Whether three groups hold the widest tile of the stream."""
    return has_registers(shape, Choice(3 * GROUP_ROWS, MOST_STREAM))


def _long(shape: Shape) -> int:
    """The length from which on the rule takes three groups where it takes two for less; 0: none."""
    if is_plain(shape) or is_deep(shape) or shape.band or not shape.light or not shape.width:
        return 0
    if sharing(shape.width) > 1 or shape.shared:
        return 0
    always = not shape.triangle and _has_room_for_three(shape)
    if always or most_stream(shape, ROWS[-1]) < WORTH:
        return 0
    groups = ROWS[-1] // GROUP_ROWS
    least = registers(shape, MOST_STREAM, groups=groups) + BESIDE_MASK
    soon = shape.depth % SECTOR or shape.width % SECTOR or least <= PRODUCT_REGISTERS[groups]
    return LONG_TRIANGLE if shape.triangle and not soon else LONG


def resized(
    shape: Shape, choice: Choice, rows: int, stream: int, columns: int = 0, chunks: bool = False
) -> Choice:
    """A choice with the sizes that somebody asked for (0: did not) and what fits beside these.
    Where streams are cut into `chunks`, plain products have half as many columns: what programs
    load more often is less than what fewer chunks store, and join."""
    if columns:
        choice = replace(choice, columns=columns)
    elif chunks and is_plain(shape) and not choice.columns:
        choice = replace(choice, columns=WIDEST // 2)
    if rows and rows != choice.rows:
        choice = replace(choice, rows=rows, stream=most_stream(shape, rows))
    choice = replace(choice, stream=stream or choice.stream)
    together = (group_count(shape, choice.rows), choice.blocks) in REGISTERS
    fits = choice.blocks == 1 or (together and share_memory(shape, choice))
    return choice if fits else replace(choice, blocks=1)


def lengths(chip: str, shape: Shape) -> list[int]:
    """From which lengths on other choices are better than for any length."""
    starts, own = [e.start for e in _known(chip, shape)], _long(shape)
    if own and own < min(starts, default=own + 1):
        starts.insert(0, own)
    return [start for start in starts if start]


def _known(chip: str, shape: Shape) -> list[Entry]:
    """What was measured: of streams with as many vectors, or the nearest number; of streams without
    marks what registers hold beside these, too."""
    table, bare = tuned.current(), replace(shape, vectors=0)
    counts = [
        e.shape.vectors for e in table.entries
        if e.chip == chip and replace(e.shape, vectors=0) == bare
    ]  # fmt: skip
    if counts:
        nearest = min(counts, key=lambda n: (abs(n - shape.vectors), -n))
        return table.of(chip, replace(shape, vectors=nearest))
    if not shape.marks:
        return []
    found = _known(chip, replace(shape, marks=0))
    return [entry for entry in found if has_registers(shape, entry.choice)]
