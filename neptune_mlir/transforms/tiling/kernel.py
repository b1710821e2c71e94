# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `lower-to-tiles` knows of one kernel-level op before it emits anything.

A stream, the stream of a private, a global, and a lone map or reduce all become the same
`Kernel`: axes with tile sizes, nests over those axes, running values (streams only), results.

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
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import (
    FusedNest,
    accumulation,
    read_live,
    read_nest,
    read_region,
)
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects import nests
from neptune_mlir.errors import LoweringError, ScheduleError
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.bindings import location_text

TRUE = T.const(True, "i1")
LOOPED = ("stream", "loop")  # roles of axes that a loop inside the program runs over
Extent = Any  # an int, or an ir.Value of index type


@dataclass(frozen=True)
class Axis:
    """One axis of a kernel: its name, extent, tile size (the extent when uncut), and role."""

    name: str
    extent: Extent
    size: int
    role: str  # grid whole stream loop

    @property
    def divides(self) -> bool:
        """Whether every tile of this axis is known to be full."""
        return isinstance(self.extent, int) and self.extent % self.size == 0


@dataclass(frozen=True)
class Running:
    """A running value of a stream: its key in the body, the nest that makes it anew, and the
    reduction whose identity it starts from (or the key of the tensor it starts from)."""

    key: str
    updated: str
    origin: FusedNest
    start: str | None = None


@dataclass
class Kernel:
    op: Any
    axes: list[Axis]
    nests: dict[str, FusedNest] = field(default_factory=dict)
    stream: int | None = None
    chunks: Extent | None = None
    running: list[Running] = field(default_factory=list)
    finish_keys: list[str] = field(default_factory=list)  # of the final running values
    results: list[str] = field(default_factory=list)
    live: Term = TRUE

    def result_axes(self, key: str) -> tuple[int, ...]:
        """The axis of each dimension of a nest's result or a running value."""
        if key in self.nests:
            return self.nests[key].result_axes
        for k, final in enumerate(self.finish_keys):
            if key in (final, self.running[k].key):
                return self.running[k].origin.result_axes
        raise self.error("a result of the kernel is not made by one of its nests")

    def reduces(self, axis: int) -> bool:
        """Whether some nest reduces over `axis`."""
        return any(axis in nest.reduced_axes for nest in self.nests.values())

    def error(self, message: str, hint: str | None = None) -> LoweringError:
        return LoweringError(message, loc=location_text(self.op.operation.location), hint=hint)


def read_kernel(op: Any, values: nests.Values) -> Kernel:
    """The kernel of a neptune.stream, private, global, map or reduce op."""
    op = op.operation.opview
    if isinstance(op, N.PrivateOp):
        stream = op.body.blocks[0].operations[0].operation.opview
        kernel = _read_stream(stream, values)
        kernel.op = op
        kernel.chunks = op.chunks.value if op.count is None else op.count
        return kernel
    if isinstance(op, N.StreamOp):
        return _read_stream(op, values)
    if isinstance(op, N.GlobalOp):
        found, produced = read_region(op.body.blocks[0], values)
        axes = axes_of(op, found, None)
        return Kernel(op, axes, {n.key: n for n in found}, results=produced)
    if isinstance(op, N.MapOp | N.ReduceOp | N.AccumulateOp):
        return _read_lone(op, values)
    raise LoweringError(
        f"'{op.operation.name}' is not a kernel", loc=location_text(op.operation.location)
    )


def _read_stream(op: Any, values: nests.Values) -> Kernel:
    body, finish = op.body.blocks[0], op.finish.blocks[0]
    in_body, updated = read_region(body, values, in_body=True)
    in_finish, results = read_region(finish, values)
    found = in_body + in_finish
    kernel = Kernel(
        op, axes_of(op, found, op.axis.value), {n.key: n for n in found},
        stream=op.axis.value, results=results,
        finish_keys=[values.key(a) for a in finish.arguments],
    )  # fmt: skip
    for argument, produced in zip(body.arguments, updated, strict=True):
        key = values.key(argument)
        origin = accumulation(kernel.nests, produced, key)
        if origin is None:
            raise kernel.error("a running value is not made by a neptune.accumulate")
        kernel.running.append(Running(key, produced, origin))
    kernel.live = read_live(op, values)
    return kernel


def _read_lone(op: Any, values: nests.Values) -> Kernel:
    """A lone reduce that is cut along a reduced axis is a stream of one running value."""
    nest = read_nest(op, values)
    tiles = _tiles(op)
    extents = _extents(op)
    cut = [a for a in nest.reduced_axes if tiles[a] and tiles[a] != extents[a]]
    if not cut:
        return Kernel(op, axes_of(op, [nest], None), {nest.key: nest}, results=[nest.key])
    stream = cut[-1]
    running, final = f"{nest.key}.running", f"{nest.key}.final"
    start, nest.init, nest.in_body = nest.init, running, True
    return Kernel(
        op, axes_of(op, [nest], stream), {nest.key: nest}, stream=stream,
        running=[Running(running, nest.key, nest, start)], finish_keys=[final], results=[final],
    )  # fmt: skip


def _tiles(op: Any) -> list[int]:
    rank = len(list(op.domain))
    attributes = op.operation.attributes
    if "neptune.tile" not in attributes:
        raise ScheduleError(
            f"'{op.operation.name}' has no tile sizes",
            loc=location_text(op.operation.location), hint="run the tile pass first",
        )  # fmt: skip
    tiles = list(attributes["neptune.tile"])
    if len(tiles) != rank or min(tiles, default=0) < 0:
        raise ScheduleError(
            f"neptune.tile needs {rank} sizes of at least 0, one per axis, and has {tiles}",
            loc=location_text(op.operation.location),
        )
    return tiles


def _extents(op: Any) -> list[Extent]:
    dynamic = iter(op.extents)
    return [next(dynamic) if d == nests.DYNAMIC else d for d in op.domain]


def _fits(extent: Extent, size: int) -> bool:
    """Whether a run-time extent is known to fit one tile."""
    most = None if isinstance(extent, int) else ix.most(extent)
    return most is not None and most <= size


def axes_of(op: Any, found: Iterable[FusedNest], stream: int | None) -> list[Axis]:
    """The axes of an op that has tile sizes, with the roles that they play for its nests."""
    tiles = _tiles(op)
    reduced = {a for n in found for a in n.reduced_axes}
    names = [a.value for a in op.axis_names] if hasattr(op, "axis_names") else None
    axes: list[Axis] = []
    for k, (extent, tile) in enumerate(zip(_extents(op), tiles, strict=True)):
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
        axes.append(Axis(name, extent, size, role))
    return axes
