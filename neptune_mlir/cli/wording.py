# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Expressions of a bundle in lines that can be read: what long ones repeat is said once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from neptune_mlir.runtime.plan import Expression, describe

LONG = 120  # characters of an expression up to which it is said in one piece
SHORT = 20  # of a part up to which a name for it would be no shorter to read
LEAVES = ("dim", "argument", "multiprocessors")


class Wording:
    """Says the expressions of a bundle; `definitions` gives the lines that the last ones need.

    Attributes:
        names: those of the arguments, then those of parts: a part that has a name stands as if it
            were an argument.
    """

    def __init__(self, expressions: Iterable[Expression], names: Sequence[str]) -> None:
        self.names = list(names)
        self._called: dict[Expression, Expression] = {}
        self._waiting: list[str] = []
        self._uses: Counter[Expression] = Counter()
        seen: set[Expression] = set()
        for whole in map(_frozen, expressions):
            self._uses[whole] += 1
            self._uses.update(_parts(whole, seen))

    def say(self, expression: Expression) -> str:
        return describe(self.short(expression), self.names)

    def short(self, expression: Expression) -> Expression:
        """The expression over `names`, with names for what it repeats where it is long."""
        whole = _frozen(expression)
        if len(describe(self._named(whole), self.names)) > LONG:
            for part in _inner_first(whole, set()):
                said = describe(self._named(part), self.names)
                if self._uses[part] > 1 and part not in self._called and len(said) > SHORT:
                    name = f"${len(self._called) + 1}"
                    self._called[part] = ("argument", len(self.names))
                    self.names.append(name)
                    self._waiting.append(f"  {name} = {said}")
        return self._named(whole)

    def definitions(self) -> Iterator[str]:
        waiting, self._waiting = self._waiting, []
        yield from waiting

    def _named(self, expression: Any) -> Any:
        if expression in self._called or not _is_part(expression):
            return self._called.get(expression, expression)
        head, *rest = expression
        return (head, *map(self._named, rest))


def _frozen(expression: Any) -> Any:
    """An expression that can be a key: JSON has lists."""
    if isinstance(expression, (list, tuple)):
        return tuple(map(_frozen, expression))
    return expression


def _is_part(expression: Any) -> bool:
    return isinstance(expression, tuple) and expression[0] not in LEAVES


def _parts(expression: Any, seen: set[Any]) -> Iterator[Any]:
    """What an expression is made of, each once for each different part that it is in."""
    if not _is_part(expression) or expression in seen:
        return
    seen.add(expression)
    for inner in filter(_is_part, expression[1:]):
        yield inner
        yield from _parts(inner, seen)


def _inner_first(expression: Any, seen: set[Any]) -> Iterator[Any]:
    """Each part of an expression once, behind those that it is made of."""
    if not _is_part(expression) or expression in seen:
        return
    seen.add(expression)
    for inner in filter(_is_part, expression[1:]):
        yield from _inner_first(inner, seen)
    yield expression
