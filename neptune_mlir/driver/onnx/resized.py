# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's images of other sizes: along each axis, an element is a sum of some elements of the image
times constants. torch-mlir knows some modes, and of these none by scales that give no whole size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

_FLOATS = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16


def resized(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`Resize` by constants. None for others, and for what torch-mlir has right."""
    x, roi, scales, sizes = inputs[:4]
    shape = w.shape(x) if x in w.types else [None]
    known = [name for name in (scales, sizes) if name in w.held]
    if None in shape or not known or w.types[x][0] not in _FLOATS:
        return None
    values = _values(w, known[0])
    rank = len(shape)
    axes = [k % rank for k in given.get("axes", range(rank))]
    if len(values) != len(axes):
        return None
    if known == [scales]:
        by = [np.float32(v) for v in values]
        new = [floor(np.float32(shape[k]) * s) for k, s in zip(axes, by, strict=True)]
    else:
        new, by = _sizes([int(v) for v in values], [shape[k] for k in axes], given)
    mode = given.get("mode", b"nearest").decode()
    places = given.get("coordinate_transformation_mode", b"half_pixel").decode()
    whole = all(s * shape[k] == n for k, n, s in zip(axes, new, by, strict=True))
    odd = mode == "cubic" or places in ("tf_crop_and_resize", "half_pixel_symmetric")
    odd |= mode == "nearest" and places in ("align_corners", "pytorch_half_pixel")
    odd |= any(n in given for n in ("antialias", "axes", "exclude_outside")) or not whole
    crop = places == "tf_crop_and_resize"
    if not odd or (crop and (roi not in w.held or known != [sizes])):
        return None
    window = _values(w, roi) if crop else np.repeat([0.0, 1.0], len(axes))
    found, outside = x, list[tuple[int, Any]]()
    for j, (k, n, scale) in enumerate(zip(axes, new, by, strict=True)):
        at = _places(places, shape[k], n, scale, window[j], window[j + len(axes)])
        if n == shape[k] and np.array_equal(at, np.arange(n)):
            continue
        if crop and ((at < 0) | (at > shape[k] - 1)).any():
            outside.append((k, (at < 0) | (at > shape[k] - 1)))
        found = _along(w, found, x, k, _taps(at, shape[k], scale, mode, given))
    for k, out in outside:
        mask = w.constant(out.reshape([-1] + [1] * (rank - 1 - k)), np.bool_)
        found = w.op("Where", mask, w.number(given.get("extrapolation_value", 0.0), x), found)
    return [w.op("Identity", x) if found == x else found]


def _values(w: Any, name: str) -> Any:
    return numpy_helper.to_array(w.held[name])


def _sizes(
    wanted: Sequence[int], shape: Sequence[int], given: Mapping[str, Any]
) -> tuple[list[int], list[float]]:  # fmt: skip
    """Sizes, as the ratio of sides is kept or not, and the scales that they are."""
    scales = [n / m for n, m in zip(wanted, shape, strict=True)]
    policy = given.get("keep_aspect_ratio_policy", b"stretch")
    if policy == b"stretch":
        return [*wanted], scales
    one = (min if policy == b"not_larger" else max)(scales)
    return [floor(one * n + 0.5) for n in shape], [one] * len(shape)


def _places(
    mode: str, count: int, made: int, scale: float, first: float, last: float
) -> Any:  # fmt: skip
    """Where elements of the new image lie in the old one, in float32 as in every runtime: which is
    the nearest one depends on it."""
    at, scale = np.arange(made, dtype=np.float32), np.float32(scale)
    if mode == "align_corners":
        return at * (count - 1) / (made - 1) if made > 1 else at * 0
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_crop_and_resize":
        if made > 1:
            return first * (count - 1) + at * (last - first) * (count - 1) / (made - 1)
        return at * 0 + 0.5 * (first + last) * (count - 1)
    if mode == "pytorch_half_pixel" and made == 1:
        return at * 0
    middle = (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        middle += count / 2 * (1 - made / (scale * count))
    return middle


def _taps(
    at: Any, count: int, scale: float, mode: str, given: Mapping[str, Any]
) -> list[tuple[Any, Any]]:  # fmt: skip
    """The elements whose weighted sum each new one is: positions along an axis, and weights."""
    if mode == "nearest":
        rounded = {
            b"round_prefer_floor": np.ceil(at - 0.5), b"round_prefer_ceil": np.floor(at + 0.5),
            b"floor": np.floor(at), b"ceil": np.ceil(at),
        }[given.get("nearest_mode", b"round_prefer_floor")]  # fmt: skip
        return [(rounded.astype(int).clip(0, count - 1), None)]
    low = np.floor(at)
    narrow = min(scale, 1.0) if given.get("antialias") else 1.0
    reach = 2 if mode == "cubic" else 1
    first = floor(-reach / narrow) + 1
    steps = np.arange(first, 1 - first + 1 if narrow < 1 else reach + 1)
    away = np.abs(steps[:, None] - (at - low)) * narrow
    weights = _cubic(away, given.get("cubic_coeff_a", -0.75)) if reach == 2 else 1 - away.clip(0, 1)
    if narrow < 1:
        weights /= weights.sum(0)
    places = (low + steps[:, None]).astype(int)
    if given.get("exclude_outside"):
        weights = np.where((places >= 0) & (places < count), weights, 0)
        weights /= weights.sum(0)
    used = (weights != 0).any(1)
    return [*zip(places[used].clip(0, count - 1), weights[used], strict=True)]


def _cubic(away: Any, a: float) -> Any:
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    far = a * (((away - 5) * away + 8) * away - 4)
    return np.where(away <= 1, near, np.where(away < 2, far, 0))


def _along(w: Any, x: str, like: str, axis: int, taps: Sequence[tuple[Any, Any]]) -> str:
    """Sums of elements of x along an axis."""
    total, behind = "", [1] * (len(w.shape(like)) - 1 - axis)
    for places, weights in taps:
        part = w.op("Gather", x, w.constant(places), axis=axis)
        if weights is not None:
            wide = w.constant(weights.reshape(-1, *behind), np.float32)
            part = w.op("Mul", part, w.op("Cast", wide, to=w.types[like][0]))
        total = w.op("Add", total, part) if total else part
    return str(total)
