# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs in pairs (`form-clusters`), of streams whose rows come slowly.

Rows that are no whole sectors of memory take the copy engine longer than the products that they are
for take the multiprocessor (`copy_cycles`). Of two programs that stream the same, each brings one
half: two heads of a group, where such groups are even, else two tiles of rows. Where a mask ends
streams at a row's place, two heads of a group end together, and two tiles of rows at the end of the
longer one (`form-clusters`); blocks take such pairs from a queue. (Not where masks begin streams,
too, or data say which points are live.)
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import contractions, nests_of
from neptune_mlir.dialects.attributes import TILE
from neptune_mlir.dialects.nests import Values
from neptune_mlir.dialects.program import streams
from neptune_mlir.pipelines.cases import ANY_CALL, Case
from neptune_mlir.pipelines.long_streams import tiles_of
from neptune_mlir.pipelines.program_lengths import program_lengths
from neptune_mlir.pipelines.short_calls import stream_length
from neptune_mlir.targets.group_tiles import copy_cycles, is_deep, is_plain, sharing
from neptune_mlir.targets.tuned import Shape
from neptune_mlir.transforms.hopper.clusters import PAIR


def in_pairs(module: Any, alone: bool) -> tuple[Case, ...]:
    """Calls of one kernel (`alone`) of warp groups that are over sooner in pairs."""
    if not alone or stream_length(module) is None:
        return ()
    (stream,) = streams(module)
    tiles = tiles_of(stream)
    if not tiles or not _comes_slowly(tiles[1][0]):
        return ()
    place = _shared_variable(stream)
    each = program_lengths(module, stream)
    own = tiles[1], tiles[1]
    return (Case(f"pairs:{place}", ANY_CALL, tiles=own, each=each),) if place else ()


def _comes_slowly(shape: Shape) -> bool:
    """Whether copies are what a program waits for, of streams that programs can share."""
    if is_plain(shape) or is_deep(shape) or sharing(shape.width) > 1 or shape.shared:
        return False
    return not (shape.loads or shape.boxes or shape.band or shape.marks) and copy_cycles(shape) > 0


def _shared_variable(stream: Any) -> int:
    """Which variable of the grid, from the last one, the programs of a pair differ in; 0: none."""
    sizes, axis = TILE.of(stream.operation), stream.axis.value
    nests = nests_of(stream, Values())
    found, made = list(contractions(nests)), {nest.key for nest in nests}
    inner = {a for nest, *_ in found for a in nest.reduced_axes}
    grid = [a for a, size in enumerate(sizes) if size and a != axis and a not in inner]
    factors = [f for _, *both in found for f in both if axis in T.axes_of(f)]
    loaded = [f for f in factors if f.op == "read" and f.attr not in made]
    if len(grid) < PAIR or not loaded:
        return 0
    *_, heads, rows = grid
    if all(_is_of_group(f, heads) for f in loaded):
        return 2
    return 0 if any(rows in T.axes_of(f) for f in loaded) else 1


def _is_of_group(read: T.Term, axis: int) -> bool:
    """Whether a read is the same for both of a pair along an axis."""
    places = [p for p in read.args if axis in T.axes_of(p)]
    return all(
        p.op == "floordiv" and p.args[0].op == "index" and p.args[1].is_const
        and p.args[1].value % PAIR == 0
        for p in places
    )  # fmt: skip
