# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What one group of warps makes for all (`make-once`), as code: each role has the whole program.

    first group                       others
    ...                               skip what it makes
    wait: the places are free         say: they are free (once, at the start)
    store; say: they are full         wait: they are full
                                      read, multiply; say: they are free

Both wait at named barriers, which the chip counts: neither has to know how often they met, and the
arrival that is left over at the end is nobody's. The first group has its own tiles in registers all
the while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import iteration_of, layout_of
from neptune_mlir.analysis.tiles import element_of, is_tensor, nested, shape_of
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.tile_forms import Held, Splat
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.dialects.gpu_attributes import HANDED, ONCE
from neptune_mlir.dialects.op_names import GET, START
from neptune_mlir.ir.bindings import ir, scf

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

FREE, FULL = 6, 7  # named barriers


class Hands:
    """Those of one kernel; `first`: whether the first group's code is being written."""

    def __init__(self, kernel: SpecializedWriter, copies: list[Any]):
        self.kernel, self.first = kernel, True
        self.batches: dict[Any, list[Any]] = {}  # by block, in order
        for op in copies:
            self.batches.setdefault(op.block, []).append(op)

    @classmethod
    def of(cls, kernel: SpecializedWriter) -> Hands | None:
        copies = [op for op in nested(kernel.body) if HANDED.on(op)]
        return cls(kernel, copies) if copies else None

    def in_roles(self, write: Callable[[], None]) -> None:
        """The code of the first group, and that of the others."""
        kernel, s = self.kernel, self.kernel.s
        group = s.op("arith.index_cast", [kernel.products.group], s.index)
        role = scf.IfOp(s.less(group, 1), has_else=True)
        for self.first, block in ((True, role.then_block), (False, role.else_block)):
            with s.scope(block):
                if not self.first:
                    self._say(FREE)
                write()
                scf.YieldOp([])

    def _await(self, barrier: int) -> None:
        number = self.kernel.s.constant(barrier, self.kernel.s.i32)
        hopper.await_turn(number, self.kernel.threads.count)

    def _say(self, barrier: int) -> None:
        number = self.kernel.s.constant(barrier, self.kernel.s.i32)
        hopper.give_turn(number, self.kernel.threads.count)

    def skips(self, op: Any) -> bool:
        """Whether this role leaves an op to the other one; what it makes is nothing then."""
        if self.first or not ONCE.on(op):
            return False
        kernel = self.kernel
        if op.name == GET:
            kernel.rings.pass_by(op)
        for value in op.results:
            if is_tensor(value):
                kind = ir.RankedTensorType(value.type).element_type
                kernel.tiles[value] = Splat(kernel.memory.zero(kind))
        return True

    def copy(self, op: Any) -> None:
        """Give a tile to the others, or take it. What the first group multiplies itself it gives
        behind the start of its own product, which waits for nobody."""
        batch, kernel = self.batches[op.block], self.kernel
        multiplied = any(map(_is_factor, batch))
        if self.first:
            kernel.tiles[op.results[0]] = kernel.tile(op.operands[0])
            if op == batch[-1] and not multiplied:
                self._give(batch)
            return
        if op == batch[0]:
            self._await(FULL)
        kernel.tiles[op.results[0]] = self._take(op)
        if op == batch[-1] and not multiplied:
            self._say(FREE)

    def _give(self, batch: list[Any]) -> None:
        kernel = self.kernel
        kernel.issued.end()
        self._await(FREE)
        for op in batch:
            tile = kernel.tile(op.operands[0])
            assert isinstance(tile, Held)
            if _is_factor(op):
                kernel.exchange.store(op, tile)
            else:
                kernel.memory.store_shared(self._shared(op), tile.layout, tile.values)
        hopper.publish_tile()
        self._say(FULL)

    def _take(self, op: Any) -> Any:
        kernel = self.kernel
        if _is_factor(op):
            return kernel.exchange.panel(op)
        layout = iteration_of(op, shape_of(op.results[0]))
        return Held(layout, self._shared(op).read(kernel.memory, layout))

    def _shared(self, op: Any) -> SharedTile:
        layout = layout_of(op, shape_of(op.results[0]))
        return SharedTile(layout, self.kernel.exchange.places[op], element_of(op.results[0]))

    def started(self, start: Any) -> None:
        """A product has been started: what it reads is given to the others as well."""
        if self.first and self._reads(start):
            self._give(self.batches[start.block])

    def waited(self, start: Any) -> None:
        """A product is over: what was handed for it has been read."""
        if not self.first and self._reads(start):
            self._say(FREE)

    def _reads(self, start: Any) -> bool:
        batch = self.batches.get(start.block, ())
        return any(use.owner.operation == start for op in batch for use in op.results[0].uses)


def _is_factor(op: Any) -> bool:
    """Whether a product reads what is handed, as a panel."""
    return any(use.owner.operation.name == START for use in op.results[0].uses)
