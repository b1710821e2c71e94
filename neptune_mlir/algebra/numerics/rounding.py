# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""float64 numbers rounded to fewer bits, to the nearest one or as a number says."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

# factors of a hash, which says how to round: odd, with bits of both kinds anywhere
MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


def nearest(value: Array, digits: int) -> Array:
    """The nearest numbers of so many bits."""
    fraction, exponent = np.frexp(value)
    return np.ldexp(np.rint(np.ldexp(fraction, digits)), exponent - digits)


def otherwise(value: Array, digits: int, numbers: Array) -> Array:
    """Up where a number is further up than a mark that its neighbours have, and down where it is
    not: what the pass `round-floats` does."""
    more = np.uint64(53 - digits)
    bits = np.asarray(value, np.float64).view(np.uint64)
    further = bits & ((np.uint64(1) << more) - np.uint64(1))
    down = bits ^ further
    mark = down ^ (numbers.astype(np.uint64) * MIX[0]).reshape(-1, *[1] * (bits.ndim - 1))
    for factor in MIX:
        mark = mark * factor
        mark = mark ^ (mark >> np.uint64(32))
    mark = (mark * MIX[0]) >> (np.uint64(64) - more)
    found = down + ((further > mark).astype(np.uint64) << more)
    return np.asarray(found.view(np.float64))
