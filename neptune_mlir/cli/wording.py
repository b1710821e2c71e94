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
    """Says the expressions of a bundle; `definitions` gives the lines that the last ones need."""

    def __init__(self, expressions: Iterable[Expression]) -> None:
        self._called: dict[Expression, str] = {}
        self._waiting: list[str] = []
        self._uses: Counter[Expression] = Counter()
        seen: set[Expression] = set()
        for whole in map(_frozen, expressions):
            self._uses[whole] += 1
            self._uses.update(_parts(whole, seen))

    def say(self, expression: Expression, names: Sequence[str]) -> str:
        whole = _frozen(expression)
        if len(describe(whole, names, self._called)) > LONG:
            for part in _inner_first(whole, set()):
                said = describe(part, names, self._called)
                if self._uses[part] > 1 and part not in self._called and len(said) > SHORT:
                    self._called[part] = f"${len(self._called) + 1}"
                    self._waiting.append(f"  {self._called[part]} = {said}")
        return describe(whole, names, self._called)

    def definitions(self) -> Iterator[str]:
        waiting, self._waiting = self._waiting, []
        yield from waiting


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
