# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions of tiles in loops over shared operands: for all that has no form of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Generic
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.scalars import Index
from neptune_mlir.codegen.gpu.tile_forms import Held, Point, Splat, Tile
from neptune_mlir.ir.bindings import scf

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.compute import Compute


def reduce_in_loops(
    compute: Compute, g: Generic, tiles: Sequence[Tile], layout: Layout
) -> Held:  # fmt: skip
    """A reduction in loops over its reduced axes; every input is read from shared memory."""
    s = compute.s
    start = compute.registers(tiles[-1], layout)
    positions = compute.threads.positions(layout)
    body_of = g.maps[-1]

    def point(indices: dict[int, Index], r: int, accumulated: Any) -> Point:
        position: list[Index] = [0] * len(g.extents)
        for loop, p in zip(body_of, positions[r], strict=True):
            limit = g.extents[loop]
            position[loop] = s.minimum(p, limit - 1) if layout.padded else p
        for loop, p in indices.items():
            position[loop] = p
        elements: list[Any] = []
        for k, tile in enumerate(tiles[:-1]):
            if not g.is_read(k):
                elements.append(None)
            elif isinstance(tile, SharedTile):
                where = [position[loop] for loop in g.maps[k]]
                elements.append(compute.memory.load_shared(tile, [where])[0])
            else:
                assert isinstance(tile, Splat)
                elements.append(tile.value)
        return [*elements, accumulated], position

    def nest(
        remaining: Sequence[int], indices: dict[int, Index], carried: list[Any]
    ) -> list[Any]:
        if not remaining:
            points = (point(indices, r, c) for r, c in enumerate(carried))
            return list(compute.evaluate(g, points))
        loop = scf.ForOp(s.value(0), s.value(g.extents[remaining[0]]), s.value(1), carried)
        with s.scope(loop.body):
            inner = {**indices, remaining[0]: loop.induction_variable}
            scf.YieldOp(nest(remaining[1:], inner, list(loop.inner_iter_args)))
        return list(loop.results)

    return Held(layout, nest(list(g.reduced), {}, list(start)))
