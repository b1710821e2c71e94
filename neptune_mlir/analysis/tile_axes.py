# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The axes of an op that has tile sizes, and the role that each plays in its kernel.

Every axis plays one role in a kernel:

* `grid`: cut, and no nest reduces over it: one grid dimension;
* `whole`: not cut, every tile tensor holds all of it (so it is static, or known to fit the
  tile), padded to the tile size that was asked for;
* `stream`: the streamed axis, a loop around the body of the stream;
* `loop`: cut, and some nest reduces over it: a loop around each nest that reduces over it,
  and around the stores of the results that carry it. In `finish` the streamed axis is one too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.analysis.tiles import is_multiple
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.attributes import TILE
from neptune_mlir.errors import ScheduleError
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.bindings import location_text

Extent = Any  # an int, or an ir.Value of index type


@dataclass(frozen=True)
class TileAxis:
    """One axis of a kernel: its name, extent, tile size (the extent when uncut), and role."""

    name: str
    extent: Extent
    size: int
    role: str  # grid whole stream loop

    @property
    def once(self) -> bool:
        """Whether one tile has all of this axis, and there is something to have."""
        return isinstance(self.extent, int) and 0 < self.extent <= self.size

    @property
    def divides(self) -> bool:
        """Whether every tile of this axis is known to be full."""
        return is_multiple(self.extent, self.size)


def tiles_of(op: Any) -> list[int]:
    """The tile size of each axis; 0: not cut. Raises ScheduleError."""
    rank = len(list(op.domain))
    if not TILE.on(op.operation):
        raise ScheduleError(
            f"'{op.operation.name}' has no tile sizes",
            loc=location_text(op.operation.location), hint="run the tile pass first",
        )  # fmt: skip
    tiles = list(TILE.of(op.operation))
    if len(tiles) != rank or min(tiles, default=0) < 0:
        raise ScheduleError(
            f"{TILE} needs {rank} sizes of at least 0, one per axis, and has {tiles}",
            loc=location_text(op.operation.location),
        )
    return tiles


def extents_of(op: Any) -> list[Extent]:
    """The extent of each axis."""
    dynamic = iter(op.extents)
    return [next(dynamic) if d == nests.DYNAMIC else d for d in op.domain]


def _fits(extent: Extent, size: int) -> bool:
    """Whether a run-time extent is known to fit one tile."""
    most = None if isinstance(extent, int) else ix.most(extent)
    return most is not None and most <= size


def axes_of(op: Any, found: Iterable[FusedNest], stream: int | None) -> list[TileAxis]:
    """The axes of an op that has tile sizes, with the roles that they play for its nests."""
    tiles = tiles_of(op)
    reduced = {a for n in found for a in n.own_axes}
    names = [a.value for a in op.axis_names] if hasattr(op, "axis_names") else None
    axes: list[TileAxis] = []
    for k, (extent, tile) in enumerate(zip(extents_of(op), tiles, strict=True)):
        name = names[k] if names else f"d{k}"
        if tile == 0 and not isinstance(extent, int):
            raise ScheduleError(
                f"axis '{name}' has a run-time extent, so it must be cut; its tile size is 0",
                loc=location_text(op.operation.location), hint="give it a tile size such as 64",
            )  # fmt: skip
        size = tile or extent or 1  # an empty axis is cut: no tile of it is ever made
        if k == stream:
            role = "stream"
        elif size == extent or _fits(extent, size):
            role = "whole"
        elif k in reduced:
            role = "loop"
        else:  # one padded tile needs no grid dimension
            role = "whole" if isinstance(extent, int) and 0 < extent < size else "grid"
        axes.append(TileAxis(name, extent, size, role))
    return axes
