# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `hold-references`: a running maximum stays where it is until it would move far (sm_90a).

    m1 = max(m, rowmax x)                  m1 = max(m, rowmax x)
    p  = exp(x - m1)             ->        h  = where(m1 > m + FAR, m1, m)
    c  = exp(m - m1)                       p  = exp(x - h),  c = exp(m - h)
    acc = acc * c + p V                    acc = acc * c + p V, unless all c of a warp are 1

A free reference (`free-references`) may be any number that keeps the weights in range: here they
are at most e^FAR. After the first tiles of a stream it hardly moves any more, and accumulators are
left alone (`neptune.skips_ones`). Nothing is tried in vain, and nothing is decided by a warp but
whether to multiply by 1. So this is for loops that `keep-references` leaves: of more than two
products, or of rows that several groups share.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import foralls, nested, read_generic, shape_of
from neptune_mlir.dialects.attributes import FREE
from neptune_mlir.dialects.gpu_attributes import (
    CONSUMERS,
    ITERATION,
    KEEPS,
    LAYOUT,
    SKIPS_ONES,
    VIA,
)
from neptune_mlir.ir.bindings import arith, ir, linalg
from neptune_mlir.transforms.gpu.keep_references import exponent_of
from neptune_mlir.transforms.gpu.streams import is_product, multiplies
from neptune_mlir.transforms.registry import register

FAR = 4.0  # weights are at most e^4: 55


@register("hold-references", "leave running maxima where they are until they move far")
def hold_references(module: Any) -> None:
    for forall in foralls(module):
        if not CONSUMERS.on(forall):
            continue
        for loop in nested(forall.regions[0].blocks[0]):
            if loop.name == "scf.for" and not KEEPS.on(loop):
                with module.context, loop.location:
                    _hold(loop)


def _hold(loop: Any) -> None:
    """Hold the reference of one loop, if it has one that is free and read by exponentials alone."""
    body = loop.regions[0].blocks[0]
    *inner, end = [op.operation for op in body.operations]
    free = [op for op in inner if FREE.on(op)]
    shared = any(op.name == "linalg.copy" for op in inner)
    if len(free) != 1 or not (shared or sum(map(is_product, inner)) > 2):
        return
    (moved,) = free
    new, old = moved.results[0], read_generic(moved).init
    readers = [use.owner.operation for use in new.uses]
    exponentials = [op for op in readers if op != end]
    if old not in list(body.arguments) or end not in readers or not all(
        op.name == "linalg.generic" and exponent_of(op) is not None for op in exponentials
    ):  # fmt: skip
        return
    factors = [op for op in exponentials if old in list(op.operands)]
    if len(factors) != 1:
        return
    uses = list(new.uses)
    with ir.InsertionPoint(inner[inner.index(moved) + 1]):
        held = _held(moved, factors[0], old)
    for use in uses:
        use.owner.operation.operands[use.operand_number] = held
    handed = {factors[0].results[0]}
    for op in inner:
        if op.name == "linalg.generic" and len(shape_of(op.results[0])) > 1:
            if len(list(op.operands)) == 3 and multiplies(op, set(body.arguments), handed):
                SKIPS_ONES.set(op)


def _held(moved: Any, like: Any, old: Any) -> Any:
    """The op that chooses, laid out as another one on the same rows."""
    new = moved.results[0]
    g = read_generic(like)
    out = list(like.operands)[-1]
    identity = ir.AffineMap.get_identity(len(g.extents))
    maps = ir.ArrayAttr.get([ir.AffineMapAttr.get(identity)] * 3)
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    kinds = ir.ArrayAttr.get([parallel] * len(g.extents))
    op = linalg.GenericOp([new.type], [new, old], [out], maps, kinds)
    element = ir.F32Type.get()
    block = op.regions[0].blocks.append(element, element, element)
    with ir.InsertionPoint(block):
        far = arith.constant(element, FAR)
        limit = arith.AddFOp(block.arguments[1], far).result
        more = arith.CmpFOp(arith.CmpFPredicate.OGT, block.arguments[0], limit).result
        linalg.YieldOp([arith.SelectOp(more, *list(block.arguments)[:2]).result])
    ITERATION.set(op.operation, ITERATION.of(like))
    LAYOUT.set(op.operation, LAYOUT.of(like))
    VIA.set(op.operation, VIA.of(like))
    return op.results[0]
