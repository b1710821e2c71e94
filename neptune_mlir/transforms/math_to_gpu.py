# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `math-to-gpu`: elementary functions in GPU kernels, without a device library.

`distribute-tiles` has turned what is hot (exp, tanh) into the chip's own instructions. What is
left becomes the same arithmetic as on the CPU; `sin`, `cos` and `powf` are built here. Functions
that LLVM selects for GPUs by itself (sqrt, fma, floor, ceil, absf, copysign) stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from neptune_mlir.bindings import arith, ir
from neptune_mlir.codegen.polynomials import Functions
from neptune_mlir.errors import LoweringError
from neptune_mlir.transforms.registry import register

# called by name, because `convert-gpu-to-nvvm` (or `-rocdl`) would call a device library
_SELECTED = {
    "math.sqrt": "sqrt", "math.floor": "floor", "math.ceil": "ceil", "math.absf": "fabs",
    "math.copysign": "copysign", "math.roundeven": "roundeven", "math.trunc": "trunc",
    "math.fma": "fma",
}  # fmt: skip


@register("math-to-gpu", "expand elementary functions that no GPU instruction computes")
def math_to_gpu(module: Any) -> None:
    found = _math_ops(module)
    expanded = [op for op in found if op.name not in _SELECTED]
    for op in expanded:
        _replace(op, _expand)
    for op in _math_ops(module) if expanded else found:  # expansions leave functions to call
        _replace(op, _call)


def _replace(op: Any, rewrite: Callable[[Any], Any]) -> None:
    with op.context, ir.InsertionPoint(op), op.location:
        op.results[0].replace_all_uses_with(rewrite(op))
        op.erase()


def _math_ops(module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.startswith("math."):
            found.append(op)
        return ir.WalkResult.ADVANCE

    for op in module.body.operations:
        if op.operation.name == "gpu.module":
            op.operation.walk(visit)
    return found


def _call(op: Any) -> Any:
    kind = op.results[0].type
    operands = list(op.operands)
    return ir.Operation.create(
        "llvm.call_intrinsic", results=[kind], operands=operands,
        attributes={
            "intrin": ir.StringAttr.get(f"llvm.{_SELECTED[op.name]}.{kind}"),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    ).results[0]  # fmt: skip


def _expand(op: Any) -> Any:
    kind, f32 = op.results[0].type, ir.F32Type.get()
    functions = Functions(f32, fma=True, scalef=False)
    table: dict[str, Callable[..., Any]] = {
        **functions.table,
        "math.sin": lambda x: _sine(functions, x, 0),
        "math.cos": lambda x: _sine(functions, x, 1),
        "math.powf": lambda x, y: _power(functions, x, y),
    }
    if op.name not in table or not isinstance(kind, (ir.F32Type, ir.F16Type, ir.BF16Type)):
        raise LoweringError(f"no GPU code for '{op.name}' on {kind}")
    operands = [v if v.type == f32 else arith.ExtFOp(f32, v).result for v in op.operands]
    made = table[op.name](*operands)
    return made if kind == f32 else arith.TruncFOp(kind, made).result


# pi/2 in three parts, so that x - k * pi/2 is right to the last bit for |x| up to some 10^5
_HALF_PI = (1.5707963109016418, 1.5893254712295857e-08, 6.077094383272197e-11)
_SINE = (1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880)
_COSINE = (1.0, -0.5, 1 / 24, -1 / 720, 1 / 40320)


def _sine(f: Functions, x: Any, quarter: int) -> Any:
    """sin(x + quarter * pi/2) by reduction to [-pi/4, pi/4] and two Taylor polynomials."""
    i32 = ir.IntegerType.get_signless(32)
    k = _operation("math.roundeven", [arith.mulf(x, f.c(2 / math.pi))], x.type)
    rest = x
    for part in _HALF_PI:
        rest = f.fma(k, f.c(-part), rest)
    square = arith.mulf(rest, rest)
    sine = arith.mulf(rest, f.horner(square, _SINE))
    cosine = f.horner(square, _COSINE)
    turn = arith.addi(arith.fptosi(i32, k), f.i(quarter))
    odd = arith.trunci(ir.IntegerType.get_signless(1), turn)
    value = arith.select(odd, cosine, sine)
    flip = arith.shli(arith.andi(turn, f.i(2)), f.i(30))
    return f.from_bits(arith.xori(f.to_bits(value), flip))


def _power(f: Functions, x: Any, y: Any) -> Any:
    """x^y as exp2(y log2 |x|), with the sign of x where y is an odd integer."""
    magnitude = f.exp2(arith.mulf(y, f.log2(f.absolute(x))))
    whole = _operation("math.roundeven", [y], y.type)
    half = arith.mulf(y, f.c(0.5))
    even = arith.cmpf(
        arith.CmpFPredicate.OEQ, _operation("math.roundeven", [half], y.type), half
    )
    is_whole = arith.cmpf(arith.CmpFPredicate.OEQ, whole, y)
    negative = arith.cmpf(arith.CmpFPredicate.OLT, x, f.c(0.0))
    signed = arith.select(even, magnitude, arith.negf(magnitude))
    other = arith.select(is_whole, signed, f.c(math.nan))
    one = arith.cmpf(arith.CmpFPredicate.OEQ, y, f.c(0.0))
    return arith.select(one, f.c(1.0), arith.select(negative, other, magnitude))


def _operation(name: str, operands: list[Any], kind: Any) -> Any:
    return ir.Operation.create(name, results=[kind], operands=operands).results[0]
