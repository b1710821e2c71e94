# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small ops of StableHLO, made at the insertion point."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.driver.stablehlo.bodies import NoForm, element_of, made, shape_of, signless
from neptune_mlir.ir.bindings import ir


def filled(shape: Sequence[int], element: Any, number: float) -> Any:
    kind = ir.RankedTensorType.get(list(shape), element)
    made_of = ir.FloatAttr if isinstance(element, ir.FloatType) else ir.IntegerAttr
    value = made_of.get(element, number if made_of is ir.FloatAttr else int(number))
    held = ir.DenseElementsAttr.get_splat(kind, value)
    return made("constant", [], shape, element, value=held)


def integer(bits: int) -> Any:
    return ir.IntegerType.get_signless(bits)


def positions(shape: Sequence[int], dim: int, element: Any) -> Any:
    attribute = ir.IntegerAttr.get(integer(64), dim)
    return made("iota", [], shape, element, iota_dimension=attribute)


def compared(direction: str, a: Any, b: Any) -> Any:
    attribute = ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>")
    return made("compare", [a, b], shape_of(a), integer(1), comparison_direction=attribute)


def conjunction(conditions: Sequence[Any]) -> Any:
    return functools.reduce(lambda a, b: made("and", [a, b], shape_of(a), integer(1)), conditions)


def select_of(condition: Any, a: Any, b: Any) -> Any:
    return made("select", [condition, a, b], shape_of(a), element_of(a))


def reshape(value: Any, shape: Sequence[int]) -> Any:
    if shape_of(value) == list(shape):
        return value
    return made("reshape", [value], shape, element_of(value))


def transpose(value: Any, order: Sequence[int]) -> Any:
    if list(order) == list(range(len(order))):
        return value
    shape = shape_of(value)
    attribute = ir.DenseI64ArrayAttr.get(list(order))
    return made(
        "transpose", [value], [shape[k] for k in order], element_of(value), permutation=attribute
    )  # fmt: skip


def slice_of(
    value: Any, start: Sequence[int], end: Sequence[int], step: Sequence[int] | None = None
) -> Any:  # fmt: skip
    step = [1] * len(start) if step is None else list(step)
    shape = [-(-(b - a) // s) for a, b, s in zip(start, end, step, strict=True)]
    given = {"start_indices": start, "limit_indices": end, "strides": step}
    attributes = {name: ir.DenseI64ArrayAttr.get(list(v)) for name, v in given.items()}
    return made("slice", [value], shape, element_of(value), **attributes)


def pad(
    value: Any, low: Sequence[int], high: Sequence[int], inner: Sequence[int], number: float = 0
) -> Any:  # fmt: skip
    shape = [
        a + b + n + max(n - 1, 0) * i
        for n, a, b, i in zip(shape_of(value), low, high, inner, strict=True)
    ]
    given = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}
    attributes = {name: ir.DenseI64ArrayAttr.get(list(v)) for name, v in given.items()}
    filler = filled([], element_of(value), number)
    return made("pad", [value, filler], shape, element_of(value), **attributes)


def as_signless(value: Any) -> Any:
    """A tensor of numbers that `arith` takes."""
    element = signless(element_of(value))
    if element == element_of(value):
        return value
    return made("bitcast_convert", [value], shape_of(value), element)


def as_before(value: Any, old: Any) -> Any:
    if element_of(value) == element_of(old):
        return value
    return made("bitcast_convert", [value], shape_of(value), element_of(old))


def fill_region(op: Any, kinds: Sequence[Any], body: Callable[..., Any]) -> None:
    """Give an op of `tm_tensor` its body; NoForm where that has none, and no op then."""
    try:
        block = op.regions[0].blocks.append(*kinds)
        with ir.InsertionPoint(block):
            ir.Operation.create("tm_tensor.yield", operands=[body(*block.arguments)])
    except NoForm:
        op.erase()
        raise
