# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of specialised warps by the copy engine.

A tile leaves through shared memory, panel by panel (`staged_rows.stage`): there its rows lie as a
tensor map describes boxes of the result, so one lane of a warp starts the copy of the warp's 16
rows, and the warp goes on. It waits only before it writes there again, and before it ends. What a
box has beyond the result's last row, or the last column, is not written, so a tile qualifies if it
ends where its tensor does; and only if there is room for half of its panels: each part waits for
the one before. Of tiles whose rows may end before (those of a sequence among others), each warp
asks whether all of its rows are there. Other tiles leave in rows that warps stage, or by quads
(`write_tile`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Window, extent_multiple
from neptune_mlir.codegen.gpu.access.threads import Threads
from neptune_mlir.codegen.gpu.memory import Array
from neptune_mlir.codegen.nvidia import hopper, quad_rows, staged_rows
from neptune_mlir.codegen.nvidia.boxes import MOST_AXES, BoxTile, in_one_box
from neptune_mlir.dialects.op_names import ADD_SLICE
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.targets import group_tiles, warp_groups
from neptune_mlir.targets.warp_groups import F32_PANEL
from neptune_mlir.transforms.gpu.layout_stages import added_panels
from neptune_mlir.transforms.hopper.specialize_warps import ROWS
from neptune_mlir.transforms.hopper.tile_ends import ends_with_tensor, strip_is_whole

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

NARROW = ("f16", "bf16")
MOST_PARTS = 2  # of a tile: in more of them, rows are faster


class BoxedResults:
    """The results of one kernel; `staged` is the offset of `room` panels for each warp."""

    def __init__(self, kernel: SpecializedWriter, staged: int, room: int):
        self.kernel, self.s = kernel, kernel.s
        self.staged, self.room = staged, room
        self.used = False

    def fits(self, array: Array, window: Window) -> bool:
        """Whether boxes describe a tile that `staged_rows.fits`, where all of its rows are there,
        or those that are not are not the tensor's."""
        kind, last = self._kind(array), window.dims[-1]
        tensor = self.kernel.signature.tensors[array.number]
        if array.dtype not in ("f16", "bf16"):
            return False
        columns, offset = window.shape[1], window.offsets[last]
        together = in_one_box(kind, offset, columns)
        known = isinstance(offset, int) and not kind.is_dynamic_dim(last)
        ends = known and offset + columns >= kind.shape[last]
        return (
            self._parts(columns, together) > 0
            and kind.rank <= MOST_AXES
            and extent_multiple(tensor, last) % warp_groups.CHUNK == 0
            and (together or columns % warp_groups.PANEL == 0 or ends)  # a box has whole panels
        )

    def store_some(
        self, array: Array, window: Window, layout: Layout, values: Sequence[Any]
    ) -> None:
        """Write a tile that `fits` and whose rows may end before the tensor's do: warps with all of
        theirs start copies."""
        s, kernel = self.s, self.kernel
        threads = staged_rows.recomputed(kernel.memory.threads)
        warp = s.value(kernel.uniform(s.value(threads.warp, s.i32)))
        behind = s.mul(s.add(warp, 1), warp_groups.STAGED_ROWS)
        branch = scf.IfOp(s.less(s.sub(behind, 1), window.valid[0]), has_else=True)
        with s.scope(branch.then_block):
            self.store(array, replace(window, valid=(None, None)), layout, values)
            scf.YieldOp([])
        with s.scope(branch.else_block):
            hopper.await_boxes()
            hopper.converge()
            staged_rows.store(
                kernel.memory, array, window, layout, values, self.staged, self.room
            )  # fmt: skip
            scf.YieldOp([])

    def _kind(self, array: Array) -> Any:
        return ir.RankedTensorType(self.kernel.signature.tensors[array.number].type)

    def _parts(self, columns: int, together: bool) -> int:
        """In how many parts, equal ones where each is one box, a tile leaves; 0 for too many."""
        count = warp_groups.panels(columns)
        equal = range(1, MOST_PARTS + 1) if not together else [
            n for n in range(1, MOST_PARTS + 1) if count % n == 0
        ]  # fmt: skip
        return min((n for n in equal if count <= n * self.room), default=0)

    def _own_place(self, array: Array) -> tuple[Threads, Any, Any]:
        """This thread, the number of its warp, and where that warp stages a tile of an array that
        boxes describe."""
        s, memory = self.s, self.kernel.memory
        memory.needs(array, L.CHUNK)
        threads = staged_rows.recomputed(memory.threads)
        warp = s.value(self.kernel.uniform(s.value(threads.warp, s.i32)))
        return threads, warp, s.add(s.mul(warp, warp_groups.STAGED * self.room), self.staged)

    def store(self, array: Array, window: Window, layout: Layout, values: Sequence[Any]) -> None:
        """Start the copies of a tile that `fits`."""
        s, kernel, memory = self.s, self.kernel, self.kernel.memory
        threads, warp, place = self._own_place(array)
        down, inner = window.dims
        kind, columns = self._kind(array), layout.shape[1]
        together = in_one_box(kind, window.offsets[inner], columns)
        count = -(-warp_groups.panels(columns) // self._parts(columns, together))  # of panels
        width = count * warp_groups.PANEL
        for column in range(0, columns, width):
            hopper.await_boxes()
            hopper.converge()
            first = column // warp_groups.PANEL
            panels = range(first, min(first + count, warp_groups.panels(columns)))
            staged_rows.stage(memory, threads, layout, values, place, panels)
            hopper.publish_tile()
            hopper.converge()
            corner = list(window.offsets)
            corner[down] = s.add(corner[down], s.mul(warp, warp_groups.STAGED_ROWS))
            corner[inner] = s.add(corner[inner], column)
            tile = BoxTile(
                array.number, corner, window.dims, warp_groups.STAGED_ROWS,
                min(width, columns - column),
            )  # fmt: skip
            for copy in kernel.boxes.copies(tile, kind, together):
                source = kernel.address(s.add(place, copy.behind))
                hopper.store_box(copy.tensor_map, copy.where, source)
        self.used = True

    # ---- sums that programs share

    def may_add(self, op: Any, array: Array, window: Window, layout: Layout) -> bool:
        """Whether boxes describe what an `add_slice` adds: 16 rows a warp of f32, panels of its
        group's columns for which there is room, of a tile that ends where the result does."""
        kernel, kind = self.kernel, self._kind(array)
        if array.dtype != "f32" or len(layout.shape) != 2 or kind.rank > MOST_AXES:
            return False
        rows, columns = layout.shape
        across = ROWS * kernel.groups // rows  # groups that have a part of the columns
        grid = L.WarpGrid(rows // warp_groups.STAGED_ROWS, across, layout.warps)
        own, rest = divmod(columns, across * F32_PANEL)
        return (
            rows in (ROWS, ROWS * kernel.groups)
            and not rest
            and own <= self.room
            and window.dims == (kind.rank - 2, kind.rank - 1)
            and layout == L.accumulator(layout.shape, 0, 1, grid, kernel.target.matrix[0])
            and strip_is_whole(op.operands[1], kernel.forall)
        )

    def add(self, array: Array, window: Window, layout: Layout, values: Sequence[Any]) -> None:
        """Start adding a tile in memory that it `may_add`."""
        s, kernel, memory = self.s, self.kernel, self.kernel.memory
        threads, warp, place = self._own_place(array)
        down, inner = window.dims
        along = layout.shape[0] // warp_groups.STAGED_ROWS  # warps that have other rows
        own = layout.shape[1] * along // (kernel.groups * warp_groups.GROUP_WARPS)
        hopper.await_boxes()
        hopper.converge()
        beside = kernel.issued.interleaved
        staged_rows.stage_sums(memory, threads, layout, values, place, own, beside)
        hopper.publish_tile()
        hopper.converge()
        corner = list(window.offsets)
        row, part = s.mod(warp, along), s.div(warp, along)
        corner[down] = s.add(corner[down], s.mul(row, warp_groups.STAGED_ROWS))
        first = s.add(corner[inner], s.mul(part, own))
        for k in range(own // F32_PANEL):
            corner[inner] = s.add(first, k * F32_PANEL)
            tile = BoxTile(
                array.number, corner, window.dims, warp_groups.STAGED_ROWS, F32_PANEL, F32_PANEL
            )
            for copy in kernel.boxes.copies(tile, self._kind(array), False):
                source = kernel.address(s.add(place, k * warp_groups.STAGED))
                hopper.add_box(copy.tensor_map, copy.where, source)
        self.used = True

    def finish(self) -> None:
        """Wait until shared memory is read: a block that is gone has none."""
        if self.used:
            hopper.await_boxes()


def write_tile(
    kernel: SpecializedWriter, op: Any, array: Array, window: Window, layout: Layout,
    values: Sequence[Any],
) -> bool:  # fmt: skip
    """Write a tile that warps write in one of these ways; whether it is such a tile."""
    adds = op.name == ADD_SLICE
    if adds and kernel.boxed is not None and kernel.boxed.may_add(op, array, window, layout):
        kernel.boxed.add(array, window, layout, values)
        return True
    instruction = kernel.target.matrix[0]  # any of them: accumulators are alike
    if kernel.staged is None or not staged_rows.fits(array, window, layout, instruction):
        if adds or not quad_rows.fits(array, window, layout):
            return False
        quad_rows.store(kernel.memory, array, window, layout, values)
    elif (boxed := kernel.boxed) is not None and boxed.fits(array, window) and (
        (ends := ends_with_tensor(op, kernel.forall)) or window.valid[1] is None
    ):
        (boxed.store if ends else boxed.store_some)(array, window, layout, values)
    else:
        staged_rows.store(
            kernel.memory, array, window, layout, values, kernel.staged, kernel.room
        )  # fmt: skip
    return True


def place_staging(kernel: SpecializedWriter) -> tuple[int | None, int]:
    """Where results are staged, and how many panels at a time; None without room for one."""
    signature = kernel.signature
    outputs = signature.tensors[len(signature.tensors) - signature.outputs :]
    kinds = [ir.RankedTensorType(t.type) for t in outputs]
    rows = [
        warp_groups.WIDEST if k.is_dynamic_dim(k.rank - 1) else k.shape[-1]
        for k, t in zip(kinds, outputs, strict=True)
        if k.rank
        and (extent_multiple(t, -1) % warp_groups.CHUNK == 0 or str(k.element_type) in NARROW)
    ]  # that leave in whole chunks, or by elements of 16 bits
    most = max([*map(warp_groups.panels, rows), added_panels(kernel.forall)])
    room = group_tiles.staged_panels(
        kernel.target, kernel.blocks, kernel.warps, kernel.memory.top, most
    )  # fmt: skip
    size = warp_groups.STAGED * kernel.warps * room
    return (kernel.take_tiles(size) if room else None), room
