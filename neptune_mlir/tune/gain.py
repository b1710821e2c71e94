# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much faster one is than another, from times that were taken in turns.

Both share what the chip does meanwhile (a chip at its power limit moves by several percent within
seconds), so what counts is their ratio in each round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 0.01  # gain that is worth kernels of its own in a bundle


@dataclass(frozen=True)
class Gain:
    """`gain`: the mean over rounds of the other's time over its own, less 1: 0.02 is 2% faster.
    `spread`: twice the standard error of that mean."""

    gain: float
    spread: float

    @property
    def counts(self) -> bool:
        """Whether it is faster, by enough and by more than the noise."""
        return self.gain > max(LEAST, self.spread)

    @property
    def might(self) -> bool:
        """Whether it is, or might be."""
        return self.gain + self.spread > LEAST

    def __str__(self) -> str:
        return f"{100 * self.gain:+.1f}% \u00b1 {100 * self.spread:.1f}"


def gain(other: Sequence[float], own: Sequence[float]) -> Gain:
    """Of times by round, one or more, the same rounds of both."""
    ratios = [b / a for a, b in zip(own, other, strict=True)]
    mean = sum(ratios) / len(ratios)
    if len(ratios) == 1:
        return Gain(mean - 1, math.inf)
    variance = sum((x - mean) ** 2 for x in ratios) / (len(ratios) - 1)
    return Gain(mean - 1, 2 * math.sqrt(variance / len(ratios)))
