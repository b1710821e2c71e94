# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers that StableHLO computes of constants alone: places of slices in steps that are written
out. What reads at such a place is found where it is a number from the start.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from neptune_mlir.ir.bindings import ir

_OPS: dict[str, Callable[..., int]] = {
    "stablehlo.add": operator.add, "stablehlo.subtract": operator.sub,
    "stablehlo.multiply": operator.mul, "stablehlo.minimum": min, "stablehlo.maximum": max,
    "stablehlo.convert": lambda x: x,
}  # fmt: skip


def fold(function: Any) -> bool:
    """Whether the body of a function had such; its regions stay as they are."""
    changed = False
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        compute = _OPS.get(op.name)
        given = [number_of(value) for value in op.operands] if compute else [None]
        if compute is None or None in given or not _is_number(op.results[0].type):
            continue
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(constant(op.results[0].type, compute(*given)))
        op.erase()
        changed = True
    return changed


def _is_number(kind: Any) -> bool:
    """Whether a type is of one integer with a sign."""
    element = ir.RankedTensorType(kind).element_type
    known = isinstance(element, ir.IntegerType) and element.is_signless and element.width > 1
    return known and not list(ir.RankedTensorType(kind).shape)


def number_of(value: Any) -> int | None:
    """What a constant of one integer is; None for what is none."""
    if isinstance(value.owner, ir.Block) or not isinstance(value.type, ir.RankedTensorType):
        return None
    op, kind = value.owner.operation, value.type
    if op.name != "stablehlo.constant" or list(kind.shape):
        return None
    held = op.attributes["value"]
    return int(held[0]) if isinstance(kind.element_type, ir.IntegerType) else None


def constant(kind: Any, value: int) -> Any:
    """A tensor of one integer, which loses the upper bits that do not fit."""
    element = ir.RankedTensorType(kind).element_type
    if element.is_signless:
        half = 1 << (element.width - 1)
        value = (value + half) % (2 * half) - half
    held = ir.IntegerAttr.get(element, value)
    attributes = {"value": ir.DenseElementsAttr.get_splat(kind, held)}
    made = ir.Operation.create("stablehlo.constant", results=[kind], attributes=attributes)
    return made.results[0]
