# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of integers that StableHLO computes of constants and positions alone, as their elements:
places that a program names, as JAX writes `x.at[1:3, ::2]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neptune_mlir.driver.stablehlo.bodies import element_of, shape_of
from neptune_mlir.ir.bindings import ir

MOST = 1 << 20  # elements of a tensor that is known
_BITS = (8, 16, 32, 64)
_OF_TWO: dict[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip
_COMPARED: dict[str, Callable[..., Any]] = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
    "GE": np.greater_equal,
}  # fmt: skip


def elements(value: Any, seen: dict[Any, Any] | None = None) -> Any:
    """The array of numbers that a value is; None where it is not known.

    Args:
        seen: what is known of other values already.
    """
    seen = {} if seen is None else seen
    if value not in seen:
        seen[value] = None
        dtype = _dtype(value)
        if dtype is not None and not isinstance(value.owner, ir.Block):
            found = _computed(value.owner.operation, value, seen)
            seen[value] = None if found is None else np.asarray(found, dtype)
    return seen[value]


def _dtype(value: Any) -> Any:
    """Of integers with a sign, and truths; None for others, and for tensors that are too large."""
    if not isinstance(value.type, ir.RankedTensorType) or not value.type.has_static_shape:
        return None
    element = element_of(value)
    if np.prod(shape_of(value)) > MOST or not isinstance(element, ir.IntegerType):
        return None
    if element.width == 1:
        return np.dtype(bool)
    known = element.is_signless and element.width in _BITS
    return np.dtype(f"int{element.width}") if known else None


def _computed(op: Any, value: Any, seen: dict[Any, Any]) -> Any:
    name = op.name.removeprefix("stablehlo.")
    shape = shape_of(value)
    if name == "constant":
        held = op.attributes["value"]
        is_dense = isinstance(held, ir.DenseIntElementsAttr) and element_of(value).width > 1
        return np.array(held).reshape(shape) if is_dense else None
    if name == "iota":
        dim = op.attributes["iota_dimension"].value
        return np.indices(shape, sparse=True)[dim] + np.zeros(shape, np.int64)
    given = [elements(operand, seen) for operand in op.operands]
    if not given or any(x is None for x in given):
        return None
    if name in _OF_TWO:
        return _OF_TWO[name](*given)
    if name == "compare":
        return _COMPARED[str(op.attributes["comparison_direction"]).split()[-1].rstrip(">")](*given)
    if name == "select":
        return np.where(*given)
    if name == "broadcast_in_dim":
        dims = list(op.attributes["broadcast_dimensions"])
        whole = [1] * len(shape)
        for k, d in enumerate(dims):
            whole[d] = given[0].shape[k]
        return np.broadcast_to(np.transpose(given[0], np.argsort(dims)).reshape(whole), shape)
    if name == "concatenate":
        return np.concatenate(given, op.attributes["dimension"].value)
    if name == "transpose":
        return np.transpose(given[0], list(op.attributes["permutation"]))
    if name == "slice":
        kinds = ("start_indices", "limit_indices", "strides")
        cuts = zip(*(list(op.attributes[kind]) for kind in kinds), strict=True)
        return given[0][tuple(slice(*cut) for cut in cuts)]
    if name == "reshape":
        return given[0].reshape(shape)
    return given[0] if name == "convert" else None
