# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fused programs judged by the rule of `accuracy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.accuracy import FURTHEST
from neptune_mlir.algebra.numerics.at_once import stacked
from neptune_mlir.algebra.numerics.comparison import Comparison
from neptune_mlir.algebra.numerics.floats import EPSILON, Array
from neptune_mlir.algebra.numerics.moves import WIGGLES, Move, alike, jitter, moved_together, wiggle
from neptune_mlir.algebra.numerics.orders import ORDERS, SIGNS
from neptune_mlir.algebra.numerics.programs import (
    CLOSE,
    Asking,
    Programs,
    Request,
    Run,
    far_from_one,
)
from neptune_mlir.algebra.numerics.rearranged import Rearrangement, by_size, rearrangements

AGAIN = 16  # runs that even out luck; more where these leave it close
# Runs whose inputs move by parts of themselves, where a last place moves no rounding.
FURTHER, PARTS = 64, (2.0**-18, 2.0**-14, 2.0**-10, FURTHEST)
ELEMENTS = 32  # orders of elements, in which a program as written may be worse than in all others
WORST = 4  # rows whose elements are put in order of their sizes
DRAWS = 4  # of inputs of which none equal each other: two may move alike
ROUNDINGS = 64


def judge(programs: Programs, arguments: Sequence[Any], seed: int = 0) -> list[Comparison]:
    """The results of a program on these arguments, by the rule above.

    Arguments are plain: floats as float64 arrays of values that their type has, integers and
    conditions as they are.
    """
    return judge_each(programs, [arguments], seed)[0]


def judge_each(
    programs: Programs, many: Sequence[Sequence[Any]], seed: int = 0
) -> list[list[Comparison]]:
    """`judge`, of several inputs side by side: what they run on next is prepared together."""
    found: list[list[Comparison]] = [[] for _ in many]
    going = {k: _judging(programs, arguments, seed) for k, arguments in enumerate(many)}
    while going:
        asked: dict[int, tuple[Run, list[Sequence[Any]]]] = {}
        for k, judging in list(going.items()):
            try:
                requests = next(judging)
            except StopIteration as end:
                found[k] = end.value
                del going[k]
                continue
            for several, runs in requests:
                for run in runs:
                    asked.setdefault(id(run), (run, []))[1].extend(several)
        for run, several in asked.values():
            programs.prepare(several, [run])
    return found


def _judging(programs: Programs, arguments: Sequence[Any], seed: int) -> Asking[list[Comparison]]:
    if programs.otherwise is not None:
        programs = replace(programs, otherwise=_kept(programs.otherwise))
    beside = {odd: _Beside(programs, arguments, seed, odd) for odd in (False, True)}
    found = yield from _judged(programs, beside, _Look())
    if programs.ranged is not None and not all(c.ok for c in found):
        found = yield from _judged(programs, beside, _Look(doubt=True))
    if programs.otherwise is not None and any(c.strangers for c in found):
        found = yield from _judged(programs, beside, _Look(doubt=True, otherwise=True), True)
    if not all(c.ok or c.strangers for c in found):
        yield from _look_further(programs, arguments, seed, found)
    if programs.hiding is not None and not all(c.ok for c in found):
        hiding = yield from _judging(_with_hidden(programs), arguments, seed)
        found = [b if b.ok else a for a, b in zip(found, hiding, strict=True)]
    if programs.otherwise is not None and not all(c.ok for c in found):
        odd = any(c.strangers for c in found)
        look = _Look(doubt=True, otherwise=odd, every=True)
        last = yield from _judged(programs, beside, look, odd)
        if not all(c.ok or c.strangers for c in last):
            yield from _rearranged(programs, beside[odd], look, last)
        found = [b if b.ok else a for a, b in zip(found, last, strict=True)]
    return found


def _kept(otherwise: Callable[[int], Run]) -> Callable[[int], Run]:
    """The same with what the last arguments gave: each look at an input asks again."""
    found: dict[int, tuple[Sequence[Any], Sequence[Any]]] = {}

    def kept(number: int) -> Run:
        def run(arguments: Sequence[Any]) -> Sequence[Any]:
            if number not in found or found[number][0] is not arguments:
                found[number] = arguments, otherwise(number)(arguments)
            return found[number][1]

        return run

    return kept


@dataclass(frozen=True)
class _Look:
    """How closely one looks.

    Attributes:
        doubt: whether the range of its types may be what the unfused program lacks.
        otherwise: whether an infinity or a NaN may be where the program as written has it with
            another rounding.
        every: whether it leaves the range of its types where it does in any order of many.
    """

    doubt: bool = False
    otherwise: bool = False
    every: bool = False


def _with_hidden(programs: Programs) -> Programs:
    """The program as written where 0 times anything is 0. What is a NaN without may stay one: the
    fused program visits some of what a mask leaves out, beside what it does not."""
    assert programs.hiding is not None
    that = programs.hiding()

    def staying(run: Run) -> Run:
        def call(arguments: Sequence[Any]) -> list[Array]:
            found, written = run(arguments), programs.unfused(arguments)
            lost = [np.isnan(u) > np.isnan(r) for u, r in zip(written, found, strict=True)]
            if any(map(np.any, lost)):  # seldom, and a fused program may be slow (simulators)
                fused = programs.fused(arguments)
                lost = [n & np.isnan(r) for n, r in zip(lost, fused, strict=True)]
            return [np.where(n, np.nan, r) for n, r in zip(lost, found, strict=True)]

        return call

    assert that.reordered is not None
    reordered = that.reordered
    return replace(
        that, fused=programs.fused, unfused=staying(that.unfused), exact=staying(that.exact),
        reordered=lambda order: staying(reordered(order)), prepare=programs.prepare,
        directed=[staying(run) for run in that.directed],
        most=programs.most, within=programs.within, rounded=programs.rounded,
    )  # fmt: skip


class _Beside:
    """Inputs beside one, drawn from a seed in one order whoever asks for them: what was computed
    of them is not computed again when the input is judged again."""

    def __init__(self, programs: Programs, arguments: Sequence[Any], seed: int, odd: bool):
        self.programs, self.arguments, self._odd = programs, arguments, odd
        self._generator = np.random.default_rng(seed)
        self._more: list[list[Any]] = []  # of further runs, so far
        self._hidden: tuple[list[Array] | None] | None = None

    @cached_property
    def _first(self) -> tuple[list[list[Any]], ...]:
        programs, arguments = self.programs, self.arguments
        drawn = (
            (programs.each(wiggle, arguments), AGAIN if self._odd else WIGGLES),
            (programs.unequal(arguments), DRAWS),
            (programs.each(jitter, arguments, -1.0), AGAIN * self._odd),
            (programs.jitter(arguments), AGAIN * self._odd),
        )
        return tuple(moved_together(moves, self._generator, times) for moves, times in drawn)

    @property
    def nearby(self) -> list[list[Any]]:
        """Inputs that differ in the last places of float64."""
        return self._first[0]

    @cached_property
    def apart(self) -> list[list[Any]]:
        """Inputs of which none equal each other. What f32 makes of equal numbers of 16 bits is
        noise of its own last place: theirs may leave one weight of a softmax."""
        programs = self.programs
        narrow = any(EPSILON.get(d, 0.0) > EPSILON["f32"] for d in programs.arguments)
        if not narrow or programs.otherwise is None:
            return self._first[1]
        finer = programs.unequal(self.arguments, "f32")
        return [*self._first[1], *moved_together(finer, np.random.default_rng(AGAIN), DRAWS)]

    @property
    def moved(self) -> list[list[Any]]:
        """Inputs that differ in the last place, constants too."""
        return self._first[2]

    @property
    def shifted(self) -> list[list[Any]]:
        """The same, but for constants."""
        return self._first[3]

    @cached_property
    def _jitter(self) -> list[Move]:
        return self.programs.jitter(self.arguments)

    def further(self, first: int, last: int) -> list[list[Any]]:
        """The inputs of runs from `first` on, and before `last`."""
        more, times = self._more, last - 1 - len(self._more)
        more += moved_together(self._jitter, self._generator, max(times, 0))
        return more[first - 1 : last - 1]

    def hidden(self) -> Asking[list[Array] | None]:
        if self._hidden is None:
            found = yield from self.programs.hidden(self.arguments)
            self._hidden = (found,)  # which may be nothing
        return self._hidden[0]


def _look_further(
    programs: Programs, arguments: Sequence[Any], seed: int, found: Sequence[Comparison]
) -> Asking[None]:
    """Inputs that move by more than a last place decide where one that does moves no rounding."""
    generator = np.random.default_rng(seed)
    turned = _turned(programs, arguments)
    for move in (programs.jitter, partial(programs.each, alike)):
        near = yield from _moved(programs, arguments, generator, move, 0.0)
        for part in PARTS:
            away = yield from _moved(programs, arguments, generator, move, part)
            for comparison, beside, further, other in zip(found, near, away, turned, strict=True):
                if not comparison.ok:
                    comparison.beside = comparison.further(further, beside, other)
            if all(c.ok or c.strangers for c in found):
                return


def _rearranged(
    programs: Programs, beside: _Beside, look: _Look, found: Sequence[Comparison]
) -> Asking[None]:
    """Whether an error is luck that inputs which move keep: the program as written has it in some
    order of its sums, or of the elements of all of them, and the elements of the inputs in other
    orders have no such error."""
    arguments = beside.arguments
    generator = np.random.default_rng(AGAIN)
    draws = rearrangements(programs.exact, arguments, generator, FURTHER - 1)
    if not draws:
        return
    elsewhere = programs.comparisons()
    many = [arguments, *beside.further(1, FURTHER)]
    runs = []
    for k, (inputs, way) in enumerate(zip(many, (None, *draws), strict=True)):
        there = programs if way is None else _in_the_order(programs, way)
        runs += yield from _runs(there, [inputs], look, k)
    _compare_all(runs, elsewhere, look)
    many = [arguments, *beside.further(1, found[0].runs)]
    for k, (comparison, other) in enumerate(zip(found, elsewhere, strict=True)):
        if not comparison.ok and not comparison.strangers:
            shape = np.shape(programs.exact(arguments)[k])
            within = [way.without(shape) for way in draws[:ELEMENTS]]
            for row in comparison.rows_over[:WORST]:
                at = np.unravel_index(row, shape[:-1] or shape)
                known = dict(zip(shape, map(int, at), strict=False))
                within += by_size(arguments, within[0].of_extents, known)
            comparison.take_worst_order(_off_in_orders(programs, within, many, k))
            if not other.ok:
                comparison.beside = other.excess


def _off_in_orders(
    programs: Programs, ways: Sequence[Rearrangement], many: Sequence[Sequence[Any]], k: int
) -> list[Array]:
    """What the program as written is off by with its elements in each of some orders, in result
    `k`, by run and row. (Rows stay where they are: the error of one is no luck of another.)"""
    comparison = programs.comparisons()[k]
    return [
        comparison.errors_of(*(
            np.stack([run(inputs)[k] for inputs in many]) for run in (there.unfused, there.exact)
        ))
        for there in (_in_the_order(programs, way) for way in ways if way.of_extents)
    ]  # fmt: skip


def _in_the_order(programs: Programs, way: Rearrangement) -> Programs:
    """The programs on rearranged inputs, with results that are put back."""
    def of(run: Run) -> Run:
        return lambda arguments: [way.back(r) for r in run([way(a) for a in arguments])]

    reordered, ranged = programs.reordered, programs.ranged
    return replace(
        programs, fused=of(programs.fused), unfused=of(programs.unfused), exact=of(programs.exact),
        reordered=reordered and (lambda order: of(reordered(order))), ranged=ranged and of(ranged),
        directed=[of(run) for run in programs.directed],
    )


def _turned(programs: Programs, arguments: Sequence[Any]) -> Sequence[Comparison | None]:
    """The results beside the program as written with other roundings."""
    found = programs.comparisons()
    if programs.otherwise is None:
        return [None] * len(found)
    fused, exact = programs.fused(arguments), programs.exact(arguments)
    written = [programs.otherwise(number)(arguments) for number in range(1, ROUNDINGS + 1)]
    for comparison, a, c, *several in zip(found, fused, exact, *written, strict=True):
        comparison.add_runs(np.stack([a] * ROUNDINGS), np.stack(several), np.stack([c] * ROUNDINGS))
    return found


def _moved(
    programs: Programs, arguments: Sequence[Any], generator: np.random.Generator,
    move: Callable[..., Sequence[Move]], part: float,
) -> Asking[list[Comparison]]:  # fmt: skip
    """The results on inputs that move by a part of themselves."""
    found = programs.comparisons(part)
    times = min(FURTHER, programs.most) - 1
    more = moved_together(move(arguments, part), generator, times)
    yield from _run(programs, [arguments, *more], found, _Look())
    return found


def _judged(
    programs: Programs, besides: Mapping[bool, _Beside], look: _Look, odd: bool = False
) -> Asking[list[Comparison]]:
    """`odd`: whether an infinity or a NaN is where it must not be, in the first run or in a further
    one."""
    arguments = besides[odd].arguments
    found = programs.comparisons()
    yield from _run(programs, [arguments], found, look)
    if all(c.ok for c in found):
        return found
    # From here on it costs more: does float64 know, and is it luck?
    odd = odd or any(c.strangers for c in found)
    beside = besides[odd]
    moved = [arguments] * ORDERS * odd  # (in other orders)
    moved += beside.moved
    besides_it = beside.nearby, beside.apart, beside.shifted
    yield [(several, [programs.exact]) for several in besides_it] + _in_orders(programs, moved, 1)
    near, unequal, known = ([programs.exact(a) for a in several] for several in besides_it)
    near += [run(arguments) for run in programs.directed]
    jitters = [programs.unfused_in(k)(a) for k, a in enumerate(moved, 1)]
    if odd and programs.reordered:
        jitters.append(programs.reordered(SIGNS)(arguments))
    if look.every:
        jitters += [run(arguments) for run in programs.in_every_order()]
    found = programs.comparisons()
    hidden = yield from beside.hidden()
    also: dict[str, Any] = {"near": near, "unequal": unequal, "jitters": jitters, "shifted": known}
    yield from _run(programs, [arguments], found, look, hidden=hidden, **also)
    if all(c.ok or c.strangers for c in found):
        return found
    for runs in (AGAIN, *CLOSE):
        first = found[0].runs
        close = first == 1 or any(
            programs.within < c.excess <= CLOSE[runs] * programs.within
            or (programs.within < c.excess < np.inf and c.seldom)
            for c in found
        )
        if not close or runs > programs.most:
            break
        more = beside.further(first, runs)
        yield from _run(programs, more, found, look, first, hidden=hidden)
    if not odd and any(c.strangers for c in found):  # is it so in the unfused program, too?
        return (yield from _judged(programs, besides, replace(look, otherwise=False), True))
    if any(c.alone > programs.within for c in found):
        for way in _ways(programs, look):
            written = way(arguments)
            for one, *of_one in zip(found, written, programs.exact(arguments), strict=True):
                one.in_orders += [*one.errors_of(*(np.asarray(a)[None] for a in of_one))]
    return found


def _ways(programs: Programs, look: _Look) -> list[Run]:
    """The program as written in other orders of its sums."""
    if look.every:
        return programs.in_every_order()
    orders = range(1, ORDERS + 1) if programs.reordered else ()
    return [programs.unfused_in(order) for order in orders]


def _in_orders(
    programs: Programs, many: Sequence[Sequence[Any]], first: int
) -> list[Request]:
    """What the unfused program is asked in runs with numbers from `first` on."""
    return [
        ([a for k, a in enumerate(many, first) if k % (ORDERS + 1) == order],
         [programs.unfused_in(order)])
        for order in sorted({k % (ORDERS + 1) for k in range(first, first + len(many))})
    ]  # fmt: skip


@dataclass
class _OneRun:
    """An input, what the three programs make of it, and what else says more of it."""

    programs: Programs
    arguments: Sequence[Any]
    results: list[list[Array]]
    asked: list[Run]
    far: tuple[bool, bool]
    summed: list[list[Any]] | None
    limit: list[Any] | None

    @property
    def form(self) -> Any:
        """Runs of one form are compared together."""
        shapes = [[r.shape for r in of_program] for of_program in self.results]
        return shapes, len(self.asked), self.far, self.summed and len(self.summed), not self.limit


def _run(
    programs: Programs, many: Sequence[Sequence[Any]], found: Sequence[Comparison], look: _Look,
    first: int = 0, **known: Any,
) -> Asking[None]:  # fmt: skip
    """Compare the results of several runs, with numbers from `first` on. `known`: of `_compare`."""
    _compare_all((yield from _runs(programs, many, look, first)), found, look, **known)


def _runs(
    programs: Programs, many: Sequence[Sequence[Any]], look: _Look, first: int
) -> Asking[list[_OneRun]]:
    """Several runs, with numbers from `first` on."""
    yield [(many, [programs.fused, programs.exact]), *_in_orders(programs, many, first)]
    stacks = stacked(many)
    finite = all(np.isfinite(stack).all() for stack in stacks)
    runs = []
    far = zip(*far_from_one(stacks, programs.arguments), strict=True)
    for number, (arguments, (together, beyond)) in enumerate(zip(many, far, strict=True), first):
        three = programs.fused, programs.unfused_in(number), programs.exact
        results = [[np.asarray(r) for r in run(arguments)] for run in three]
        asked = _beyond_range(programs, results[1], results[2], look)
        limit = None if finite else programs.limit(arguments)
        more = (bool(together), bool(beyond)), programs.summed(arguments, finite), limit
        runs.append(_OneRun(programs, arguments, results, asked, *more))
    replaced = [a for one in runs for a in (*(one.summed or ()), one.limit) if a is not None]
    further = [([one.arguments], one.asked) for one in runs if one.asked]
    if replaced or further:
        yield [(replaced, [programs.exact]), *further]
    return runs


def _compare_all(
    runs: Sequence[_OneRun], found: Sequence[Comparison], look: _Look, **known: Any
) -> None:
    for _, group in groupby(runs, lambda one: one.form):
        some = list(group)
        for k, comparison in enumerate(found):
            _compare(some, k, comparison, look, **known)


def _compare(
    runs: Sequence[_OneRun], k: int, comparison: Comparison, look: _Look,
    near: Sequence[Any] = (), unequal: Sequence[Any] = (), jitters: Sequence[Any] = (),
    hidden: Sequence[Array] | None = None, shifted: Sequence[Any] = (),
) -> None:  # fmt: skip
    """Add runs of one form to the comparison of result `k`."""
    first = runs[0]
    fused, unfused, right = (np.array([one.results[p][k] for one in runs]) for p in range(3))
    replaced = [
        np.array([one.programs.exact(a)[k] for one, a in zip(runs, several, strict=True)])
        for several in zip(*(one.summed or () for one in runs), strict=True)
    ]
    asked = zip(*([run(one.arguments)[k] for run in one.asked] for one in runs), strict=True)
    beyond = [np.array(several) for several in asked]
    limit = [one.programs.exact(one.limit)[k] for one in runs if one.limit is not None]
    comparison.loose = first.summed is not None
    comparison.together, comparison.beyond = first.far
    of_near, of_unequal, of_jitters, of_shifted = (
        [np.asarray(values[k]) for values in several]
        for several in (near, unequal, jitters, shifted)
    )
    comparison.add_runs(
        fused, unfused, right, of_near, of_unequal, replaced, of_jitters,
        False if hidden is None else hidden[k],
        beyond[0] if beyond else None, beyond[1:], of_shifted,
        np.array(limit) if limit else None,
        [_rounded_otherwise(one.programs, one.arguments, k) for one in runs]
        if look.otherwise else (), look.every,
    )  # fmt: skip


def _rounded_otherwise(programs: Programs, arguments: Sequence[Any], k: int) -> Iterator[Any]:
    """A result of the program as written with other roundings."""
    if programs.otherwise is not None:
        for number in range(1, ROUNDINGS + 1):
            yield programs.otherwise(number)(arguments)[k]


def _beyond_range(
    programs: Programs, unfused: Sequence[Array], exact: Sequence[Array], look: _Look
) -> list[Run]:
    """What says more where the unfused program makes NaNs or infinities of numbers, or may have
    left the range of its types otherwise: `ranged`, and the program in other orders."""
    if programs.ranged is None:
        return []
    pairs = [(u, e) for u, e in zip(unfused, exact, strict=True) if u.shape == e.shape]
    lost = any((np.isfinite(e) & ~np.isfinite(u)).any() for u, e in pairs)
    if not (lost or look.doubt):
        return []
    noise = any((np.isnan(e) & np.isnan(u)).any() for u, e in pairs)
    return [programs.ranged, *(_ways(programs, look) if lost or noise or look.every else ())]
