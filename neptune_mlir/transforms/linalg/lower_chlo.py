# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lower-chlo`: functions of the dialect CHLO as upstream's, element by element.

JAX exports squares, error functions, arcs and hyperbolic functions as ops of CHLO, which stands
above StableHLO. The conversion of StableHLO knows none of them and leaves them.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import arith, ir, location_text
from neptune_mlir.transforms.registry import register

# ops of `math` with the name and the types of their CHLO twin
_SAME = {
    f"chlo.{name}": f"math.{name}"
    for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "erfc", "sinh",
                 "tan")
}  # fmt: skip
_SAME["chlo.is_inf"] = "math.isinf"

# M. Giles, Approximating the erfinv function (2010), single precision: polynomials in w - 2.5 where
# w = -log(1 - x^2) is below 5, and in sqrt(w) - 3; highest power first.
_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
    -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


@register("lower-chlo", "turn functions of CHLO into those of `math` and `arith` on tensors")
def lower_chlo(module: Any) -> None:
    """Raises InputError for an op of the dialect that has no such form."""
    found: list[Any] = []

    def collect(op: Any) -> Any:
        if op.name.startswith("chlo."):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for op in found:
        with ir.InsertionPoint(op), op.location:
            new = _lowered(op)
        op.results[0].replace_all_uses_with(new.results[0])
        op.erase()


def _lowered(op: Any) -> Any:
    types, operands = [r.type for r in op.results], list(op.operands)
    if op.name == "chlo.square":
        return ir.Operation.create("arith.mulf", results=types, operands=operands * 2)
    if op.name == "chlo.erf_inv" and str(types[0].element_type) == "f32":
        return _erf_inv(operands[0])
    if op.name not in _SAME:
        raise InputError(
            f"'{op.name}' has no lowering", loc=location_text(op.location),
            hint="keep it out of the program: compile what stands before and after it",
        )  # fmt: skip
    return ir.Operation.create(_SAME[op.name], results=types, operands=operands)


def _erf_inv(x: Any) -> Any:
    """The inverse of erf, f32, to 5 units in the last place; infinite at -1 and 1."""
    kind = x.type

    def make(name: str, *operands: Any) -> Any:
        return ir.Operation.create(name, results=[operands[-1].type], operands=operands).results[0]

    def number(value: float) -> Any:
        held = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, value))
        return arith.ConstantOp(kind, held).result

    def polynomial(coefficients: tuple[float, ...], at: Any) -> Any:
        value = number(coefficients[0])
        for coefficient in coefficients[1:]:
            value = make("arith.addf", make("arith.mulf", value, at), number(coefficient))
        return value

    def less(a: Any, b: Any) -> Any:
        return arith.CmpFOp(arith.CmpFPredicate.OLT, a, b).result

    w = make("arith.negf", make("math.log1p", make("arith.negf", make("arith.mulf", x, x))))
    central = polynomial(_CENTRAL, make("arith.subf", w, number(2.5)))
    tail = polynomial(_TAIL, make("arith.subf", make("math.sqrt", w), number(3.0)))
    factor = make("arith.select", less(w, number(5.0)), central, tail)
    # at the ends w is infinite, and so are powers of it with either sign
    ends = less(number(1e30), w)
    factor = make("arith.select", ends, number(float("inf")), factor)
    return ir.Operation.create("arith.mulf", results=[kind], operands=[factor, x])
