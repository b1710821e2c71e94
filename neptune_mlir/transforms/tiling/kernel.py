# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `lower-to-tiles` knows of one kernel-level op before it emits anything.

A stream, the stream of a private, a global, and a lone map or reduce all become the same
`TileKernel`: axes with tile sizes (`analysis/tile_axes.py`), nests over those axes, running values
(streams only), results.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import elements
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import (
    FusedNest,
    accumulation,
    read_live,
    read_nest,
    read_region,
)
from neptune_mlir.analysis.tile_axes import Extent, TileAxis, axes_of, extents_of, tiles_of
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.attributes import ONE_TILE, PRODUCT
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import location_text

TRUE = T.const(True, "i1")
LOOPED = ("stream", "loop")  # roles of axes that a loop inside the program runs over


@dataclass(frozen=True)
class RunningValue:
    """A running value of a stream: its key in the body, the nest that makes it anew, and the
    reduction whose identity it starts from (or the key of the tensor it starts from)."""

    key: str
    updated: str
    origin: FusedNest
    start: str | None = None

    @property
    def spreads(self) -> bool:
        """Whether programs share it: a strip of a result, to which they add."""
        return self.origin.spreads


@dataclass
class TileKernel:
    op: Any
    axes: list[TileAxis]
    nests: dict[str, FusedNest] = field(default_factory=dict)
    stream: int | None = None
    chunks: Extent | None = None
    running: list[RunningValue] = field(default_factory=list)
    finish_keys: list[str] = field(default_factory=list)  # of the final running values
    results: list[str] = field(default_factory=list)
    live: Term = TRUE
    inner: Any = None  # the stream of a private op

    @property
    def schedule(self) -> Any:
        """The op that has the tile sizes, and the choices."""
        return (self.inner or self.op).operation

    def is_clipped(self, axis: int) -> bool:
        """Whether what loads a tile along an axis makes 0 of what is beyond its end, and that is
        all that its last tile needs (`note_product`)."""
        *_, summed, computed = PRODUCT.find(self.schedule, (-1, 1))
        return bool(summed == axis and not computed)

    @property
    def in_one_tile(self) -> bool:
        """Whether one tile has all of the streamed axis, whatever its extent."""
        return self.chunks is None and ONE_TILE.on(self.schedule)

    def result_axes(self, key: str) -> tuple[int, ...]:
        """The axis of each dimension of a nest's result or a running value."""
        if key in self.nests:
            return self.nests[key].result_axes
        for k, final in enumerate(self.finish_keys):
            if key in (final, self.running[k].key):
                return self.running[k].origin.result_axes
        raise self.error("a result of the kernel is not made by one of its nests")

    @property
    def shared_axes(self) -> frozenset[int]:
        """The axes whose programs add to the same results."""
        spread = (nest for nest in self.nests.values() if nest.spreads)
        return frozenset(
            a for nest in spread for a in nest.reduced_axes if self.axes[a].role == "grid"
        )

    def spread(self, key: str) -> RunningValue | None:
        """The running value that programs share whose final value this is."""
        if key not in self.finish_keys:
            return None
        found = self.running[self.finish_keys.index(key)]
        return found if found.spreads else None

    def reduces(self, axis: int) -> bool:
        """Whether some nest reduces over `axis`."""
        return any(axis in nest.reduced_axes for nest in self.nests.values())

    def streamed_reads(self) -> list[Term]:
        """The distinct reads along the stream of tensors from outside the kernel."""
        own = {*self.nests, *self.finish_keys, *(r.key for r in self.running)}
        bodies = [nest.body for nest in self.nests.values() if nest.body is not None]
        found = dict.fromkeys(read for body in bodies for read in elements(body))
        return [r for r in found if r.attr not in own and self.stream in r.axes]

    def error(self, message: str, hint: str | None = None) -> LoweringError:
        return LoweringError(message, loc=location_text(self.op.operation.location), hint=hint)


def read_kernel(op: Any, values: nests.Values) -> TileKernel:
    """The kernel of a neptune.stream, private, global, map or reduce op."""
    op = op.operation.opview
    if isinstance(op, N.PrivateOp):
        stream = op.body.blocks[0].operations[0].operation.opview
        kernel = _read_stream(stream, values)
        kernel.op, kernel.inner = op, stream
        kernel.chunks = op.chunks.value if op.count is None else op.count
        return kernel
    if isinstance(op, N.StreamOp):
        return _read_stream(op, values)
    if isinstance(op, N.GlobalOp):
        found, produced = read_region(op.body.blocks[0], values)
        axes = axes_of(op, found, None)
        return TileKernel(op, axes, {n.key: n for n in found}, results=produced)
    if isinstance(op, N.MapOp | N.ReduceOp | N.AccumulateOp):
        return _read_lone(op, values)
    raise LoweringError(
        f"'{op.operation.name}' is not a kernel", loc=location_text(op.operation.location)
    )


def _read_stream(op: Any, values: nests.Values) -> TileKernel:
    body, finish = op.body.blocks[0], op.finish.blocks[0]
    in_body, updated = read_region(body, values, in_body=True)
    in_finish, results = read_region(finish, values)
    found = in_body + in_finish
    kernel = TileKernel(
        op, axes_of(op, found, op.axis.value), {n.key: n for n in found},
        stream=op.axis.value, results=results,
        finish_keys=[values.key(a) for a in finish.arguments],
    )  # fmt: skip
    for argument, produced in zip(body.arguments, updated, strict=True):
        key = values.key(argument)
        origin = accumulation(kernel.nests, produced, key)
        if origin is None:
            raise kernel.error("a running value is not made by a neptune.accumulate")
        if origin.spreads and produced != origin.key:
            raise kernel.error("a sum that programs share is corrected")
        kernel.running.append(RunningValue(key, produced, origin))
    kernel.live = read_live(op, values)
    return kernel


def _read_lone(op: Any, values: nests.Values) -> TileKernel:
    """A lone reduce that is cut along a reduced axis is a stream of one running value."""
    nest = read_nest(op, values)
    tiles = tiles_of(op)
    extents = extents_of(op)
    cut = [a for a in nest.reduced_axes if tiles[a] and tiles[a] != extents[a]]
    if not cut:
        return TileKernel(op, axes_of(op, [nest], None), {nest.key: nest}, results=[nest.key])
    stream = cut[-1]
    running, final = f"{nest.key}.running", f"{nest.key}.final"
    start, nest.init, nest.in_body = nest.init, running, True
    return TileKernel(
        op, axes_of(op, [nest], stream), {nest.key: nest}, stream=stream,
        running=[RunningValue(running, nest.key, nest, start)], finish_keys=[final],
        results=[final],
    )  # fmt: skip
