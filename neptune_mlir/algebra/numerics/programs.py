# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program run fused, as written and in float64, and what else is asked of an input (`judge`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from neptune_mlir.algebra.numerics.accuracy import ANY, COUNTS, ends, rounded_to
from neptune_mlir.algebra.numerics.comparison import Comparison
from neptune_mlir.algebra.numerics.floats import EPSILON, Array
from neptune_mlir.algebra.numerics.moves import Move, jitter
from neptune_mlir.algebra.numerics.orders import EXACT, FURTHER_ORDERS, ORDERS

# Where a few runs leave it close, more of them, as long as the error is less than this over its
# bound.
CLOSE = {64: 8.0, 256: 1.3, 1024: 1.15}
VERY_LARGE = 1e150  # has a square in f64
FAR = 2.0**20  # an input is scaled where all that it holds is this far from 1

Run = Callable[[Sequence[Any]], Sequence[Any]]  # plain arrays in (see `judge`), float64 out
Request = tuple[Sequence[Sequence[Any]], Sequence[Run]]  # inputs, and programs that run on them
T = TypeVar("T")
Asking = Generator[Sequence[Request], None, T]  # says what it needs next before it needs it


@dataclass(frozen=True)
class Programs:
    """One program three ways, and the element types of its arguments and results."""

    fused: Run
    unfused: Run
    exact: Run
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    # arguments that exponents are made of, other than through a sum; None where nobody knows
    exponents: frozenset[int] | None = None
    # told of the arguments that some of these will run on, where that is cheaper together
    prepare: Callable[[Sequence[Sequence[Any]], Sequence[Run]], Any] = lambda many, runs: None
    # the program as written with its sums in another order, by a number from 1 (`orders`)
    reordered: Callable[[int], Run] | None = None
    # the program as written with the digits of f32 and the range of f64
    ranged: Run | None = None
    # how many runs may even out luck, where they cost more than doubt does
    most: int = max(CLOSE)
    within: float = 1.0  # what part of the bound is asked for
    # of each result the least type that it is rounded to on the way; its own where this is empty
    rounded: tuple[str, ...] = ()
    # `ranged` by the number of another rounding, from 1
    otherwise: Callable[[int], Run] | None = None
    # `exact` with each of its roundings down, and with each of them up
    directed: Sequence[Run] = ()
    # all of these with the program as written where 0 times anything is 0
    hiding: Callable[[], Programs] | None = None
    reported: bool = False  # whether somebody reads more of a comparison than its verdict

    def in_every_order(self) -> list[Run]:
        """The program as written with its sums in all orders but that of the program; at last with
        exact ones."""
        reordered = self.reordered
        orders = *range(1, ORDERS + 1), *FURTHER_ORDERS, EXACT
        return [reordered(order) for order in orders] if reordered else []

    def unfused_in(self, run: int) -> Run:
        """The program as written, its sums in the order of a run: that of run 0 is as written."""
        order = run % (ORDERS + 1)
        return self.reordered(order) if self.reordered and order else self.unfused

    def comparisons(self, part: float = 0.0) -> list[Comparison]:
        """One for each result, with nothing compared yet, of inputs that move by a part."""
        step = max([part, *(EPSILON[d] for d in self.arguments if d in EPSILON)])
        pairs = zip(self.results, self.rounded or self.results, strict=True)
        return [
            Comparison(
                d, rounded_to(d, t), within=self.within, step=step, reported=self.reported
            )
            for d, t in pairs
        ]

    @property
    def roles(self) -> list[str]:
        """What each argument is, as `hostile.forms` has it."""
        if self.exponents is None:
            return [""] * len(self.arguments)
        return ["score" if k in self.exponents else "value" for k in range(len(self.arguments))]

    def jitter(self, arguments: Sequence[Any], part: float = 0.0) -> list[Move]:
        """Arguments by a last place, or by a part of themselves. Constants stay:
        masks, which are in what exponents are made of, and counts. Large numbers of 16 bits are
        whole, and alike, as well where they are data."""
        score = range(len(arguments)) if self.exponents is None else self.exponents
        return [
            jitter(value, dtype, np.inf if k in score else COUNTS, part=part)
            for k, (value, dtype) in enumerate(zip(arguments, self.arguments, strict=True))
        ]

    def unequal(self, arguments: Sequence[Any], within: str = "") -> list[Move]:
        """Arguments by a last place, after which none equal each other any more. `within`: of this
        type where theirs has fewer digits."""
        return [
            jitter(value, self._finer(dtype, within), -1.0, zeros=k in (self.exponents or ()))
            for k, (value, dtype) in enumerate(zip(arguments, self.arguments, strict=True))
        ]

    def _finer(self, dtype: str, within: str) -> str:
        known = EPSILON.get(dtype, 0.0)
        return within if within and known > EPSILON[within] else dtype

    def each(self, move: Callable[..., Move], arguments: Sequence[Any], *more: Any) -> list[Move]:
        """Every argument in the same way."""
        return [move(v, d, *more) for v, d in zip(arguments, self.arguments, strict=True)]

    def summed(self, arguments: Sequence[Any], finite: bool) -> list[list[Any]] | None:
        """The arguments with 0 in place of infinities and NaNs, and with infinities of the other
        sign; nothing where there are none, None where exponents are made of some."""
        if self.exponents is None:
            return None
        if finite:
            return []
        known = [np.isfinite(np.asarray(a, float)) for a in arguments]
        if any(not known[k].all() for k in self.exponents):
            return None
        if all(f.all() for f in known):
            return []
        pairs = list(zip(arguments, known, strict=True))
        turned = [a if f.all() else np.where(f, a, -np.asarray(a)) for a, f in pairs]
        return [[a if f.all() else np.where(f, a, 0.0) for a, f in pairs], turned]

    def limit(self, arguments: Sequence[Any]) -> list[Any] | None:
        """The arguments with very large numbers in place of infinities; None where there are none,
        or NaNs beside them."""
        values = [np.asarray(a, float) for a in arguments]
        if any(np.isnan(v).any() for v in values) or not any(np.isinf(v).any() for v in values):
            return None
        pairs = zip(arguments, values, strict=True)
        return [np.clip(v, -VERY_LARGE, VERY_LARGE) if np.isinf(v).any() else a for a, v in pairs]

    def hidden(self, arguments: Sequence[Any]) -> Asking[list[Array] | None]:
        """Of each result the elements that are the same whatever numbers stand in place of
        infinities and NaNs, in float64 and, as they are, in the fused program, where the program
        makes no number of them as they are, and the fused one is right; None where the arguments
        have none."""
        finite = [np.isfinite(np.asarray(a, float)) for a in arguments]
        if all(f.all() for f in finite):
            return None
        pairs = list(zip(arguments, finite, strict=True))
        others = [[a if f.all() else np.where(f, a, n) for a, f in pairs] for n in ANY]
        here = [arguments, others[0]]
        yield [(others, [self.exact]), (here, [self.fused, self.unfused, self.exact])]
        exact = [self.exact(other) for other in others]
        fused, unfused = ([run(a) for a in here] for run in (self.fused, self.unfused))
        found = []
        for k, comparison in enumerate(self.comparisons()):
            comparison.add(fused[1][k], unfused[1][k], exact[0][k])
            same = np.logical_and.reduce([np.asarray(e[k]) == exact[0][k] for e in exact])
            numbers = np.isfinite(unfused[0][k]) & np.isfinite(self.exact(arguments)[k])
            found.append(
                same & (np.asarray(fused[0][k]) == fused[1][k]) & ~numbers & comparison.near
            )
        return found


def far_from_one(stacks: Sequence[Array], dtypes: Sequence[str]) -> tuple[Array, Array]:
    """Of each of several inputs, which the first dimension of each stack counts: whether several
    arguments are far from 1 altogether; and so far that the product of them comes near the ends of
    the range of f32."""
    count = len(stacks[0])
    number, product = np.zeros(count, int), np.ones(count)
    for stack, dtype in zip(stacks, dtypes, strict=True):
        if dtype in EPSILON:
            sizes = np.abs(np.asarray(stack, np.float64)).reshape(count, -1)
            size = sizes.max(1, where=np.isfinite(sizes), initial=0.0)
            far = (size > FAR) | ((size > 0) & (size < 1 / FAR))
            number += far
            with np.errstate(over="ignore"):
                product = np.where(far, product * size, product)
    low, high = ends("f64" if "f64" in dtypes else "f32")
    together = number > 1
    return together, together & ~((low < product) & (product < high))
