# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX nodes that torch-mlir knows, but not in each of their forms, in one that it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from neptune_mlir.driver.onnx.resized import resized
from neptune_mlir.errors import InputError

_EXACT = 2 / np.finfo(np.float32).eps  # integers up to it are exact in float32
_LARGEST = np.iinfo(np.uint8).max


def _with_steps_back(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """`Slice` from the end on: torch-mlir begins behind the last element where a slice says so.
    None for steps forward, and for ends that are not constant."""
    x, *others = inputs[:5]
    if x not in w.types or None in w.shape(x) or any(n and n not in w.held for n in others):
        return None
    values = [numpy_helper.to_array(w.held[n]).tolist() if n else None for n in others]
    by = values[3] or [1] * len(values[0])
    if min(by) > 0:
        return None
    rank, found = len(w.shape(x)), x
    along = values[2] if others[2] else range(len(by))
    for axis, one, end, step in zip(along, values[0], values[1], by, strict=True):
        count = w.shape(x)[axis]
        picked = np.arange(count)[one:end:step]
        if not np.array_equal(picked, np.arange(count)):
            found = w.op("Gather", found, w.constant(picked), axis=axis % rank)
    return [found]


def _of_vectors(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`MatMul` of a vector and a batch of matrices. None of others."""
    a, b = inputs[:2]
    if a not in w.types or b not in w.types:
        return None
    ranks = len(w.shape(a)), len(w.shape(b))
    if 1 not in ranks or max(ranks) < 3:
        return None
    if ranks[0] == 1:
        row = w.op("Unsqueeze", a, w.constant([0]))
        return [w.op("Squeeze", w.op("MatMul", row, b), w.constant([-2]))]
    column = w.op("Unsqueeze", b, w.constant([1]))
    return [w.op("Squeeze", w.op("MatMul", a, column), w.constant([-1]))]


def _power(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`Pow` of a float and an integer, in the float's type: torch-mlir computes in float64."""
    x, power = inputs[:2]
    if x not in w.types or power not in w.types:
        return None
    kinds = [helper.tensor_dtype_to_np_dtype(w.types[name][0]).kind for name in (x, power)]
    if kinds[0] != "f" or kinds[1] not in "iu":
        return None
    return [w.op("Pow", x, w.op("Cast", power, to=w.types[x][0]))]


def _back_through_windows(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """`ConvTranspose` of groups, one after the other, and of a shape that is given: all that
    windows reach, less what is padded. None of others."""
    x, weights, bias = inputs[:3]
    if x not in w.types or weights not in w.types:
        return None
    size, extents = w.shape(weights)[2:], w.shape(x)[2:]
    groups, same = given.get("group", 1), given.get("auto_pad", b"NOTSET")
    shaped = "output_shape" in given or same in (b"SAME_UPPER", b"SAME_LOWER")
    known = None not in (*extents, *w.shape(weights))
    if not known or not (shaped or groups > 1):
        return None
    rank = len(size)
    steps, gaps, more = (
        given.get(name, [n] * rank)
        for name, n in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    pads = given.get("pads", [0] * 2 * rank)
    full = [(extents[k] - 1) * steps[k] + more[k] + gaps[k] * (size[k] - 1) + 1
            for k in range(rank)]  # fmt: skip
    if shaped:
        wanted = [*given.get("output_shape", [n * s for n, s in zip(extents, steps, strict=True)])]
        wanted, pads = wanted[-rank:], [0] * 2 * rank
        for k in range(rank):
            total = full[k] - wanted[k]
            if total < 0:
                return None
            small = total // 2
            ends = (small, total - small) if same == b"SAME_UPPER" else (total - small, small)
            pads[k], pads[k + rank] = ends
    options = {"strides": steps, "dilations": gaps, "output_padding": more}
    parts = []
    whole, of_group = w.shape(weights)[0], w.shape(weights)[0] // groups
    for g in range(groups):
        at = [w.constant([n]) for n in (g * of_group, (g + 1) * of_group)]
        own = x if of_group == whole else w.op("Slice", x, *at, w.constant([1]))
        rows = weights if of_group == whole else w.op("Slice", weights, *at, w.constant([0]))
        parts.append(w.op("ConvTranspose", own, rows, **options))
    found = parts[0] if groups == 1 else w.op("Concat", *parts, axis=1)
    ends = [n - p for n, p in zip(full, pads[rank:], strict=True)]
    if any(pads):
        found = w.op("Slice", found, w.constant(pads[:rank]), w.constant(ends),
                     w.constant([*range(2, 2 + rank)]))  # fmt: skip
    behind = w.constant([*range(1, 1 + rank)])
    return [w.op("Add", found, w.op("Unsqueeze", bias, behind)) if bias else found]


def _of_counts(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`ConvInteger`: what is padded is the zero, and sums are exact in a float's type."""
    x, weights, zero, zeros = inputs[:4]
    if any(name not in w.types for name in (x, weights, *filter(None, (zero, zeros)))):
        return None
    if None in w.shape(weights)[1:]:
        return None
    small = prod(w.shape(weights)[1:]) * _LARGEST**2 <= _EXACT
    kind = TensorProto.FLOAT if small else TensorProto.DOUBLE

    def less(name: str, shift: str, axes: Sequence[int]) -> str:
        count = w.op("Cast", name, to=TensorProto.INT32)
        if shift:
            own = w.op("Cast", shift, to=TensorProto.INT32)
            own = w.op("Unsqueeze", own, w.constant([*axes])) if w.shape(shift) else own
            count = w.op("Sub", count, own)
        return str(w.op("Cast", count, to=kind))

    rank = len(w.shape(weights))
    if zero and prod(w.shape(zero)) != 1:
        return None
    parts = less(x, zero, range(1, rank)), less(weights, zeros, range(1, rank))
    return [w.op("Cast", w.op("Conv", *parts, **given), to=TensorProto.INT32)]


def _wrapped(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`Pad` by the elements of the other end, as lookups: torch-mlir does not end on it. None of
    other modes."""
    x, pads, _, axes = inputs[:4]
    if given.get("mode") != b"wrap":
        return None
    held = pads in w.held and (not axes or axes in w.held)
    if not held or x not in w.types or None in w.shape(x):
        raise InputError(
            "'Pad' by the other end is written out for constant pads and known extents",
            loc=w.place, hint="make them constants (initializers), or join parts (Concat)",
        )  # fmt: skip
    ends = numpy_helper.to_array(w.held[pads]).reshape(2, -1)
    along = numpy_helper.to_array(w.held[axes]) if axes else range(len(w.shape(x)))
    found = x
    for axis, before, behind in zip(along, *ends, strict=True):
        count = w.shape(x)[axis]
        if before or behind:
            at = w.constant(np.arange(-before, count + behind) % count)
            found = w.op("Gather", found, at, axis=int(axis))
    return [w.op("Identity", x) if found == x else found]


ADJUSTED = {
    "Slice": _with_steps_back, "MatMul": _of_vectors, "Pow": _power, "Pad": _wrapped,
    "ConvTranspose": _back_through_windows, "ConvInteger": _of_counts, "Resize": resized,
}  # fmt: skip
