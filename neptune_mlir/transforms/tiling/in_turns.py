# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that add to one result in turns, so that its bits are the same in every run.

A sum of floats depends on its order. Programs along one dimension of the grid add to the same tiles
of a result, each to those that a mask leaves it; here they do so from the last program down. Each
tile has words in memory, behind the rows of the result (they are 0 at first, as it is): the number
of the program that added last, by warp group. A program adds to a tile when the word has the number
of its neighbour, the program behind it along the dimension, and then writes its own there. Where
the neighbour does not have the tile, nobody behind it has, and there is nothing to wait for: each
condition of the mask is linear in the dimension, so it holds for a tile from some program on or up
to one, and the programs that have a tile are an interval. A program that waits for nobody stores
its part, so that zeros are made for the words alone, if each tile has a program.

    %s1 = neptune.add_slice %tile, %s0[%at]
    ->
    %s1 = neptune.add_slice %tile, %s0[%at], %awaited, %own, %rows

Nothing waits for ever, as long as programs begin in this order (`codegen.nvidia.program_order`) and
are taken from a queue by blocks that run (`program_queue`): of the programs that have not ended the
first one waits for none.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.fragments import ROWS
from neptune_mlir.analysis.masks import affine_part
from neptune_mlir.analysis.tiles import adds_in_turns, tuned
from neptune_mlir.dialects.attributes import CHIP
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.transforms.tiling.bounds import live_span
from neptune_mlir.transforms.tiling.emit import Frame, GridProgram
from neptune_mlir.transforms.tiling.kernel import TileKernel
from neptune_mlir.transforms.tiling.slices import Tile

WORDS = 4  # of a tile: for as many warp groups


def takes_turns(kernel: TileKernel) -> bool:
    """Whether programs of a kernel add to what they share in turns (choice `adder`). (Those of a
    CPU run one by one: `neptune.in_order`.)"""
    on_gpu = CHIP.on(kernel.op.operation.parent.parent)
    return on_gpu and adds_in_turns(kernel.schedule)


def is_counted(kernel: TileKernel) -> bool:
    """Whether programs of a kernel that add to what they share in any order count themselves when
    their sums are there, so that who reads these need not wait for all (`sums_awaited`). Under a
    triangle the last programs of many results run at the end, the longest first: nothing is there
    before."""
    on_gpu = CHIP.on(kernel.op.operation.parent.parent)
    if not (on_gpu and tuned(kernel.schedule, "adder", 0)) or takes_turns(kernel):
        return False
    if any(form.coefficient(kernel.stream) for form in affine_part(kernel.live)):
        return False
    columns = [kernel.result_axes(key)[-1] for key in kernel.results if kernel.spread(key)]
    known = all(k != kernel.stream and ix.is_static(kernel.axes[k].extent) for k in columns)
    return known and len(columns) == len(kernel.shared_axes) == 1


def rows_stored(kernel: TileKernel) -> Index | None:
    """How many rows of a result are stored by the first program that has them, so that nobody has
    to make zeros there: all whole tiles, where the program at 0 has them, or there are no
    programs. None: some tile may have none."""
    shared = sorted(kernel.shared_axes)
    if not takes_turns(kernel) or len(shared) != 1:
        return None
    (along,), axis = shared, kernel.axes[kernel.stream]
    for form in affine_part(kernel.live):
        rest = form.without(kernel.stream).without(along)
        if form.coefficient(kernel.stream) <= 0 or rest.atoms or rest.constant < 0:
            return None
    rows = ix.round_up(axis.extent, axis.size)
    return ix.where_less(0, kernel.axes[along].extent, rows, 0)


def room_for_words(kernel: TileKernel, key: str, rows: Index) -> Index:
    """Rows of a result of so many rows of whole tiles, with its words behind these: those of one
    tile more, as who adds looks at the word behind its own."""
    size = kernel.axes[kernel.stream].size
    tiles = ix.add(ix.floordiv(rows, size), 1) if takes_turns(kernel) else 1
    words = ix.scale(tiles, WORDS)
    return ix.add(rows, ix.round_up(ix.ceildiv(words, _width(kernel, key)), ROWS))


def turn_of(program: GridProgram, frame: Frame, rows: Index) -> list[Any]:
    """Of the tile at hand: the number that its word has when this program may add to it (0: it is
    the first one), this program's own, and behind how many rows of the result words are; then the
    number that all words have in the end (0: there is no program), where program 0 adds last.

    Raises:
        LoweringError: neighbours along the dimension need not be those that add next.
    """
    kernel, root = program.kernel, program.root
    shared, live = sorted(kernel.shared_axes), affine_part(kernel.live)
    if len(shared) != 1 or kernel.chunks is not None or not all(map(program.bounds, live)):
        raise kernel.error("programs cannot take turns: several dimensions of them add up")
    (along,), stream = shared, kernel.stream
    if any(not form.coefficient(stream) or form.reads or form.remainders for form in live):
        raise kernel.error("programs cannot take turns: data say which of them add to a tile")
    axis, size = kernel.axes[along], kernel.axes[stream].size
    tile = root.tile(along)
    behind = ix.add(tile.offset, axis.size)
    place = {**root.tiles, along: Tile(axis.size, behind, axis.size)}
    neighbour = GridProgram(kernel, program.values, Frame(root.block, place))
    extent = kernel.axes[stream].extent
    with root.here():
        first, last = live_span(extent, size, stream, live, neighbour.span)
        own = ix.add(ix.floordiv(tile.offset, axis.size), 1)
        last = [] if rows_stored(kernel) is None else [ix.where_less(0, axis.extent, 1, 0)]
    with frame.here():
        at = frame.tile(stream).offset
        awaited = ix.where_less(behind, axis.extent, ix.add(own, 1), 0)
        if any(form.coefficient(stream) < 0 for form in live):
            awaited = ix.where_less(at, last, awaited, 0)
        if any(form.coefficient(stream) > 0 for form in live):
            awaited = ix.where_less(at, first, 0, awaited)
        return [ix.value(n) for n in (awaited, own, rows, *last)]


def count_of(program: GridProgram, rows: Index) -> list[Any]:
    """Behind how many rows of the result the word is that counts programs, and how many there
    are."""
    (along,) = program.kernel.shared_axes
    axis = program.kernel.axes[along]
    with program.root.here():
        return [ix.value(rows), ix.value(ix.ceildiv(axis.extent, axis.size))]


def _width(kernel: TileKernel, key: str) -> int:
    extent = kernel.axes[kernel.result_axes(key)[-1]].extent
    if not ix.is_static(extent) or kernel.result_axes(key)[-1] == kernel.stream:
        raise kernel.error("programs cannot take turns: a result whose rows have any length")
    return int(extent)
