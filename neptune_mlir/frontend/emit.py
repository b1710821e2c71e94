# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program in index notation as MLIR: each reduction one nest, each output one map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import DERIVED, FOLLOWED, IN_TWO, MEETS
from neptune_mlir.dialects.context import usual_context
from neptune_mlir.dialects.nests import DYNAMIC, Values, build_map, build_reduce
from neptune_mlir.dialects.scalars import Emitter, mlir_type
from neptune_mlir.errors import InputError
from neptune_mlir.ir import bindings
from neptune_mlir.ir.bindings import arith, func, ir

if TYPE_CHECKING:
    from neptune_mlir.frontend.program import Program, Tensor


class _Emitter:
    def __init__(self, program: Program):
        self.program = program
        self.values = Values()
        self.extents: dict[int, Any] = {}  # axis number -> index value

    def location(self, place: tuple[str, int]) -> Any:
        file, line = place
        return ir.Location.file(file, line, 1)

    def argument_type(self, argument: Tensor | str) -> Any:
        if isinstance(argument, str):
            return mlir_type(argument)
        shape = [DYNAMIC if a.static is None else a.static for a in argument.shape]
        return ir.RankedTensorType.get(shape, mlir_type(argument.dtype))

    def function(self) -> Any:
        program = self.program
        if not program.outputs:
            raise InputError(f"program '{program.name}' has no output", hint="call p.output(...)")
        types = [self.argument_type(a) for a in program.inputs.values()]
        results = [
            ir.RankedTensorType.get([self.size(k) for k in o.axes], mlir_type(o.term.dtype))
            for o in program.outputs
        ]
        function = func.FuncOp(program.name, (types, results))
        if program.notes:
            DERIVED.set(function, program.notes)
        if program.in_two:
            names = list(program.inputs)
            IN_TWO.set(function, [[names.index(n), dim] for n, dim in program.in_two.items()])
        if program.meets:
            MEETS.set(function, [list(program.inputs).index(n) for n in program.meets])
        if program.followed:
            FOLLOWED.set(function)
        block = function.add_entry_block(
            [ir.Location.name(name, context=function.context) for name in program.inputs]
        )
        with ir.InsertionPoint(block):
            for name, value in zip(program.inputs, block.arguments, strict=True):
                self.values.bind(name, value)
            self._bind_extents()
            for step in self._needed_steps():
                self.values.bind(step.key, self._reduce(step))
            func.ReturnOp([self._output(o) for o in program.outputs])
        return function

    def size(self, axis: int) -> int:
        static = self.program.axis_list[axis].static
        return DYNAMIC if static is None else static

    def _bind_extents(self) -> None:
        from neptune_mlir.ir.bindings import tensor

        for axis in self.program.axis_list:  # what a size is made of comes before it
            value = None
            if axis.made_of is not None:
                value = Emitter(lambda leaf: self.values[leaf.attr]).emit(axis.made_of)
            elif axis.static is None and (found := self.program.dimension_of(axis)):
                name, dim = found
                position = arith.ConstantOp(ir.IndexType.get(), dim).result
                value = tensor.DimOp(self.values[name], position).result
            if value is not None:
                self.extents[axis.number] = value
                self.values.bind(f"size:{axis.name}", value)

    def _needed_steps(self) -> list[Any]:
        bodies = {s.key: s.body for s in self.program.steps}
        needed = T.reached([o.term for o in self.program.outputs], bodies)
        return [s for s in self.program.steps if s.key in needed]

    def _loops(self, axes: list[int], place: tuple[str, int]) -> dict[str, Any]:
        dynamic = [k for k in axes if self.size(k) == DYNAMIC]
        for k in dynamic:
            if k not in self.extents:
                name = self.program.axis_list[k].name
                raise InputError(
                    f"the extent of axis '{name}' is not known: no input has it",
                    loc=f"{place[0]}:{place[1]}:1",
                    hint=f"give '{name}' a size, or an input dimension",
                )
        return {
            "domain": [self.size(k) for k in axes],
            "extents": [self.extents[k] for k in dynamic],
            "names": [self.program.axis_list[k].name for k in axes],
        }

    def _local(self, term: Term, axes: list[int]) -> Term:
        return T.rename_axes(term, {a: T.index(k) for k, a in enumerate(axes)})

    def _reduce(self, step: Any) -> Any:
        axes = sorted({*step.kept, *step.removed})
        return build_reduce(
            self.values, step.combiner, self._local(step.body, axes),
            result_axes=[axes.index(k) for k in step.kept],
            loc=self.location(step.place), **self._loops(axes, step.place),
        )  # fmt: skip

    def _output(self, output: Any) -> Any:
        term, order = output.term, list(output.axes)
        made_here = term.op == "read" and term.attr not in self.program.inputs
        if made_here and term.args == tuple(T.index(k) for k in order):
            return self.values[term.attr]
        axes = sorted(order)
        return build_map(
            self.values, self._local(term, axes), result_axes=[axes.index(k) for k in order],
            loc=self.location(output.place), **self._loops(axes, output.place),
        )  # fmt: skip


def emit(program: Program, context: Any = None) -> Any:
    """The module of a program, verified."""
    context = context or usual_context()
    with context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            _Emitter(program).function()
        try:
            module.operation.verify()
        except ir.MLIRError as error:
            lines = bindings.diagnostic_lines(error, program.name)
            raise InputError("\n".join(lines)) from None
    return module
