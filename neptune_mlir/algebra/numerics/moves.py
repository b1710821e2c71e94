# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs near an input: moved by a last place, by a part of themselves, or by less than f32 holds.

What a fused program owes to how one input is rounded is luck (`judge`): it is asked again on these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.accuracy import EPSILON, Array, rounded

WIGGLE, WIGGLES = 2.0**-50, 4  # relative, of inputs, and how often, to see what float64 knows


def jittered(
    values: Any, dtype: str, generator: np.random.Generator, constants: float = np.inf,
    zeros: bool = False, part: float = 0.0,
) -> Array:  # fmt: skip
    """The same values, each moved by at most one unit in the last place of its type.

    Whole numbers up to `constants` that occur twice stay: they are masks and counts, not data.
    `zeros`: 0 moves, too, by the last place of the largest number (an exponent of 0 is as
    uncertain as what it is subtracted from). `part`: values move by up to this part of themselves,
    where their type has more digits than that.
    """
    values = np.asarray(values)
    if dtype not in EPSILON:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(values).max(where=np.isfinite(values), initial=0.0) if zeros else 0.0
        if part > EPSILON[dtype]:
            shares = part * generator.uniform(-1, 1, values.shape)
        else:
            shares = EPSILON[dtype] * generator.integers(-1, 2, values.shape)
        moved = values + shares * np.where(values == 0, largest, values)
        constant = (values == np.rint(values)) & (np.abs(values) <= constants)
        if constant.any():  # most inputs have no whole number, and to sort them takes long
            _, number, times = np.unique(values, return_inverse=True, return_counts=True)
            constant &= times[number.reshape(values.shape)] > 1
        moved = rounded(moved, dtype)
        data = np.isfinite(values) & np.isfinite(moved) & ~constant
        return np.where(data, moved, values)


def moved_alike(
    values: Any, dtype: str, generator: np.random.Generator, part: float = 0.0
) -> Array:  # fmt: skip
    """The same values, masks and counts included, moved by a last place or by a part of themselves:
    those that equal each other move alike, so what is equal stays so, and 0 stays 0."""
    values = np.asarray(values)
    if dtype not in EPSILON:
        return values
    distinct, number = np.unique(values, return_inverse=True)
    if part > EPSILON[dtype]:
        shares = part * generator.uniform(-1, 1, distinct.shape)
    else:
        shares = EPSILON[dtype] * generator.integers(-1, 2, distinct.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = rounded(distinct * (1 + shares), dtype)
    moved = np.where(np.isfinite(moved), moved, distinct)
    return np.asarray(moved[number.reshape(values.shape)])


def wiggled(values: Any, dtype: str, generator: np.random.Generator) -> Array:
    """Floats moved by a few units in the last place of float64; equal numbers stay equal."""
    values = np.asarray(values)
    if dtype not in EPSILON:
        return values
    distinct, number = np.unique(values, return_inverse=True)
    with np.errstate(invalid="ignore"):
        moved = distinct * (1 + WIGGLE * generator.uniform(-1, 1, distinct.shape))
    return moved[number.reshape(values.shape)]
