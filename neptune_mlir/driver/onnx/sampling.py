# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's samples of images at any positions: torch-mlir reads elements outside of an image, and
rounds positions halfway up. And grids of positions, of which it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

_CUBIC = -0.75  # the parameter of the curve through four elements


def sampled(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """The nearest element, a mean of those around, or curves through 16, of two dimensions. None of
    curves in others, which torch-mlir refuses."""
    image, grid = inputs[:2]
    mode, padding = (given.get(k, b"").decode() for k in ("mode", "padding_mode"))
    if image not in w.types or grid not in w.types:
        return None
    rank = len(w.shape(image)) - 2
    if mode not in ("", "linear", "bilinear", "nearest") and (rank != 2 or "cubic" not in mode):
        return None
    rows = w.op("Transpose", image, perm=[0, *range(2, 2 + rank), 1])
    aligned = bool(given.get("align_corners", 0))
    # along each dimension of the image, the places that are read, their weights, where they are
    places = []
    for k in range(rank):
        along = _Samples(w, image, w.length(image, 2 + k), aligned, padding)
        at = w.op("Squeeze", w.part(grid, rank - 1 - k, rank - k), w.constant([-1]))
        places.append(along.read(at, mode))
    total, last, zero = "", w.constant([-1]), w.number(0.0, image)
    for corner in product(*places):
        found, weights, inside = zip(*corner, strict=True)
        at = w.op("Concat", *(w.op("Unsqueeze", place, last) for place in found), axis=-1)
        weight = w.op("Unsqueeze", reduce(partial(w.op, "Mul"), weights), last)
        part = w.op("Mul", w.op("GatherND", rows, at, batch_dims=1), weight)
        seen = w.op("Unsqueeze", reduce(partial(w.op, "And"), inside), last)
        part = w.op("Where", seen, part, zero)
        total = w.op("Add", total, part) if total else part
    return [w.op("Transpose", total, perm=[0, rank + 1, *range(1, 1 + rank)])]


@dataclass
class _Samples:
    """Samples along one dimension of an image, of so many elements.

    Args:
        aligned: positions -1 and 1 are the first and the last element, not half of one further.
        padding: what is outside: "" or "zeros", "border", "reflection".
    """

    w: Any
    image: str
    size: str
    aligned: bool
    padding: str

    def __post_init__(self) -> None:
        self.one, self.half, self.zero = (self._number(x) for x in (1.0, 0.5, 0.0))
        whole = self.w.op("CastLike", self.size, self.image)
        self.largest = self.w.op("Sub", whole, self.one)
        self.wide = self.largest if self.aligned else whole

    def _number(self, value: float) -> str:
        return str(self.w.number(value, self.image))

    def read(self, at: str, mode: str) -> list[tuple[str, str, str]]:
        """The elements that positions from -1 to 1 are between, or the nearest; their weights, and
        whether they are inside."""
        op = self.w.op
        at = op("Mul", op("Mul", op("Add", at, self.one), self.wide), self.half)
        at = at if self.aligned else op("Sub", at, self.half)
        cubic = mode.endswith("cubic")
        at = at if cubic else self._padded(at)
        low = op("Round" if mode == "nearest" else "Floor", at)
        share = op("Sub", at, low)
        if cubic:
            steps = [(self._number(k), self._curve(share, k)) for k in (-1, 0, 1, 2)]
            parts = [(self._padded(op("Add", low, step)), weight) for step, weight in steps]
        elif mode == "nearest":
            parts = [(low, self.one)]
        else:
            parts = [(low, op("Sub", self.one, share)), (op("Add", low, self.one), share)]
        return [(self._inside(place), weight, self._is_inside(place)) for place, weight in parts]

    def _curve(self, share: str, step: int) -> str:
        """The weight of an element that is so many steps from the one below a position."""
        op, a = self.w.op, _CUBIC
        away = op("Abs", op("Sub", share, self._number(step)))
        near = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
        made = self._number((near[step in (-1, 2)])[0])
        for factor in near[step in (-1, 2)][1:]:
            made = op("Add", op("Mul", made, away), self._number(factor))
        return str(made)

    def _padded(self, at: str) -> str:
        """Positions brought inside, as the padding has it."""
        op = self.w.op
        if self.padding == "reflection":  # at the middles of the outermost elements, or their edges
            low = self.zero if self.aligned else self._number(-0.5)
            apart = op("Abs", op("Sub", at, low))
            double = op("Max", op("Add", self.wide, self.wide), self.half)  # of one element, too
            turned = op("Sub", apart, op("Mul", double, op("Floor", op("Div", apart, double))))
            at = op("Sub", self.wide, op("Abs", op("Sub", self.wide, turned)))
            at = op("Add", at, low)
        if self.padding in ("border", "reflection"):
            at = op("Max", op("Min", at, self.largest), self.zero)
        return str(at)

    def _inside(self, place: str) -> str:
        """The nearest element there is."""
        op = self.w.op
        whole = op("Cast", place, to=TensorProto.INT64)
        last = op("Sub", self.size, self.w.constant(1))
        return str(op("Max", op("Min", whole, last), self.w.constant(0)))

    def _is_inside(self, place: str) -> str:
        op = self.w.op
        low, high = op("LessOrEqual", self.zero, place), op("LessOrEqual", place, self.largest)
        return str(op("And", low, high))


def grid(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """Positions of an image's elements in another one, by matrices. None for a size that is not
    known, which torch-mlir refuses."""
    matrices, size = inputs[:2]
    made = w.held.get(size)
    if matrices not in w.types or made is None:
        return None
    extents = [int(n) for n in numpy_helper.to_array(made)[2:]]
    aligned, rank = bool(given.get("align_corners", 0)), len(extents)
    sides = [_from_edge(n, aligned) for n in extents]
    parts = [np.broadcast_to(side.reshape([-1 if k == d else 1 for k in range(rank)]), extents)
             for d, side in enumerate(sides)]  # fmt: skip
    points = np.stack([*parts[::-1], np.ones(extents)], -1).reshape(-1, rank + 1)
    kind = w.types[matrices][0]
    held = w.op("Cast", w.constant(points, np.float64), to=kind)
    found = w.op("MatMul", held, w.op("Transpose", matrices, perm=[0, 2, 1]))
    return [w.op("Reshape", found, w.constant([0, *extents, rank]))]


def _from_edge(count: int, aligned: bool) -> Any:
    """Positions from -1 to 1: of the middles of elements, or of the first and the last at the
    ends."""
    if not aligned:
        return (2 * np.arange(count) + 1) / count - 1
    return np.linspace(-1, 1, count) if count > 1 else np.zeros(1)
