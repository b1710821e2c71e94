# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far over its bound a program is on each input of a batch, by its first run: `judge`, for many
inputs at once.

Most inputs are no trouble, and `judge` takes a millisecond for each. Here the first run of all of
them is judged in a few NumPy calls, by the same rule. What is not right at once may still be right
(the order of a sum, what float64 does not know): `judge` decides that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.accuracy import bases, bound, ends
from neptune_mlir.algebra.numerics.floats import EPSILON, SMALLEST, Array, rounded
from neptune_mlir.algebra.numerics.norms import kinds, norm
from neptune_mlir.algebra.numerics.programs import far_from_one

# Of inputs that are not right at once: the worst, so many by name, and so many of all; as many of
# those that no luck excuses, which come first. Each takes 10 ms, as thousands that are right do
# together.
JUDGED, MOST_JUDGED = 8, 48
# So many of them side by side, for what they run on is cheaper together; few to begin with, for the
# first that is wrong is enough.
JUDGED_TOGETHER = 2, 14, MOST_JUDGED, MOST_JUDGED - 16
STRANGE = 1e30  # an infinity or a NaN where there is none, nor is the program as written right


def excess_at_once(
    stacks: Sequence[Any], arguments: Sequence[str], three: Sequence[Sequence[Array]],
    results: Sequence[str],
) -> Array:  # fmt: skip
    """The error over its bound on each input: where that is no more than 1, `judge` would find it
    right, and need no more runs than one for it.

    Args:
        stacks: the arguments; the first dimension of each counts inputs.
        arguments: their element types.
        three: the results fused, as written and in float64, each with inputs first.
        results: their element types.
    """
    together, beyond = far_from_one(stacks, arguments)
    found = np.zeros(len(together))
    with np.errstate(all="ignore"):
        for dtype, fused, unfused, exact in zip(results, *three, strict=True):
            if dtype in EPSILON:
                excess = _of_floats(fused, unfused, exact, dtype, together, beyond)
            else:
                wrong = (fused != unfused) & (fused != exact)
                excess = np.where(wrong.reshape(len(found), -1).any(1), np.inf, 0.0)
            found = np.maximum(found, excess)
    return found


def stacked(many: Sequence[Sequence[Any]]) -> list[Array]:
    """The arguments of several calls, each as one array whose first dimension counts calls.
    (`np.stack` looks at each array in Python, for three times as long.)"""
    return [np.array(of_each) for of_each in zip(*many, strict=True)]


def numbers_lacking(three: Sequence[Sequence[Array]], signs: Sequence[Array]) -> Array | int:
    """Of each input how many numbers the fused program lacks that the program as written makes in
    the order, too, in which most sums overflow on their way (`signs`). Where it makes none in that
    order an infinity is luck (`accuracy`), and hides what is wrong with other inputs."""
    found: Array | int = 0
    for fused, unfused, exact, in_order in zip(*three, signs, strict=False):
        made = np.isfinite(unfused) & np.isfinite(exact) & np.isfinite(in_order)
        lacks = made & ~np.isfinite(fused)
        found = found + lacks.reshape(len(lacks), -1).sum(1)
    return found


def excess_of_numbers(
    stacks: Sequence[Any], arguments: Sequence[str], three: Sequence[Sequence[Array]],
    signs: Sequence[Array], results: Sequence[str],
) -> Array:  # fmt: skip
    """`excess_at_once` of the elements alone that all programs make numbers of, the one as written
    in the order `signs`, too: beside that order as well. Another element of the same input that is
    infinite hides such an error, if what makes that one infinite is luck."""
    fused, unfused, exact = three
    known = [
        np.logical_and.reduce([np.isfinite(a) for a in of_each])
        for of_each in zip(*three, signs, strict=True)
    ]

    def there(of_all: Sequence[Array]) -> list[Array]:
        return [np.where(k, a, 0.0) for k, a in zip(known, of_all, strict=True)]

    both = (
        excess_at_once(stacks, arguments, [there(fused), there(way), there(exact)], results)
        for way in (unfused, signs)
    )
    return np.minimum(*both)


def worst_of(
    names: Sequence[str], excess: Array, lacking: Array, off: Array, margin: float
) -> list[int]:
    """Which inputs `judge` is asked of: by name the worst of those over the margin, and one at
    least. First those that no luck excuses, where others of their name are infinite: they lack
    numbers, or are `off` in those that they have."""
    named: dict[str, list[int]] = {}
    for k in map(int, np.flatnonzero(excess > margin)):
        named.setdefault(names[k], []).append(k)
    each = max(1, min(JUDGED, MOST_JUDGED // max(len(named), 1)))
    sure = dict[int, int]()  # by how many of the same name are worse
    worst = set[int]()
    for of in named.values():
        worst |= {*sorted(of, key=lambda k: (-excess[k], -lacking[k]))[:each]}
        if any(excess[k] >= STRANGE for k in of):
            for far, least in ((lacking, 0.0), (off, margin)):
                some = sorted((k for k in of if far[k] > least), key=far.__getitem__, reverse=True)
                for place, k in enumerate(some[:JUDGED]):
                    sure[k] = min(place, sure.get(k, place))
    first = sorted(sure, key=lambda k: (sure[k], k))[:MOST_JUDGED]
    return [*first, *sorted(worst - {*first})]


def _of_floats(
    fused: Array, unfused: Array, exact: Array, dtype: str, together: Array, beyond: Array
) -> Array:
    """`Comparison.add` of a first run, and its excess."""
    count = len(exact)
    if not exact.size:
        return np.zeros(count)
    shape = (count, -1, exact.shape[-1] if exact.ndim > 2 else 1)
    fused, unfused, exact = (a.reshape(shape) for a in (fused, unfused, exact))
    of_exact, of_fused = kinds(rounded(exact, dtype)), kinds(fused)
    unknown = np.broadcast_to(beyond[:, None], shape[:1] + exact.shape[1:2])
    if together.any():
        size = norm(np.where(np.isfinite(exact), exact, 0.0), 2)
        low, high = ends(dtype)
        unknown = unknown | (together[:, None] & (((size > 0) & (size < low)) | (size > high)))
    of_unfused = kinds(unfused)
    alike = (of_fused == of_unfused) | (of_fused == of_exact) | unknown[..., None]
    compared = (of_exact == 0) & ~unknown[..., None]

    def ulps(got: Array) -> Array:
        apart = np.isfinite(got) & (np.isfinite(unfused) | (got != 0))
        error = norm(np.where(compared & apart, got - exact, 0.0), 2)
        return np.asarray(error / unit)

    sizes = norm(np.where(compared, exact, 0.0), 2)
    unit = EPSILON[dtype] * np.maximum(sizes, SMALLEST[dtype])
    limit = bound(bases(ulps(unfused), dtype), dtype)
    excess = np.nan_to_num(ulps(fused) / limit, nan=np.inf).max(1)
    excess = np.where(alike.all((1, 2)), excess, np.maximum(excess, STRANGE))
    return np.where((~alike & (of_unfused == of_exact)).any((1, 2)), np.inf, excess)
