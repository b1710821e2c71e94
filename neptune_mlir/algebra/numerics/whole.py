# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A whole program on inputs that hurt, fused and as written: the rule of `--check`, as it compiles.

The stress test (`stress`) sees one chain, and what the chain reads is data to it. What follows a
chain may still turn its errors into more: a sum that cancels, a norm of what is 0 but for rounding,
a variance that overflows into a root. So the program is judged once more from its arguments to its
results, by row, with the inputs and the bound that `neptune run --check=hostile` has (`hostile`,
`judge`), and some inputs more (`whole_inputs`). Everything is evaluated with NumPy on small
extents, all inputs at once.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics import hostile
from neptune_mlir.algebra.numerics.accuracy import DIGITS_OF_F32
from neptune_mlir.algebra.numerics.at_once import (
    JUDGED_TOGETHER,
    STRANGE,
    excess_at_once,
    excess_of_numbers,
    numbers_lacking,
    stacked,
    worst_of,
)
from neptune_mlir.algebra.numerics.evaluation import Array, Domain
from neptune_mlir.algebra.numerics.floats import rounded
from neptune_mlir.algebra.numerics.judge import judge_each
from neptune_mlir.algebra.numerics.kept import Forms, Kept, keep_memory
from neptune_mlir.algebra.numerics.orders import SIGNS
from neptune_mlir.algebra.numerics.programs import Programs
from neptune_mlir.algebra.numerics.remembered import remembered
from neptune_mlir.algebra.numerics.steps import IN_ORDER, NestStep, Step, apart
from neptune_mlir.algebra.numerics.whole_inputs import CANCELLING, LEFT, cancellations, further
from neptune_mlir.algebra.terms import Term, is_float, walk

PLANS = ((3, 1), (5, 3))  # tile, chunks; each with other numbers
# Rows that are cut in chunks are long, and what is close to the largest number in each of 29
# elements overflows there. So does the sum of the program as written. Sums of what softmax has not
# divided yet are as many times larger as a row has elements: where one of them overflows and that
# of the program does not is seen by one of these limits, from the largest number over 29 to a
# quarter of it, and below.
LONGER = {1: 1.0, 2: 8.0, 3: 64.0}  # by chunks
NEAR_ENDS = (4, 2), 2.0**50  # a plan for inputs that hold larger numbers than this
STEPS = 6  # of a program; of one with more of them, fewer rows, for each takes as much longer
ONE_STEP = (1 << 20, 1)  # whatever the order is
SEED = 11
# Inputs are evaluated in so many parts. Of each part those are judged that are so far over their
# bound, which is seldom luck: where one of them is wrong, nobody needs the other parts. What is
# close to the bound, and mostly right, is judged of all parts together. What takes fewer calls than
# this to evaluate has one part: judging takes longer there, and is cheaper together.
PARTS, SURE, DEAR = 8, 8.0, 4
RUNS = 64  # of one input, where rounding decides
MARGIN = 0.8  # of the bound: other numbers than those tried here, in other orders, do worse
CLOSE, MORE = 0.6, 256  # of the bound: such inputs are drawn again for each plan, for so many rows
SELDOM = 4  # times less often where an element is infinite or a NaN: other numbers say little more
# Points of the inputs that are evaluated together, so that their values stay in a cache; and inputs
# at least, for each call of NumPy costs as much as a thousand points. LONG of them are better than
# fewer, up to so many times POINTS: loops over inputs are the innermost.
POINTS, FEWEST, LONG, TIMES = 1 << 18, 16, 64, 4
ROUNDED = 8  # times as many where sums are rounded step by step: values are few, and calls many
TURNS = 3  # how often an input is made anew from what it nearly cancels


@dataclass
class WholeProgram:
    """Steps by what they make, on small extents.

    Attributes:
        inputs: shape and element type of every tensor that no step makes.
        scalars: numbers that no axis changes.
        results: what is compared, with element types.
        exponents: the inputs that exponents are made of, other than through a sum; None where
            that cannot be told.
        rounded: of each result the narrowest type that it is rounded to on the way.
    """

    inputs: Mapping[str, tuple[tuple[int, ...], str]]
    scalars: Mapping[Any, float]
    results: Mapping[str, str]
    exponents: frozenset[str] | None
    rounded: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def _ordered(self) -> dict[int, tuple[Sequence[Step], list[Step]]]:
        return {}

    def _in_order(self, steps: Sequence[Step]) -> list[Step]:
        """The steps that results need, each behind those that make what it reads; worked out once
        for many batches."""
        if id(steps) not in self._ordered:
            found = [*_in_order(steps, [*self.results], self.inputs)]
            self._ordered[id(steps)] = steps, found
        return self._ordered[id(steps)][1]

    def values(
        self, steps: Sequence[Step], data: Mapping[str, Array], kind: Any,
        plan: tuple[int, int] = ONE_STEP, digits: int = 0, longer: float = 1.0,
        kept: Kept | None = None,
    ) -> list[Array]:  # fmt: skip
        """The results for a batch of inputs, in float64 or in the types of the program."""
        rank = max(len(step.extents) for step in steps)
        found: dict[str, Array] = dict(data)
        with np.errstate(all="ignore"):
            for step in self._in_order(steps):
                extents = step.extents + (1,) * (rank - len(step.extents))  # what is kept has one
                domain = Domain(extents, found, self.scalars, kind, True, digits, longer, kept)
                found.update(step.run(domain, plan))
        count = len(next(iter(data.values())))
        return [np.broadcast_to(found[key], (count, *found[key].shape[1:])) for key in self.results]


def _in_order(
    steps: Sequence[Step], wanted: Sequence[str], known: Collection[str]
) -> Iterator[Step]:
    """The steps that `wanted` tensors need, each behind those that make what it reads."""
    makers = {key: step for step in steps for key in step.makes}
    made, left = {*known}, [*reversed(wanted)]
    while left:
        key = left.pop()
        if key in made:
            continue
        step = makers[key]
        missing = sorted(step.tensors - made)
        if missing:
            left += [key, *reversed(missing)]
            continue
        made.update(step.makes)
        yield step


def wrong_values(
    definition: WholeProgram, written: Sequence[Step], whole: WholeProgram, now: Sequence[Step],
    plans: Sequence[tuple[int, int]] = PLANS, refused: list[_Trial] | None = None,
) -> str:  # fmt: skip
    """The first input on which the steps `now` are not as right as those `written`, which result
    it is and how far it is off; nothing where there is none.

    Errors have to be within MARGIN of their bound: kernels add up in other orders than NumPy does
    here, and users have other numbers.

    Args:
        definition: the program of the latter; `whole` has its inputs and results in the same
            order, by the names that they have now.
        refused: has the trial of a form that was refused, of the same program as written: another
            one has the same inputs and runs as written. (Of one that is right nothing is kept.)
    """
    refused = [] if refused is None else refused
    steps = [tuple(step.content for step in steps) for steps in (written, now)]
    content = "whole", definition, whole, *steps, tuple(plans)

    def find() -> str:
        trial = refused.pop() if refused else _Trial(definition, written, whole, now)
        trial.becomes = whole, now
        if found := _wrong_values(trial, plans):
            refused.append(trial)
        return found

    found: str = remembered(content, find, likely="")
    return found


def _wrong_values(trial: _Trial, plans: Sequence[tuple[int, int]]) -> str:
    keep_memory()
    close, first = set[str](), list[hostile.HostileCall]()
    for seed, plan in enumerate(plans, SEED):
        cases = trial.cases(seed)
        first = first or cases
        wrong, near = trial.verdict(cases, plan)
        if wrong:
            return wrong
        close |= near
    plan, size = NEAR_ENDS
    large = [case for case in first if _largest(case) > size]
    wrong, near = trial.verdict(large, plan) if large else ("", set())
    if wrong:
        return wrong
    close |= near
    draws = -(-MORE * STEPS // (trial.rows * max(trial.steps, STEPS)))
    for first, plan in enumerate(plans, SEED + len(plans)) if close else ():
        numbers = {name for name in close if not _has_one(name)}
        again = [
            case for k in range(draws)
            for case in trial.cases(first + k * len(plans), numbers if k % SELDOM else close)
        ]  # fmt: skip
        wrong, _ = trial.verdict(again, plan)
        if wrong:
            return wrong
    return ""


def _largest(case: hostile.HostileCall) -> float:
    """The largest number among the arguments."""
    sizes = (np.abs(np.asarray(a, np.float64)) for a in case.arguments)
    return max(float(s.max(where=np.isfinite(s), initial=0.0)) for s in sizes)


def _has_one(name: str) -> bool:
    """Whether an input is one of those with an infinity or a NaN in one element (`hostile`)."""
    return ": one " in name


def _vanishes(name: str) -> bool:
    """Whether weights have hardly any digits: what is made of them may hide that on these data."""
    return ": alone, " in name


class _Trial:
    """A program as written and as it is to be, and what is known of both."""

    def __init__(
        self, definition: WholeProgram, written: Sequence[Step], whole: WholeProgram,
        now: Sequence[Step],
    ):  # fmt: skip
        self._definition = definition
        self.steps = len(written)
        self.rows = 1  # of the result that has fewest
        self.becomes = whole, now
        self._written = written
        self._all_cases: dict[int, list[hostile.HostileCall]] = {}  # by seed
        self._cancellations = cancellations(written, definition.inputs)
        generator = np.random.default_rng(SEED)
        self._plain = [hostile.plain(generator, s, d) for s, d in definition.inputs.values()]
        self._exact = _Run(definition, written, np.float64)
        self._ranged = _Run(definition, written, np.float64, (IN_ORDER, 0), DIGITS_OF_F32)
        self._ways = {
            longer: [
                _Run(definition, written, np.float32, (IN_ORDER, k), 0, longer)
                for k in range(SIGNS + 1)
            ]
            for longer in LONGER.values()
        }

    def _programs(self, fused: _Run) -> Programs:
        definition = self._definition
        inputs, results, rounded = definition.inputs, definition.results, definition.rounded
        exponents = definition.exponents
        places = (
            None
            if exponents is None
            else frozenset(k for k, name in enumerate(inputs) if name in exponents)
        )
        ways = self._ways[fused.longer]
        return Programs(
            fused, ways[0], self._exact, tuple(d for _, d in inputs.values()),
            tuple(results.values()), places, _prepare, ways.__getitem__,
            self._ranged, RUNS, MARGIN,
            rounded=tuple(rounded.get(k, d) for k, d in results.items()),
        )  # fmt: skip

    def cases(self, seed: int, only: Collection[str] | None = None) -> list[hostile.HostileCall]:
        """The inputs, drawn from a seed; of these names, where there are any."""
        if only is None and seed in self._all_cases:
            return self._all_cases[seed]
        inputs, programs = self._definition.inputs, self._programs(self._ways[1.0][0])
        generator = np.random.default_rng(seed)
        given = [hostile.plain(generator, s, d) for s, d in inputs.values()]

        def made(of: Collection[str] | None) -> list[hostile.HostileCall]:
            described = given, programs.arguments, [*inputs], programs.roles
            return list(hostile.cases(*described, seed, of))

        base = made(CANCELLING) if self._cancellations else []
        more = further(inputs, self._definition.exponents, given, seed, only)
        found = [*made(only), *self._cancelling(base, seed, only), *more]
        return found if only is not None else self._all_cases.setdefault(seed, found)

    def _of_plain(self, cases: Sequence[hostile.HostileCall]) -> list[Array]:
        """The results in float64 of the same inputs but for their floats, which are plain: what
        is no number there is so by positions and conditions (rows of which a mask shows nothing),
        and no other floats change that."""
        floats = [is_float(dtype) for _, dtype in self._definition.inputs.values()]
        places: dict[tuple[int, ...], int] = {}
        many, of_each = list[Any](), list[int]()
        for case in cases:
            of = tuple(id(a) for a, f in zip(case.arguments, floats, strict=True) if not f)
            if of not in places:
                places[of] = len(many)
                given = zip(self._plain, case.arguments, floats, strict=True)
                many.append(tuple(plain if f else a for plain, a, f in given))
            of_each.append(places[of])
        return [result[of_each] for result in self._exact.batch(many)]

    def _cancelling(
        self, base: Sequence[hostile.HostileCall], seed: int, only: Collection[str] | None
    ) -> Iterator[hostile.HostileCall]:
        """Inputs of which two terms of a sum nearly cancel in each element, as they do else by
        chance in one of many rows."""
        for cancellation in self._cancellations:
            of, place = cancellation.other, [*self._definition.inputs].index(cancellation.name)
            program = replace(self._definition, results={of.key: "f64"})
            run = _Run(program, [*self._written, of], np.float64)
            names = [f"{cancellation.name}: cancels; {call.name}" for call in base]
            calls = [
                (name, [*call.arguments]) for name, call in zip(names, base, strict=True)
                if only is None or name in only
            ]  # fmt: skip
            shape, dtype = self._definition.inputs[cancellation.name]
            for _ in range(TURNS if calls else 0):  # what it cancels may be made of it, too
                values = run.batch([tuple(arguments) for _, arguments in calls])[0]
                for (name, arguments), middle in zip(
                    calls, cancellation.cancelling(values), strict=True
                ):
                    generator = np.random.default_rng([seed, *name.encode()])
                    left = 2.0 ** -generator.uniform(*LEFT, shape)
                    left *= generator.choice((-1, 1), shape)
                    moved = rounded(middle * (1 + left), dtype)
                    arguments[place] = np.where(np.isfinite(moved), moved, arguments[place])
            yield from (hostile.HostileCall(name, tuple(of_call)) for name, of_call in calls)

    def verdict(
        self, cases: Sequence[hostile.HostileCall], plan: tuple[int, int]
    ) -> tuple[str, set[str]]:
        """What is wrong on the first of these inputs on which something is; and the names of those
        that are close to their bound by their first run, or to the ends of the range."""
        fused = _Run(*self.becomes, np.float32, plan, 0, LONGER[plan[1]])
        programs, right = self._programs(fused), set[int]()
        times = -(-len(cases) // fused.most)
        parts = min(PARTS, times) if times >= DEAR else 0
        for k in range(parts):
            wrong, _ = self._first_wrong(fused, programs, cases[k::parts], SURE, right)
            if wrong:
                return wrong, set()
        wrong, excess = self._first_wrong(fused, programs, cases, MARGIN, right)
        return wrong, set() if wrong else self._close(fused, cases, excess)

    def _first_wrong(
        self, fused: _Run, programs: Programs, cases: Sequence[hostile.HostileCall],
        margin: float, right: set[int],
    ) -> tuple[str, Array]:  # fmt: skip
        """What is wrong on the first of the inputs that are over their bound by the margin; and how
        far over it each one is by its first run. `right`: the cases that were judged to be so."""
        many = [case.arguments for case in cases]
        three = self._three(fused, many)
        asked = stacked(many), programs.arguments, three, programs.results
        excess = excess_at_once(*asked)
        odd = np.flatnonzero(excess >= STRANGE)
        signs = self._ways[fused.longer][SIGNS].batch([many[k] for k in odd])
        lacking, off = np.zeros(len(many), int), excess.copy()
        if odd.size:
            of_odd = [[r[odd] for r in way] for way in three]
            lacking[odd] = numbers_lacking(of_odd, signs)
            of_inputs = [stack[odd] for stack in asked[0]]
            off[odd] = excess_of_numbers(of_inputs, asked[1], of_odd, signs, asked[3])
        names = [case.name for case in cases]
        worst, first = worst_of(names, excess, lacking, off, margin), 0
        for count in JUDGED_TOGETHER:
            some = [cases[k] for k in worst[first : first + count] if id(cases[k]) not in right]
            first += count
            of_each = judge_each(programs, [case.arguments for case in some])
            for case, found in zip(some, of_each, strict=True):
                for result, comparison in zip(self._definition.results, found, strict=True):
                    if not comparison.ok:
                        why = f"'{result}': {comparison.verdict} (input '{case.name}')"
                        return why, excess
            right |= {id(case) for case in some}
        return "", excess

    def _three(self, fused: _Run, many: Sequence[Sequence[Any]]) -> list[list[Array]]:
        return [run.batch(many) for run in (fused, self._ways[fused.longer][0], self._exact)]

    def _close(
        self, fused: _Run, cases: Sequence[hostile.HostileCall], excess: Array
    ) -> set[str]:
        """The names of inputs that are close to their bound, or to the ends of the range."""
        three = self._three(fused, [case.arguments for case in cases])
        self.rows = max(1, min(r[0].size // (r.shape[-1] if r.ndim > 2 else 1) for r in three[2]))
        close = (excess > CLOSE) | np.array([_vanishes(case.name) for case in cases])
        # At the ends of the range. Where they make no number, others may by their signs.
        one = np.array([_has_one(case.name) for case in cases])
        for as_written, exact, plain in zip(*three[1:], self._of_plain(cases), strict=True):
            none = ~np.isfinite(as_written)
            lost = none & ~(_same(as_written, exact) & _same(exact, plain))
            known = np.isfinite(exact) & none
            close |= (_some(lost) & ~one) | _some(known)
        return {case.name for case in itertools.compress(cases, close)}


def _same(a: Array, b: Array) -> Array:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _some(found: Array) -> Array:
    """Of each input, which the first dimension counts, whether there is some."""
    return np.asarray(found.reshape(len(found), -1).any(1))


@dataclass
class _Run:
    """The steps of a program as a `judge.Run`; what was prepared is not computed again."""

    program: WholeProgram
    steps: Sequence[Step]
    kind: Any
    plan: tuple[int, int] = ONE_STEP
    digits: int = 0
    longer: float = 1.0
    known: dict[int, tuple[Any, list[Array]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        points = max(prod(step.extents) for step in self.steps)
        fewest = max(FEWEST, POINTS // points)
        self.most = (  # inputs that are evaluated together
            ROUNDED * fewest if self.digits else max(fewest, min(LONG, TIMES * POINTS // points))
        )
        self._positions: dict[Any, Array] = {}

    @functools.cached_property  # of the orders that a trial has, hardly any is asked for
    def _shared(self) -> dict[Term, int]:
        return _shared(self.steps)

    @functools.cached_property
    def _apart(self) -> dict[str, list[int]]:
        return apart(self.steps, self.program.inputs)

    def prepare(self, many: Sequence[Sequence[Any]]) -> None:
        missing = {id(arguments): arguments for arguments in many}
        self.batch([arguments for k, arguments in missing.items() if k not in self.known])

    def batch(self, many: Sequence[Sequence[Any]]) -> list[Array]:
        """The results on several inputs, which the first dimension counts."""
        if not many:
            return []
        if all(id(arguments) in self.known for arguments in many):
            kept = [self.known[id(arguments)][1] for arguments in many]
            return stacked(kept)
        parts = [self._part(many[k : k + self.most]) for k in range(0, len(many), self.most)]
        results = [np.concatenate(of_each) for of_each in zip(*parts, strict=True)]
        for k, arguments in enumerate(many):
            self.known[id(arguments)] = arguments, [r[k] for r in results]
        return results

    def _part(self, many: Sequence[Sequence[Any]]) -> list[Array]:
        """The same, of inputs of which all values are in the cache of a processor at once."""
        data = {
            key: _inputs_last(stack.astype(self._type(key), copy=False), self._apart[key])
            for key, stack in zip(self.program.inputs, stacked(many), strict=True)
        }
        kept = Kept(self._shared, self._positions)
        values = self.program.values(
            self.steps, data, self.kind, self.plan, self.digits, self.longer, kept
        )
        return [
            np.ascontiguousarray(value, np.float64 if is_float(dtype) else None)
            for value, dtype in zip(values, self.program.results.values(), strict=True)
        ]

    def _type(self, key: str) -> Any:
        dtype = self.program.inputs[key][1]
        return np.float64 if is_float(dtype) else np.bool_ if dtype == "i1" else np.int64

    def __call__(self, arguments: Sequence[Any]) -> list[Array]:
        if id(arguments) not in self.known:
            self.prepare([arguments])
        return self.known[id(arguments)][1]


def _inputs_last(stack: Array, apart: Sequence[int]) -> Array:
    """The same array with what the first dimension counts next to each other in memory, and around
    that dimensions of a single input that lie `apart`: loops of programs are short, and NumPy is
    fast along long ones. (One input stays as it is: NumPy adds up in pairs what is innermost.)"""
    of = [1 + d for d in apart if len(stack) > 1]
    order = [*(k for k in range(1, stack.ndim) if k not in of), *of, 0]
    places = sorted(range(stack.ndim), key=order.__getitem__)
    return np.ascontiguousarray(stack.transpose(order)).transpose(places)


def _shared(steps: Sequence[Step]) -> dict[Term, int]:
    """The terms whose form more than one step has, and more than one term or step directly; and
    these forms."""
    forms = Forms()
    times: Counter[int] = Counter()
    above: dict[int, set[Any]] = {}
    found: dict[Term, int] = {}
    for step in steps:
        if isinstance(step, NestStep):
            above.setdefault(forms.of(step.body), set()).add(step.key)
            for n in walk(step.body):
                of = forms.of(n)
                if not n.is_leaf:
                    times[of] += 1
                    found[n] = of
                for a in n.args:
                    above.setdefault(forms.of(a), set()).add(of)
    return {n: of for n, of in found.items() if times[of] > 1 and len(above[of]) > 1}


def _prepare(many: Sequence[Sequence[Any]], runs: Sequence[Any]) -> None:
    for run in runs:
        run.prepare(many)
