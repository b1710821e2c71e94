# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel that `points-to-kernels` made, as GPU code: each thread runs one point.

No tiles, no shared memory, no barriers: scalar code, with a load for each `tensor.extract`. Points
that stand side by side along the last loop may share a sum (`gpu.subgroup_reduce` of a cluster,
which a wave holds whole).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis.tiles import is_tensor, slice_parts
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.gpu.kernels import KernelWriter
from neptune_mlir.codegen.gpu.memory import Memory
from neptune_mlir.codegen.gpu.scalars import ScalarOp
from neptune_mlir.codegen.gpu.tile_forms import ResultView
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.bindings import ir, location_text, scf
from neptune_mlir.transforms.tiling.host_plan import grid_bounds


class PointWriter(KernelWriter):
    """Writes one kernel."""

    def _program(self, block: Any) -> None:
        s = self.s
        self.memory = Memory(s, self.threads, None)
        # more points than 32 bits count may make one launch
        dimension = ir.Attribute.parse("#gpu<dim x>")
        number = s.value(s.op("gpu.block_id", [], s.index, dimension=dimension), s.i64)
        first = s.op("arith.muli", [number, s.constant(self.threads.count, s.i64)], s.i64)
        point = s.op("arith.addi", [first, s.value(self.threads.id, s.i64)], s.i64)
        extents = [
            s.constant(known, s.i64) if ix.is_static(known) else s.value(extent, s.i64)
            for known, extent in zip(grid_bounds(self.forall.opview)[1], self.bounds, strict=True)
        ]
        total = s.constant(1, s.i64)
        for extent in extents:
            total = s.op("arith.muli", [total, extent], s.i64)
        predicate = ir.IntegerAttr.get(s.i64, 2)
        with under(s, s.op("arith.cmpi", [point, total], s.i1, predicate=predicate)):
            for k in reversed(range(len(extents))):  # the last runs fastest: neighbours in memory
                here = s.op("arith.remui", [point, extents[k]], s.i64) if k else point
                self.scalars[self.body.arguments[k]] = s.value(here)
                point = s.op("arith.divui", [point, extents[k]], s.i64) if k else None
            self.place_results()
            for op in self.body.operations:
                self.write_op(op.operation)

    def blocks_per_sm(self) -> int:
        return 0

    def write_op(self, op: Any) -> None:
        if op.name == "tensor.extract":
            self.scalars[op.results[0]] = self.write_extract(op)
        elif op.name == "tensor.from_elements":
            self.scalars[op.results[0]] = self.scalar(op.operands[0])
        elif op.name == "tensor.extract_slice":
            self.write_slice(op)
        elif op.name == "tensor.insert":
            value, target, *position = op.operands
            self._put(value, self.inside(self.views[target], position, ()))
            self.views[op.results[0]] = self.views[target]
        elif op.name == "scf.for":
            self._for(op)
        elif op.name == "scf.if":
            self._if(op)
        elif op.name == "scf.forall.in_parallel":
            self.in_parallel(op)
        elif op.name == "gpu.subgroup_reduce":
            self.scalars[op.results[0]] = self._sum(op)
        elif op.name == "math.sincos":
            for result, name in zip(op.results, ("math.sin", "math.cos"), strict=True):
                self.scalars[result] = self.s.op(name, self._here(op.operands), result.type)
        elif len(op.regions) or len(op.results) != 1:
            raise LoweringError(
                f"'{op.name}' outside of any kernel has no GPU lowering",
                loc=location_text(op.location),
            )
        else:
            self.scalars[op.results[0]] = self.s.clone(ScalarOp.of(op), self._here(op.operands))

    def _sum(self, op: Any) -> Any:
        """Of the points of a cluster, in all of them."""
        total, step = self.scalar(op.operands[0]), 1
        while step < ir.IntegerAttr(op.attributes["cluster_size"]).value:
            other = self.s.chip.exchange(self.s, total, step)
            total, step = self.s.op("arith.addi", [total, other], self.s.i32), 2 * step
        return total

    def _here(self, values: Sequence[Any]) -> list[Any]:
        return [self.scalar(value) for value in values if not is_tensor(value)]

    def _for(self, op: Any) -> None:
        """(A strip of a result that a loop fills is memory: nothing to carry.)"""
        low, high, step, *starts = self._here(op.operands)
        loop = scf.ForOp(low, high, step, starts)
        body = op.regions[0].blocks[0]
        for start, inside, after in zip(
            list(op.operands)[3:], list(body.arguments)[1:], op.results, strict=True
        ):
            if is_tensor(start):
                self.views[inside] = self.views[after] = self.views[start]
        self._region(body, loop.body, [loop.induction_variable, *loop.inner_iter_args])
        self._bind_scalars(op.results, loop.results)

    def _bind_scalars(self, values: Sequence[Any], here: Sequence[Any]) -> None:
        scalars = [value for value in values if not is_tensor(value)]
        self.scalars.update(zip(scalars, here, strict=True))

    def _if(self, op: Any) -> None:
        blocks = [region.blocks[0] for region in op.regions if len(region.blocks)]
        kinds = [result.type for result in op.results]
        made = scf.IfOp(self.scalar(op.operands[0]), kinds, has_else=len(blocks) > 1)
        for block, region in zip(blocks, made.operation.regions, strict=False):
            self._region(block, region.blocks[0], [])
        self.scalars.update(zip(op.results, made.operation.results, strict=True))

    def _region(self, block: Any, target: Any, arguments: Sequence[Any]) -> None:
        """The code of a block of the program, at the end of one here."""
        with self.s.scope(target):
            self._bind_scalars(block.arguments, arguments)
            *inner, end = block.operations
            for op in inner:
                self.write_op(op.operation)
            scf.YieldOp(self._here(end.operation.operands))

    def _store(self, op: Any) -> None:
        offsets, _, _ = slice_parts(op)
        value, target = op.operands[:2]
        self._put(value, self.inside(self.views[target], offsets, ()))

    def _put(self, value: Any, view: ResultView) -> None:
        """Write the element of a result where a view starts."""
        self.memory.store_one(self.scalar(value), view.array, view.offsets)
