# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which numbers the float types have."""

from __future__ import annotations

from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.float8 import LARGEST_FLOAT8, nearest_float8

Array = np.ndarray

# One unit in the last place of 1, the smallest normal number and the largest, by element type.
EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52,
           "f8E4M3FN": 2.0**-3}  # fmt: skip
SMALLEST = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022,
            "f8E4M3FN": 2.0**-6}  # fmt: skip
LARGEST = {
    "f16": 65504.0, "bf16": (2 - 2.0**-7) * 2.0**127, "f32": (2 - 2.0**-23) * 2.0**127,
    "f64": float(np.finfo(np.float64).max), "f8E4M3FN": LARGEST_FLOAT8,
}  # fmt: skip


def rounded(values: Any, dtype: str) -> Array:
    """The nearest values of a float type, as float64; integers and conditions unchanged."""
    if dtype not in EPSILON or dtype == "f64":
        return np.asarray(values)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "f8E4M3FN":
            return nearest_float8(np.asarray(values, np.float64))
        if dtype != "bf16":
            narrow = np.float16 if dtype == "f16" else np.float32
            return np.asarray(np.asarray(values, np.float64).astype(narrow), np.float64)
        bits = np.atleast_1d(np.asarray(values, np.float32)).view(np.uint32)
        even = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))  # (wraps around for NaNs alone)
        found = (even & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
        found = found.reshape(np.shape(values))
        return np.where(np.isnan(values), np.nan, found)
