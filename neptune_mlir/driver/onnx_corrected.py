# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX nodes that torch-mlir takes for others, or makes loops of, as plain nodes: blocks of images
as channels and back, integers with scales and shifted, sequences turned round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from neptune_mlir.driver.onnx_sampling import sampled

# what counts of a scale are held in
_COUNTS = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16,
           TensorProto.INT32)  # fmt: skip


def _depth_to_space(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Of channels that are the outer dimension (PixelShuffle), by the node of channels that are
    the inner one: torch-mlir takes each for the latter. None for these."""
    if given.get("mode") != b"CRD":
        return None
    size = given["blocksize"]
    channels = w.op("Reshape", _channels_last(w, inputs[0]), w.constant([0, 0, 0, -1, size**2]))
    whole = w.op(
        "Reshape", w.op("Transpose", channels, perm=[0, 1, 2, 4, 3]), w.constant([0, 0, 0, -1])
    )
    return [w.op("DepthToSpace", _channels_first(w, whole), blocksize=size, mode="DCR")]


def _space_to_depth(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str]:
    """Of images whose extents calls know, too, and of channels in either order."""
    size, outer = given["blocksize"], given.get("mode") == b"CRD"
    columns = w.op("Reshape", inputs[0], w.constant([0, 0, 0, -1, size]))
    across = w.op("Transpose", columns, perm=[0, 1, 3, 4, 2])
    blocks = w.op("Reshape", across, w.constant([0, 0, 0, 0, -1, size]))
    order = [0, 4, 2, 1, 5, 3] if outer else [0, 4, 2, 5, 3, 1]
    whole = w.op(
        "Reshape", w.op("Transpose", blocks, perm=order), w.constant([0, 0, 0, -1])
    )
    return [_channels_first(w, whole)]


def _channels_last(w: Any, name: str) -> str:
    return str(w.op("Transpose", name, perm=[0, 2, 3, 1]))


def _channels_first(w: Any, name: str) -> str:
    return str(w.op("Transpose", name, perm=[0, 3, 1, 2]))


def _dequantised(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Integers less their zero, times a scale: torch-mlir takes unsigned zeros for signed ones.
    None for scales of blocks, and for what is no integer."""
    x, scale, zero = inputs[:3]
    if not _is_plain(w, x, scale, given) or w.types[x][0] not in _COUNTS:
        return None
    kind = w.types[scale][0]
    count = w.op("Cast", x, to=TensorProto.INT32)
    if zero:
        zero = w.op("Cast", zero, to=TensorProto.INT32)
        count = w.op("Sub", count, _along(w, zero, x, scale, given))
    wide = _along(w, w.op("Cast", scale, to=TensorProto.FLOAT), x, scale, given)
    return [w.op("Cast", w.op("Mul", w.op("Cast", count, to=TensorProto.FLOAT), wide), to=kind)]


def _quantised(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Numbers over a scale as integers, from a zero on: torch-mlir refuses scales of rows. None for
    scales of blocks, and for what becomes no integer of 8 bits."""
    x, scale, zero = inputs[:3]
    if not _is_plain(w, x, scale, {"axis": given.get("axis", 1)}) or (zero and zero not in w.types):
        return None
    kind = w.types[zero][0] if zero else given.get("output_dtype") or TensorProto.UINT8
    if kind not in (TensorProto.INT8, TensorProto.UINT8):  # torch-mlir casts to no 16 bits
        return None
    wide = _along(w, w.op("Cast", scale, to=TensorProto.FLOAT), x, scale, given)
    found = w.op("Div", w.op("Cast", x, to=TensorProto.FLOAT), wide)
    return [_rounded(w, found, _along(w, _count(w, zero), x, scale, given) if zero else "", kind)]


def _quantised_product(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Of integers with scales: torch-mlir has products of more than two dimensions wrong. None for
    scales of rows and columns."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = inputs
    numbers = a_scale, a_zero, b_scale, b_zero, scale, zero
    known = all(name in w.types for name in inputs)
    if not known or any(prod(n or 0 for n in w.shape(name)) != 1 for name in numbers):
        return None
    parts = [w.op("Sub", _count(w, x), _count(w, z)) for x, z in ((a, a_zero), (b, b_zero))]
    own, other, made = (w.op("Cast", s, to=TensorProto.FLOAT) for s in (a_scale, b_scale, scale))
    ratio = w.op("Div", w.op("Mul", own, other), made)
    found = w.op("Mul", w.op("MatMul", *parts), ratio)
    return [_rounded(w, found, _count(w, zero), w.types[zero][0])]


def _turned_sequences(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """The first elements of each sequence in reverse, as a lookup: torch-mlir makes a loop of it,
    whose tensors have lengths that no host knows. None where a call knows the longest length."""
    x, lengths = inputs[:2]
    time = given.get("time_axis", 0)
    steps = w.shape(x)[time] if x in w.types else None
    if not isinstance(steps, int):
        return None
    rank = len(w.shape(x))
    places = w.constant(np.arange(steps).reshape([-1] + [1] * (rank - 1 - time)))
    others = [axis for axis in range(rank) if axis != given.get("batch_axis", 1)]
    count = w.op("Unsqueeze", w.op("Cast", lengths, to=TensorProto.INT64), w.constant(others))
    back = w.op("Sub", w.op("Sub", count, w.constant(1)), places)
    at = w.op("Where", w.op("Less", places, count), back, places)
    return [w.op("GatherElements", x, w.op("Expand", at, w.op("Shape", x)), axis=time)]


def _shifted(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """By any number of bits: those of no integer shift all bits out, and signs stay to the right.
    (torch-mlir leaves it to the processor, which takes numbers modulo some width.)"""
    x, by = inputs[:2]
    if x not in w.types:
        return None
    right = given["direction"] == b"RIGHT"
    ends = np.iinfo(helper.tensor_dtype_to_np_dtype(w.types[x][0]))
    count = w.op("Cast", by, to=TensorProto.INT64)
    beyond = w.op("Greater", count, w.constant(ends.bits - 1))
    outside = w.op("Or", w.op("Less", count, w.constant(0)), beyond)
    keeps_sign = right and ends.min < 0
    bits = w.op("Where", outside, w.number(ends.bits - 1 if keeps_sign else 0, x), by)
    moved = w.op("BitShift", x, bits, direction=given["direction"])
    return [moved if keeps_sign else w.op("Where", outside, w.number(0, x), moved)]


def _count(w: Any, name: str) -> str:
    """Integers as floats (of which torch-mlir makes unsigned ones signed, but for these)."""
    return str(w.op("Cast", w.op("Cast", name, to=TensorProto.INT32), to=TensorProto.FLOAT))


def _rounded(w: Any, name: str, zero: str, kind: int) -> str:
    """Floats as integers of a type, from a zero on."""
    found = w.op("Round", name)
    found = w.op("Add", found, zero) if zero else found
    ends = np.iinfo(helper.tensor_dtype_to_np_dtype(kind))
    low, high = (w.constant(end, np.float32) for end in (ends.min, ends.max))
    found = w.op("Min", w.op("Max", found, low), high)
    return str(w.op("Cast", w.op("Cast", found, to=TensorProto.INT32), to=kind))


def _is_plain(w: Any, x: str, scale: str, given: Mapping[str, Any]) -> bool:
    """Whether a scale is one number, or one for each position along an axis, of its own type."""
    known = x in w.types and scale in w.types and len(w.shape(scale)) <= 1
    return known and given.get("output_dtype", w.types[scale][0]) == w.types[scale][0]


def _along(w: Any, name: str, x: str, scale: str, given: Mapping[str, Any]) -> str:
    """What belongs to a scale, with dimensions for those of x behind the axis."""
    rank = len(w.shape(x))
    behind = rank - 1 - given.get("axis", 1) % rank if w.shape(scale) else 0
    return str(w.op("Unsqueeze", name, w.constant([*range(1, 1 + behind)])) if behind else name)


CORRECTED: dict[
    str, Callable[[Any, Sequence[str], Mapping[str, Any]], Sequence[str] | None]
] = {
    "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth,
    "DequantizeLinear": _dequantised, "QuantizeLinear": _quantised,
    "QLinearMatMul": _quantised_product, "GridSample": sampled,
    "ReverseSequence": _turned_sequences, "BitShift": _shifted,
}  # fmt: skip
