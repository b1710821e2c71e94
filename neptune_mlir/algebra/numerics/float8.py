# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes as floats of 8 bits (e4m3: no infinity, and one NaN of each sign), for NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

LARGEST_FLOAT8 = 448.0


def nearest_float8(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The nearest e4m3; what is beyond the largest, infinities too, is the largest."""
    exponent = np.frexp(values)[1] - 1
    unit = 2.0 ** (np.maximum(np.where(np.isfinite(values), exponent, 0), -6) - 3.0)
    found = np.clip(np.rint(values / unit) * unit, -LARGEST_FLOAT8, LARGEST_FLOAT8)
    return np.where(np.isnan(values), np.nan, found)


def float8_bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers rounded to the nearest e4m3 (of two, that with an even last bit), as its 8 bits;
    those beyond the largest, which is 448, are the largest."""
    size = float8_values(np.arange(0x7F, dtype=np.uint8))  # rising
    with np.errstate(over="ignore", invalid="ignore"):
        exact = nearest_float8(np.asarray(values, np.float64))
    bits = np.where(np.isnan(exact), 0x7F, np.searchsorted(size, np.abs(exact)))
    return (bits | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def float8_values(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What bytes are as e4m3, as float64: no infinity, and one NaN of each sign."""
    size = (bits & 0x7F).astype(np.int64)
    exponent, digits = size >> 3, size & 7
    value = np.where(exponent == 0, digits * 2.0**-9, (8 + digits) * 2.0 ** (exponent - 10.0))
    value = np.where(size == 0x7F, np.nan, value)
    return np.where(bits & 0x80, -value, value)
