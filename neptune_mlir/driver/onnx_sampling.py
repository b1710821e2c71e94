# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's samples of images at any positions: torch-mlir reads elements outside of an image, and
rounds positions halfway up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from onnx import TensorProto


def sampled(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """Of images in two dimensions, the nearest element or a mean of four, with zeros or the nearest
    element outside. None of others, which torch-mlir refuses."""
    image, grid = inputs[:2]
    mode, padding = (given.get(k, b"").decode() for k in ("mode", "padding_mode"))
    known = image in w.types and grid in w.types and len(w.shape(image)) == 4
    if not known or mode not in ("", "linear", "bilinear", "nearest") or padding == "reflection":
        return None
    rows = w.op("Transpose", image, perm=[0, 2, 3, 1])
    # along each dimension of the image, the places that are read, their weights, where they are
    places = [
        _along(w, w.op("Squeeze", w.part(grid, 1 - k, 2 - k), w.constant([-1])),
               w.length(image, 2 + k), bool(given.get("align_corners", 0)), mode == "nearest",
               padding == "border", image)
        for k in (0, 1)
    ]  # fmt: skip
    total, last, zero = "", w.constant([-1]), w.number(0.0, image)
    for (y, of_y, has_y), (x, of_x, has_x) in product(*places):
        at = w.op("Concat", w.op("Unsqueeze", y, last), w.op("Unsqueeze", x, last), axis=-1)
        weight = w.op("Unsqueeze", w.op("Mul", of_y, of_x), last)
        part = w.op("Mul", w.op("GatherND", rows, at, batch_dims=1), weight)
        part = w.op("Where", w.op("Unsqueeze", w.op("And", has_y, has_x), last), part, zero)
        total = w.op("Add", total, part) if total else part
    return [w.op("Transpose", total, perm=[0, 3, 1, 2])]


def _along(
    w: Any, at: str, size: str, aligned: bool, nearest: bool, border: bool, image: str
) -> list[tuple[str, str, str]]:  # fmt: skip
    """The places that positions from -1 to 1 are between, or the nearest inside of a size; their
    weights, and whether they are inside."""
    one, half, zero = (w.number(x, image) for x in (1.0, 0.5, 0.0))
    largest = w.op("Sub", w.op("CastLike", size, image), one)
    # from the first element to the last, or half of one further
    wide = largest if aligned else w.op("Add", largest, one)
    at = w.op("Mul", w.op("Mul", w.op("Add", at, one), wide), half)
    at = at if aligned else w.op("Sub", at, half)
    if border:
        at = w.op("Max", w.op("Min", at, largest), zero)
    low = w.op("Round" if nearest else "Floor", at)
    share = w.op("Sub", at, low)
    parts = [(low, one)] if nearest else [
        (low, w.op("Sub", one, share)), (w.op("Add", low, one), share)
    ]  # fmt: skip
    return [
        (_inside(w, place, size), weight, _is_inside(w, place, zero, largest))
        for place, weight in parts
    ]


def _inside(w: Any, place: str, size: str) -> str:
    """The nearest place there is."""
    whole = w.op("Cast", place, to=TensorProto.INT64)
    return str(w.op("Max", w.op("Min", whole, w.op("Sub", size, w.constant(1))), w.constant(0)))


def _is_inside(w: Any, place: str, zero: str, largest: str) -> str:
    low, high = w.op("LessOrEqual", zero, place), w.op("LessOrEqual", place, largest)
    return str(w.op("And", low, high))
