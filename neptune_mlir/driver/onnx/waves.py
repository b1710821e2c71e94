# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's Fourier transforms, of lengths that are known, as products with tables of waves:
torch-mlir computes with complex numbers, of which kernels have none. And products of what is
before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from neptune_mlir.driver.limits import PAIRS

_LONGEST = 4096  # of a transform: its table has as many rows as columns


def transformed(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`DFT` along an axis of known length. None for others, and for very long ones."""
    x, length, axis = inputs[:3]
    if x not in w.types or any(name and name not in w.held for name in (length, axis)):
        return None
    rank = len(w.shape(x))
    default = -2 if w.version >= 20 else 1
    at = _held(w, axis) if axis else given.get("axis", default)
    at %= rank
    count, inverse, half = w.shape(x)[at], bool(given.get("inverse")), bool(given.get("onesided"))
    if not count or w.shape(x)[-1] not in (1, 2):
        return None
    size = _held(w, length) if length else 2 * (count - 1) if inverse and half else count
    if not 0 < size <= _LONGEST:
        return None
    order = [*(k for k in range(rank - 1) if k != at), at, rank - 1]
    x = w.op("Transpose", x, perm=order)
    made = _waves(w, x, inputs[0], min(count, size), size, inverse=inverse, half=half)
    return [w.op("Transpose", made, perm=[*np.argsort(order)])]


def of_frames(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`STFT` of a signal of known length. None for others."""
    x, step, window, length = inputs[:4]
    if x not in w.types or any(name and name not in w.held for name in (step, length)):
        return None
    flat = len(w.shape(x)) == 2
    count, size = w.shape(x)[1], _held(w, length) if length else None
    if size is None:
        size = w.shape(window)[0] if window in w.types else None if window else count
    if not count or not size or not 0 < size <= min(count, _LONGEST):
        return None
    signal = w.op("Unsqueeze", x, w.constant([2])) if flat else x
    first = np.arange(0, count - size + 1, _held(w, step))
    frames = w.op("Gather", signal, w.constant(first[:, None] + np.arange(size)), axis=1)
    if window:
        frames = w.op("Mul", frames, w.op("Unsqueeze", window, w.constant([1])))
    half = bool(given.get("onesided", 1))
    parts = 1 if flat else w.shape(x)[-1]
    return [_waves(w, frames, x, size, size, inverse=False, half=half, parts=parts)]


def _waves(
    w: Any, x: str, like: str, count: int, size: int, *, inverse: bool, half: bool,
    parts: int | None = None,
) -> str:  # fmt: skip
    """The transform of `count` elements along the last but one axis, the last being real and
    imaginary parts, of length `size`."""
    kind = helper.tensor_dtype_to_np_dtype(w.types[like][0])
    known = w.shape(like)[-1] if parts is None else parts
    one = w.constant([-1])
    x = w.op("Slice", x, w.constant([0]), w.constant([count]), w.constant([-2]))
    sides = [w.op("Squeeze", w.part(x, k, k + 1), one) for k in range(known)]
    # places modulo the length first: angles stay small, and exact at quarters
    turns = np.outer(np.arange(count), np.arange(size)) % size * (2 * np.pi / size)
    real, imaginary = np.cos(turns), np.sin(turns) * (1 if inverse else -1)
    if inverse:
        real, imaginary = real / size, imaginary / size
    if inverse and half:  # those of the other side are these, turned round
        twice = np.full([count, 1], 2.0)
        twice[0] = 1
        if size % 2 == 0 and count == size // 2 + 1:
            twice[-1] = 1
        twice[size // 2 + 1 :] = 0
        real, imaginary = real * twice, imaginary * twice
    elif half:
        real, imaginary = (side[:, : size // 2 + 1] for side in (real, imaginary))

    def times(side: str, table: Any) -> str:
        return str(w.op("MatMul", side, w.constant(table, kind)))

    if known == 1:
        found = [times(sides[0], real)] + ([] if inverse and half else [times(sides[0], imaginary)])
    else:
        found = [w.op("Sub", times(sides[0], real), times(sides[1], imaginary))]
        if not (inverse and half):
            found.append(w.op("Add", times(sides[0], imaginary), times(sides[1], real)))
    return str(w.op("Concat", *(w.op("Unsqueeze", part, one) for part in found), axis=-1))


def products(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`CumProd` along a short axis: each place multiplies what is before it. None for others."""
    x, axis = inputs[:2]
    if x not in w.types or axis not in w.held:
        return None
    shape, rank = w.shape(x), len(w.shape(x))
    at = _held(w, axis) % rank
    count = shape[at]
    if not count or count * count > PAIRS:
        return None
    i, j = np.arange(count)[:, None], np.arange(count)
    if given.get("reverse"):
        i, j = j.max() - i, j.max() - j
    seen = j < i if given.get("exclusive") else j <= i
    behind = [1] * (rank - 1 - at)
    wide = w.op("Unsqueeze", x, w.constant([at]))
    hit = w.constant(seen.reshape(count, count, *behind), np.bool_)
    return [w.reduced("Prod", w.op("Where", hit, wide, w.number(1, x)), [at + 1])]


def _held(w: Any, name: str) -> int:
    return int(numpy_helper.to_array(w.held[name]).reshape(()))


WAVES = {"DFT": transformed, "STFT": of_frames, "CumProd": products}
