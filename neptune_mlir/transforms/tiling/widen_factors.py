# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `widen-factors`: tiles in 8 bits become the floats that a product multiplies, once a tile.

    %o = linalg.generic ... ins(%q, %k : tensor<16x64xf16>, tensor<32x64xi8>) {
      %a = arith.extf %q_ : f16 to f32
      %b = arith.sitofp %k_ : i8 to f16
      %c = arith.extf %b : f16 to f32 ...

becomes a tile op that makes `tensor<32x64xf16>` of `%k`, and a product of two tiles of f16: one
that matrix instructions have. In the body each number would be converted for each row.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.analysis.tiles import element_of, owner, reduction_of, shape_of
from neptune_mlir.analysis.tiles import read_generic as read
from neptune_mlir.dialects.attributes import WIDENS
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, linalg, tensor
from neptune_mlir.transforms.registry import register

_BYTES = ("i8", FLOAT8)
_CASTS = ("arith.sitofp", "arith.extf", "arith.extsi")


@register("widen-factors", "convert 8-bit factors of products once a tile, in front of the product")
def widen_factors(module: Any) -> None:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "linalg.generic" and any(element_of(v) in _BYTES for v in op.operands):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        factors = _factors(op)
        for k, value in enumerate(list(op.operands)[:-1]):
            if element_of(value) in _BYTES and k in factors:
                _widen(op, k, factors[k])


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
        product = owner(combine[1]) if combine and combine[0] == "arith.addf" else None
        if product is None or product.name != "arith.mulf":
            return {}
        values = list(product.operands)
    arguments, found = list(g.block.arguments), {}
    for value in values:
        casts: list[Any] = []
        alone = value != end.operands[0]
        while (cast := owner(value)) is not None and cast.name in _CASTS:
            casts.insert(0, cast)
            value = cast.operands[0]
        if value in arguments[:-1] and alone and casts and sum(1 for _ in value.uses) == 1:
            found.setdefault(arguments.index(value), casts)
    return found


def _widen(op: Any, k: int, casts: list[Any]) -> None:
    """Have input k as what the first casts to a float of 16 bits or more make of it."""
    count = next(
        (n for n, cast in enumerate(casts, 1) if isinstance(cast.results[0].type, ir.FloatType)), 0
    )
    if not count:
        return
    value, argument = op.operands[k], op.regions[0].blocks[0].arguments[k]
    first, last = casts[0], casts[count - 1]
    kind = last.results[0].type
    narrow, rank = argument.type, len(shape_of(value))
    with ir.InsertionPoint(op), op.location:
        empty = tensor.empty(shape_of(value), kind)
        identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
        parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
        made = linalg.GenericOp(
            [empty.type], [value], [empty], ir.ArrayAttr.get([identity, identity]),
            ir.ArrayAttr.get([parallel] * rank),
        )  # fmt: skip
        here = made.regions[0].blocks.append(narrow, kind, arg_locs=[ir.Location.current] * 2)
        with ir.InsertionPoint(here):
            wide = here.arguments[0]
            for cast in casts[:count]:
                copy = cast.clone()
                copy.operands[0] = wide
                wide = copy.results[0]
            linalg.YieldOp([wide])
        WIDENS.set(made.operation, str(narrow))
    op.operands[k] = made.results[0]
    assert first.operands[0] == argument
    argument.set_type(kind)
    last.results[0].replace_all_uses_with(argument)
    for cast in reversed(casts[:count]):
        cast.erase()
