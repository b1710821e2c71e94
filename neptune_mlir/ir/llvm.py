# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ops of LLVM's dialect that passes build, and its translation to text.

The bindings' own module has classes for 400 ops, which takes longer to import than most passes
take to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.ir.bindings import ir, module


def translate_module_to_llvmir(operation: Any) -> str:
    """LLVM IR as text."""
    return str(module("_mlir_libs._mlirDialectsLLVM").translate_module_to_llvmir(operation))


def bitcast(kind: Any, value: Any) -> Any:
    return ir.Operation.create("llvm.bitcast", [kind], [value]).result


def constant(value: Any) -> Any:
    """A constant of the type that an attribute has."""
    attributes = {"value": value}
    return ir.Operation.create("llvm.mlir.constant", [value.type], attributes=attributes).result


def pointer(number: Any) -> Any:
    """An address as what loads and stores take."""
    kind = ir.Type.parse("!llvm.ptr")
    return ir.Operation.create("llvm.inttoptr", [kind], [number]).result


def call_intrinsic(kind: Any, name: str, arguments: Sequence[Any]) -> Any:
    """`kind`: of the result; None where there is none."""
    attributes = {
        "intrin": ir.StringAttr.get(name),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(arguments), 0]),
    }
    results = [] if kind is None else [kind]
    made = ir.Operation.create("llvm.call_intrinsic", results, arguments, attributes)
    return made.result if results else None


def global_array(kind: str, name: str, linkage: str, *, addr_space: int, alignment: int) -> Any:
    """A global variable of a type, with a region for what it begins as; returns the op."""
    i32, i64 = (ir.IntegerType.get_signless(width) for width in (32, 64))
    attributes = {
        "global_type": ir.TypeAttr.get(ir.Type.parse(kind)),
        "sym_name": ir.StringAttr.get(name),
        "linkage": ir.Attribute.parse(f"#llvm.linkage<{linkage}>"),
        "addr_space": ir.IntegerAttr.get(i32, addr_space),
        "alignment": ir.IntegerAttr.get(i64, alignment),
    }
    return ir.Operation.create("llvm.mlir.global", attributes=attributes, regions=1)
