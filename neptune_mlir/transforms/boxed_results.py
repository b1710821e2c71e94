# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of specialised warps by the copy engine.

A tile leaves through shared memory, panel by panel (`staged_rows.stage`): there its rows lie as a
tensor map describes boxes of the result, so one lane of a warp starts the copy of the warp's 16
rows, and the warp goes on. It waits only before it writes there again, and before it ends. What a
box has beyond the result's last row is not written, so a tile qualifies only if it ends where its
tensor does; and only if there is room for whole rows: in parts, each waits for the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import Window, is_multiple
from neptune_mlir.bindings import ir
from neptune_mlir.codegen import hopper
from neptune_mlir.transforms import staged_rows
from neptune_mlir.transforms.distribute_memory import Array
from neptune_mlir.transforms.specialize_warps import ends_with_tensor

if TYPE_CHECKING:
    from neptune_mlir.transforms.distribute_hopper import SpecializedWriter

LARGEST_RANK = 4  # of a result: a tensor map has 5 axes, and panels take one


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
            and staged_rows.panels(window.shape[1]) <= self.room
            and kind.rank <= LARGEST_RANK
            and not kind.is_dynamic_dim(last)
            and kind.shape[last] % hopper.PANEL == 0
            and is_multiple(window.offsets[last], hopper.PANEL)
            and ends_with_tensor(op, self.kernel.forall)
        )

    def store(self, array: Array, window: Window, layout: Layout, values: Sequence[Any]) -> None:
        """Start the copy of a tile that `fits`."""
        s, kernel, memory = self.s, self.kernel, self.kernel.memory
        memory.needs(array, L.CHUNK)
        threads = staged_rows.recomputed(memory.threads)
        warp = s.value(kernel.uniform(s.value(threads.warp, s.i32)))
        room = s.add(s.mul(warp, staged_rows.WARP * self.room), self.staged)
        hopper.await_boxes()
        hopper.converge()
        count = staged_rows.panels(layout.shape[1])
        staged_rows.stage(memory, threads, layout, values, room, range(count))
        hopper.publish_tile()
        hopper.converge()
        box = (array.number, window.dims[0], staged_rows.ROWS, layout.shape[1])
        where = self._coordinates(window, s.mul(warp, staged_rows.ROWS))
        hopper.store_box(kernel.tensor_map(box), where, kernel.address(room))
        self.used = True

    def _coordinates(self, window: Window, row: Any) -> list[Any]:
        """Of the box at a row of the tile."""
        moved = list(window.offsets)
        moved[window.dims[0]] = self.s.add(moved[window.dims[0]], row)
        return self.kernel.coordinates(moved, window.dims)

    def finish(self) -> None:
        """Wait until shared memory is read: a block that is gone has none."""
        if self.used:
            hopper.await_boxes()
