# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs of attention whose scores move along the keys."""

from __future__ import annotations

import numpy as np

KINDS = ("plain", "rising", "falling", "both", "some", "jumps", "large")


def inputs(kind, n, heads=1, *, head=64, stream=64, rows=None):
    """q, k and v [1, heads, n, head] in f16; `rows` of q, if not n. By kind, the scores rise or
    fall by 10 a tile of `stream` keys for all rows or some, and leave the range of weights by the
    first tile's maximum."""
    rng = np.random.default_rng(n)
    q, k, v = rng.standard_normal((3, heads, n, head))
    along = 10 * np.arange(n)[:, None] / stream / head**0.5
    match kind:
        case "rising":
            q, k = 0.3 * q + 1, 0.3 * k + along
        case "falling":
            q, k = 0.3 * q + 1, 0.3 * k - along
        case "both":
            q, k = 0.3 * q + rng.choice([-1, 1], (n, 1)), 0.3 * k + along
        case "some":  # rows of some warps
            q, k = 0.3 * q + (np.arange(n)[:, None] % 97 == 0), 0.3 * k + along
        case "jumps":
            q, k = 0.3 * q + 1, 0.3 * k + np.floor(along) * (rng.random((n, 1)) < 0.1)
        case "large":
            q, k = 25 * q, 4 * k
    return [x[None].astype(np.float16) for x in (q[:, :rows], k, v)]
