# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scalar operators of terms: one row each, with what the compiler knows of it.

A row says what an operator means on Python numbers and on NumPy arrays, which MLIR ops it is, and
what the solver may do with it. Derivatives are in `frontend/gradient/derivatives.py`, by the same
names: they are terms, and terms rest on this table. How a back end writes an operator is the
business of the MLIR op: a back end that has no instruction for it gets it from `expand-math`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        number: on Python numbers; floats are IEEE doubles. May raise ArithmeticError or ValueError.
        whole: the same on integers, where it differs.
        array: on NumPy arrays, element by element.
        floats, integers: the MLIR op on operands of that kind; "" where there is none.
        read: further MLIR ops that are read as this operator.
        infix: how people write it between two operands.
        order: +1 and -1: keeps and reverses order wherever it is defined.
        inverse: the operator that undoes it.
        injective: one-to-one in each operand, though it has no inverse here.
        bounds: an interval that holds every value.
        costly: more work for an element than to load its value.
    """

    name: str
    arity: int
    number: Callable[..., Any]
    array: Callable[..., Any]
    floats: str = ""
    integers: str = ""
    read: tuple[str, ...] = ()
    whole: Callable[..., Any] | None = None
    infix: str = ""
    order: int = 0
    inverse: str = ""
    injective: bool = False
    bounds: tuple[float, float] | None = None
    costly: bool = False


def _function(
    name: str, number: Callable[..., Any], array: Callable[..., Any], **facts: Any
) -> Operator:
    """A function of one float that is an op of the dialect `math`, and costly."""
    return Operator(name, 1, number, array, f"math.{name}", costly=True, **facts)


def _comparison(name: str, infix: str, compare: Callable[..., Any]) -> Operator:
    return Operator(name, 2, getattr(operator, name), compare, infix=infix)


_ONE = (-1.0, 1.0)
_ROWS = (
    Operator("add", 2, lambda a, b: a + b, np.add, "arith.addf", "arith.addi", infix="+",
             injective=True),
    Operator("sub", 2, lambda a, b: a - b, np.subtract, "arith.subf", "arith.subi", infix="-",
             injective=True),
    Operator("mul", 2, lambda a, b: a * b, np.multiply, "arith.mulf", "arith.muli", infix="*"),
    Operator("div", 2, lambda a, b: a / b, lambda a, b: a / b, "arith.divf", "arith.divsi",
             whole=lambda a, b: int(a / b), infix="/", injective=True, costly=True),
    Operator("rem", 2, math.fmod, np.fmod, "arith.remf", "arith.remsi",
             whole=lambda a, b: a - b * int(a / b), infix="%"),
    Operator("floordiv", 2, lambda a, b: a // b, np.floor_divide, "", "arith.floordivsi",
             infix="//"),
    Operator("pow", 2, math.pow, np.power, "math.powf", whole=lambda a, b: a**b, injective=True,
             costly=True),
    Operator("max", 2, max, np.maximum, "arith.maximumf", "arith.maxsi", ("arith.maxnumf",)),
    Operator("min", 2, min, np.minimum, "arith.minimumf", "arith.minsi", ("arith.minnumf",)),
    Operator("neg", 1, lambda a: -a, np.negative, "arith.negf", order=-1, inverse="neg"),
    Operator("abs", 1, abs, np.abs, "math.absf", "math.absi"),
    _function("exp", math.exp, np.exp, order=1, inverse="log"),
    _function("exp2", lambda a: 2.0**a, np.exp2, order=1, inverse="log2"),
    _function("log", math.log, np.log, order=1, inverse="exp"),
    _function("log2", math.log2, np.log2, order=1, inverse="exp2"),
    _function("log1p", math.log1p, np.log1p, order=1, inverse="expm1"),
    _function("expm1", math.expm1, np.expm1, order=1, inverse="log1p"),
    _function("tanh", math.tanh, np.tanh, order=1, injective=True, bounds=_ONE),
    _function("sqrt", math.sqrt, np.sqrt, order=1, injective=True),
    _function("rsqrt", lambda a: 1.0 / math.sqrt(a), lambda a: 1 / np.sqrt(a), order=-1,
              injective=True),
    _function("sin", math.sin, np.sin, bounds=_ONE),
    _function("cos", math.cos, np.cos, bounds=_ONE),
    _function("erf", math.erf, np.vectorize(math.erf, otypes=[float]), order=1, injective=True,
              bounds=_ONE),
    Operator("floor", 1, math.floor, np.floor, "math.floor", order=1),
    Operator("ceil", 1, math.ceil, np.ceil, "math.ceil", order=1),
    Operator("roundeven", 1, round, np.rint, "math.roundeven", order=1),
    _comparison("eq", "==", np.equal),
    _comparison("ne", "!=", np.not_equal),
    _comparison("lt", "<", np.less),
    _comparison("le", "<=", np.less_equal),
    _comparison("gt", ">", np.greater),
    _comparison("ge", ">=", np.greater_equal),
    Operator("and", 2, lambda a, b: a & b, np.bitwise_and, "", "arith.andi", infix="&"),
    Operator("or", 2, lambda a, b: a | b, np.bitwise_or, "", "arith.ori", infix="|"),
    Operator("xor", 2, lambda a, b: a ^ b, np.bitwise_xor, "", "arith.xori", infix="^"),
    Operator("shl", 2, lambda a, b: a << b, np.left_shift, "", "arith.shli", infix="<<"),
    Operator("shr", 2, lambda a, b: a >> b, np.right_shift, "", "arith.shrsi", infix=">>"),
    Operator("not", 1, lambda a: not a, np.logical_not, order=-1),
    Operator("select", 3, lambda c, a, b: a if c else b, np.where, read=("arith.select",)),
    Operator("cast", 1, lambda a: a, lambda a: a, order=1, inverse="cast"),
    # a cast to 8 bits as the program wrote it: its rounding is as large as what a result may be
    # off by, so that nothing moves out of it or into it
    Operator("quantize", 1, lambda a: a, lambda a: a, order=1),
)  # fmt: skip

OPERATORS = {row.name: row for row in _ROWS}
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})

# one-to-one functions: re-basing f through u and back is possible, but under a sum it is the
# homomorphism that breaks; everything else loses information and breaks re-basing
INJECTIVE = frozenset(r.name for r in _ROWS if r.injective or r.inverse)
COSTLY = frozenset(r.name for r in _ROWS if r.costly)
# MLIR op -> operator, where operands map one to one
OF_OP = {op: r.name for r in _ROWS for op in (r.floats, r.integers, *r.read) if op}


def order_of(name: str) -> int:
    """+1 and -1 for an operator that keeps and reverses order, else 0."""
    return OPERATORS[name].order if name in OPERATORS else 0


def inverse_of(name: str) -> str:
    """The operator that undoes one, or ""."""
    return OPERATORS[name].inverse if name in OPERATORS else ""


def evaluate(name: str, values: list[Any], floating: bool) -> Any:
    """The meaning of an operator on Python numbers. Raises ArithmeticError, ValueError."""
    row = OPERATORS[name]
    return (row.number if floating or row.whole is None else row.whole)(*values)
