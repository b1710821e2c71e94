# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How large results are, and where they are no numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray
SHORT = 8  # NumPy adds up rows that are shorter one element after the other, each as a row


def kinds(values: Array) -> Array:
    """Of each element: 0 finite, 1 +inf, 2 -inf, 3 NaN."""
    if np.isfinite(values).all():
        return np.zeros(np.shape(values), np.int8)
    found = np.isposinf(values) + 2 * np.isneginf(values) + 3 * np.isnan(values)
    return np.asarray(found, np.int8)


def frobenius(got: Array, wanted: Array) -> float:
    """Norm of the difference over that of `wanted`, where both are finite: the largest of several
    runs, which the first dimension counts."""
    both = (np.isfinite(got) & np.isfinite(wanted)).reshape(len(got), -1)
    got, wanted = got.reshape(both.shape), wanted.reshape(both.shape)
    error, scale = norm(np.where(both, got - wanted, 0.0), 1), norm(np.where(both, wanted, 0.0), 1)
    return float((error / np.where(scale == 0, 1.0, scale)).max())


def norm(values: Array, axis: int | None = None) -> Array:
    """Euclidean norms that do not overflow."""
    # (the ufuncs themselves: rows are short and many, and methods cost as much again)
    along: Any = {"axis": axis, "keepdims": axis is not None}
    if axis is not None and values.shape[axis] < SHORT:  # element by element, in the same order
        values = np.ascontiguousarray(np.moveaxis(values, axis, 0))
        along["axis"] = 0
    size = np.maximum.reduce(np.abs(values), initial=0.0, **along)
    size = np.where(size > 0, size, 1.0)
    scaled = values / size
    total = np.sqrt(np.add.reduce(np.square(scaled, out=scaled), **along)) * size
    return np.asarray(total if axis is None else total.squeeze(along["axis"]))


def spread(rows: Array, values: Array) -> Array:
    """What holds of rows, for each of their elements; the first dimension counts runs."""
    width = values.shape[-1] if values.ndim > 2 else 1
    return np.broadcast_to(rows[..., None], (*rows.shape, width)).reshape(values.shape)
