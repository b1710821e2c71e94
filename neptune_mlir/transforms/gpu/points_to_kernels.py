# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `points-to-kernels`: a linalg op that no nest models becomes a kernel of its own.

What `raise-linalg` leaves (an argmax whose index is read, a gather by row, a convolution) stands
outside of all kernels in tile IR. Here it becomes an `scf.forall` with one point for each point
of the loops along which every result has elements; the others are `scf.for` in it, on scalars:

    %r = scf.forall (%i) in (%n) shared_outs(%o = %new) -> (tensor<?xf32>) {
      %start = tensor.extract %init[%i]
      %sum = scf.for %k = %zero to %count step %one iter_args(%s = %start) { ...the op's body... }
      %e = tensor.from_elements %sum : tensor<f32>
      scf.forall.in_parallel { tensor.parallel_insert_slice %e into %o[%i] [1] [1] }
    } {neptune.points = 128, neptune.target = "sm_80", neptune.warps = 4}

A result that has elements along an inner loop too is filled there (`tensor.insert` into the
point's strip of it). `neptune.points` is the number of threads of a block: `distribute-tiles`
gives each a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis.tiles import is_tensor
from neptune_mlir.dialects.attributes import KERNEL, POINTS, TARGET, WARPS
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.program import functions
from neptune_mlir.dialects.regions import clone_scalar_code, operations_named
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.bindings import affine, ir, linalg, location_text, scf, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.transforms.gpu.tensor_to_generic import zero
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.slices import extract_slice, slice_operands

THREADS = 128  # of a block: whole waves of any chip


@register("points-to-kernels", "turn linalg ops outside of kernels into kernels, a point a thread")
def points_to_kernels(module: Any, *, target: str = "sm_80") -> None:
    wave = gpu_target(target).wave
    for function in functions(module):
        left = [
            op.operation
            for op in function.regions[0].blocks[0].operations
            if op.operation.name.startswith("linalg.") and len(op.operation.results)
        ]
        for number, op in enumerate(left):
            name = f"{function.name.value}_points_{number}"
            for check in operations_named(op, "cf.assert"):
                check.erase()  # a thread cannot stop the program that a wrong index comes from
            with ir.InsertionPoint(op), op.location:
                forall = _Points(op).write()
                KERNEL.set(forall, name)
                TARGET.set(forall, target)
                WARPS.set(forall, THREADS // wave)
            for old, new in zip(op.results, forall.results, strict=True):
                old.replace_all_uses_with(new)
            op.erase()


class _Points:
    """One structured op. Loops along which every result has elements are `grid`, points; the
    others run `inside`. A result that has elements along these too (a running sum) is filled in
    them, step by step; another is one element, carried through them.
    """

    def __init__(self, op: Any):
        self.op = op
        maps = linalg.get_indexing_maps(op) if len(op.regions) else None
        if maps is None:
            raise self.error("has no indexing maps")
        self.maps = [getattr(m, "value", m) for m in maps]
        self.operands = list(op.operands)
        self.inputs = len(op.operands) - len(op.results)
        self.inits = self.operands[self.inputs :]
        self.body = op.regions[0].blocks[0]
        self._hoist_sizes()
        self.rank = self.maps[0].n_dims
        along = [self._along(access) for access in self.maps[self.inputs :]]
        self.grid = [d for d in range(self.rank) if all(d in loops for loops in along)]
        self.inside = [d for d in range(self.rank) if d not in self.grid]
        self.filled = [k for k, loops in enumerate(along) if set(loops) - set(self.grid)]
        if any(set(self.inside) - set(along[k]) for k in self.filled):
            raise self.error("writes an element in several steps of a loop that fills others")
        self.extents = [self._extent(d) for d in range(self.rank)]

    def error(self, what: str) -> LoweringError:
        return LoweringError(
            f"'{self.op.name}' outside of any kernel {what}", loc=location_text(self.op.location)
        )

    def _extent(self, loop: int) -> ix.Index:
        sizes = {
            ir.RankedTensorType(value.type).shape[d]: (value, d)
            for value, access in zip(self.operands, self.maps, strict=True)
            for d, expression in enumerate(access.results)
            if _loop(expression) == loop
        }
        known = [size for size in sizes if size != DYNAMIC]
        if known:
            return known[0]
        if not sizes:
            raise self.error(f"does not say how far loop {loop} runs")
        value, d = sizes[DYNAMIC]
        return tensor.dim(value, ix.value(d))

    def _hoist_sizes(self) -> None:
        """The host takes the sizes of tensors, not a kernel."""
        for op in list(self.body.operations):
            known = op.operation.name in ("arith.constant", "tensor.dim")
            if known and all(_is_outside(v, self.body) for v in op.operands):
                op.operation.move_before(self.op)

    def _along(self, access: Any) -> list[int]:
        """The loops along which a result has elements."""
        if any(type(e) not in (ir.AffineDimExpr, ir.AffineConstantExpr) for e in access.results):
            raise self.error("writes elements at computed positions")
        return [loop for e in access.results if (loop := _loop(e)) is not None]

    def write(self) -> Any:
        """Emit the forall at the insertion point; returns the operation."""
        bounds = [self.extents[d] for d in self.grid] or [1]
        starts = [self._blank(value) for value in self.inits]
        # the mapping keeps canonicalization from dropping loops that run once
        mapping = [ir.Attribute.parse(f"#gpu.thread<linear_dim_{k}>") for k in range(len(bounds))]
        forall = scf.ForallOp(
            [0] * len(bounds), bounds, [1] * len(bounds), starts, mapping=ir.ArrayAttr.get(mapping)
        )
        POINTS.set(forall.operation, THREADS)
        with ir.InsertionPoint(forall.body):
            at: list[Any] = [None] * self.rank
            for loop, variable in zip(self.grid, forall.induction_variables, strict=False):
                at[loop] = variable
            outs = list(forall.inner_iter_args)
            strips = [self._strip(k, at) for k in range(len(outs))]
            made = self._loops(at, [self._start(k, at, outs[k]) for k in range(len(outs))])
            parts = [v if k in self.filled else _element(v) for k, v in enumerate(made)]
            parallel = scf.InParallelOp()
            with ir.InsertionPoint(parallel.block):
                for part, out, strip in zip(parts, outs, strips, strict=True):
                    tensor.ParallelInsertSliceOp(part, out, *slice_operands(*strip))
        return forall.operation

    def _strip(self, k: int, at: Sequence[Any]) -> tuple[list[ix.Index], list[ix.Index]]:
        """Offsets and sizes of what a point makes of result `k`."""
        loops = [_loop(e) for e in self.maps[self.inputs + k].results]
        place = self._place(self.maps[self.inputs + k], at)
        sizes = [self.extents[d] if d in self.inside else 1 for d in loops]
        return [0 if d in self.inside else i for d, i in zip(loops, place, strict=True)], sizes

    def _blank(self, like: Any) -> Any:
        kind = ir.RankedTensorType(like.type)
        shape = [
            n if n != DYNAMIC else tensor.dim(like, ix.value(d)) for d, n in enumerate(kind.shape)
        ]
        return tensor.empty(shape, kind.element_type)

    def _start(self, k: int, at: Sequence[Any], out: Any) -> Any:
        """What is carried into the loops for result `k`."""
        if k not in self.filled:
            return self._before(k, at)
        offsets, sizes = self._strip(k, at)
        loops = [_loop(e) for e in self.maps[self.inputs + k].results]
        kept = [d for d, loop in enumerate(loops) if loop in self.inside]
        return extract_slice(out, offsets, sizes, kept)

    def _before(self, k: int, at: Sequence[Any]) -> Any:
        """The element of result `k` that is there before."""
        made = defining_op(self.inits[k])
        blank = made is not None and made.name == "tensor.empty"
        if blank or not self._is_read(self.inputs + k):
            return zero(ir.RankedTensorType(self.inits[k].type).element_type)
        return self._read(self.inputs + k, at)

    def _is_read(self, k: int) -> bool:
        """(The body of a `linalg.map` or a `linalg.transpose` may have no argument for it.)"""
        arguments = list(self.body.arguments)
        return k < len(arguments) and any(True for _ in arguments[k].uses)

    def _place(self, access: Any, at: Sequence[Any]) -> list[ix.Index]:
        """Where an operand is accessed: an index for each of its dimensions."""
        return [self._index(expression, at) for expression in access.results]

    def _index(self, expression: Any, at: Sequence[Any]) -> ix.Index:
        if isinstance(expression, ir.AffineConstantExpr):
            return expression.value
        loop = _loop(expression)
        if loop is not None:
            return at[loop]
        return affine.apply(ir.AffineMap.get(self.rank, 0, [expression]), list(at))

    def _read(self, k: int, at: Sequence[Any]) -> Any:
        value = self.operands[k]
        if not is_tensor(value):
            return value
        return tensor.extract(value, [ix.value(i) for i in self._place(self.maps[k], at)])

    def _loops(self, at: list[Any], carried: list[Any]) -> list[Any]:
        """The loops that have no variable in `at` yet, and the body in them."""
        inner = next((k for k, variable in enumerate(at) if variable is None), None)
        if inner is None:
            return self._body(at, carried)
        zero, one = ix.value(0), ix.value(1)
        loop = scf.ForOp(zero, ix.value(self.extents[inner]), one, carried)
        with ir.InsertionPoint(loop.body):
            here = [*at[:inner], loop.induction_variable, *at[inner + 1 :]]
            scf.YieldOp(self._loops(here, list(loop.inner_iter_args)))
        return list(loop.results)

    def _body(self, at: Sequence[Any], carried: Sequence[Any]) -> list[Any]:
        """The op's body at one point of all loops; `carried` are the results so far."""
        table: dict[Any, Any] = {}  # what stands here for values of the body
        for k, argument in enumerate(self.body.arguments):
            result = k - self.inputs
            if result >= 0:
                filled = result in self.filled
                table[argument] = self._before(result, at) if filled else carried[result]
            elif self._is_read(k):
                table[argument] = self._read(k, at)
        made = clone_scalar_code(self.body, table, {"linalg.index": lambda op: at[_dimension(op)]})
        for k in self.filled:
            loops = [_loop(e) for e in self.maps[self.inputs + k].results]
            place = [at[loop] for loop in loops if loop in self.inside]
            made[k] = tensor.InsertOp(made[k], carried[k], place).result
        return made


def _is_outside(value: Any, block: Any) -> bool:
    made = defining_op(value)
    return (value.owner if made is None else made.block) != block


def _dimension(op: Any) -> int:
    return int(ir.IntegerAttr(op.attributes["dim"]).value)


def _element(value: Any) -> Any:
    return tensor.FromElementsOp(ir.RankedTensorType.get([], value.type), [value]).result


def _loop(expression: Any) -> int | None:
    """The loop that a position simply is."""
    if not isinstance(expression, ir.AffineDimExpr):
        return None
    return int(ir.AffineDimExpr(expression).position)
