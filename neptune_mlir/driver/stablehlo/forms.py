# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of StableHLO without a conversion to linalg, as others that have one.

    scatter             one update for each point of the batch: a choice by position (the gradient
                        of `take_along_axis`, so of a cross-entropy); others: `tm_tensor.scatter`
    sort, top_k         `tm_tensor.sort`
    select_and_scatter  each place of a window as a strided slice: the windows that chose it
    reduce              of tensors without elements: its first values
    optimization_barrier  what it is given (`jax.checkpoint`): what is computed again is fused here

What none of these describes stays, and is refused by its name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neptune_mlir.driver.stablehlo.bodies import (
    NoForm,
    element_of,
    made,
    negated,
    of_numbers,
    of_tensors,
    shape_of,
    spread,
)
from neptune_mlir.driver.stablehlo.ops import (
    as_before,
    as_signless,
    compared,
    fill_region,
    filled,
    integer,
    pad,
    positions,
    select_of,
    slice_of,
)
from neptune_mlir.driver.stablehlo.scatter import scatter
from neptune_mlir.ir.bindings import arith, ir

WINDOW = 64  # places of a window that are written out


def rewrite(op: Any) -> bool:
    """Put another form in place of an op; False where it stays."""
    form = _FORMS.get(op.name)
    if form is None:  # (also of ops on numbers)
        return False
    dynamic = any(not ir.ShapedType(v.type).has_static_shape for v in op.operands)
    if dynamic and op.name not in _OF_ANY_SHAPE:
        return False
    with ir.InsertionPoint(op), op.location:
        try:
            results = form(op)
        except NoForm:
            return False
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
    return True


# ---- sorts ---------------------------------------------------------------------------------------


def _sort(op: Any) -> Sequence[Any]:
    body = op.regions[0].blocks[0]

    def in_order(*pairs: Any) -> Any:
        """Whether the second of two is not to come before the first: equal ones stay in order."""
        turned = [pairs[k ^ 1] for k in range(len(pairs))]
        return negated(of_numbers(body, turned))

    results = _sorted(list(op.operands), op.attributes["dimension"].value, in_order)
    return [as_before(r, old) for r, old in zip(results, op.operands, strict=True)]


def _sorted(tensors: Sequence[Any], dim: int, in_order: Callable[..., Any]) -> list[Any]:
    plain = [as_signless(t) for t in tensors]
    op = ir.Operation.create(
        "tm_tensor.sort", results=[t.type for t in plain], operands=plain,
        attributes={
            "dimension": ir.IntegerAttr.get(integer(64), dim),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, len(plain)]),
        },
        regions=1,
    )  # fmt: skip
    kinds = [element_of(t) for t in plain for _ in range(2)]
    fill_region(op, kinds, in_order)
    return list(op.results)


def _top_k(op: Any) -> Sequence[Any]:
    (x,), k = op.operands, op.attributes["k"].value
    shape = shape_of(x)
    is_float = isinstance(element_of(x), ir.FloatType)
    if not is_float and element_of(x).is_unsigned:
        raise NoForm("an order of numbers without a sign")

    def in_order(a: Any, b: Any, *_: Any) -> Any:
        if is_float:  # what is after it in the program puts NaN before all numbers
            return arith.cmpf(arith.CmpFPredicate.OGE, a, b)
        return arith.cmpi(arith.CmpIPredicate.sge, a, b)

    last = len(shape) - 1
    places = positions(shape, last, integer(32))
    values, found = _sorted([x, places], last, in_order)
    end = [*shape[:last], k]
    start = [0] * len(shape)
    return [slice_of(as_before(values, x), start, end), slice_of(found, start, end)]


# ---- tensors without elements --------------------------------------------------------------------


def _reduce(op: Any) -> Sequence[Any]:
    """Of nothing, for no result, or along no dimension."""
    tensors, first = op.operands[: len(op.results)], op.operands[len(op.results) :]
    if not list(op.attributes["dimensions"]):
        return list(tensors)  # (what it begins with is neutral)
    if 0 not in shape_of(tensors[0]):
        raise NoForm("a reduction of elements, which has a conversion")
    return [spread(x, shape_of(r), []) for x, r in zip(first, op.results, strict=True)]


# ---- windows -------------------------------------------------------------------------------------


def _select_and_scatter(op: Any) -> Sequence[Any]:
    operand, source, first = op.operands
    select, joined = (region.blocks[0] for region in op.regions)
    if [o.operation.name for o in joined.operations] != ["stablehlo.add", "stablehlo.return"]:
        raise NoForm("what windows are joined by")
    shape, counts = shape_of(operand), shape_of(source)
    rank = len(shape)
    sizes = _listed(op, "window_dimensions", [1] * rank)
    steps = _listed(op, "window_strides", [1] * rank)
    padding = [0] * (2 * rank)
    if "padding" in op.attributes:
        padding = [int(n) for n in ir.DenseIntElementsAttr(op.attributes["padding"])]
    low, high = padding[::2], padding[1::2]
    if math.prod(sizes) > WINDOW or min(padding, default=0) < 0:
        raise NoForm("a large window")
    padded = [n + a + b for n, a, b in zip(shape, low, high, strict=True)]
    none = [0] * rank
    x, real = operand, None
    if any(padding):
        x = pad(operand, low, high, none)
        real = pad(filled(shape, integer(1), 1), low, high, none)
    offsets = list(itertools.product(*map(range, sizes)))

    def at(value: Any, offset: Sequence[int]) -> Any:
        end = [o + (n - 1) * s + 1 for o, n, s in zip(offset, counts, steps, strict=True)]
        return slice_of(value, offset, end, steps)

    chosen = _chosen(select, offsets, counts, x, real, at)
    element = element_of(operand)
    total = spread(first, padded, [])
    for k, offset in enumerate(offsets):
        mine = compared("EQ", chosen, filled(counts, integer(32), k))
        part = select_of(mine, source, filled(counts, element, 0))
        behind = [p - (n - 1) * s - 1 - o for p, n, s, o in
                  zip(padded, counts, steps, offset, strict=True)]  # fmt: skip
        part = pad(part, offset, behind, [s - 1 for s in steps])
        total = of_tensors(joined, [total, part], padded)
    return [slice_of(total, low, [a + n for a, n in zip(low, shape, strict=True)])]


def _chosen(
    select: Any, offsets: Sequence[Sequence[int]], counts: Sequence[int], x: Any, real: Any,
    at: Callable[..., Any],
) -> Any:  # fmt: skip
    """Of each window the number of the place that is chosen; -1 where none of it is real."""
    kind, truth = integer(32), integer(1)
    best = at(x, offsets[0])
    chosen = filled(counts, kind, 0)
    found = None
    if real is not None:
        found = at(real, offsets[0])
        chosen = select_of(found, chosen, filled(counts, kind, -1))
    for k, offset in enumerate(offsets[1:], 1):
        other = at(x, offset)
        kept = of_tensors(select, [best, other], counts)
        if real is not None:
            there = at(real, offset)
            kept = made("and", [kept, found], counts, truth)
            kept = made("or", [kept, made("not", [there], counts, truth)], counts, truth)
            found = made("or", [found, there], counts, truth)
        best = select_of(kept, best, other)
        chosen = select_of(kept, chosen, filled(counts, kind, k))
    return chosen


def _listed(op: Any, name: str, default: list[int]) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else default


_FORMS: Mapping[str, Callable[[Any], Sequence[Any]]] = {
    "stablehlo.scatter": scatter, "stablehlo.sort": _sort, "chlo.top_k": _top_k,
    "stablehlo.reduce": _reduce,
    "stablehlo.select_and_scatter": _select_and_scatter,
    "stablehlo.optimization_barrier": lambda op: list(op.operands),
}  # fmt: skip
_OF_ANY_SHAPE = {"stablehlo.sort", "stablehlo.optimization_barrier"}  # whatever calls know
