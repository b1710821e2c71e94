# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Index arithmetic for `lower-to-tiles`: on Python ints now, on index values by affine ops.

An `Index` is an int or an index value. Every function folds when all its operands are ints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from neptune_mlir.ir.bindings import affine, arith, ir

Index = Any  # int | ir.Value of index type


def is_static(index: Index) -> bool:
    return isinstance(index, int)


def value(index: Index) -> Any:
    """The index as an SSA value."""
    return arith.ConstantOp(ir.IndexType.get(), index).result if is_static(index) else index


def _affine(
    op: Callable[..., Any], operands: Iterable[Index], build: Callable[..., list[Any]]
) -> Any:
    """One affine op over `operands`; ints become constants of its map."""
    operands = list(operands)
    dims = [o for o in operands if not is_static(o)]
    positions = iter(range(len(dims)))
    exprs = [
        ir.AffineExpr.get_constant(o) if is_static(o) else ir.AffineExpr.get_dim(next(positions))
        for o in operands
    ]
    return op(ir.AffineMap.get(len(dims), 0, build(*exprs)), dims)


def _apply(operands: Iterable[Index], build: Callable[..., Any]) -> Any:
    return _affine(affine.apply, operands, lambda *exprs: [build(*exprs)])


def add(a: Index, b: Index) -> Index:
    if is_static(a) and is_static(b):
        return a + b
    return _apply([a, b], lambda x, y: x + y)


def sub(a: Index, b: Index) -> Index:
    if is_static(a) and is_static(b):
        return a - b
    return _apply([a, b], lambda x, y: x + y * -1)


def scale(a: Index, factor: int) -> Index:
    if is_static(a) or factor == 1:
        return a * factor if is_static(a) else a
    return _apply([a], lambda x: x * factor)


def mul(a: Index, b: Index) -> Index:
    """The product of two indices."""
    if is_static(a):
        return scale(b, a)
    if is_static(b):
        return scale(a, b)
    return arith.MulIOp(a, b).result


def floordiv(a: Index, divisor: Index) -> Index:
    """Quotient, rounded down; by a run-time `divisor` of an `a` that is not negative."""
    if not is_static(divisor):
        return arith.DivUIOp(value(a), divisor).result
    if is_static(a) or divisor == 1:
        return a // divisor if is_static(a) else a
    return _apply([a], lambda x: ir.AffineExpr.get_floor_div(x, divisor))


def mod(a: Index, modulus: int) -> Index:
    """Remainder of an `a` that is not negative."""
    if is_static(a) or modulus == 1:
        return a % modulus if is_static(a) else 0
    return _apply([a], lambda x: ir.AffineExpr.get_mod(x, modulus))


def ceildiv(a: Index, divisor: int) -> Index:
    if is_static(a) or divisor == 1:
        return -(-a // divisor) if is_static(a) else a
    return _apply([a], lambda x: ir.AffineExpr.get_ceil_div(x, divisor))


def round_down(a: Index, multiple: int) -> Index:
    return scale(floordiv(a, multiple), multiple)


def round_up(a: Index, multiple: int) -> Index:
    return scale(ceildiv(a, multiple), multiple)


def where_less(a: Index, b: Index, yes: Index, no: Index) -> Index:
    """`yes` where a < b, else `no`."""
    if is_static(a) and is_static(b):
        return yes if a < b else no
    less = arith.CmpIOp(arith.CmpIPredicate.slt, value(a), value(b)).result
    return arith.SelectOp(less, value(yes), value(no)).result


def minimum(*operands: Index) -> Index:
    return _extremum(affine.min, min, operands)


def maximum(*operands: Index) -> Index:
    return _extremum(affine.max, max, operands)


def _extremum(op: Callable[..., Any], fold: Callable[..., int], operands: Iterable[Index]) -> Index:
    constants = [o for o in operands if is_static(o)]
    known = [fold(constants)] if constants else []
    unknown = list(dict.fromkeys(o for o in operands if not is_static(o)))
    rest = unknown + known
    return rest[0] if len(rest) == 1 else _affine(op, rest, lambda *exprs: list(exprs))


def most(a: Index) -> int | None:
    """A number that the index never exceeds, if its minimum or maximum names one."""
    if is_static(a):
        return int(a)
    op = None if isinstance(a.owner, ir.Block) else a.owner.operation
    if op is None or op.name not in ("affine.min", "affine.max"):
        return None
    attribute = op.attributes["map"].value
    limits = []
    for expression in attribute.results:
        if isinstance(expression, ir.AffineConstantExpr):
            limits.append(ir.AffineConstantExpr(expression).value)
        elif isinstance(expression, ir.AffineDimExpr):
            limits.append(most(op.operands[ir.AffineDimExpr(expression).position]))
        else:
            limits.append(None)
    known = [limit for limit in limits if limit is not None]
    if op.name == "affine.max":
        return max(known) if len(known) == len(limits) else None
    return min(known, default=None)


def weighted_sum(parts: Iterable[tuple[Index, int]], constant: int) -> Index:
    """`sum of factor * index, plus constant`."""
    parts = list(parts)
    constant += sum(i * c for i, c in parts if is_static(i))
    unknown = [(i, c) for i, c in parts if not is_static(i)]
    if not unknown:
        return constant
    factors = [c for _, c in unknown]

    def build(*dims: Any) -> Any:
        total = ir.AffineExpr.get_constant(constant)
        for dim, c in zip(dims, factors, strict=True):
            total = total + dim * c
        return total

    return _apply([i for i, _ in unknown], build)
