# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matmuls of the warp groups that consume, in a specialised kernel (wgmma)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Contraction, Generic, element_of
from neptune_mlir.codegen.gpu.compute import Compute, Splat
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.panel_tiles import PanelTile
from neptune_mlir.targets import warp_groups
from neptune_mlir.transforms.hopper.specialize_warps import ROWS


@dataclass(frozen=True)
class LeftFactor:
    """A left factor in registers as the words that instructions take; `tile`: of one whose first
    columns alone are there, all of it."""

    words: Sequence[Any]
    tile: PanelTile | None = None


class GroupProducts:
    """Matmuls of warp groups by wgmma. (`Compute.matrix` is one that each warp does on its own.)

    Attributes:
        compute: the tiles of the consumers.
        group: which consumer group this thread belongs to, i32.
    """

    def __init__(self, compute: Compute, group: Any):
        self.s, self.compute, self.group = compute.s, compute, group

    def issue(self, g: Generic, p: Contraction, tiles: Any, layout: Layout) -> list[Any]:
        """Start a product; `hopper.wait_products` gives its values."""
        s = self.s
        n, k = g.extents[p.n], g.extents[p.k]
        a_tile, b_tile, start = tiles[p.a], tiles[p.b], tiles[-1]
        assert isinstance(b_tile, PanelTile)
        fresh = isinstance(start, Splat) and s.constant_of(start.value) == 0.0
        acc = None if fresh else self.compute.registers(start, layout)
        # whether rows run along m, and along n
        turned = g.maps[p.a].index(p.k) == 0, g.maps[p.b].index(p.k) == 0
        across = self.compute.warp_grid(layout, g, p).n  # groups that have a part of the columns
        assert across == 1 or g.extents[p.m] == ROWS
        n //= across
        b_address = b_tile.address
        if across > 1:
            # columns of a panel are rows of memory, unless these run along n
            panel, within = divmod(n, b_tile.width)
            own = n * b_tile.row_bytes
            if turned[1]:
                own = panel * b_tile.panel_bytes + within * warp_groups.ELEMENT
            b_address = self._own(b_address, own)
        b, b_steps = self._in_panels(b_tile, b_address, k, turned[1])
        a: Any
        kept = a_tile if isinstance(a_tile, LeftFactor) else None
        if kept is not None and kept.tile is not None:
            a_tile = kept.tile
        if isinstance(a_tile, PanelTile):
            # a group's rows are so many rows of the tile, or a panel where these run along m
            own = a_tile.panel_bytes if turned[0] else ROWS * a_tile.row_bytes
            a_address = a_tile.address if across > 1 else self._own(a_tile.address, own)
            a, a_steps = self._in_panels(a_tile, a_address, k, turned[0])
            a = a if kept is None else hopper.Both(kept.words, a)
        else:
            a = self._fragments(g, p, a_tile, layout) if kept is None else list(kept.words)
            a_steps = [0] * (k // 16)
        steps = list(zip(a_steps, b_steps, strict=True))
        return hopper.multiply(element_of(g.inputs[p.b]), n, acc, a, b, steps, turned)

    def left_factor(
        self, g: Generic, p: Contraction, tile: PanelTile, layout: Layout
    ) -> LeftFactor:
        """A left factor from shared memory, for all products that read it; where groups share rows,
        whose results take half of their registers, the columns of a panel."""
        compute, s = self.compute, self.s
        grid, instruction = compute.warp_grid(layout, g, p), compute.instruction(g)
        wanted = compute.operand_of(g, p.a, "a", p, grid, instruction)
        fragments = tile.operand(compute.threads, compute.memory, wanted)
        steps = g.extents[p.k] // instruction.k
        most = steps if grid.n == 1 else min(steps, warp_groups.PANEL // instruction.k)
        pieces = (fragments(0, k, 1)[0] for k in range(most))
        words = [s.op("llvm.bitcast", [x], s.i32) for piece in pieces for x in piece]
        return LeftFactor(words, tile if most < steps else None)

    def _own(self, address: Any, size: int) -> Any:
        """Where the part of this group begins, of parts of so many bytes."""
        s = self.s
        moved = s.op("arith.muli", [self.group, s.constant(size, s.i32)], s.i32)
        return s.op("arith.addi", [address, moved], s.i32)

    def _in_panels(
        self, tile: PanelTile, address: Any, depth: int, turned: bool
    ) -> tuple[Any, list[int]]:
        """The descriptor of an operand, and what each 16 of the summed axis add to it."""
        count = depth // warp_groups.DEEP
        if turned:
            step = warp_groups.DEEP * tile.row_bytes >> 4
            steps = [step * j for j in range(count)]
            return self._descriptor(address, tile, tile.panel_bytes), steps
        return self._descriptor(address, tile), [self._along(j, tile) for j in range(count)]

    def _along(self, j: int, tile: PanelTile) -> int:
        """Of a descriptor, to the j-th 16 columns of a tile."""
        panel, inside = divmod(j, tile.width // warp_groups.DEEP)
        return (panel * tile.panel_bytes >> 4) + hopper.step_along_rows(inside)

    def _descriptor(self, address: Any, tile: PanelTile, leading: int = 16) -> Any:
        """`leading`: bytes from panel to panel, where these lie along the free axis."""
        s = self.s
        unit = s.op("arith.shrui", [address, s.constant(4, s.i32)], s.i32)
        unit = s.op("arith.andi", [unit, s.constant(0x3FFF, s.i32)], s.i32)
        wide = s.op("arith.extui", [unit], s.i64)
        bits = s.constant(hopper.descriptor_bits(leading, tile.row_bytes), s.i64)
        return s.op("arith.ori", [wide, bits], s.i64)

    def _fragments(self, g: Generic, p: Contraction, tile: Any, layout: Layout) -> list[Any]:
        """The words of operand A, as the accumulator's layout leaves them in this thread."""
        loops, shape = g.maps[p.a], [g.extents[d] for d in g.maps[p.a]]
        grid = self.compute.warp_grid(layout, g, p)
        instruction = self.compute.instruction(g)
        needed = L.operand_a(shape, loops.index(p.m), loops.index(p.k), grid, instruction)
        values = self.compute.registers(tile, needed)
        return self.compute.words(values)
