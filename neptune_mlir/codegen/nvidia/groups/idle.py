# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of a tile that are another program's: groups of warps that have only these leave a program
to the others, and no row of a program's own depends on them.

A tile of rows ends where data say (`cut-rows`), so of the last tile of a sequence only some rows
may be there. Where all rows of a group lie behind these, what it computes is stored nowhere, and
takes the matrix units from the group that has rows:

    if rows of the group are there:  the program
    else:                            wait for each tile that the producer brings; give it back

Only a number that is known when a program begins is asked, so a group knows at once. A kernel whose
groups meet while a program runs (at barriers of all consumers, in turns, at what one hands to the
others) has no such branch: nobody would come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import CHUNK, Layout, layout_of
from neptune_mlir.analysis.tiles import shape_of
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.panel_tiles import PanelTile
from neptune_mlir.codegen.nvidia.producer import gives_numbers, source_of
from neptune_mlir.codegen.nvidia.rings import Cursor
from neptune_mlir.dialects.gpu_attributes import TURNS
from neptune_mlir.dialects.op_names import PUT
from neptune_mlir.ir.bindings import ir, scf
from neptune_mlir.ir.values import defining_op

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

FIRST_BARRIER = 8  # of the named ones, a group each (kernels with an adder have none here)


class IdleGroups:
    """Those of one kernel: group k has rows where `k * rows` is below the number `there`."""

    def __init__(self, kernel: SpecializedWriter, there: Any, rows: int):
        self.kernel, self.there, self.rows = kernel, there, rows
        self.met = False  # whether a barrier of all consumers stands in a program
        self.read = defining_op(there)  # the queue hands it on
        while self.read is not None and self.read.name == "arith.index_cast":
            self.read = defining_op(self.read.operands[0])

    @classmethod
    def of(cls, kernel: SpecializedWriter) -> IdleGroups | None:
        """Once rings have their places."""
        together = (
            kernel.hands, TURNS.on(kernel.forall), kernel.sums, kernel.pairs, kernel.adder,
            kernel.in_two,
        )  # fmt: skip
        if kernel.groups < 2 or not kernel.resident or any(together):
            return None
        if any(ring.readers > 1 for ring in kernel.rings.rings.values()):
            return None
        found = {_rows_there(kernel, op) for op in _stores(kernel.body)}
        if len(found) != 1 or (one := found.pop()) is None:
            return None
        idle, variables = cls(kernel, *one), list(kernel.body.arguments)[: len(kernel.bounds)]
        if idle.read is None or idle.read.name != "tensor.extract":
            return None
        return idle if all(v in variables for v in list(idle.read.operands)[1:]) else None

    def write(self, program: Callable[[], None]) -> None:
        """A program, for a group that has rows; what takes its place for one that has none."""
        kernel, s, rings = self.kernel, self.kernel.s, self.kernel.rings
        groups, before = rings.together(), dict(rings.positions)
        first = s.mul(s.op("arith.index_cast", [kernel.products.group], s.index), self.rows)
        condition = s.less(first, kernel.scalar(self.there))
        branch = scf.IfOp(condition, [s.index] * len(groups), has_else=True)
        with s.scope(branch.then_block):
            program()
            scf.YieldOp(rings.values(groups))
        rings.positions = before
        with s.scope(branch.else_block):
            self._follow()
            scf.YieldOp(rings.values(groups))
        if self.met:
            branch.operation.operands[0] = s.constant(1, condition.type)
        rings.bind(groups, list(branch.results))

    def clear(self, op: Any, tile: PanelTile) -> None:
        """Rows of a tile that a program loads once, and that are another program's, are 0 from here
        on. What rows of one warp decide together (whether to keep a reference) would depend on what
        stands behind a sequence, else."""
        kernel, s = self.kernel, self.kernel.s
        if op.block != kernel.body or tile.rows != self.rows * kernel.groups:
            return
        if not self._is_cut(op):
            return
        there = kernel.scalar(self.there)
        group = s.op("arith.index_cast", [kernel.products.group], s.index)
        before = s.mul(group, self.rows)
        with under(s, s.less(there, s.add(before, self.rows))):
            lanes = kernel.group_threads // self.rows  # that share a row
            thread = s.mod(kernel.threads.id, kernel.group_threads)
            row, part = s.add(before, s.div(thread, lanes)), s.mod(thread, lanes)
            with under(s, s.less(s.sub(there, 1), row)):
                own = tile.row_bytes // lanes
                at = s.add(s.mul(row, tile.row_bytes), s.mul(part, own))
                self._clear_run(tile, at, own)
            hopper.publish_tile()
            self._meet()

    def _clear_run(self, tile: PanelTile, at: Any, size: int) -> None:
        """Write so many zero bytes to each panel of a tile, from `at` on."""
        memory = self.kernel.memory
        chunk = memory.pack([self.kernel.s.constant(0, self.kernel.s.i32)] * (CHUNK // 4))
        start = tile.pointer(memory)
        for panel in range(tile.panels):
            for moved in range(0, size, CHUNK):
                behind = self.kernel.s.add(at, panel * tile.panel_bytes + moved)
                place = self.kernel.s.value(behind, self.kernel.s.i32)
                place = memory.offset_pointer(start, place, start.type)
                memory.store_element(chunk, place, CHUNK)

    def _is_cut(self, get: Any) -> bool:
        """Whether a tile begins where the kernel ahead says that the rows of a program do."""
        (put,) = self.kernel.rings.puts[get.operands[0]]
        window = source_of(self.kernel.forall, put)
        made = defining_op(window.offsets[window.dims[0]])
        while made is not None and made.name == "arith.index_cast":
            made = defining_op(made.operands[0])
        if made is None or made.name != "tensor.extract":
            return False
        return bool(defining_op(made.operands[0]) == defining_op(self.read.operands[0]))

    def _meet(self) -> None:
        """All warps of this group."""
        s, group = self.kernel.s, self.kernel.products.group
        number = s.op("arith.addi", [s.constant(FIRST_BARRIER, s.i32), group], s.i32)
        hopper.await_turn(number, self.kernel.group_threads)

    def _follow(self) -> None:
        """Give back all that the producer brings."""
        kernel = self.kernel
        assert kernel.queue is not None
        known = set()
        for op, same in kernel.queue.read.items():
            known.update(same)
            number = kernel.scalars[op.results[0]]
            kernel.scalars.update({other.results[0]: number for other in same})
        for op in (o.operation for o in kernel.producer.operations):
            if gives_numbers(op) and op not in known:
                kernel.write_op(op)
        self._pass(kernel.producer)

    def _pass(self, block: Any) -> None:
        kernel, s, rings = self.kernel, self.kernel.s, self.kernel.rings
        for op in (o.operation for o in block.operations):
            if op.name == PUT:
                self._pass_tile((op.operands[0], 0))
            elif op.name == "scf.for" and (groups := rings.advancing(op)):
                loop = scf.ForOp(*kernel.span(op), rings.values(groups))
                with s.scope(loop.body):
                    rings.bind(groups, list(loop.inner_iter_args))
                    self._pass(op.regions[0].blocks[0])
                    scf.YieldOp(rings.values(groups))
                rings.bind(groups, list(loop.results))

    def _pass_tile(self, cursor: Cursor) -> None:
        """Wait for a tile and give its slot back: in turn, as those do that read it. (A slot that
        was given back twice in one phase would be filled while others read it.)"""
        rings = self.kernel.rings
        at = rings.take(cursor)
        rings.await_tile(cursor[0], at)
        if not rings.rings[cursor[0]].by_warps:  # one thread gives it back for all of the group
            self._meet()
        rings.give_back(cursor[0], at)


def _stores(body: Any) -> list[Any]:
    parallel = list(body.operations)[-1].operation
    return [op.operation for op in parallel.regions[0].blocks[0].operations]


def _rows_there(kernel: SpecializedWriter, store: Any) -> tuple[Any, int] | None:
    """Of a store of some rows of a tile: how many, a value, and the rows of a group of warps."""
    cut = defining_op(store.operands[0])
    if cut is None or cut.name != "tensor.extract_slice":
        return None
    shape = shape_of(cut.operands[0])
    sizes = list(ir.DenseI64ArrayAttr(cut.attributes["static_sizes"]))
    made = defining_op(cut.operands[0])
    if made is None or made.name != "linalg.generic" or len(made.results) != 1:
        return None
    if ir.ShapedType.is_dynamic_size(shape[0]) or len(cut.operands) != 2:
        return None
    if not ir.ShapedType.is_dynamic_size(sizes[0]):  # the one size that is no constant: of rows
        return None
    layout = layout_of(made, shape)
    if not isinstance(layout, Layout) or shape[0] % kernel.groups:
        return None
    rows = shape[0] // kernel.groups
    warps = layout.positions[..., 0].reshape(layout.registers, kernel.groups, -1)
    own = [(warps[:, k] // rows == k).all() for k in range(kernel.groups)]
    return (cut.operands[1], rows) if all(own) else None
