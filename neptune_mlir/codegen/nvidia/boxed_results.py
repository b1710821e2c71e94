# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of specialised warps by the copy engine.

A tile leaves through shared memory, panel by panel (`staged_rows.stage`): there its rows lie as a
tensor map describes boxes of the result, so one lane of a warp starts the copy of the warp's 16
rows, and the warp goes on. It waits only before it writes there again, and before it ends. What a
box has beyond the result's last row is not written, so a tile qualifies only if it ends where its
tensor does; and only if there is room for half of its columns: each part waits for the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Window, is_multiple
from neptune_mlir.codegen.gpu.memory import Array
from neptune_mlir.codegen.nvidia import hopper, staged_rows
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets import warp_groups
from neptune_mlir.transforms.hopper.specialize_warps import ends_with_tensor

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

LARGEST_RANK = 4  # of a result: a tensor map has 5 axes, and panels take one
MOST_PARTS = 2  # of a tile: in more of them, rows are faster


class BoxedResults:
    """The results of one kernel; `staged` is the offset of `room` panels for each warp."""

    def __init__(self, kernel: SpecializedWriter, staged: int, room: int):
        self.kernel, self.s = kernel, kernel.s
        self.staged, self.room = staged, room
        self.used = False

    def fits(self, op: Any, array: Array, window: Window) -> bool:
        """Whether boxes describe what an insert slice op writes of a tile that
        `staged_rows.fits`."""
        kind = ir.RankedTensorType(self.kernel.signature.tensors[array.number].type)
        last = kind.rank - 1
        return (
            array.dtype in ("f16", "bf16")
            and self._parts(window.shape[1]) > 0
            and kind.rank <= LARGEST_RANK
            and not kind.is_dynamic_dim(last)
            and kind.shape[last] % warp_groups.PANEL == 0
            and is_multiple(window.offsets[last], warp_groups.PANEL)
            and ends_with_tensor(op, self.kernel.forall)
        )

    def _parts(self, columns: int) -> int:
        """In how many equal parts a tile leaves; 0 for too many."""
        count = staged_rows.panels(columns)
        fitting = [n for n in range(1, MOST_PARTS + 1) if count % n == 0 and count <= n * self.room]
        return min(fitting, default=0)

    def store(self, array: Array, window: Window, layout: Layout, values: Sequence[Any]) -> None:
        """Start the copies of a tile that `fits`."""
        s, kernel, memory = self.s, self.kernel, self.kernel.memory
        memory.needs(array, L.CHUNK)
        threads = staged_rows.recomputed(memory.threads)
        warp = s.value(kernel.uniform(s.value(threads.warp, s.i32)))
        place = s.add(s.mul(warp, warp_groups.STAGED * self.room), self.staged)
        width = layout.shape[1] // self._parts(layout.shape[1])
        down, inner = window.dims
        box = (array.number, down, warp_groups.STAGED_ROWS, width)
        for column in range(0, layout.shape[1], width):
            hopper.await_boxes()
            hopper.converge()
            panels = range(*(staged_rows.panels(n) for n in (column, column + width)))
            staged_rows.stage(memory, threads, layout, values, place, panels)
            hopper.publish_tile()
            hopper.converge()
            corner = list(window.offsets)
            corner[down] = s.add(corner[down], s.mul(warp, warp_groups.STAGED_ROWS))
            corner[inner] = s.add(corner[inner], column)
            where = kernel.coordinates(corner, window.dims)
            hopper.store_box(kernel.tensor_map(box), where, kernel.address(place))
        self.used = True

    def finish(self) -> None:
        """Wait until shared memory is read: a block that is gone has none."""
        if self.used:
            hopper.await_boxes()
