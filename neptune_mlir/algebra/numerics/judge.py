# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program run fused, as written and in float64, and judged by the rule of `accuracy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.accuracy import (
    ANY,
    COUNTS,
    EPSILON,
    Array,
    Comparison,
    ends,
    rounded_to,
)
from neptune_mlir.algebra.numerics.moves import WIGGLES, jittered, moved_alike, wiggled
from neptune_mlir.algebra.numerics.orders import ORDERS

AGAIN = 16  # runs that even out luck
# Where those leave it close, more of them, as long as the error is less than this over its bound.
CLOSE = {64: 8.0, 256: 1.3, 1024: 1.15}
# Runs whose inputs move by parts of themselves, where a last place moves no rounding.
FURTHER, PARTS = 64, (2.0**-18, 2.0**-14, 2.0**-10, 2.0**-6)
DRAWS = 4  # of inputs of which none equal each other: two may move alike
ROUNDINGS = 64
VERY_LARGE = 1e150  # has a square in f64
FAR = 2.0**20  # an input is scaled where all that it holds is this far from 1

Run = Callable[[Sequence[Any]], Sequence[Any]]  # plain arrays in (see `judge`), float64 out


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
    # the program as written where 0 times anything is 0, by the number of an order of its sums
    hiding: Callable[[int], Run] | None = None

    def unfused_in(self, run: int) -> Run:
        """The program as written, its sums in the order of a run: that of run 0 is as written."""
        order = run % (ORDERS + 1)
        return self.reordered(order) if self.reordered and order else self.unfused

    def comparisons(self, part: float = 0.0) -> list[Comparison]:
        """One for each result, with nothing compared yet, of inputs that move by a part."""
        step = max([part, *(EPSILON[d] for d in self.arguments if d in EPSILON)])
        pairs = zip(self.results, self.rounded or self.results, strict=True)
        return [
            Comparison(d, rounded_to(d, t), within=self.within, step=step)
            for d, t in pairs
        ]

    @property
    def roles(self) -> list[str]:
        """What each argument is, as `hostile.forms` has it."""
        if self.exponents is None:
            return [""] * len(self.arguments)
        return ["score" if k in self.exponents else "value" for k in range(len(self.arguments))]

    def jittered(
        self, arguments: Sequence[Any], generator: np.random.Generator, part: float = 0.0
    ) -> list[Any]:
        """Arguments that differ in the last place, or by a part of themselves. Constants stay:
        masks, which are in what exponents are made of, and counts. Large numbers of 16 bits are
        whole, and alike, as well where they are data."""
        score = range(len(arguments)) if self.exponents is None else self.exponents
        return [
            jittered(value, dtype, generator, np.inf if k in score else COUNTS, part=part)
            for k, (value, dtype) in enumerate(zip(arguments, self.arguments, strict=True))
        ]

    def unequal(self, arguments: Sequence[Any], generator: np.random.Generator) -> list[Any]:
        """Arguments of which none equal each other any more (`jittered`)."""
        return [
            jittered(value, dtype, generator, -1.0, zeros=k in (self.exponents or ()))
            for k, (value, dtype) in enumerate(zip(arguments, self.arguments, strict=True))
        ]

    def summed(self, arguments: Sequence[Any]) -> list[list[Any]] | None:
        """The arguments with 0 in place of infinities and NaNs, and with infinities of the other
        sign; nothing where there are none, None where exponents are made of some."""
        if self.exponents is None:
            return None
        finite = [np.isfinite(np.asarray(a, float)) for a in arguments]
        if any(not finite[k].all() for k in self.exponents):
            return None
        if all(f.all() for f in finite):
            return []
        pairs = list(zip(arguments, finite, strict=True))
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

    def hidden(self, arguments: Sequence[Any]) -> list[Array] | None:
        """Of each result the elements that are the same whatever numbers stand in place of
        infinities and NaNs, in float64 and, as they are, in the fused program; None where the
        arguments have none."""
        finite = [np.isfinite(np.asarray(a, float)) for a in arguments]
        if all(f.all() for f in finite):
            return None
        pairs = list(zip(arguments, finite, strict=True))
        others = [[a if f.all() else np.where(f, a, n) for a, f in pairs] for n in ANY]
        self.prepare(others, [self.exact])
        self.prepare([arguments, others[0]], [self.fused])
        exact = [self.exact(other) for other in others]
        fused = [self.fused(arguments), self.fused(others[0])]
        return [
            np.logical_and.reduce([np.asarray(e[k]) == exact[0][k] for e in exact])
            & (np.asarray(fused[0][k]) == fused[1][k])
            for k in range(len(self.results))
        ]

    def far(self, arguments: Sequence[Any]) -> tuple[bool, bool]:
        """Whether several arguments are far from 1 altogether; and so far that the product of
        them comes near the ends of the range of f32."""
        sizes = [_size(a) for a, d in zip(arguments, self.arguments, strict=True) if d in EPSILON]
        far = [size for size in sizes if size > FAR or 0 < size < 1 / FAR]
        low, high = ends("f64" if "f64" in self.arguments else "f32")
        together = len(far) > 1
        return together, together and not low < np.prod(far) < high


def _size(values: Any) -> float:
    """The largest number of an array."""
    sizes = np.abs(np.asarray(values, np.float64))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def judge(programs: Programs, arguments: Sequence[Any], seed: int = 0) -> list[Comparison]:
    """The results of a program on these arguments, by the rule above.

    Arguments are plain: floats as float64 arrays of values that their type has, integers and
    conditions as they are.
    """
    found = _judged(programs, arguments, seed, False)
    if programs.ranged is not None and not all(c.ok for c in found):
        found = _judged(programs, arguments, seed, True)
    if programs.otherwise is not None and any(c.strangers for c in found):
        found = _judged(programs, arguments, seed, True, True, True)
    if not all(c.ok or c.strangers for c in found):
        _look_further(programs, arguments, seed, found)
    return found


def _look_further(
    programs: Programs, arguments: Sequence[Any], seed: int, found: Sequence[Comparison]
) -> None:
    """Inputs that move by more than a last place decide where one that does moves no rounding."""
    generator = np.random.default_rng(seed)
    alike = partial(_changed, moved_alike, programs)
    turned = _turned(programs, arguments)
    for move in (programs.jittered, alike):
        near = _moved(programs, arguments, generator, move, 0.0)
        for part in PARTS:
            away = _moved(programs, arguments, generator, move, part)
            for comparison, beside, further, other in zip(found, near, away, turned, strict=True):
                if not comparison.ok:
                    comparison.beside = comparison.further(further, beside, other)
            if all(c.ok or c.strangers for c in found):
                return


def _turned(programs: Programs, arguments: Sequence[Any]) -> Sequence[Comparison | None]:
    """The results beside the program as written with other roundings."""
    found = programs.comparisons()
    if programs.otherwise is None:
        return [None] * len(found)
    fused, exact = programs.fused(arguments), programs.exact(arguments)
    for number in range(1, ROUNDINGS + 1):
        written = programs.otherwise(number)(arguments)
        for comparison, *results in zip(found, fused, written, exact, strict=True):
            comparison.add(*results)
    return found


def _moved(
    programs: Programs, arguments: Sequence[Any], generator: np.random.Generator,
    move: Callable[..., Sequence[Any]], part: float,
) -> list[Comparison]:  # fmt: skip
    """The results on inputs that move by a part of themselves."""
    found = programs.comparisons(part)
    more = [move(arguments, generator, part) for _ in range(1, min(FURTHER, programs.most))]
    programs.prepare(more, [programs.fused, programs.exact])
    _prepare_orders(programs, more, 1)
    _prepare_range(programs, more, _run(programs, arguments, found))
    for k, changed in enumerate(more, 1):
        _run(programs, changed, found, order=k)
    return found


def _judged(
    programs: Programs, arguments: Sequence[Any], seed: int, doubt: bool, odd: bool = False,
    otherwise: bool = False,
) -> list[Comparison]:  # fmt: skip
    """`doubt`: whether the range of its types may be what the unfused program lacks. `odd`: whether
    an infinity or a NaN is where it must not be, in the first run or in a further one. `otherwise`:
    whether it may be there if the program as written has it with another rounding."""
    found = programs.comparisons()
    beyond = _run(programs, arguments, found, otherwise=otherwise)
    if all(c.ok for c in found):
        return found
    # From here on it costs more: does float64 know, and is it luck?
    generator = np.random.default_rng(seed)
    odd = odd or any(c.strangers for c in found)
    wiggles = AGAIN if odd else WIGGLES
    nearby = [_changed(wiggled, programs, arguments, generator) for _ in range(wiggles)]
    all_moved = partial(jittered, constants=-1.0)
    apart = [programs.unequal(arguments, generator) for _ in range(DRAWS)]
    moved = [arguments] * ORDERS * odd  # (in other orders)
    moved += [_changed(all_moved, programs, arguments, generator) for _ in range(AGAIN * odd)]
    programs.prepare([*nearby, *apart], [programs.exact])
    near, unequal = ([programs.exact(a) for a in several] for several in (nearby, apart))
    _prepare_orders(programs, moved, 1)
    jitters = [programs.unfused_in(k)(a) for k, a in enumerate(moved, 1)]
    found = programs.comparisons()
    hidden = programs.hidden(arguments)
    shifted = [programs.jittered(arguments, generator) for _ in range(AGAIN * odd)]
    programs.prepare(shifted, [programs.exact])
    known = [programs.exact(a) for a in shifted]
    _run(
        programs, arguments, found, near, unequal, jitters, hidden, doubt=doubt, shifted=known,
        otherwise=otherwise,
    )  # fmt: skip
    if all(c.ok or c.strangers for c in found):
        return found
    for runs in (AGAIN, *CLOSE):
        first = found[0].runs
        close = first == 1 or any(
            programs.within < c.excess <= CLOSE[runs] * programs.within for c in found
        )
        if not close or runs > programs.most:
            break
        more = [programs.jittered(arguments, generator) for _ in range(first, runs)]
        programs.prepare(more, [programs.fused, programs.exact])
        _prepare_orders(programs, more, first)
        _prepare_range(programs, more, [*beyond, *[programs.ranged] * doubt])
        for k, changed in enumerate(more, first):
            _run(
                programs, changed, found, hidden=hidden, order=k, doubt=doubt, otherwise=otherwise
            )
    if not odd and any(c.strangers for c in found):  # is it so in the unfused program, too?
        return _judged(programs, arguments, seed, doubt, True)
    return found


def _prepare_orders(programs: Programs, many: Sequence[Sequence[Any]], first: int) -> None:
    """Tell the unfused program of the arguments of runs with numbers from `first` on."""
    for order in range(ORDERS + 1):
        alike = [a for k, a in enumerate(many, first) if k % (ORDERS + 1) == order]
        programs.prepare(alike, [programs.unfused_in(order)])


def _prepare_range(
    programs: Programs, many: Sequence[Sequence[Any]], beyond: Sequence[Run | None]
) -> None:
    """Tell the programs that a run was compared with `beyond` its own of runs that are like it."""
    programs.prepare(many, [run for run in beyond if run is not None])


def _changed(
    change: Callable[..., Array], programs: Programs, arguments: Sequence[Any],
    generator: np.random.Generator, *more: Any,
) -> list[Any]:  # fmt: skip
    return [
        change(value, dtype, generator, *more)
        for value, dtype in zip(arguments, programs.arguments, strict=True)
    ]


def _run(
    programs: Programs, arguments: Sequence[Any], found: Sequence[Comparison],
    near: Sequence[Sequence[Any]] = (), unequal: Sequence[Sequence[Any]] = (),
    jitters: Sequence[Sequence[Any]] = (), hidden: Sequence[Array] | None = None, order: int = 0,
    doubt: bool = False, shifted: Sequence[Sequence[Any]] = (), otherwise: bool = False,
) -> list[Run]:  # fmt: skip
    """Compare the results of one run; which programs were asked beyond those that always are."""
    three = programs.fused, programs.unfused_in(order), programs.exact
    results = [run(arguments) for run in three]
    summed, (together, beyond) = programs.summed(arguments), programs.far(arguments)
    large = programs.limit(arguments)
    programs.prepare([*(summed or ()), *([large] if large else ())], [programs.exact])
    replaced = [programs.exact(changed) for changed in summed or ()]
    limit = programs.exact(large) if large else None
    asked = _beyond_range(programs, results[1], results[2], doubt)
    ranged, *ways = [run(arguments) for run in asked] or [None]
    for k, (comparison, fused, unfused, exact) in enumerate(zip(found, *results, strict=True)):
        of_near, of_unequal = ([values[k] for values in several] for several in (near, unequal))
        comparison.loose = summed is not None
        comparison.together, comparison.beyond = together, beyond
        of_jitters = [np.asarray(values[k]) for values in jitters]
        of_replaced = [np.asarray(values[k]) for values in replaced]
        comparison.add(
            fused, unfused, exact, of_near, of_unequal, of_replaced, of_jitters,
            False if hidden is None else hidden[k], ranged and ranged[k], [w[k] for w in ways],
            [np.asarray(values[k]) for values in shifted], limit and limit[k],
            _rounded_otherwise(programs, arguments, k) if otherwise else (),
            _hiding(programs, arguments, k),
        )  # fmt: skip
    return asked


def _hiding(programs: Programs, arguments: Sequence[Any], k: int) -> Iterator[Any]:
    """A result of the program as written where 0 times anything is 0, its sums in all orders."""
    if programs.hiding is not None:
        for order in range(ORDERS + 1):
            yield programs.hiding(order)(arguments)[k]


def _rounded_otherwise(programs: Programs, arguments: Sequence[Any], k: int) -> Iterator[Any]:
    """A result of the program as written with other roundings."""
    if programs.otherwise is not None:
        for number in range(1, ROUNDINGS + 1):
            yield programs.otherwise(number)(arguments)[k]


def _beyond_range(
    programs: Programs, unfused: Sequence[Any], exact: Sequence[Any], doubt: bool
) -> list[Run]:
    """What says more where the unfused program makes NaNs or infinities of numbers, or may have
    left the range of its types otherwise: `ranged`, and the program in other orders."""
    pairs = [(np.asarray(u), np.asarray(e)) for u, e in zip(unfused, exact, strict=True)]
    lost = any((np.isfinite(e) & ~np.isfinite(u)).any() for u, e in pairs if u.shape == e.shape)
    if programs.ranged is None or not (lost or doubt):
        return []
    noise = any((np.isnan(e) & np.isnan(u)).any() for u, e in pairs if u.shape == e.shape)
    others = range(1, ORDERS + 1) if lost or noise else ()
    return [programs.ranged, *(programs.unfused_in(order) for order in others)]
