# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that StableHLO has no operation for, written out in its arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.driver import gamma
from neptune_mlir.driver.stablehlo.bodies import element_of, made, shape_of
from neptune_mlir.driver.stablehlo.ops import compared, filled, select_of
from neptune_mlir.ir.bindings import ir

Number = float | int


class Tensor:
    """A value with Python's operators, whose results are values of its shape."""

    __hash__ = None  # type: ignore[assignment]  # `==` makes a value

    def __init__(self, value: Any):
        self.value = value

    def _like(self, number: Any) -> Any:
        if isinstance(number, Tensor):
            return number.value
        return filled(shape_of(self.value), element_of(self.value), float(number))

    def _made(self, name: str, *others: Any) -> Tensor:
        given = [self._like(x) for x in others]
        return Tensor(made(name, given, shape_of(self.value), element_of(self.value)))

    def _compared(self, direction: str, other: Any) -> Tensor:
        return Tensor(compared(direction, self.value, self._like(other)))

    def __add__(self, other: Any) -> Tensor:
        return self._made("add", self, other)

    def __radd__(self, other: Number) -> Tensor:
        return self._made("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return self._made("subtract", self, other)

    def __rsub__(self, other: Number) -> Tensor:
        return self._made("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return self._made("multiply", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tensor:
        return self._made("divide", self, other)

    def __rtruediv__(self, other: Number) -> Tensor:
        return self._made("divide", other, self)

    def __and__(self, other: Tensor) -> Tensor:
        return self._made("and", self, other)

    def __lt__(self, other: Any) -> Tensor:
        return self._compared("LT", other)

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        return self._compared("EQ", other)

    def abs(self) -> Tensor:
        return self._made("abs", self)

    def round(self) -> Tensor:
        return self._made("round_nearest_even", self)

    def log(self) -> Tensor:
        return self._made("log", self)

    def log1p(self) -> Tensor:
        return self._made("log_plus_one", self)

    def sin(self) -> Tensor:
        return self._made("sine", self)

    def cos(self) -> Tensor:
        return self._made("cosine", self)


def _where(condition: Tensor, *given: Any) -> Tensor:
    """Of two, of which numbers stand for tensors of the other's shape and type."""
    like = next((x for x in given if isinstance(x, Tensor)), None)
    assert like is not None
    return Tensor(select_of(condition.value, *(like._like(x) for x in given)))


def of_one(function: Callable[..., Tensor], op: Any) -> Sequence[Any]:
    """The result of an op on a tensor of floats, by a function; shorter floats in float32."""
    (x,) = op.operands
    kind, wide = element_of(x), ir.F32Type.get()
    shape = shape_of(x)
    given = x if kind.width >= wide.width else made("convert", [x], shape, wide)
    result = function(_where, Tensor(given)).value
    return [result if element_of(result) == kind else made("convert", [result], shape, kind)]


def _digamma(where: Callable[..., Any], x: Any) -> Any:
    """NaN at 0 as at all poles, as XLA has it."""
    return where(x == 0, math.nan, gamma.digamma(where, x))


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "chlo.lgamma": gamma.logarithm, "chlo.digamma": _digamma,
}  # fmt: skip
