# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Expressions of the launch plan without what says nothing; what several share is one object.

Conditions are made of grids and times, each of the ones before it, so most of a text is said before
in it. Values stay what they are, of whole numbers: nothing is reordered that could round.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from neptune_mlir.runtime.plan import Expression

TRUE = ["le", 1, ["multiprocessors"]]  # a device has one

_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max,
    "ceildiv": lambda a, b: -(-a // b),
}  # fmt: skip
_NEUTRAL = {"add": 0, "mul": 1}


class Simple:
    """Makes expressions simple, those of one program by one of these."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Expression, Expression]] = {}  # by id; it keeps its own
        self._alike: dict[Any, list[Any]] = {}  # by what they are made of
        self._true = self.of(TRUE)

    def of(self, expression: Expression) -> Expression:
        """An expression with the same value in every call."""
        if not isinstance(expression, (list, tuple)):
            return expression
        found = self._known.get(id(expression))
        if found is None:
            head, *parts = expression
            made = self._made(head, *map(self.of, parts))
            found = self._known[id(expression)] = expression, made
        return found[1]

    def _made(self, head: str, *parts: Any) -> Expression:
        if head in ("and", "or"):
            return self._joined(head, *parts)
        if head == "select":
            which, then, otherwise = parts
            if which is self._true or then is otherwise:
                return then
        if head in ("min", "max") and (known := _one_of(head, *parts)) is not None:
            return known
        if head in _FOLDED:
            return self._number(head, *parts)
        return self._one(head, *parts)

    def _joined(self, head: str, a: Expression, b: Expression) -> Expression:
        """Two conditions, both (`and`) or one of which has to hold."""
        true, other = self._true, "or" if head == "and" else "and"
        if a is true or b is true:
            kept = b if a is true else a
            return kept if head == "and" else true
        if (known := _one_of(head, a, b)) is not None:
            return known
        # a, or a and something: what is more says nothing
        if any(a is part for part in _parts(other, b)):
            return a
        return b if any(b is part for part in _parts(other, a)) else self._one(head, a, b)

    def _number(self, head: str, a: Expression, b: Expression) -> Expression:
        if _is_whole(a) and _is_whole(b) and (head != "ceildiv" or b):
            return _FOLDED[head](a, b)
        if head in _NEUTRAL:
            for part, rest in ((a, b), (b, a)):
                if _is_whole(part) and part == _NEUTRAL[head]:
                    return rest
        if head == "mul" and _is_whole(a) and _scales(b):
            return self._one("mul", a * b[1], b[2])
        if head == "add" and _scales(b) and b[1] == -1:
            return self._one("sub", a, b[2])
        return self._one(head, a, b)

    def _one(self, head: str, *parts: Any) -> list[Any]:
        """The one expression that is made of these."""
        key = head, *(id(p) if isinstance(p, list) else (type(p), p) for p in parts)
        return self._alike.setdefault(key, [head, *parts])


def _is_whole(expression: Expression) -> bool:
    return type(expression) is int


def _scales(expression: Expression) -> bool:
    """Whether it is a whole number of times something."""
    return isinstance(expression, list) and expression[0] == "mul" and _is_whole(expression[1])


def _parts(head: str, expression: Expression) -> list[Expression]:
    """What an expression joins by `head`, as far as it does."""
    if not isinstance(expression, list) or expression[0] != head:
        return [expression]
    return [part for side in expression[1:] for part in _parts(head, side)]


def _one_of(head: str, a: Expression, b: Expression) -> Expression | None:
    """The one of two that joins, by `head`, all that the other does; None where neither does."""
    ours, theirs = _parts(head, a), _parts(head, b)
    if all(any(x is y or _equal(x, y) for y in ours) for x in theirs):
        return a
    return b if all(any(x is y or _equal(x, y) for y in theirs) for x in ours) else None


def _equal(a: Expression, b: Expression) -> bool:
    return _is_whole(a) and _is_whole(b) and bool(a == b)
