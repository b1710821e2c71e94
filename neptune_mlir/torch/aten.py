# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ATen operations on elements mean in index notation.

`ELEMENTWISE` maps an operation to a function of expressions and numbers; `REDUCTIONS` those that
remove dimensions of a small tensor (a row of a captured one). What is in neither is not said in
the notation: `mods.py` then tabulates it, or refuses it by name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from neptune_mlir.frontend import notation as n

aten = torch.ops.aten


class Unsaid(Exception):
    """The notation has no word for an operation, or none that means the same."""


def _scaled(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """`a ± alpha * b`."""
    return lambda a, b, alpha=1: function(a, b if alpha == 1 else alpha * b)


def _divide(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return a / b
    if rounding_mode == "floor" and _whole(a) and _whole(b):
        return a // b
    if rounding_mode == "floor":
        return n.floor(a / b)
    raise Unsaid


def _remainder(a: Any, b: Any) -> Any:
    return a % b if _whole(a) and _whole(b) else a - n.floor(a / b) * b


def _whole(x: Any) -> bool:
    return isinstance(x, int) or (isinstance(x, n.Expr) and x.dtype[0] == "i")


def _logical(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """On conditions only; on integers `&` works on bits, which the notation does not."""

    def combine(a: Any, b: Any) -> Any:
        if all(isinstance(x, bool) or (isinstance(x, n.Expr) and x.dtype == "i1") for x in (a, b)):
            return function(a, b)
        raise Unsaid

    return combine


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else n.maximum(x, low)
    return x if high is None else n.minimum(x, high)


def _sign(x: Any) -> Any:
    return n.where(x > 0, 1, n.where(x < 0, -1, 0))


def _not(x: Any) -> Any:
    if not isinstance(x, n.Expr) or x.dtype != "i1":
        raise Unsaid
    return ~x


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + n.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + n.erf(x * 0.5**0.5))


def _softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    return n.where(beta * x > threshold, x, n.log1p(n.exp(beta * x)) / beta)


def _elu(x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    return scale * n.where(x > 0, x, alpha * n.expm1(input_scale * x))


def _logit(x: Any, eps: float | None = None) -> Any:
    x = x if eps is None else _clamp(x, eps, 1 - eps)
    return n.log(x / (1 - x))


def _hardsigmoid(x: Any) -> Any:
    return _clamp(x + 3, 0, 6) / 6


_and, _or, _xor = map(_logical, (operator.and_, operator.or_, operator.ne))

ELEMENTWISE: dict[Any, Callable[..., Any]] = {
    aten.add: _scaled(operator.add), aten.sub: _scaled(operator.sub),
    aten.rsub: lambda a, b, alpha=1: _scaled(operator.sub)(b, a, alpha),
    aten.mul: operator.mul, aten.div: _divide, aten.true_divide: operator.truediv,
    aten.floor_divide: lambda a, b: _divide(a, b, "floor"), aten.remainder: _remainder,
    aten.pow: operator.pow, aten.neg: operator.neg, aten.abs: n.abs, aten.sign: _sign,
    aten.maximum: n.maximum, aten.minimum: n.minimum, aten.clamp: _clamp,
    aten.clamp_min: n.maximum, aten.clamp_max: n.minimum, aten.relu: lambda x: n.maximum(x, 0),
    aten.exp: n.exp, aten.exp2: n.exp2, aten.log: n.log, aten.log2: n.log2,
    aten.log1p: n.log1p, aten.expm1: n.expm1, aten.tanh: n.tanh, aten.erf: n.erf,
    aten.sqrt: n.sqrt, aten.rsqrt: n.rsqrt, aten.sin: n.sin, aten.cos: n.cos,
    aten.floor: n.floor, aten.ceil: n.ceil, aten.round: n.roundeven, aten.sigmoid: n.sigmoid,
    aten.silu: lambda x: x * n.sigmoid(x), aten.isnan: lambda x: x != x,
    aten.gelu: _gelu, aten.softplus: _softplus, aten.elu: _elu, aten.logit: _logit,
    aten.hardtanh: lambda x, low=-1, high=1: _clamp(x, low, high),
    aten.hardsigmoid: _hardsigmoid, aten.hardswish: lambda x: x * _hardsigmoid(x),
    aten.leaky_relu: lambda x, slope=0.01: n.where(x > 0, x, slope * x),
    aten.threshold: lambda x, least, other: n.where(x <= least, other, x),
    aten.lerp: lambda a, b, weight: a + weight * (b - a), aten.square: lambda x: x * x,
    aten.addcmul: lambda x, a, b, value=1: x + value * (a * b),
    aten.addcdiv: lambda x, a, b, value=1: x + value * (a / b),
    aten.reciprocal: lambda x: 1.0 / x,
    aten.lt: operator.lt, aten.le: operator.le, aten.gt: operator.gt, aten.ge: operator.ge,
    aten.eq: operator.eq, aten.ne: operator.ne,
    aten.bitwise_and: _and, aten.bitwise_or: _or, aten.bitwise_xor: _xor,
    aten.logical_and: _and, aten.logical_or: _or, aten.logical_xor: _xor,
    aten.bitwise_not: _not, aten.logical_not: _not,
    aten.where: n.where,
}  # fmt: skip

REDUCTIONS: dict[Any, Callable[..., Any]] = {
    aten.sum: n.sum, aten.prod: n.prod, aten.mean: n.mean, aten.any: n.any, aten.all: n.all,
    aten.amax: n.max, aten.amin: n.min, aten.max: n.max, aten.min: n.min,
}  # fmt: skip

# operations that make a number, whatever they are given
CONSTANTS: dict[Any, Callable[..., Any]] = {
    aten.scalar_tensor: lambda value: value, aten.full: lambda size, value: value,
    aten.new_full: lambda x, size, value: value, aten.full_like: lambda x, value: value,
    aten.zeros: lambda size: 0, aten.ones: lambda size: 1,
    aten.new_zeros: lambda x, size: 0, aten.new_ones: lambda x, size: 1,
    aten.zeros_like: lambda x: 0, aten.ones_like: lambda x: 1,
}  # fmt: skip

# operations that give what they are given; a change of dtype is in the result's
COPIES = (aten._to_copy, aten.clone, aten.detach, aten.alias, aten.lift_fresh_copy, aten.to)
