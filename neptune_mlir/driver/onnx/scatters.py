# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scatters of ONNX of few places and updates as what each place gets of all updates, in parallel on
every target: torch-mlir's are loops over updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from neptune_mlir.driver.limits import PAIRS

_JOINED = {"add": ("Sum", "Add"), "max": ("Max", "Max"), "min": ("Min", "Min"),
           "mul": ("Prod", "Mul")}  # fmt: skip


def elements(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`ScatterElements` of short rows. None for others."""
    data, index, updates = inputs
    if any(name not in w.types for name in inputs):
        return None
    rank = len(w.shape(data))
    axis, reduction = given.get("axis", 0) % max(rank, 1), _reduction(given)
    others = [k for k in range(rank) if k != axis]
    size, count = (w.shape(name)[axis] if rank else None for name in (data, index))
    neutral = _neutral(w, data, reduction)
    alike = all(w.is_alike(k, data, index) for k in others)
    if not size or not count or size * count > PAIRS or not alike or neutral is None:
        return None
    here = w.constant([axis])
    place = w.constant(np.arange(size).reshape(size, *[1] * (rank - axis)))
    hit = w.op("Equal", w.op("Unsqueeze", _from_end(w, index, size), here), place)
    taken = w.op("Where", hit, w.op("Unsqueeze", updates, here), w.number(neutral, data))
    if reduction != "none":
        whole, join = _JOINED[reduction]
        return [w.op(join, data, w.reduced(whole, taken, [axis + 1]))]
    hits = w.reduced("Sum", w.op("Cast", hit, to=TensorProto.INT64), [axis + 1])
    some = w.op("Greater", hits, w.constant(0))
    return [w.op("Where", some, w.reduced("Sum", taken, [axis + 1]), data)]


def slices(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`ScatterND` of few places, of which several updates may be for one. None for others."""
    data, index, updates = inputs
    if any(name not in w.types or None in w.shape(name) for name in inputs):
        return None
    shape, reduction = w.shape(data), _reduction(given)
    (*points, depth), neutral = w.shape(index), _neutral(w, data, reduction)
    places, rest, count = shape[:depth], shape[depth:], prod(points)
    size = prod(places)
    if not size * count or size * count > PAIRS or neutral is None:
        return None
    flat = w.op("Reshape", index, w.constant([count, depth]))
    flat = _from_end(w, flat, np.array(places))
    steps = [prod(places[k + 1 :]) for k in range(depth)]
    flat = w.reduced("Sum", w.op("Mul", flat, w.constant(steps)), [1])
    hit = w.op("Equal", w.constant(np.arange(size).reshape(size, 1)), flat)
    rows = w.op("Reshape", updates, w.constant([count, prod(rest)]))
    table = w.op("Reshape", data, w.constant([size, prod(rest)]))
    if reduction == "none":
        order = w.op("Where", hit, w.constant(np.arange(count)), w.constant(-1))
        last = w.reduced("Max", order, [1])
        chosen = w.op("Gather", rows, w.op("Max", last, w.constant(0)), axis=0)
        some = w.op("Unsqueeze", w.op("GreaterOrEqual", last, w.constant(0)), w.constant([1]))
        made = w.op("Where", some, chosen, table)
    else:
        whole, join = _JOINED[reduction]
        hit = w.op("Unsqueeze", hit, w.constant([2]))
        taken = w.op("Where", hit, rows, w.number(neutral, data))
        made = w.op(join, table, w.reduced(whole, taken, [1]))
    return [w.op("Reshape", made, w.constant(shape))]


def _reduction(given: Mapping[str, Any]) -> str:
    return str(given.get("reduction", b"none").decode())


def _neutral(w: Any, data: str, reduction: str) -> float | None:
    """What changes no element of `data`; None for reductions, or numbers, that have no form."""
    kind = helper.tensor_dtype_to_np_dtype(w.types[data][0])
    if reduction not in ("none", *_JOINED) or kind.kind not in "fi":
        return None
    is_float = kind.kind == "f"
    least, most = (-np.inf, np.inf) if is_float else (np.iinfo(kind).min, np.iinfo(kind).max)
    return {"max": least, "min": most, "mul": 1}.get(reduction, 0)


def _from_end(w: Any, index: str, size: Any) -> str:
    """Positions, those below 0 counted from the end."""
    long = w.op("Cast", index, to=TensorProto.INT64)
    behind = w.op("Add", long, w.constant(size))
    return str(w.op("Where", w.op("Less", long, w.constant(0)), behind, long))
