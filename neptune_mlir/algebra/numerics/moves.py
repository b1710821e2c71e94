# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs near an input: moved by a last place, by a part of themselves, or by less than f32 holds.

What a fused program owes to how one input is rounded is luck (`judge`): it is asked again on these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.floats import EPSILON, Array, rounded

WIGGLE, WIGGLES = 2.0**-50, 4  # relative, of inputs, and how often, to see what float64 knows


@dataclass(frozen=True)
class Move:
    """How values move.

    Attributes:
        values: the values as they are.
        shape: of what is drawn for each time that they move; None where they stay.
        draw: from a generator, and a shape.
        moved: the values, moved by what was drawn, each time of which the first dimension counts.
    """

    values: Array
    shape: tuple[int, ...] | None = None
    draw: Callable[[np.random.Generator, tuple[int, ...]], Any] = lambda g, shape: None
    moved: Callable[[Array], Array] = lambda drawn: drawn


def moved_together(
    moves: Sequence[Move], generator: np.random.Generator, times: int
) -> list[list[Array]]:
    """Several values that move at once, so often: drawn one time after the other, but else in as
    many calls of NumPy as for one time, for values are small and times are many."""
    drawn: list[list[Any]] = [[] for _ in moves]
    for _ in range(times):
        for move, of_move in zip(moves, drawn, strict=True):
            if move.shape is not None:
                of_move.append(move.draw(generator, move.shape))
    stacks = [
        None if move.shape is None or not times else move.moved(np.array(of_move))
        for move, of_move in zip(moves, drawn, strict=True)
    ]
    return [
        [m.values if s is None else s[k, ...] for m, s in zip(moves, stacks, strict=True)]
        for k in range(times)
    ]


def jitter(
    values: Any, dtype: str, constants: float = np.inf, zeros: bool = False, part: float = 0.0
) -> Move:
    """Each value by at most one unit in the last place of its type.

    Whole numbers up to `constants` that occur twice stay: they are masks and counts, not data.
    `zeros`: 0 moves, too, by the last place of the largest number (an exponent of 0 is as
    uncertain as what it is subtracted from), or of 1, as its exponential has. `part`: values move
    by up to this part of themselves, where their type has more digits than that.
    """
    values = np.asarray(values)
    if dtype not in EPSILON:
        return Move(values)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(values).max(where=np.isfinite(values), initial=1.0) if zeros else 0.0
        sizes = np.where(values == 0, largest, values)
        constant = (values == np.rint(values)) & (np.abs(values) <= constants)
    if constant.any():  # most inputs have no whole number, and to sort them takes long
        _, number, times = np.unique(values, return_inverse=True, return_counts=True)
        constant &= times[number.reshape(values.shape)] > 1
    data = np.isfinite(values) & ~constant

    def moved(shares: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            found = rounded(values + shares * sizes, dtype)
        return np.where(data & np.isfinite(found), found, values)

    return Move(values, values.shape, _shares(dtype, part), moved)


def _shares(dtype: str, part: float) -> Callable[[np.random.Generator, tuple[int, ...]], Any]:
    """Draws by which parts of themselves values move."""
    if part > EPSILON[dtype]:
        return lambda generator, shape: part * generator.uniform(-1, 1, shape)
    return lambda generator, shape: EPSILON[dtype] * generator.integers(-1, 2, shape)


def alike(values: Any, dtype: str, part: float = 0.0) -> Move:
    """Values, masks and counts included, by a last place or by a part of themselves: those that
    equal each other move alike, so what is equal stays so, and 0 stays 0."""
    values = np.asarray(values)
    if dtype not in EPSILON:
        return Move(values)
    distinct, number = np.unique(values, return_inverse=True)

    def moved(shares: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            found = rounded(distinct * (1 + shares), dtype)
        found = np.where(np.isfinite(found), found, distinct)
        return np.asarray(found[:, number.reshape(values.shape)])

    return Move(values, distinct.shape, _shares(dtype, part), moved)


def wiggle(values: Any, dtype: str) -> Move:
    """Floats by a few units in the last place of float64; equal numbers stay equal."""
    values = np.asarray(values)
    if dtype not in EPSILON:
        return Move(values)
    distinct, number = np.unique(values, return_inverse=True)

    def moved(shares: Array) -> Array:
        with np.errstate(invalid="ignore"):
            found = distinct * (1 + WIGGLE * shares)
        return np.asarray(found[:, number.reshape(values.shape)])

    return Move(values, distinct.shape, lambda g, shape: g.uniform(-1, 1, shape), moved)
