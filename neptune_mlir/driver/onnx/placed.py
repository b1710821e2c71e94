# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX nodes that read or write images and caches at places, as lookups and choices that are
parallel on every target: torch-mlir has none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from neptune_mlir.driver.limits import PAIRS

_TABLE = 1 << 20  # elements of a table of places that a model may hold


def written(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`TensorScatter`: a cache with new rows from a place on, of each sequence. None for lengths
    that calls know."""
    past, update, first = inputs[:3]
    if past not in w.types or update not in w.types:
        return None
    rank = len(w.shape(past))
    axis = given.get("axis", -2) % rank
    size, count = w.shape(past)[axis], w.shape(update)[axis]
    if not size or not count or not axis:
        return None
    if not first:
        ends = (w.constant([n]) for n in (count, size, axis))
        return [w.op("Concat", update, w.op("Slice", past, *ends), axis=axis)]
    first = w.op("Unsqueeze", w.op("Cast", first, to=TensorProto.INT64), w.constant([1]))
    at = w.op("Sub", w.constant(np.arange(size)), first)
    if given.get("mode") == b"circular":
        at = w.op("Mod", at, w.constant(size))
    zero, last = w.constant(0), w.constant(count - 1)
    hit = w.op("And", w.op("GreaterOrEqual", at, zero), w.op("LessOrEqual", at, last))
    at = w.op("Unsqueeze", w.op("Max", w.op("Min", at, last), zero), w.constant([2]))
    order = [0, axis, *(k for k in range(1, rank) if k != axis)]
    rows = w.op("GatherND", w.op("Transpose", update, perm=order), at, batch_dims=1)
    rows = w.op("Transpose", rows, perm=[*np.argsort(order)])
    others = [k for k in range(1, rank) if k != axis]
    return [w.op("Where", w.op("Unsqueeze", hit, w.constant(others)), rows, past)]


def unpooled(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`MaxUnpool` of small images: each place looks for the elements that are for it. None for
    others, whose places may be anywhere."""
    x, index, wanted = inputs[:3]
    shape = w.shape(x) if x in w.types else [None]
    if None in shape or (wanted and wanted not in w.held):
        return None
    size = given["kernel_shape"]
    rank = len(size)
    pads, steps = given.get("pads", [0] * 2 * rank), given.get("strides", [1] * rank)
    extents = [
        (shape[k + 2] - 1) * steps[k] - pads[k] - pads[k + rank] + size[k] for k in range(rank)
    ]
    images, places, count = prod(shape[:2]), prod(extents), prod(shape[2:])
    if places * count > PAIRS:
        return None
    flat = w.constant([images, 1, count])
    own = w.constant(np.arange(images * places).reshape(images, places, 1))
    hit = w.op("Equal", w.op("Reshape", index, flat), own)
    taken = w.op("Where", hit, w.op("Reshape", x, flat), w.number(-np.inf, x))
    some = w.reduced("Max", w.op("Cast", hit, to=TensorProto.INT32), [2])
    some = w.op("Cast", some, to=TensorProto.BOOL)
    found = w.op("Where", some, w.reduced("Max", taken, [2]), w.number(0, x))
    found = w.op("Reshape", found, w.constant([*shape[:2], *extents]))
    if not wanted:
        return [found]
    whole = numpy_helper.to_array(w.held[wanted])[2:]
    behind = [int(n) - m for n, m in zip(whole, extents, strict=True)]
    around = w.constant([0] * (rank + 4) + behind)
    return [w.op("Pad", found, around, w.number(0, x))]


def folded(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`Col2Im`: each element of an image is a sum of those of windows that cover it. None for a
    size that is not constant, and for tables of over 2^20 places."""
    x, image, block = inputs[:3]
    if image not in w.held or block not in w.held or x not in w.types or not w.shape(x)[1]:
        return None
    extents, size = ([*map(int, numpy_helper.to_array(w.held[n]))] for n in (image, block))
    rank = len(size)
    pads, steps, gaps = (
        given.get(name, [default] * count)
        for name, default, count in (("pads", 0, 2 * rank), ("strides", 1, rank),
                                     ("dilations", 1, rank))
    )  # fmt: skip
    if prod(extents) * prod(size) > _TABLE:
        return None
    counts = [
        (extents[k] + pads[k] + pads[k + rank] - gaps[k] * (size[k] - 1) - 1) // steps[k] + 1
        for k in range(rank)
    ]
    table = np.full([*size, *extents], -1)
    for offset in product(*map(range, size)):
        axes = []
        for k in range(rank):
            at = np.arange(extents[k]) + pads[k] - offset[k] * gaps[k]
            fits = (at % steps[k] == 0) & (at >= 0) & (at // steps[k] < counts[k])
            axes.append(np.where(fits, at // steps[k], -1))
        places = np.meshgrid(*axes, indexing="ij")
        here = np.ravel_multi_index(offset, size)
        for k in range(rank):
            here = here * counts[k] + places[k]
        table[offset] = np.where(np.min(places, axis=0) >= 0, here, -1)
    table = table.reshape(prod(size), prod(extents))
    most = int((table >= 0).sum(axis=0).max())
    used = np.sort(table, axis=0)[len(table) - most :]
    channels = w.shape(x)[1] // prod(size)
    flat = w.op("Reshape", x, w.constant([0, channels, prod(size) * prod(counts)]))
    taken = w.op("Gather", flat, w.constant(used.clip(0)), axis=2)
    taken = w.op("Where", w.constant(used >= 0, np.bool_), taken, w.number(0, x))
    total = w.reduced("Sum", taken, [2])
    return [w.op("Reshape", total, w.constant([0, channels, *extents]))]


class _Corners:
    """Means of the four elements of images around positions, as one value each."""

    def __init__(self, w: Any, like: str):
        self.w, self.op, self.like = w, w.op, like

    def number(self, value: float) -> str:
        return str(self.w.number(value, self.like))

    def places(self, at: str, size: int) -> list[tuple[str, str]]:
        """Below and above a position that is inside: which elements, and their weights."""
        low = self.op("Floor", at)
        share = self.op("Sub", at, low)
        above = self.op("Add", low, self.number(1.0))
        weights = self.op("Sub", self.number(1.0), share), share
        return [(self.bound(x, size), y) for x, y in zip((low, above), weights, strict=True)]

    def bound(self, at: str, size: int) -> str:
        last, zero = self.w.constant(size - 1), self.w.constant(0)
        whole = self.op("Cast", at, to=TensorProto.INT64)
        return str(self.op("Max", self.op("Min", whole, last), zero))

    def inside(self, at: str, low: float, high: float) -> str:
        first = self.op("GreaterOrEqual", at, self.number(low))
        return str(self.op("And", first, self.op("LessOrEqual", at, self.number(high))))


def pooled_regions(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """`RoiAlign` of a known number of samples in each part of a region. None where regions say how
    many there are, and for images of unknown extents."""
    x, regions, images = inputs[:3]
    taken = given.get("sampling_ratio", 0)
    if x not in w.types or regions not in w.types or None in w.shape(x)[1:] or not taken:
        return None
    c = _Corners(w, x)
    half = given.get("coordinate_transformation_mode", b"half_pixel") == b"half_pixel"
    half = half and w.version >= 16  # before, there was no such mode
    scaled = w.op("Mul", regions, c.number(given.get("spatial_scale", 1.0)))
    scaled = w.op("Sub", scaled, c.number(0.5)) if half else scaled
    sides = []
    for k, name in ((1, "output_height"), (0, "output_width")):
        parts, size = given.get(name, 1), w.shape(x)[3 - k]
        first, last = w.part(scaled, k, k + 1), w.part(scaled, k + 2, k + 3)
        length = w.op("Sub", last, first)
        length = length if half else w.op("Max", length, c.number(1.0))
        steps = w.op("Div", length, c.number(parts))
        kind = np.float64 if w.types[x][0] == TensorProto.DOUBLE else np.float32
        middles = (np.arange(parts * taken) + 0.5) / taken
        middles = w.op("Cast", w.constant(middles, kind), to=w.types[x][0])
        at = w.op("Add", first, w.op("Mul", steps, middles))  # [regions, parts * taken]
        valid = c.inside(at, -1.0, size)
        at = w.op("Min", w.op("Max", at, c.number(0.0)), c.number(size - 1))
        sides.append((parts, valid, c.places(at, size)))
    (high, has_y, ys), (wide, has_x, xs) = sides
    rows = w.op("Transpose", x, perm=[0, 2, 3, 1])
    values = [
        _product(c, rows, images, (y, *of), (z, *other), (has_y, has_x))
        for (y, *of), (z, *other) in product(ys, xs)
    ]
    most = given.get("mode") == b"max"
    kind = "Max" if most else "Add"
    total = values[0]
    for value in values[1:]:
        total = w.op(kind, total, value)
    total = w.op("Reshape", total, w.constant([-1, high, taken, wide, taken, w.shape(x)[1]]))
    total = w.reduced("Max" if most else "Mean", total, [2, 4])
    return [w.op("Transpose", total, perm=[0, 3, 1, 2])]


def _product(
    c: _Corners, rows: str, images: str, y: Sequence[str], x: Sequence[str],
    valid: tuple[str, str],
) -> str:  # fmt: skip
    """Elements of images at rows and columns times the weights of both, 0 where one is outside."""
    w, last = c.w, c.w.constant([-1])
    down, right = w.constant([2]), w.constant([1])
    image = w.op("Unsqueeze", w.op("Cast", images, to=TensorProto.INT64), w.constant([1, 2]))
    at_y, of_y, has_y = (w.op("Unsqueeze", name, down) for name in (*y, valid[0]))
    at_x, of_x, has_x = (w.op("Unsqueeze", name, right) for name in (*x, valid[1]))
    zero = w.op("Mul", w.op("Add", at_y, at_x), w.constant(0))
    at = [w.op("Unsqueeze", w.op("Add", name, zero), last) for name in (image, at_y, at_x)]
    found = w.op("GatherND", rows, w.op("Concat", *at, axis=-1))
    weight = w.op("Unsqueeze", w.op("Mul", of_y, of_x), last)
    seen = w.op("Unsqueeze", w.op("And", has_y, has_x), last)
    return str(w.op("Where", seen, w.op("Mul", found, weight), c.number(0.0)))


def deformed(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """`DeformConv` of images of two dimensions: windows whose elements lie anywhere, as lookups and
    a product. None of others, and for extents that are not known."""
    x, weights, moved, bias, mask = inputs[:5]
    if any(n not in w.types or None in w.shape(n) for n in (x, weights, moved)):
        return None
    (count, channels, *extents), (made, _, *size) = w.shape(x), w.shape(weights)
    if len(size) != 2:
        return None
    pads, steps, gaps = (
        given.get(name, [n] * k) for name, n, k in (("pads", 0, 4), ("strides", 1, 2),
                                                    ("dilations", 1, 2))
    )  # fmt: skip
    parts, groups = given.get("offset_group", 1), given.get("group", 1)
    out, taps = w.shape(moved)[2:], prod(size)
    c = _Corners(w, x)
    moved = w.op("Reshape", moved, w.constant([count, parts, taps, 2, *out]))
    places, valid = [], []
    for k in (0, 1):
        tap = np.arange(size[k]).reshape([-1 if k == 0 else 1, 1 if k == 0 else -1]) * gaps[k]
        tap = np.broadcast_to(tap, size).reshape(taps, 1, 1)
        first = (np.arange(out[k]) * steps[k] - pads[k]).reshape([-1, 1] if k == 0 else [1, -1])
        start = w.op("Cast", w.constant(tap + first, np.float32), to=w.types[x][0])
        at = w.op("Gather", moved, w.constant(k), axis=3)
        at = w.op("Add", at, start)  # [images, parts, taps, *out]
        low = w.op("Floor", at)
        share = w.op("Sub", at, low)
        high = w.op("Add", low, c.number(1.0))
        of_low = w.op("Sub", c.number(1.0), share)
        places.append([(c.bound(low, extents[k]), of_low), (c.bound(high, extents[k]), share)])
        valid.append([c.inside(n, 0.0, extents[k] - 1.0) for n in (low, high)])
    rows = w.op("Reshape", x, w.constant([count, parts, channels // parts, *extents]))
    rows, last, total = w.op("Transpose", rows, perm=[0, 1, 3, 4, 2]), w.constant([-1]), ""
    for i, j in product((0, 1), (0, 1)):
        (y, of_y), (z, of_z) = places[0][i], places[1][j]
        at = w.op("Concat", *(w.op("Unsqueeze", name, last) for name in (y, z)), axis=-1)
        seen = w.op("Unsqueeze", w.op("And", valid[0][i], valid[1][j]), last)
        weight = w.op("Unsqueeze", w.op("Mul", of_y, of_z), last)
        value = w.op("Mul", w.op("GatherND", rows, at, batch_dims=2), weight)
        value = w.op("Where", seen, value, c.number(0.0))
        total = w.op("Add", total, value) if total else value
    if mask:
        held = w.op("Reshape", mask, w.constant([count, parts, taps, *out, 1]))
        total = w.op("Mul", total, held)
    # [images, parts, taps, *out, channels of a part]: channels and taps to the front of places
    total = w.op("Transpose", total, perm=[0, 1, 5, 2, 3, 4])
    flat = [count, groups, channels // groups * taps, prod(out)]
    total = w.op("Reshape", total, w.constant(flat))
    shape = [1, groups, made // groups, channels // groups * taps]
    found = w.op("MatMul", w.op("Reshape", weights, w.constant(shape)), total)
    found = w.op("Reshape", found, w.constant([count, made, *out]))
    return [w.op("Add", found, w.op("Unsqueeze", bias, w.constant([1, 2]))) if bias else found]


PLACED = {
    "TensorScatter": written, "MaxUnpool": unpooled, "Col2Im": folded, "RoiAlign": pooled_regions,
    "DeformConv": deformed,
}  # fmt: skip
