# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs with their elements in other orders, where a program does not tell them apart.

Nobody says in which order a sum adds up, and a program that has no positions gives the same for any
order of the elements along an axis, but for rounding. So an error that it has in one order only is
luck. Which dimensions are one axis the judge does not know: those of one extent are taken for one,
and float64 says whether they may be rearranged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.floats import Array

SAME = 2.0**-40  # of a result: float64 adds up in other orders, too


@dataclass(frozen=True)
class Rearrangement:
    """A permutation for the dimensions of each of some extents."""

    of_extents: dict[int, Array]

    def __call__(self, values: Any) -> Any:
        return self._taken(values, self.of_extents)

    def back(self, values: Any) -> Any:
        return self._taken(values, {n: np.argsort(p) for n, p in self.of_extents.items()})

    def without(self, extents: Sequence[int]) -> Rearrangement:
        """Of all other extents alone."""
        return Rearrangement({n: p for n, p in self.of_extents.items() if n not in extents})

    def _taken(self, values: Any, of_extents: dict[int, Array]) -> Any:
        found = np.asarray(values)
        for axis, extent in enumerate(found.shape):
            if extent in of_extents:
                found = np.take(found, of_extents[extent], axis)
        return found


def by_size(
    arguments: Sequence[Any], extents: Iterable[int], row: Mapping[int, int]
) -> list[Rearrangement]:
    """Orders in which the elements of an argument ascend, and descend, along each axis of one of
    some extents. `row`: which element of the other axes is looked at, by their extents; the first
    one of those that are not told."""
    found = []
    for values in map(np.asarray, arguments):
        for axis, extent in enumerate(values.shape):
            if extent in extents:
                others = [n for k, n in enumerate(values.shape) if k != axis]
                line = np.moveaxis(values, axis, -1)[tuple(row.get(n, 0) for n in others)]
                up = np.argsort(line, kind="stable")
                found += [Rearrangement({extent: up}), Rearrangement({extent: up[::-1]})]
    return found


def rearrangements(
    exact: Callable[[Sequence[Any]], Sequence[Any]], arguments: Sequence[Any],
    generator: np.random.Generator, times: int,
) -> list[Rearrangement]:  # fmt: skip
    """So many that the program in float64 does not see; none where it sees any."""
    given = exact(arguments)
    drawn: dict[int, list[Array]] = {}
    for extent in sorted({n for a in arguments for n in np.shape(a) if n > 1}):
        ways = [generator.permutation(extent) for _ in range(times)]
        if all(_keeps(exact, arguments, given, Rearrangement({extent: way})) for way in ways):
            drawn[extent] = ways
    if not drawn:
        return []
    return [Rearrangement({n: ways[k] for n, ways in drawn.items()}) for k in range(times)]


def _keeps(
    exact: Callable[[Sequence[Any]], Sequence[Any]], arguments: Sequence[Any],
    given: Sequence[Any], way: Rearrangement,
) -> bool:  # fmt: skip
    found = exact([way(a) for a in arguments])
    return all(_same(a, way.back(b)) for a, b in zip(given, found, strict=True))


def _same(one: Any, other: Any) -> bool:
    one, other = np.asarray(one, float), np.asarray(other, float)
    size = np.abs(one).max(where=np.isfinite(one), initial=0.0)
    return np.allclose(one, other, SAME, SAME * size, equal_nan=True)
