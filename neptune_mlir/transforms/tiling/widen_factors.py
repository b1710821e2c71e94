# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `widen-factors`: tiles in 8 bits become the floats that a product multiplies, once a tile.

    %o = linalg.generic ... ins(%q, %k : tensor<16x64xf16>, tensor<32x64xi8>) {
      %a = arith.extf %q_ : f16 to f32
      %b = arith.sitofp %k_ : i8 to f16
      %c = arith.extf %b : f16 to f32 ...

becomes a tile op that makes `tensor<32x64xf16>` of `%k`, and a product of two tiles of f16: one
that matrix instructions have. In the body each number would be converted for each row.

A factor that a product rounds to 8 bits is rounded once a tile, too. With `products`, factors of
e4m3 that meet each other stay: a chip multiplies them.
"""

from __future__ import annotations

import functools
from typing import Any

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.analysis.tiles import chooses_loops, element_of, reduction_of, rounding_of
from neptune_mlir.analysis.tiles import read_generic as read
from neptune_mlir.dialects.attributes import CHIP, LOOSE, NARROWS, WIDENS
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.elementwise import elementwise

_BYTES = ("i8", FLOAT8)
_CASTS = ("arith.sitofp", "arith.extf", "arith.extsi")


@register("widen-factors", "convert 8-bit factors of products once a tile, in front of the product")
def widen_factors(module: Any, *, products: bool = False) -> None:
    """
    Args:
        products: whether factors of e4m3 are multiplied as they are, where both of a product are.
    """
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "linalg.generic" and any(element_of(v) in _BYTES for v in op.operands):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        _round(op)
        factors = _factors(op)
        if products and all(k in factors and element_of(op.operands[k]) == FLOAT8 for k in (0, 1)):
            continue
        for k, value in enumerate(list(op.operands)[:-1]):
            if element_of(value) in _BYTES and k in factors:
                _widen(op, k, factors[k], CHIP.on(module.operation))


def _factors(op: Any) -> dict[int, list[Any]]:
    """Of each input of a sum of products, or of an elementwise op that does more, the casts that
    it goes through, inside out."""
    try:
        g = read(op)
    except LoweringError:  # no tile op
        return {}
    end = g.block.operations[len(g.block.operations) - 1].operation
    values = [v for inner in g.block.operations for v in inner.operation.operands]
    if g.reduced:
        combine = reduction_of(g)
        product = defining_op(combine[1]) if combine and combine[0] == "arith.addf" else None
        if product is None or product.name != "arith.mulf":
            return {}
        values = list(product.operands)
    arguments, found = list(g.block.arguments), {}
    for value in values:
        casts: list[Any] = []
        alone = value != end.operands[0]
        while (cast := defining_op(value)) is not None and cast.name in _CASTS:
            casts.insert(0, cast)
            value = cast.operands[0]
        if value in arguments[:-1] and alone and casts and sum(1 for _ in value.uses) == 1:
            found.setdefault(arguments.index(value), casts)
    return found


def _widen(op: Any, k: int, casts: list[Any], narrow_floats: bool) -> None:
    """Have input k as what the first casts to a float of 16 bits or more make of it; e4m3 as f16,
    which has all its numbers, where matrix instructions may take that (`narrow_floats`)."""
    count = next(
        (n for n, cast in enumerate(casts, 1) if isinstance(cast.results[0].type, ir.FloatType)), 0
    )
    if not count:
        return
    if narrow_floats and count == 1 and element_of(op.operands[k]) == FLOAT8:
        _through_f16(casts)
    value, argument = op.operands[k], op.regions[0].blocks[0].arguments[k]
    first, last = casts[0], casts[count - 1]
    kind, narrow = last.results[0].type, argument.type

    def widened(wide: Any) -> Any:
        for cast in casts[:count]:
            copy = cast.clone()
            copy.operands[0] = wide
            wide = copy.results[0]
        return wide

    with ir.InsertionPoint(op), op.location:
        made = elementwise(value, kind, widened)
    WIDENS.set(defining_op(made), str(narrow))
    op.operands[k] = made
    assert first.operands[0] == argument
    argument.set_type(kind)
    last.results[0].replace_all_uses_with(argument)
    for cast in reversed(casts[:count]):
        cast.erase()


def _through_f16(casts: list[Any]) -> None:
    """Have the first of some casts, of e4m3 to f32, as one to f16 and one from there."""
    first = casts[0]
    if str(first.results[0].type) != "f32":
        return
    with ir.InsertionPoint(first), first.location:
        half = arith.ExtFOp(ir.F16Type.get(), first.operands[0])
    first.operands[0] = half.result
    casts.insert(0, half.operation)


def _rounded(like: Any, value: Any) -> Any:
    copy = like.clone()
    copy.operands[0] = value
    return copy.results[0]


def _round(op: Any) -> None:
    """Have inputs of a product that its body rounds to e4m3 rounded before it."""
    if len(op.operands) != 3 or not chooses_loops(op) or reduction_of(read(op)) is None:
        return
    for k in (0, 1):
        argument = op.regions[0].blocks[0].arguments[k]
        if rounding_of(read(op), k) != FLOAT8 or sum(1 for _ in argument.uses) != 1:
            continue
        (use,) = argument.uses
        rounding = use.owner.operation
        kind = rounding.results[0].type
        with ir.InsertionPoint(op), op.location:
            made = elementwise(op.operands[k], kind, functools.partial(_rounded, rounding))
        if LOOSE.on(rounding):  # as chips' conversions are
            NARROWS.set(defining_op(made), FLOAT8)
        op.operands[k] = made
        argument.set_type(kind)
        rounding.results[0].replace_all_uses_with(argument)
        rounding.erase()
