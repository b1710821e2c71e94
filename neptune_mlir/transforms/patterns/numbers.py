# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of MLIR as numbers of Python, for formulas that front ends share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.ir.bindings import arith, ir, math, tensor

_P = arith.CmpFPredicate


def spread(number: Any, like: Any) -> Any:
    """A tensor of the shape of another one, full of a number."""
    shape = ir.RankedTensorType(like.type).shape
    index = ir.IndexType.get()
    sizes = [
        tensor.dim(like, arith.constant(index, d)) for d, n in enumerate(shape) if n == DYNAMIC
    ]
    return tensor.SplatOp(ir.RankedTensorType.get(shape, number.type), number, sizes).result


def filled(like: Any, value: float) -> Any:
    """A constant of the type of a value: a number, or a tensor that is full of it."""
    kind = like.type
    shaped = isinstance(kind, ir.ShapedType)
    element = kind.element_type if shaped else kind
    make = ir.FloatAttr if isinstance(element, ir.FloatType) else ir.IntegerAttr
    number = make.get(element, value)
    if not shaped:
        return arith.ConstantOp(kind, number).result
    if not kind.has_static_shape:
        return spread(arith.ConstantOp(element, number).result, like)
    return arith.ConstantOp(kind, ir.DenseElementsAttr.get_splat(kind, number)).result


class Number:
    """A float of MLIR, or a tensor of them; comparisons make conditions, which have `&`."""

    def __init__(self, value: Any, like: Any = None):
        self.value = value
        self.like = value if like is None else like  # of a condition: what was compared

    def _with(self, make: Callable[..., Any], other: Any, *, swapped: bool = False) -> Number:
        pair = [self.value, _value(other, self.like)]
        return Number(make(*(reversed(pair) if swapped else pair)))

    def _compared(self, predicate: Any, other: Any) -> Number:
        condition = arith.CmpFOp(predicate, self.value, _value(other, self.like)).result
        return Number(condition, self.like)

    def __add__(self, other: Any) -> Number:
        return self._with(arith.addf, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Number:
        return self._with(arith.subf, other)

    def __rsub__(self, other: Any) -> Number:
        return self._with(arith.subf, other, swapped=True)

    def __mul__(self, other: Any) -> Number:
        return self._with(arith.mulf, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Number:
        return self._with(arith.divf, other)

    def __rtruediv__(self, other: Any) -> Number:
        return self._with(arith.divf, other, swapped=True)

    def __neg__(self) -> Number:
        return Number(arith.negf(self.value))

    def __lt__(self, other: Any) -> Number:
        return self._compared(_P.OLT, other)

    def __gt__(self, other: Any) -> Number:
        return self._compared(_P.OGT, other)

    def __eq__(self, other: Any) -> Number:  # type: ignore[override]
        return self._compared(_P.OEQ, other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Number) -> Number:
        return Number(arith.andi(self.value, other.value), self.like)

    def __getattr__(self, name: str) -> Callable[[], Number]:
        function = getattr(math, _METHODS[name]) if name in _METHODS else None
        if function is None:
            raise AttributeError(name)
        return lambda: Number(function(self.value))


_METHODS = {"log": "log", "log1p": "log1p", "sqrt": "sqrt", "sin": "sin", "cos": "cos",
            "abs": "absf", "round": "roundeven"}  # fmt: skip


def where(condition: Number, chosen: Any, other: Any) -> Number:
    """A choice between numbers, elementwise."""
    pair = (_value(x, condition.like) for x in (chosen, other))
    return Number(arith.select(condition.value, *pair))


def _value(x: Any, like: Any) -> Any:
    return x.value if isinstance(x, Number) else filled(like, x)
