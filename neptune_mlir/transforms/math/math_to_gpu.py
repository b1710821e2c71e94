# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `math-to-gpu`: elementary functions in GPU kernels, without a device library.

`distribute-tiles` has turned what is hot (exp, tanh) into the chip's own instructions. What is
left becomes the same arithmetic as on the CPU. Angles are reduced and remainders taken here: what
is rare and long (an angle over 10^5, a quotient over 2^22) is a branch of its own. Functions that
LLVM selects for GPUs by itself (sqrt, fma, floor, ceil, absf, copysign, round) stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import arith, ir, location_text
from neptune_mlir.transforms.math import plain_math
from neptune_mlir.transforms.math.branching import Branching
from neptune_mlir.transforms.math.doubles import Doubles
from neptune_mlir.transforms.registry import register

# called by name, because `convert-gpu-to-nvvm` (or `-rocdl`) would call a device library
_SELECTED = {
    "math.sqrt": "sqrt", "math.floor": "floor", "math.ceil": "ceil", "math.absf": "fabs",
    "math.copysign": "copysign", "math.roundeven": "roundeven", "math.trunc": "trunc",
    "math.fma": "fma", "math.round": "round", "math.ctpop": "ctpop", "math.ctlz": "ctlz",
    "math.cttz": "cttz",
}  # fmt: skip
_NARROW = {"math.absf", "math.copysign", "math.fma"}  # of 16-bit floats as they are
_COUNTS_ZEROS = {"math.ctlz", "math.cttz"}


@register("math-to-gpu", "expand elementary functions that no GPU instruction computes")
def math_to_gpu(module: Any) -> None:
    found = _math_ops(module)
    while expanded := [op for op in found if not _is_selected(op)]:
        for op in expanded:
            _replace(op, _expand)
        found = _math_ops(module)  # expansions leave functions to call, or to expand
    for op in found:
        _replace(op, _call)


def _is_selected(op: Any) -> bool:
    if op.name not in _SELECTED:
        return False
    narrow = isinstance(op.results[0].type, (ir.F16Type, ir.BF16Type))
    return op.name in _NARROW or not narrow


def _replace(op: Any, rewrite: Callable[[Any], list[Any]]) -> None:
    with op.context, ir.InsertionPoint(op), op.location:
        for old, new in zip(op.results, rewrite(op), strict=True):
            old.replace_all_uses_with(new)
        op.erase()


def _math_ops(module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.startswith("math.") or op.name == "arith.remf":
            found.append(op)
        return ir.WalkResult.ADVANCE

    for op in module.body.operations:
        if op.operation.name == "gpu.module":
            op.operation.walk(visit)
    return found


def _call(op: Any) -> list[Any]:
    kind = op.results[0].type
    operands = list(op.operands)
    if op.name in _COUNTS_ZEROS:  # of 0 too
        i1 = ir.IntegerType.get_signless(1)
        operands.append(arith.ConstantOp(i1, ir.IntegerAttr.get(i1, 0)).result)
    return [ir.Operation.create(
        "llvm.call_intrinsic", results=[kind], operands=operands,
        attributes={
            "intrin": ir.StringAttr.get(f"llvm.{_SELECTED[op.name]}.{kind}"),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    ).results[0]]  # fmt: skip


def _expand(op: Any) -> list[Any]:
    plain = plain_math.expand(op)
    if plain is not None:
        return plain
    kind, f32 = op.results[0].type, ir.F32Type.get()
    if isinstance(kind, ir.F64Type) and (made := Doubles().table.get(op.name)) is not None:
        return [made(*op.operands)]
    functions = Branching(f32, fma=True, scalef=False)
    narrow = (ir.F16Type, ir.BF16Type)
    known = op.name in functions.table or op.name in _SELECTED
    if not known or not isinstance(kind, (ir.F32Type, *narrow)):
        raise LoweringError(
            f"no GPU code for '{op.name}' on {kind}", loc=location_text(op.location)
        )
    operands = [arith.ExtFOp(f32, v).result if isinstance(v.type, narrow) else v
                for v in op.operands]  # fmt: skip
    if op.name in functions.table:
        made = functions.table[op.name](*operands)
    else:
        made = ir.Operation.create(op.name, results=[f32], operands=operands).results[0]
    return [made if kind == f32 else arith.TruncFOp(kind, made).result]
