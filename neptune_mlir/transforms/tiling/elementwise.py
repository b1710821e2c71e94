# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise ops on one tile, as passes on tile programs make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neptune_mlir.analysis.tiles import element_type, shape_of
from neptune_mlir.ir.bindings import ir, linalg, tensor


def elementwise(value: Any, kind: Any, body: Callable[[Any], Any]) -> Any:
    """A tile of elements of type `kind`, each of which `body` makes of one of `value`."""
    rank = len(shape_of(value))
    empty = tensor.empty(shape_of(value), kind)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    made = linalg.GenericOp(
        [empty.type], [value], [empty], ir.ArrayAttr.get([identity, identity]),
        ir.ArrayAttr.get([parallel] * rank),
    )  # fmt: skip
    types = [element_type(value), kind]
    here = made.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * 2)
    with ir.InsertionPoint(here):
        linalg.YieldOp([body(here.arguments[0])])
    return made.results[0]
