# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `bf16-bits`: in LLVM's dialect, bf16 numbers that are only moved become 16-bit integers.

    %a = llvm.load %p : !llvm.ptr -> vector<16xbf16>     ->   ... -> vector<16xi16>

Conversions are arithmetic on bits by then (`arith-expand`), so loads, stores and shuffles are what
is left. On CPUs without bf16 instructions LLVM takes elements of such vectors apart through f32 and
back, with a call of `__truncsfbf2` for each, which the runtime library of GCC before 13 lacks.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.ir.bindings import ir, llvm
from neptune_mlir.transforms.registry import register

# What has a value of its type as an attribute: a cast behind it is simpler than new attributes.
_CONSTANT = "llvm.mlir.constant"
_MEMORY = "llvm.mlir.global"  # bytes, whatever their type


@register("bf16-bits", "move bf16 numbers as 16-bit integers (LLVM's dialect)")
def bf16_bits(module: Any) -> None:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.startswith("llvm.") and op.name != _MEMORY:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        if op.name == _CONSTANT:
            _cast(op)
            continue
        for result in op.results:
            result.set_type(_bits(result.type))
        for block in (b for region in op.regions for b in region.blocks):
            for argument in block.arguments:
                argument.set_type(_bits(argument.type))
        for named in list(op.attributes):
            attribute = op.attributes[named]
            if isinstance(attribute, ir.TypeAttr) and "bf16" in str(attribute):
                op.attributes[named] = ir.TypeAttr.get(_bits(ir.TypeAttr(attribute).value))


def _bits(t: Any) -> Any:
    text = str(t)
    return ir.Type.parse(text.replace("bf16", "i16"), t.context) if "bf16" in text else t


def _cast(constant: Any) -> None:
    value = constant.results[0]
    if "bf16" in str(value.type):
        with ir.InsertionPoint.after(constant), constant.location:
            cast = llvm.bitcast(_bits(value.type), value)
        value.replace_all_uses_except(cast, cast.owner.operation)
