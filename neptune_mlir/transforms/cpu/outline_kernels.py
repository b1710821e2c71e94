# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `outline-kernels`: every `scf.forall` becomes a kernel, the host function a launch plan.

Runs on bufferized tile IR. A kernel is a function of the arrays and scalars that the forall
captured, the grid extents, a shared counter and this worker's scratch memory. Any number of
workers call it at once: each takes the next programs of the grid from the counter until none is
left. The counter runs down, because in a triangular grid the last programs are the long ones. Of
many programs it gives several at once: taking one waits until what was stored has arrived.

A grid of one program may have been folded into the host function by then (canonicalize does
that): what computes there becomes a kernel of one program.

The plan (`neptune_mlir/runtime/plan.py`) is left as JSON in the module's `neptune.plan`.
"""

from __future__ import annotations

import functools
from typing import Any

from neptune_mlir.dialects.attributes import GRID_KERNEL, IN_ORDER, PLAN
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import arith, func, ir, location_text, memref, scf
from neptune_mlir.ir.values import defining_op
from neptune_mlir.runtime.plan import Buffer, Plan
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.host_plan import (
    HostReader,
    captured,
    entry_function,
    fold,
    grid_bounds,
    nested,
    nested_in,
)


@register("outline-kernels", "turn each scf.forall into a kernel and the host code into a plan")
def outline_kernels(module: Any, *, entry: str = "") -> None:
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    plan = _Host(entry_function(module, entry)).read(module)
    for function in functions:
        function.operation.erase()
    PLAN.set(module.operation, plan.to_json())


# another shape of the same elements: a view, or a copy of an argument with odd strides
_RESHAPES = ("memref.expand_shape", "memref.collapse_shape")


_SHARES, _GROUP = 128, 16  # at least so many groups of programs; at most so many programs in one


class _Host(HostReader):
    """Reads the host function op by op into a plan."""

    def __init__(self, function: Any):
        super().__init__(function)
        self.group: list[Any] = []  # ops of the host that compute, not outlined yet
        self.views: set[Any] = set()  # parts of arrays, made again in each kernel that uses them

    def read(self, module: Any) -> Plan:
        for op in self.function.regions[0].blocks[0].operations:
            self._op(op, module)
        return self.plan()

    def _op(self, op: Any, module: Any) -> None:
        name = op.operation.name
        if name == "func.return":
            self._flush(module)
            self.results = tuple(self._array(value) for value in op.operands)
        elif name == "scf.forall":
            self._flush(module)
            self._launch(op, module)
        elif name in ("memref.alloc", "memref.dealloc", *_RESHAPES):
            pass  # an array is made when something needs it; the runtime frees it
        elif name == "memref.dim":
            self._array(op.operands[0])
            dimension = self.expressions[op.operands[1]]
            self.expressions[op.results[0]] = self.shapes[op.operands[0]][dimension]
        elif name == "memref.subview" or (name == "memref.cast" and op.operands[0] in self.views):
            self.views.add(op.results[0])
        elif name.startswith(("linalg.", "memref.", "scf.")) and name != "memref.cast":
            self.group.append(op.operation)
        elif name != "memref.cast":
            if all(v in self.expressions for v in op.operands):
                self.scalar(op, name)
            else:
                self.group.append(op.operation)

    def _array(self, value: Any) -> Any:
        """The reference of the plan for an array of the host."""
        if value not in self.arrays:
            op = value.owner.operation
            if op.name == "memref.cast":
                self.arrays[value] = self._array(op.operands[0])
                self.shapes[value] = self.shapes[op.operands[0]]
            elif op.name == "memref.alloc":
                kind, sizes = value.type, iter(op.operands)
                shape = [
                    self.expressions[next(sizes)] if kind.is_dynamic_dim(d) else kind.shape[d]
                    for d in range(kind.rank)
                ]
                self.arrays[value] = ["buffer", len(self.buffers)]
                self.shapes[value] = shape
                self.buffers.append(Buffer(str(kind.element_type), tuple(shape)))
            elif op.name in _RESHAPES:
                source = self._array(op.operands[0])
                shape = self.reshaped(op)
                self.arrays[value] = ["buffer", len(self.buffers)]
                self.shapes[value] = shape
                self.buffers.append(Buffer(str(value.type.element_type), tuple(shape), source))
            else:
                raise LoweringError(
                    f"'{op.name}' outside of any kernel makes an array that is not a new one",
                    loc=location_text(op.location),
                )
        return self.arrays[value]

    def _flush(self, module: Any) -> None:
        """Outline the pending ops of the host as a kernel of one program."""
        ops, self.group = self.group, []
        if not ops:
            return
        ops = self._with_views(ops)
        self._hoist(ops)
        inside = {inner for op in ops for inner in [op, *nested_in(op)]}
        for value in captured(ops):
            op = defining_op(value)
            if op is not None and op.name == "memref.alloc" and value not in self.arrays:
                users = {use.owner.operation for use in value.uses}
                if value.type.has_static_shape and users <= inside:
                    op.move_before(ops[0])
                    ops.insert(0, op)  # a tile of this kernel
        # not a name that a forall may carry
        name = f"{self.function.name.value}_host_{len(self.launches)}"
        self._outline(module, name, ops, [], [], [], [], ops[0])

    def _hoist(self, ops: list[Any]) -> None:
        """Arrays of loops whose extents calls know are made once: a tile has no such extents."""
        for op in [inner for outer in ops for inner in nested_in(outer)]:
            known = op.name == "memref.alloc" and all(v in self.expressions for v in op.operands)
            if known and not op.results[0].type.has_static_shape:
                op.move_before(ops[0])

    def _with_views(self, ops: list[Any]) -> list[Any]:
        """The ops of a kernel, and before them the views that they use, as views of its own."""
        made: dict[Any, Any] = {}
        found: list[Any] = []

        def own(value: Any, user: Any) -> Any:
            if value not in self.views:
                return value
            if value not in made:
                clone = value.owner.operation.clone(ir.InsertionPoint(user))
                for k, operand in enumerate(clone.operands):
                    clone.operands[k] = own(operand, clone)
                made[value] = clone.results[0]
                found.append(clone)
            return made[value]

        for op in ops:
            table = {value: own(value, op) for value in captured([op]) if value in self.views}
            for inner in [op, *nested_in(op)] if table else []:
                for k, operand in enumerate(inner.operands):
                    if operand in table:
                        inner.operands[k] = table[operand]
            found.append(op)
        for value in reversed(made):  # a view of a view first
            if next(iter(value.uses), None) is None:
                self.views.discard(value)
                value.owner.operation.erase()
        return found

    def _launch(self, forall: Any, module: Any) -> None:
        name = self.kernel_name(forall)
        body = forall.regions[0].blocks[0]
        ops = self._with_views([op.operation for op in list(body.operations)[:-1]])
        lows, highs, steps = grid_bounds(forall)
        ivs = list(body.arguments)[: len(highs)]
        self._outline(module, name, ops, ivs, lows, highs, steps, forall)

    def _outline(
        self, module: Any, name: str, ops: list[Any], ivs: list[Any], lows: list[Any],
        highs: list[Any], steps: list[Any], outlined: Any,
    ) -> None:  # fmt: skip
        """Move `ops` into a kernel that runs them for each point of a grid, and launch it.
        `outlined`: the op that the kernel is, or the first of several."""
        location = outlined.location

        def term(bound: Any) -> Any:
            return bound if isinstance(bound, int) else self.expressions[bound]

        grid = tuple(
            fold("ceildiv", fold("sub", term(h), term(low)), term(s))
            for low, h, s in zip(lows, highs, steps, strict=True)
        )
        outside = [v for v in captured(ops) if v not in ivs]
        arrays = [v for v in outside if isinstance(v.type, ir.MemRefType)]
        operands = [self._array(v) for v in arrays]
        scalars = [v for v in outside if v not in arrays and v not in self.constants]
        for bound in [*lows, *steps]:  # the kernel turns grid positions into loop variables
            if not isinstance(bound, int) and bound not in scalars:
                scalars.append(bound)
        operands += self.passed(scalars, outlined)

        index, rank = ir.IndexType.get(), len(grid)
        counter = ir.MemRefType.get([1], ir.IntegerType.get_signless(64))
        byte = ir.IntegerType.get_signless(8)
        scratch = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], byte)
        kinds = [v.type for v in [*arrays, *scalars]] + [index] * rank + [counter, scratch]
        with ir.InsertionPoint(module.body), location:
            kernel = func.FuncOp(name, (kinds, []))
            kernel.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
            GRID_KERNEL.set(kernel)
            entry = kernel.add_entry_block()
        inside = dict(zip([*arrays, *scalars], entry.arguments, strict=False))
        extents = list(entry.arguments)[len(inside) : len(inside) + rank]
        with ir.InsertionPoint(entry), location:
            for value in outside:
                if value in self.constants:
                    inside[value] = self.constants[value].clone().results[0]
            position, loop_body = _take_programs(entry.arguments[len(kinds) - 2], extents, outlined)
            with ir.InsertionPoint(loop_body):
                ids: list[Any] = []
                for extent in reversed(extents):  # the last dimension runs fastest
                    ids.insert(0, arith.remui(position, extent))
                    position = arith.divui(position, extent)
                for k, iv in enumerate(ids):
                    if (lows[k], steps[k]) != (0, 1):
                        scaled = arith.muli(iv, _index_value(steps[k], inside))
                        iv = arith.addi(scaled, _index_value(lows[k], inside))
                    ivs[k].replace_all_uses_with(iv)
                end = scf.YieldOp([])
            func.ReturnOp([])
        for op in ops:
            op.move_before(end.operation)
        for op in nested(loop_body):
            for k, operand in enumerate(op.operands):
                if operand in inside:
                    op.operands[k] = inside[operand]
        self.launch(name, grid, operands, outlined)


def _take_programs(counter: Any, extents: list[Any], outlined: Any) -> tuple[Any, Any]:
    """`while ((i = counter++) < groups)`, and for each program of group i, upwards: the program's
    number, the body. Groups are taken from the top. Programs of `outlined` that add to the same
    results are one group."""
    index, i64 = ir.IndexType.get(), ir.IntegerType.get_signless(64)
    one = arith.constant(i64, 1)
    first, next_ = arith.constant(index, 0), arith.constant(index, 1)
    total = next_
    for extent in extents:
        total = arith.muli(total, extent)
    if not IN_ORDER.on(outlined):
        share = arith.divui(total, arith.constant(index, _SHARES))
        size = arith.minui(arith.maxui(share, next_), arith.constant(index, _GROUP))
        groups = arith.ceildivui(total, size)
    else:  # (an empty grid is not launched)
        size = functools.reduce(arith.muli, extents[IN_ORDER.of(outlined) :], next_)
        groups = arith.divui(total, size)
    loop = scf.WhileOp([index], [])
    before = loop.regions[0].blocks.append()
    after = loop.regions[1].blocks.append(index)
    with ir.InsertionPoint(before):
        taken = memref.AtomicRMWOp(arith.AtomicRMWKind.addi, one, counter, [first]).result
        here = arith.index_cast(index, taken)
        scf.ConditionOp(arith.cmpi(arith.CmpIPredicate.slt, here, groups), [here])
    with ir.InsertionPoint(after):
        group = arith.subi(arith.subi(groups, next_), after.arguments[0])
        start = arith.muli(group, size)
        end = arith.minui(arith.addi(start, size), total)
        programs = scf.ForOp(start, end, next_)
        scf.YieldOp([])
    return programs.induction_variable, programs.body


def _index_value(bound: Any, inside: dict[Any, Any]) -> Any:
    return arith.constant(ir.IndexType.get(), bound) if isinstance(bound, int) else inside[bound]
