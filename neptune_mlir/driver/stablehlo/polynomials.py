# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LengthFacts that calls know, as polynomials: which of them are equal, and what bounds they have.

An atom is a name: of an extent of a tensor, or of what no polynomial says (a quotient, a maximum).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Monomial = tuple[str, ...]  # atoms, sorted; () for the constant


@dataclass(frozen=True)
class Length:
    """A polynomial with integer coefficients; none of them is 0."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(number: int) -> Length:
        return _sum({(): number})

    @staticmethod
    def atom(name: str) -> Length:
        return _sum({(name,): 1})

    @property
    def number(self) -> int | None:
        """The number that this is, if it is one."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def name(self) -> str | None:
        """The atom that this is, if it is one."""
        if len(self.terms) != 1 or self.terms[0][1] != 1 or len(self.terms[0][0]) != 1:
            return None
        return self.terms[0][0][0]

    def __add__(self, other: Length) -> Length:
        found = dict(self.terms)
        for monomial, factor in other.terms:
            found[monomial] = found.get(monomial, 0) + factor
        return _sum(found)

    def __sub__(self, other: Length) -> Length:
        return self + Length.of(-1) * other

    def __mul__(self, other: Length) -> Length:
        found: dict[Monomial, int] = {}
        for a, p in self.terms:
            for b, q in other.terms:
                monomial = tuple(sorted(a + b))
                found[monomial] = found.get(monomial, 0) + p * q
        return _sum(found)

    def over(self, other: Length) -> Length | None:
        """The quotient by one monomial that divides each term; None where it does not."""
        if len(other.terms) != 1:
            return None
        ((below, divisor),) = other.terms
        found = {}
        for monomial, factor in self.terms:
            rest = list(monomial)
            for atom in below:
                if atom not in rest:
                    return None
                rest.remove(atom)
            if factor % divisor:
                return None
            found[tuple(rest)] = factor // divisor
        return _sum(found)


def _sum(terms: Mapping[Monomial, int]) -> Length:
    return Length(tuple(sorted((m, f) for m, f in terms.items() if f)))


ONE = Length.of(1)
ZERO = Length.of(0)


def _nothing(*_: float) -> float:
    return 0.0


# what no polynomial says: the least value it may have, of the least ones of its operands
_LEAST: Mapping[str, Callable[..., float]] = {
    "divide": _nothing, "remainder": _nothing, "maximum": max, "minimum": min,
}  # fmt: skip


@dataclass
class LengthFacts:
    """What is known of the atoms of one program."""

    made: dict[str, tuple[str, Length, Length]] = field(default_factory=dict)  # by an operation
    least: dict[str, float] = field(default_factory=dict)  # 0 where nothing is said
    equal: dict[str, Length] = field(default_factory=dict)  # what an atom is instead

    def resolved(self, size: Length) -> Length:
        """The same size in atoms that nothing is known to be equal to."""
        while any(atom in self.equal for monomial, _ in size.terms for atom in monomial):
            found = ZERO
            for monomial, factor in size.terms:
                parts = (self.equal.get(atom, Length.atom(atom)) for atom in monomial)
                found += functools.reduce(Length.__mul__, parts, Length.of(factor))
            size = found
        return size

    def bounds(self, size: Length) -> tuple[float, float]:
        """Between which numbers a size is."""
        low = high = 0.0
        for monomial, factor in size.terms:
            least = math.prod(self.least.get(atom, 0.0) for atom in monomial)
            most = math.inf if monomial else 1.0
            low += factor * (least if factor > 0 else most)
            high += factor * (most if factor > 0 else least)
        return low, high

    def are(self, direction: str, a: Length, b: Length) -> bool | None:
        """Whether a comparison by StableHLO's word holds; None where that is not known."""
        low, high = self.bounds(self.resolved(a - b))
        if direction in ("EQ", "NE"):
            if low == high == 0 or low > 0 or high < 0:
                return (low == high == 0) == (direction == "EQ")
            return None
        if direction in ("LT", "GE"):
            holds = True if high < 0 else False if low >= 0 else None
        else:
            holds = True if high <= 0 else False if low > 0 else None
        return holds if holds is None or direction in ("LT", "LE") else not holds

    def result(self, op: str, a: Length, b: Length) -> Length | None:
        """Of an operation of StableHLO on two sizes; None where it may have a sign."""
        a, b = self.resolved(a), self.resolved(b)
        if op == "add":
            return a + b
        if op == "subtract":
            return a - b
        if op == "multiply":
            return a * b
        if op in ("maximum", "minimum"):
            less = self.are("LE", a, b)
            if less is not None:
                return b if less == (op == "maximum") else a
        elif op in ("divide", "remainder"):
            if self.bounds(a)[0] < 0 or self.bounds(b)[0] < 1:
                return None
            if (quotient := a.over(b)) is not None:
                return quotient if op == "divide" else ZERO
            if (n := a.number) is not None and (d := b.number) is not None:
                return Length.of(n // d if op == "divide" else n % d)
        if op not in _LEAST:
            return None
        name = f"{op}({_text(a)},{_text(b)})"
        self.made[name] = (op, a, b)
        self.least[name] = _LEAST[op](self.bounds(a)[0], self.bounds(b)[0])
        return self.resolved(Length.atom(name))

    def assume(self, direction: str, a: Length, b: Length) -> bool:
        """Take a comparison to hold; False where nothing can be made of it."""
        a, b = self.resolved(a), self.resolved(b)
        known = self.are(direction, a, b)
        if known is not None:
            return known
        if direction == "GE" and a.name and (number := b.number) is not None:
            self.least[a.name] = max(self.least.get(a.name, 0.0), number)
            return True
        if direction != "EQ" or a.name is None:
            return False
        if a.name not in self.made:
            self.equal[a.name] = b
            return True
        op, whole, divisor = self.made[a.name]
        quotient = self.result("divide", whole, divisor)
        if op != "remainder" or b != ZERO or whole.name is None or quotient is None:
            return False
        self.equal[a.name] = ZERO
        self.equal[whole.name] = quotient * divisor
        return True


def _text(size: Length) -> str:
    return "+".join("*".join([str(f), *m]) for m, f in size.terms) or "0"
