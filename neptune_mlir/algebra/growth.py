# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which range a value has, by degrees: how it grows when one input is scaled.

Scale an input by s. A value grows like s^a for large s and like s^b for small s, and (a, b) follows
from the term: x x has (2, 2), x / (x x + 1) has (-1, 1), exp(x) counts as (0, 0), for exponents are
the business of references. A fused program must stay in range where the unfused one does, so none
of its values may grow or shrink faster, for any one input, than some value of the unfused program:

    Σ (x / max|x|) w      holds degrees -1 to 1 of x: x w, with 1 / max|x| behind, is allowed
    Σ (x / max|x|)^2      holds no degree 2 of x: the factor that keeps it in range stays

Only inputs scaled together can then leave the range (x w overflows where x and w are both past
1e19), a part of the range that the numerics mode `strict` does not give up. Constants are an input
too, one that is always there: what was scaled by 1e-20 before it was squared is not squared first,
and what was scaled by 1e20 and then normalised is not multiplied by another input in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.algebra.terms import Term, is_float, walk

Degrees = Mapping[Any, float]  # what is not there has degree 0
LITERALS = "the program's constants"  # their key; degrees are binary logarithms
FREE = 40.0  # constants within 2^40 of what the program has move freely,
NEAR = 4.0  # but not past a square: x x overflows where (x / 1000) (x / 1000) does not


@dataclass(frozen=True)
class Growth:
    """Degrees for large and for small scales of each input."""

    large: Degrees = field(default_factory=dict)
    small: Degrees = field(default_factory=dict)

    def times(self, factor: float) -> Growth:
        return Growth(*({k: d * factor for k, d in side.items()} for side in self.sides))

    @property
    def sides(self) -> tuple[Degrees, Degrees]:
        return self.large, self.small

    def __mul__(self, other: Growth) -> Growth:
        return Growth(*map(_plus, self.sides, other.sides))

    def __or__(self, other: Growth) -> Growth:
        """A sum of both, or one of them: the larger one decides."""
        keys = {*self.large, *other.large, *self.small, *other.small} - {LITERALS}
        large = {k: max(self.large.get(k, 0), other.large.get(k, 0)) for k in keys}
        small = {k: min(self.small.get(k, 0), other.small.get(k, 0)) for k in keys}
        literal = min((s.large.get(LITERALS, 0) for s in (self, other)), key=abs)
        return Growth({**large, LITERALS: literal}, {**small, LITERALS: literal})


NONE = Growth()


def _plus(a: Degrees, b: Degrees) -> Degrees:
    return {k: a.get(k, 0) + b.get(k, 0) for k in {*a, *b}}


def growths(t: Term, of_ref: Callable[[Term], Growth]) -> dict[Term, Growth]:
    """The growth of every subterm, given that of what it reads."""
    found: dict[Term, Growth] = {}
    for n in walk(t):
        found[n] = _growth(n, [found[a] for a in n.args], of_ref)
    return found


def _growth(n: Term, args: list[Growth], of_ref: Callable[[Term], Growth]) -> Growth:
    if not is_float(n.dtype):
        return NONE
    match n.op:
        case "read" | "ref":
            return of_ref(n)
        case "const":
            size = abs(n.attr)
            power = math.log2(size) if 0 < size < math.inf else 0.0
            return Growth({LITERALS: power}, {LITERALS: power})
        case "neg" | "abs" | "cast" | "quantize" | "floor" | "ceil" | "roundeven":
            return args[0]
        case "add" | "sub" | "max" | "min":
            return args[0] | args[1]
        case "select":
            live = [g for g, a in zip(args[1:], n.args[1:], strict=True) if not _empty(n, a)]
            return live[0] if len(live) == 1 else args[1] | args[2]
        case "mul":
            return args[0] * args[1]
        case "div":
            return args[0] * args[1].times(-1)
        case "sqrt":
            return args[0].times(0.5)
        case "rsqrt":
            return args[0].times(-0.5)
        case "pow" if n.args[1].is_const:
            return args[0].times(float(n.args[1].value))
        case "tanh" | "erf" | "sin":
            return Growth({}, args[0].small)
        case "expm1" | "log1p":
            return Growth({}, args[0].small)
    return NONE


def _empty(select: Term, arm: Term) -> bool:
    """An arm of a mask that counts for nothing, or that stands in until a reference has a value."""
    if not arm.is_const:
        return False
    guard = select.args[0].op == "eq" and any(a.op == "ref" for a in select.args[0].args)
    return guard or arm.value == 0 or math.isinf(arm.value)


@dataclass
class Ranges:
    """The degrees that a program as written has, and what each running value has.

    Attributes:
        joint: whether several inputs may be scaled at once (`strict`).
        refs: of reductions and running values by name, which references and reads name.
    """

    joint: bool = False
    refs: dict[Any, Growth] = field(default_factory=dict)
    known: list[Growth] = field(default_factory=list)
    _limits: dict[Any, float] = field(default_factory=dict)
    _literals: dict[Any, tuple[float, float]] = field(default_factory=dict)

    def of_ref(self, t: Term) -> Growth:
        key = t.attr
        if isinstance(key, tuple) and len(key) == 2 and key[0] in ("acc", "old", "new", "mid"):
            key = key[1]
        if t.op == "read":  # an input, or a reduction that is one for a later kernel
            return self.refs.get(key, Growth({key: 1}, {key: 1}))
        return self.refs.get(key, NONE)

    def learn(self, name: Any, body: Term) -> None:
        """A running value of the fused program."""
        self.refs.setdefault(name, growths(body, self.of_ref)[body])

    def allow(self, body: Term) -> None:
        """All that a body of the program as written computes is allowed."""
        for growth in growths(body, self.of_ref).values():
            self.known.append(growth)
            for k, side in enumerate(growth.sides):
                for key, degree in side.items():
                    self._limits[k, key] = max(self._limits.get((k, key), 0.0), abs(degree))
            low, high = self._literals.get(_powers(growth), (math.inf, -math.inf))
            literal = growth.large.get(LITERALS, 0.0)
            self._literals[_powers(growth)] = min(low, literal), max(high, literal)

    def outside(self, t: Term) -> Term | None:
        """A subterm that may leave the range where the program as written does not."""
        for n, growth in growths(t, self.of_ref).items():
            if not n.is_leaf and not self._fits(growth):
                return n
        return None

    def all_inside(self, terms: Iterable[Term]) -> bool:
        return all(self.outside(t) is None for t in terms)

    def is_far(self, t: Term) -> bool:
        """Whether constants alone bring a value far from 1: ordinary data scaled by 1e20."""
        return abs(growths(t, self.of_ref)[t].large.get(LITERALS, 0.0)) > FREE

    def _fits(self, growth: Growth) -> bool:
        for k, side in enumerate(growth.sides):
            for key, degree in side.items():
                slack = FREE if key == LITERALS else 1e-9  # a reciprocal has the range of its value
                if abs(degree) > self._limits.get((k, key), 0.0) + slack:
                    return False
        powers = _powers(growth)
        alone = len(powers) == 1 and all(degree > 1 for _, degree in powers)
        if alone and powers in self._literals:
            low, high = self._literals[powers]
            if not low - NEAR <= growth.large.get(LITERALS, 0.0) <= high + NEAR:
                return False
        literal = growth.large.get(LITERALS, 0.0)
        if abs(literal) > FREE and not self._scaled_so(growth, literal):
            return False
        return not self.joint or any(within(growth, other) for other in self.known)

    def _scaled_so(self, growth: Growth, literal: float) -> bool:
        """Whether the program as written scales a value of such degrees that far."""
        return any(
            other.large.get(LITERALS, 0.0) * math.copysign(1, literal) >= abs(literal) - FREE
            and within(growth, other)
            for other in self.known
        )


def _powers(growth: Growth) -> frozenset[tuple[Any, float]]:
    return frozenset((k, d) for k, d in growth.large.items() if d and k != LITERALS)


def within(a: Growth, b: Growth) -> bool:
    """Whether b grows and shrinks at least as fast as a, whatever is scaled."""
    keys = {*a.large, *a.small} - {LITERALS}
    return all(
        a.large.get(k, 0) <= max(0, b.large.get(k, 0)) + 1e-9
        and a.small.get(k, 0) <= max(0, b.small.get(k, 0)) + 1e-9
        for k in keys
    )
