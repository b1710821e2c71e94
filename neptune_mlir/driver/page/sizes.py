# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extents of a program as numbers: what is static, and what somebody assumes of the rest."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.op_names import MULTIPROCESSORS
from neptune_mlir.errors import UsageError
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

ASSUMED = 1024  # an extent that only a call knows, where nobody says more

_ARITHMETIC: dict[str, Callable[..., int]] = {
    "arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b, "arith.minsi": min, "arith.maxsi": max,
    "arith.ceildivsi": lambda a, b: -(-a // b) if b else 0,
    "arith.floordivsi": lambda a, b: a // b if b else 0,
    "arith.divsi": lambda a, b: a // b if b else 0,
    "arith.remsi": lambda a, b: a % b if b else 0,
    "arith.divui": lambda a, b: a // b if b else 0,
    "arith.select": lambda c, a, b: a if c else b,
}  # fmt: skip
_PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge", "lt", "le", "gt", "ge")  # in MLIR's order
_AFFINE = {"affine.apply": min, "affine.min": min, "affine.max": max}
_THROUGH = ("arith.index_cast", "arith.extsi", "arith.trunci")
_BITS = re.compile(r"(?:bf|f|i)(\d+)|index")


def element_bytes(dtype: str) -> float:
    """Bytes of an element; of a bit, the byte that holds it."""
    found = _BITS.fullmatch(dtype)
    return max(1.0, int(found[1]) / 8) if found and found[1] else 8.0


@dataclass
class AssumedSizes:
    """Numbers for the extents of a function.

    Attributes:
        names: what its arguments are called, in order.
        every: an extent that only a call knows.
        given: such extents by name: `k.2`, dimension 2 of the argument `k`; or a number argument.
        programs: how many run at once.
        asked: the run-time extents that were asked for, with their numbers.
    """

    names: list[str]
    every: int = ASSUMED
    given: Mapping[str, int] = field(default_factory=dict)
    programs: int = 1
    asked: dict[str, int] = field(default_factory=dict)

    def of(self, value: Any) -> int:
        """An index value of the host function."""
        op = defining_op(value)
        if op is None:
            return self._named(self.argument(value))
        if op.name == "arith.constant":
            return int(op.attributes["value"].value)
        if op.name == "tensor.dim":
            return self.extent(op.operands[0], self.of(op.operands[1]))
        if op.name in _ARITHMETIC:
            return int(_ARITHMETIC[op.name](*map(self.of, op.operands)))
        if op.name in _THROUGH:
            return self.of(op.operands[0])
        if op.name == "arith.cmpi":
            return int(self._compare(op))
        if op.name in _AFFINE:
            return int(_AFFINE[op.name](_affine(op, [self.of(v) for v in op.operands])))
        return self.programs if op.name == MULTIPROCESSORS else self.every

    def _compare(self, op: Any) -> bool:
        left, right = map(self.of, op.operands)
        return bool(getattr(operator, _PREDICATES[op.attributes["predicate"].value])(left, right))

    def argument(self, value: Any) -> str:
        number = value.arg_number
        return self.names[number] if number < len(self.names) else f"arg{number}"

    def extent(self, tensor: Any, dim: int) -> int:
        """A dimension of a tensor."""
        size = ir.RankedTensorType(tensor.type).shape[dim]
        if size != DYNAMIC:
            return int(size)
        op = defining_op(tensor)
        if op is None:
            return self._named(f"{self.argument(tensor)}.{dim}")
        if op.name == "tensor.cast":
            return self.extent(op.operands[0], dim)
        return self.every

    def _named(self, name: str) -> int:
        self.asked[name] = self.given.get(name, self.every)
        return self.asked[name]

    def domain(self, sizes: Any, operands: Any) -> list[int]:
        """The extents of a domain whose dynamic ones are operands."""
        dynamic = iter(operands)
        return [self.of(next(dynamic)) if n == DYNAMIC else int(n) for n in sizes]

    def touched(self, tensor: Any, position: tuple[Term, ...], loops: list[int]) -> int:
        """How many elements of a tensor a read at this position touches, over the loops."""
        return prod(self._along(tensor, d, p, loops) for d, p in enumerate(position))

    def _along(self, tensor: Any, dim: int, position: Term, loops: list[int]) -> int:
        if position.op == "index":
            return loops[position.attr]
        if position.is_const:
            return 1
        size = self.extent(tensor, dim)
        if position.op == "floordiv" and position.args[1].is_const:
            (axis,) = position.axes or (None,)
            if axis is not None:
                return min(size, -(-loops[axis] // int(position.args[1].value)))
        return size


def _affine(op: Any, operands: list[int]) -> list[int]:
    """The results of the map of an affine op."""
    taken = op.attributes["map"].value

    def value(expr: Any) -> int:
        if isinstance(expr, ir.AffineDimExpr):
            return operands[expr.position]
        if isinstance(expr, ir.AffineSymbolExpr):
            return operands[taken.n_dims + expr.position]
        if isinstance(expr, ir.AffineConstantExpr):
            return int(expr.value)
        a, b = value(expr.lhs), value(expr.rhs)
        if isinstance(expr, ir.AffineAddExpr):
            return a + b
        if isinstance(expr, ir.AffineMulExpr):
            return a * b
        if isinstance(expr, ir.AffineModExpr):
            return a % b
        return a // b if isinstance(expr, ir.AffineFloorDivExpr) else -(-a // b)

    return [value(expr) for expr in taken.results]


def parse_sizes(text: str | None) -> tuple[int, dict[str, int]]:
    """`4096,k.2=8192`: every run-time extent, and some by name. Raises UsageError."""
    every, given = ASSUMED, {}
    for part in filter(None, (text or "").split(",")):
        name, found, number = part.rpartition("=")
        if not number.isdigit() or int(number) < 1 or bool(found) != bool(name):
            raise UsageError(
                f"--size has '{part}'", hint="a number, or NAME.DIMENSION=NUMBER as in k.2=8192"
            )
        if name:
            given[name] = int(number)
        else:
            every = int(number)
    return every, given
