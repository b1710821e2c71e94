# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which nests of a program need which, as sets that are whole numbers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from neptune_mlir.dialects.program import NestProgram, captured


class Dependencies:
    """For every nest and every other op that reads one, what it needs of these, and what needs it.

    A set of them is a whole number, a bit for each. The others count for convexity too: a gather
    between two members needs the first, and the second needs it.
    """

    def __init__(self, program: NestProgram):
        self._names = list(program.nests)
        self._numbers = {key: k for k, key in enumerate(self._names)}
        self._needs = [0] * len(self._numbers)
        self._needed = [0] * len(self._numbers)  # by whom
        self._together: dict[int, int] = {}  # for each nest that was joined, the set
        by_op: dict[Any, int] = {}
        for op in program.block.operations:
            needs = 0
            for value in captured(op.operation, program.block):
                needs |= by_op.get(value.owner.operation, 0)
            keys = [program.values.key(result) for result in op.operation.results]
            numbers = [self._numbers[key] for key in keys if key in self._numbers]
            if needs and not numbers:
                numbers.append(len(self._needs))
                self._needs.append(0)
                self._needed.append(0)
            for k in numbers:
                self._add(k, needs)
            by_op[op.operation] = needs | sum(1 << k for k in numbers)

    def number(self, key: str) -> int:
        """The place of a nest in the program."""
        return self._numbers[key]

    def names(self, keys: int) -> Iterator[str]:
        """The nests of a set, in program order; other ops are left out."""
        return (self._names[k] for k in _bits(keys) if k < len(self._names))

    def bit(self, key: str) -> int:
        return 1 << self._numbers[key]

    def set_of(self, keys: Iterable[str]) -> int:
        found = 0
        for key in keys:
            found |= self.bit(key)
        return found

    def on_all(self, keys: Iterable[str]) -> int:
        """Nests and what they need."""
        return functools.reduce(lambda found, k: found | self.bit(k) | self.of(k), keys, 0)

    def of(self, key: str) -> int:
        """What a nest needs."""
        return self._needs[self._numbers[key]]

    def on(self, key: str) -> int:
        """What needs a nest."""
        return self._needed[self._numbers[key]]

    def join(self, members: set[str]) -> None:
        """These come together: who needs one needs all, and each needs what any of them does."""
        together = self.set_of(members)
        self._together.update(dict.fromkeys(_bits(together), together))
        pending = {together: None}
        while pending:
            together, _ = pending.popitem()
            needed = needing = 0
            for k in _bits(together):
                needed |= self._needs[k]
                needing |= self._needed[k]
            for k in _bits(needing | together):
                inside = together >> k & 1
                more = self._add(k, needed & ~together if inside else needed | together)
                for other in (k, *_bits(more)) if more else ():
                    if other in self._together:
                        pending[self._together[other]] = None

    def _add(self, k: int, needs: int) -> int:
        """Nest number k needs these too; returns those that are news."""
        more = needs & ~self._needs[k]
        self._needs[k] |= more
        for other in _bits(more):
            self._needed[other] |= 1 << k
        return more


def _bits(numbers: int) -> Iterator[int]:
    """The numbers in a set."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest
