# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index notation: programs as formulas over axes, with no hint of how to run them.

    p = Program("attention")
    b, h, i, j, d, e = p.axes("b h i j d e", d=64, e=64)          # the others at run time
    q, k, v = p.input("q", b, h, i, d), p.input("k", b, h, j, d), p.input("v", b, h, j, e)
    s = where(j <= i, sum(q[b, h, i, d] * k[b, h, j, d], d) / 8, -inf)
    w = exp(s - max(s, j))
    p.output(sum(w / sum(w, j) * v[b, h, j, e], j), b, h, i, e)

A reduction names the axes that it removes; everything else about its loops follows from what
its argument varies along. Elementwise expressions are never stored: sharing is the
compiler's decision.
"""

from __future__ import annotations

import math

from neptune_mlir.algebra import functions
from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.errors import InputError
from neptune_mlir.frontend.expr import (
    Expr,
    binary,
    convert,
    expression,
    floating,
    input_error,
    joined,
    lift,
    plain,
    unary,
)
from neptune_mlir.frontend.program import DTYPES, Axis, Program, Tensor

inf = math.inf


def sum(value: Expr, *axes: Axis) -> Expr:
    """Sum over axes (of a condition: how often it holds)."""
    return expression(value, "sum").program.reduction("add", value, axes)


def prod(value: Expr, *axes: Axis) -> Expr:
    """Product over axes."""
    return expression(value, "prod").program.reduction("mul", value, axes)


def max(value: Expr, *axes: Axis) -> Expr:
    """Maximum over axes (-inf where an axis is empty)."""
    return expression(value, "max").program.reduction("max", value, axes)


def min(value: Expr, *axes: Axis) -> Expr:
    """Minimum over axes (+inf where an axis is empty)."""
    return expression(value, "min").program.reduction("min", value, axes)


def mean(value: Expr, *axes: Axis) -> Expr:
    """Arithmetic mean over axes."""
    total = sum(value, *axes)
    for a in axes:
        total = total / cast(a.size, total.dtype)
    return total


def all(value: Expr, *axes: Axis) -> Expr:
    """True where a condition holds everywhere along axes."""
    return expression(value, "all").program.reduction("and", value, axes)


def any(value: Expr, *axes: Axis) -> Expr:
    """True where a condition holds somewhere along axes."""
    return expression(value, "any").program.reduction("or", value, axes)


def reduce(combiner: str, value: Expr, *axes: Axis) -> Expr:
    """A reduction with a combiner by its name, also one that a package adds (docs/extending.md).

    Raises:
        InputError: no combiner has the name, or it is not defined on the type of `value`.
    """
    return expression(value, "reduce").program.reduction(combiner, value, axes)


def call(name: str, *arguments: Expr | float) -> Expr:
    """A scalar function by its name, which a package adds (docs/extending.md). Its arguments take
    their common type.

    Raises:
        UsageError: no function has the name, or it takes another number of arguments.
    """
    function = functions.named(name)
    first = next((a for a in arguments if isinstance(a, Expr)), None)
    given = expression(first, name)
    for other in arguments:
        given = joined(given, other)[0]
    values = [joined(given, value)[1] for value in arguments]
    return Expr(function(*(value.term for value in values)), given.program)


exp, exp2, log, log2 = floating("exp"), floating("exp2"), floating("log"), floating("log2")
log1p, expm1, tanh, erf = floating("log1p"), floating("expm1"), floating("tanh"), floating("erf")
sqrt, rsqrt, sin, cos = floating("sqrt"), floating("rsqrt"), floating("sin"), floating("cos")
floor, ceil, roundeven = floating("floor"), floating("ceil"), floating("roundeven")


def abs(x: Expr) -> Expr:
    """Elementwise absolute value."""
    return unary("abs", expression(x, "abs"))


def maximum(a: Expr | float, b: Expr | float) -> Expr:
    """Elementwise maximum."""
    return binary("max", a, b)


def minimum(a: Expr | float, b: Expr | float) -> Expr:
    """Elementwise minimum."""
    return binary("min", a, b)


def sigmoid(x: Expr) -> Expr:
    """Elementwise 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + exp(-x))


def cast(x: Expr, dtype: str) -> Expr:
    """Convert to `dtype`, rounding to nearest."""
    if dtype not in DTYPES:
        raise input_error(f"unknown dtype '{dtype}'", f"one of {', '.join(DTYPES)}")
    x = expression(x, "cast")
    return convert(x, dtype, "quantize" if dtype == FLOAT8 and T.is_float(x.dtype) else "cast")


def where(condition: Expr | bool, a: Expr | float, b: Expr | float) -> Expr:
    """`a` where the condition holds, `b` elsewhere."""
    condition = plain(condition)
    if isinstance(condition, bool):
        return a if condition else b  # type: ignore[return-value]
    if expression(condition, "where").dtype != "i1":
        raise input_error(f"where takes a condition, not {condition.dtype}")
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        like = condition.program.constant(0.0)
        a, b = lift(a, like), lift(b, like)
    narrow = isinstance(a, Expr) and a.dtype in ("f16", "bf16", FLOAT8, "i8")
    if narrow and not isinstance(b, Expr) and plain(b) == 0:
        x, y = lift(a), lift(b, a)  # nothing is computed, and 0 is exact in every type
    else:
        x, y = joined(a, b)
    return Expr(T.make("select", condition.term, x.term, y.term), x.program)


__all__ = [
    "Axis", "Expr", "InputError", "Program", "Tensor", "abs", "all", "any", "cast", "ceil",
    "cos", "erf", "exp", "exp2", "expm1", "floor", "inf", "log", "log1p", "log2", "max",
    "maximum", "mean", "min", "minimum", "prod", "roundeven", "rsqrt", "sigmoid", "sin", "sqrt",
    "sum", "tanh", "where",
]  # fmt: skip
