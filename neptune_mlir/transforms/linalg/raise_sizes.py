# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Symbolic sizes: what is known about the extents of tensors while linalg is being raised.

A size is a monomial `factor * s1 * s2 * ...` over symbols, each the run-time value of an SSA
scalar (usually a `tensor.dim`). Products and exact quotients are all that reshapes need;
everything else becomes a symbol of its own. Front ends compute shapes with long chains of
integer code (`select(b * h < 0, ..., b * h)`): `Sizes.of` folds them, knowing that dimensions
are not negative. `equate` records that two sizes must be the same number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neptune_mlir.ir.bindings import arith, ir


@dataclass(frozen=True)
class Size:
    """`factor` times the product of `symbols` (sorted; a symbol may repeat)."""

    factor: int
    symbols: tuple[int, ...] = ()

    @property
    def static(self) -> int | None:
        return None if self.symbols else self.factor


ONE = Size(1)


@dataclass
class _Symbol:
    value: Any  # the SSA scalar
    dim: int | None  # which dimension of a tensor it is (so never negative), if it is one
    bound: Size | None = None


def times(a: Size, b: Size) -> Size:
    return Size(a.factor * b.factor, tuple(sorted(a.symbols + b.symbols)))


def product(sizes: list[Size]) -> Size:
    result = ONE
    for size in sizes:
        result = times(result, size)
    return result


def quotient(a: Size, b: Size) -> Size | None:
    """a / b where that is exact whatever the symbols are (and none of them is 0)."""
    if b.factor == 0 or a.factor % b.factor:
        return None
    left = list(a.symbols)
    for symbol in b.symbols:
        if symbol not in left:
            return None
        left.remove(symbol)
    return Size(a.factor // b.factor, tuple(left))


_CASTS = ("arith.index_cast", "arith.index_castui", "arith.extui", "arith.extsi", "arith.trunci")
_EXACT_DIVISIONS = ("arith.divsi", "arith.divui", "arith.floordivsi", "arith.ceildivsi",
                    "arith.ceildivui")  # fmt: skip
_COMPARE: dict[int, Callable[[int, int], bool]] = {
    0: operator.eq, 1: operator.ne, 2: operator.lt, 3: operator.le, 4: operator.gt, 5: operator.ge,
    6: operator.lt, 7: operator.le, 8: operator.gt, 9: operator.ge,
}  # fmt: skip


class FunctionSizes:
    """All sizes of one function.

    Args:
        dimension: gives the size of dimension `k` of an SSA tensor.
    """

    def __init__(self, dimension: Callable[[Any, int], Size]):
        self._dimension = dimension
        self._symbols: list[_Symbol] = []
        self._known: dict[Any, Size] = {}
        self._truths: dict[Any, bool | None] = {}
        self.assumed: list[tuple[Any, Any]] = []  # SSA scalars taken to be equal, see `assume`

    # ---- arithmetic ------------------------------------------------------------------------

    def symbol(self, value: Any, *, dim: int | None = None) -> Size:
        """A new symbol for the SSA scalar `value`, dimension `dim` of some tensor."""
        self._symbols.append(_Symbol(value, dim))
        return Size(1, (len(self._symbols) - 1,))

    def resolve(self, size: Size) -> Size:
        """`size` with every symbol replaced by what it is known to equal."""
        while any(self._symbols[s].bound is not None for s in size.symbols):
            resolved = Size(size.factor)
            for s in size.symbols:
                bound = self._symbols[s].bound
                resolved = times(resolved, Size(1, (s,)) if bound is None else bound)
            size = resolved
        return size

    def same(self, a: Size, b: Size) -> bool:
        return self.resolve(a) == self.resolve(b)

    def divide(self, a: Size, b: Size) -> Size | None:
        return quotient(self.resolve(a), self.resolve(b))

    @staticmethod
    def _without_common(a: Size, b: Size) -> tuple[Size, Size]:
        """a and b without the symbols that both have: those say nothing in an equation."""
        left, right = list(a.symbols), []
        for symbol in b.symbols:
            if symbol in left:
                left.remove(symbol)
            else:
                right.append(symbol)
        return Size(a.factor, tuple(left)), Size(b.factor, tuple(right))

    def equate(self, a: Size, b: Size) -> bool:
        """Record that a and b are the same number; False where that cannot be recorded."""
        a, b = self._without_common(self.resolve(a), self.resolve(b))
        if a == b:
            return True
        # The younger symbol is expressed by the older one, whose value dominates more code.
        for x, y in sorted(((a, b), (b, a)), key=lambda pair: max(pair[0].symbols, default=-1),
                           reverse=True):  # fmt: skip
            if len(x.symbols) == 1:
                rest = quotient(y, Size(x.factor))
                if rest is not None:
                    self._symbols[x.symbols[0]].bound = rest
                    return True
        return False

    def assume(self, a: Size, b: Size) -> bool:
        """Like `equate`, but also for products: `batch * heads` of two tensors are taken to be
        equal factor by factor, same dimensions first. `assumed` records each such pair.

        Only dimensions of arguments are: each call checks those that a nest reads together.
        """
        a, b = self.resolve(a), self.resolve(b)
        a, b = self._without_common(a, b)
        if not (self.of_arguments(a) and self.of_arguments(b)):
            return False
        if a == b or len(a.symbols) == len(b.symbols) == 1:
            self._note(a, b)
            return self.equate(a, b)
        if a.factor != b.factor or len(a.symbols) != len(b.symbols):
            return self.equate(a, b)
        for pair in zip(*(sorted(x.symbols, key=self._place) for x in (a, b)), strict=True):
            x, y = (Size(1, (s,)) for s in pair)
            self._note(x, y)
            self.equate(x, y)
        return True

    def of_arguments(self, size: Size) -> bool:
        """Is it made of dimensions of arguments, so that a call can check it?"""
        owners = [self._symbols[s].value.owner for s in self.resolve(size).symbols]
        return all(
            not isinstance(owner, ir.Block)
            and owner.name == "tensor.dim"
            and isinstance(owner.operands[0], ir.BlockArgument)
            for owner in owners
        )

    def _place(self, symbol: int) -> tuple[int, int]:
        dim = self._symbols[symbol].dim
        return (-1 if dim is None else dim, symbol)

    def _note(self, a: Size, b: Size) -> None:
        if a != b:
            x, y = (self._symbols[size.symbols[0]].value for size in (a, b))
            self.assumed.append((x, y))

    def not_negative(self, size: Size) -> bool:
        return size.factor >= 0 and all(self._symbols[s].dim is not None for s in size.symbols)

    # ---- reading scalar code ---------------------------------------------------------------

    def of(self, value: Any) -> Size:
        """The size that an integer or index SSA value is."""
        if value not in self._known:
            found = self._fold(value)
            self._known[value] = self.symbol(value) if found is None else found
        return self.resolve(self._known[value])

    def set(self, value: Any, size: Size) -> None:
        self._known[value] = size

    def _fold(self, value: Any) -> Size | None:
        owner = value.owner
        if isinstance(owner, ir.Block):
            return None
        name, operands = owner.name, list(owner.operands)
        if name == "arith.constant":
            attr = owner.attributes["value"]
            return Size(int(attr.value)) if isinstance(attr, ir.IntegerAttr) else None
        if name in _CASTS:
            if str(operands[0].type) == "i1":
                truth = self.truth(operands[0])
                return None if truth is None or name == "arith.extsi" else Size(int(truth))
            return self.of(operands[0])
        if name == "tensor.dim":
            dim = self.of(operands[1]).static
            return None if dim is None else self._dimension(operands[0], dim)
        if name == "arith.muli":
            return times(self.of(operands[0]), self.of(operands[1]))
        if name in _EXACT_DIVISIONS:
            return self.divide(self.of(operands[0]), self.of(operands[1]))
        if name in ("arith.addi", "arith.subi"):
            a, b = self.of(operands[0]), self.of(operands[1])
            if a.symbols == b.symbols:
                sign = 1 if name == "arith.addi" else -1
                total = a.factor + sign * b.factor
                return Size(total, a.symbols if total else ())
            return a if b == Size(0) else b if a == Size(0) and name == "arith.addi" else None
        if name in ("arith.maxsi", "arith.minsi"):
            a, b = self.of(operands[0]), self.of(operands[1])
            pick = max if name == "arith.maxsi" else min
            if a == b:
                return a
            return Size(pick(a.factor, b.factor)) if not a.symbols + b.symbols else None
        if name == "arith.select":
            truth = self.truth(operands[0])
            if truth is not None:
                return self.of(operands[1] if truth else operands[2])
            a, b = self.of(operands[1]), self.of(operands[2])
            return a if a == b else None
        if name == "affine.apply":
            return self._apply(owner.attributes["map"].value, operands)
        return None

    def _apply(self, affine_map: Any, operands: list[Any]) -> Size | None:
        def size(expr: Any) -> Size | None:
            if isinstance(expr, ir.AffineConstantExpr):
                return Size(ir.AffineConstantExpr(expr).value)
            if isinstance(expr, ir.AffineDimExpr):
                return self.of(operands[ir.AffineDimExpr(expr).position])
            if isinstance(expr, ir.AffineSymbolExpr):
                return self.of(operands[affine_map.n_dims + ir.AffineSymbolExpr(expr).position])
            binary = ir.AffineBinaryExpr(expr)
            a, b = size(binary.lhs), size(binary.rhs)
            if a is None or b is None:
                return None
            if isinstance(expr, ir.AffineMulExpr):
                return times(a, b)
            if isinstance(expr, ir.AffineFloorDivExpr | ir.AffineCeilDivExpr):
                return self.divide(a, b)
            if isinstance(expr, ir.AffineAddExpr) and a.symbols == b.symbols:
                return Size(a.factor + b.factor, a.symbols)
            return None

        return size(affine_map.results[0])

    def truth(self, value: Any) -> bool | None:
        """Whether an i1 SSA value is known to be true or false."""
        if value not in self._truths:
            self._truths[value] = self._decide(value)
        return self._truths[value]

    def _decide(self, value: Any) -> bool | None:
        owner = value.owner
        if isinstance(owner, ir.Block):
            return None
        name, operands = owner.name, list(owner.operands)
        if name == "arith.constant":
            return bool(owner.attributes["value"].value)
        if name in ("arith.andi", "arith.ori"):
            absorbing = name == "arith.ori"
            sides = [self.truth(v) for v in operands]
            if absorbing in sides:
                return absorbing
            return None if None in sides else not absorbing
        if name == "arith.cmpi":
            code = owner.attributes["predicate"].value
            a, b = self.of(operands[0]), self.of(operands[1])
            if a == b:
                return _COMPARE[code](0, 0)
            if not a.symbols and not b.symbols:
                return _COMPARE[code](a.factor, b.factor)
            if self.not_negative(a) and b.static is not None and b.factor <= 0:
                if code == 5 or (code == 4 and b.factor < 0):
                    return True
                if code == 2 or (code == 3 and b.factor < 0) or (code == 0 and b.factor < 0):
                    return False
        return None

    def assert_equal(self, value: Any) -> bool:
        """Take `cf.assert value` as a fact; True where it then needs no check of its own."""
        truth = self.truth(value)
        if truth is not None:
            return truth
        owner = value.owner
        if isinstance(owner, ir.Block):
            return False
        if owner.name == "arith.andi":
            return all([self.assert_equal(v) for v in owner.operands])
        if owner.name == "arith.cmpi" and owner.attributes["predicate"].value == 0:
            a, b = (self.of(v) for v in owner.operands)
            if self.not_negative(a) or self.not_negative(b):  # then so is what equals it
                return self.equate(a, b) and self.not_negative(a) and self.not_negative(b)
        return False

    # ---- writing ---------------------------------------------------------------------------

    def emit(self, size: Size) -> Any:
        """`size` as an index SSA value at the insertion point."""
        size = self.resolve(size)
        index = ir.IndexType.get()
        value = None
        for s in size.symbols:
            scalar = self._symbols[s].value
            if scalar.type != index:
                scalar = arith.IndexCastOp(index, scalar).result
            value = scalar if value is None else arith.MulIOp(value, scalar).result
        if value is None or size.factor != 1:
            constant = arith.ConstantOp(index, ir.IntegerAttr.get(index, size.factor)).result
            value = constant if value is None else arith.MulIOp(value, constant).result
        return value
