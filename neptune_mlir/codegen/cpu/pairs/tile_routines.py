# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code that all products of a module share: functions that kernels call.

What LLVM takes for a function grows faster than the function, and products differ in places and
sizes alone. A call takes nanoseconds where what is called takes a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.pairs.tile_magnitudes import integer
from neptune_mlir.ir.bindings import func, ir, memref


def call(
    em: VectorEmitter, name: str, arguments: Sequence[Index],
    body: Callable[[VectorEmitter, list[Any]], None],
) -> None:  # fmt: skip
    """Call a function of this module, which `body` makes when it is called first."""
    values = [em.value(a) for a in arguments]
    kernel = _function_around(em.entry)
    block = kernel.block
    known = [op for op in block.operations if op.operation.name == "func.func"]
    if all(ir.StringAttr(op.attributes["sym_name"]).value != name for op in known):
        with ir.InsertionPoint(kernel), ir.Location.unknown():
            kind = ir.FunctionType.get([v.type for v in values], [])
            made = func.FuncOp(name, kind, visibility="private")
            made.attributes["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get("noinline")])
            made.attributes["llvm.linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
            entry = made.add_entry_block()
        inner = VectorEmitter(em.lanes, em.registers, entry, em.fma)
        with ir.InsertionPoint(entry), ir.Location.unknown():
            body(inner, list(entry.arguments))
            func.ReturnOp([])
    func.CallOp([], ir.FlatSymbolRefAttr.get(name), values)


def flat(view: MemoryView) -> Any:
    """The memory of a view, whatever its length is."""
    element = ir.MemRefType(view.base.type).element_type
    kind = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], element)
    return view.base if view.base.type == kind else memref.cast(kind, view.base)


def rows(base: Any, offset: Index, stride: Index, width: int = 0) -> MemoryView:
    """Rows in flat memory: of integers of so many bits, or (0) of f32."""
    kind = integer(width) if width else ir.F32Type.get()
    return MemoryView(base, kind, offset, (0, 0), (stride, 1), None)


def _function_around(block: Any) -> Any:
    op = block.owner.operation
    while op.name != "func.func":
        op = op.parent.operation
    return op
