# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Range facts about terms: signs, bounds, and how running values move over time.

A running maximum only grows, a sum of exponentials is positive, tanh is bounded: such facts
choose the form of a correction that cannot overflow and remove guards nobody needs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.operators import OPERATORS, evaluate, order_of
from neptune_mlir.algebra.terms import Term, is_float, walk

SHALLOW = 200  # nodes of a tree whose answers are found from the top, those needed alone


def _remembered(question: Callable[[Facts, Term], Any]) -> Callable[[Facts, Term], Any]:
    """Ask of each distinct subterm once, as long as nothing more is learnt."""
    name = question.__name__

    def answer(facts: Facts, t: Term) -> Any:
        answers = facts.answers(name)
        if t not in answers:
            for n in walk(t) if t.size > SHALLOW else (t,):  # operands first: no deep recursion
                if n not in answers:
                    answers[n] = question(facts, n)
        return answers[t]

    return functools.wraps(question)(answer)


@dataclass
class Facts:
    """What is known of the running values, by name, and which axes are being folded."""

    folded: frozenset[int]
    combiner: dict[Any, str] = field(default_factory=dict)
    nonneg: set[Any] = field(default_factory=set)
    bounded_below: set[Any] = field(default_factory=set)
    growing: set[Any] = field(default_factory=set)  # sums of non-negative, reference-free bodies
    _assumed: dict[Term, int] = field(default_factory=dict)
    _answers: dict[str, dict[Term, Any]] = field(default_factory=dict)  # under `_state`
    _state: tuple[int, ...] = ()
    _assumptions: int = 0  # made and dropped so far

    def name(self, ref: Term) -> Any:
        """The running value behind a `ref` leaf: plain, or one side of a correction."""
        key = ref.attr
        if isinstance(key, tuple) and len(key) == 2 and key[0] in ("acc", "old", "new", "mid"):
            return key[1]
        return key

    def identity(self, ref: Term) -> float | bool | None:
        combiner = self.combiner.get(self.name(ref))
        return None if combiner is None else lookup(combiner).identity

    def learn(self, name: Any, combiner: str, body: Term) -> None:
        """Record a new running value."""
        self.combiner[name] = combiner
        if self.sign(body) == 1:
            self.nonneg.add(name)
            if combiner == "add" and not has_ref(body):
                self.growing.add(name)
        if combiner == "max" and self.lower_bound(body) > -math.inf:
            self.bounded_below.add(name)
        if combiner == "min" and self.upper_bound(body) < math.inf:
            self.bounded_below.add(name)

    def answers(self, question: str) -> dict[Term, Any]:
        """What was answered to a question so far, of what is known now."""
        known = (self.combiner, self.nonneg, self.growing)  # which only grow
        state = (self._assumptions, *map(len, known))
        if state != self._state:
            self._state, self._answers = state, {}
        return self._answers.setdefault(question, {})

    @contextmanager
    def assuming(self, t: Term, sign: int) -> Iterator[None]:
        """Within the block the sign of `t` is known."""
        before = self._assumed.get(t)
        self._assumed[t] = sign
        self._assumptions += 1
        try:
            yield
        finally:
            self._assumptions += 1
            if before is None:
                del self._assumed[t]
            else:
                self._assumed[t] = before

    @_remembered
    def sign(self, t: Term) -> int | None:
        """1: never negative (over the reals), -1: never positive, None: unknown."""
        if t in self._assumed:
            return self._assumed[t]
        s = self.sign
        match t.op:
            case "const":
                return 1 if t.attr >= 0 else -1 if t.attr < 0 else None
            case "index" | "exp" | "exp2" | "sqrt" | "rsqrt" | "abs":
                return 1
            case "ref":
                return 1 if self.name(t) in self.nonneg else None
            case "mul" | "div":
                if t.op == "mul" and t.args[0] is t.args[1]:
                    return 1
                a, b = s(t.args[0]), s(t.args[1])
                return a * b if a and b else None
            case "add" | "max" | "min":
                a, b = s(t.args[0]), s(t.args[1])
                if t.op == "max" and 1 in (a, b):
                    return 1
                if t.op == "min" and -1 in (a, b):
                    return -1
                return a if a == b else None
            case "sub":
                a, b = s(t.args[0]), s(t.args[1])
                return a if a and b and a == -b else None
            case "neg":
                a = s(t.args[0])
                return -a if a else None
            case "select":
                a, b = s(t.args[1]), s(t.args[2])
                return a if a == b else None
            case "cast" | "quantize" | "tanh" | "erf":
                return 1 if t.args[0].dtype == "i1" else s(t.args[0])
            case "pow":
                e = t.args[1]
                return 1 if s(t.args[0]) == 1 or (e.is_const and e.value % 2 == 0) else None
        return None

    @_remembered
    def lower_bound(self, t: Term) -> float:
        """A finite number that the value never goes below, or -inf."""
        if t.op == "const":
            return float(t.attr)
        if t.op in ("add", "max", "min"):
            a, b = map(self.lower_bound, t.args)
            return a + b if t.op == "add" else max(a, b) if t.op == "max" else min(a, b)
        if t.op in ("neg",):
            return -self.upper_bound(t.args[0])
        if t.op == "sub":
            return self.lower_bound(t.args[0]) - self.upper_bound(t.args[1])
        if t.op == "select":
            return min(self.lower_bound(t.args[1]), self.lower_bound(t.args[2]))
        if t.op == "cast":
            return self.lower_bound(t.args[0])
        if t.op in OPERATORS and (bounds := OPERATORS[t.op].bounds):
            return bounds[0]
        if t.op == "mul":
            return self._scaled(t, self.lower_bound, self.upper_bound)
        return 0.0 if self.sign(t) == 1 else -math.inf

    @_remembered
    def upper_bound(self, t: Term) -> float:
        """A finite number that the value never exceeds, or +inf."""
        if t.op == "const":
            return float(t.attr)
        if t.op in ("add", "max", "min"):
            a, b = map(self.upper_bound, t.args)
            return a + b if t.op == "add" else max(a, b) if t.op == "max" else min(a, b)
        if t.op == "neg":
            return -self.lower_bound(t.args[0])
        if t.op == "sub":
            return self.upper_bound(t.args[0]) - self.lower_bound(t.args[1])
        if t.op == "select":
            return max(self.upper_bound(t.args[1]), self.upper_bound(t.args[2]))
        if t.op == "cast":
            return self.upper_bound(t.args[0])
        if t.op in OPERATORS and (bounds := OPERATORS[t.op].bounds):
            return bounds[1]
        if t.op == "mul":
            return -self._scaled(t, lambda a: -self.upper_bound(a), lambda a: -self.lower_bound(a))
        return 0.0 if self.sign(t) == -1 else math.inf

    def _scaled(self, t: Term, low: Any, high: Any) -> float:
        for c, x in (t.args, t.args[::-1]):
            if c.is_const and math.isfinite(c.value):
                bound = low(x) if c.value >= 0 else high(x)
                return c.value * bound if math.isfinite(bound) else -math.inf
        return -math.inf if self.sign(t) != 1 else 0.0

    @_remembered
    def direction(self, t: Term) -> int | None:
        """How the value moves while the stream runs: 1 up, -1 down, 0 not at all, None unknown."""
        if not has_ref(t):
            return 0
        if t.op == "ref":
            name = self.name(t)
            if name in self.growing:
                return 1
            return {"max": 1, "min": -1, "or": 1, "and": -1}.get(self.combiner.get(name, ""))
        if order := order_of(t.op):
            d = self.direction(t.args[0])
            return None if d is None else d * order
        if len(t.args) != 2:
            return None
        x, y = t.args
        a, b = self.direction(x), self.direction(y)
        if t.op in ("add", "max", "min", "sub"):
            if a is None or b is None:
                return None
            b = -b if t.op == "sub" else b
            return None if a * b < 0 else a or b
        # A run-time scale is taken as positive: a negative one would make the program itself
        # overflow before its correction does.
        if t.op in ("mul", "div") and not has_ref(y):
            return None if a is None else a * (self.sign(y) or 1)
        if t.op == "mul" and not has_ref(x):
            return None if b is None else b * (self.sign(x) or 1)
        return None


def has_ref(t: Term) -> bool:
    return t.has_ref


def varies(t: Term, axes: Iterable[int]) -> bool:
    """Does the value change along one of these axes?"""
    return not t.axes.isdisjoint(axes)


def evaluate_scalar(t: Term, leaf: dict[Term, float]) -> float:
    """The value of a term under numbers for its leaves; NaN where it is undefined."""
    done: dict[Term, Any] = {}
    for n in walk(t):
        if n in leaf:
            done[n] = leaf[n]
        elif n.is_const:
            done[n] = n.value
        elif n.is_leaf:
            done[n] = 1.25  # an unremarkable number
        else:
            try:
                done[n] = evaluate(n.op, [done[a] for a in n.args], is_float(n.dtype))
            except (ArithmeticError, ValueError, TypeError):
                done[n] = math.nan
    return done[t]


def kind(t: Term, folded: frozenset[int]) -> str:
    """data (varies along the stream), ref (reads references), fixed (neither), mixed (both)."""
    data, reads = varies(t, folded), has_ref(t)
    return "mixed" if data and reads else "data" if data else "ref" if reads else "fixed"
