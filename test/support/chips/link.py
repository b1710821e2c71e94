# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory that several simulated devices read and write, each in a thread of its own."""

from __future__ import annotations

import threading


class Link:
    """Words of a value and a flag, by address; at first all are 0.

    A word whose flag is not 0 is for one reader: until that has taken it, nobody may write it.
    """

    def __init__(self) -> None:
        self.words: dict[int, tuple[int, int]] = {}
        self.taken: set[tuple[int, int]] = set()  # addresses and flags
        self.change = threading.Condition()

    def give(self, address: int, value: int, flag: int) -> None:
        assert address % 8 == 0, "a word that is not written at once"
        with self.change:
            before = self.words.get(address, (0, 0))[1]
            assert not before or (address, before) in self.taken, "nobody has read what was there"
            self.words[address] = value, flag
            self.change.notify_all()

    def take(self, address: int, flag: int, timeout: int) -> int:
        """Milliseconds, as kernels count."""
        with self.change:
            there = self.change.wait_for(
                lambda: self.words.get(address, (0, 0))[1] == flag, timeout / 1000
            )
            assert there, "a program ends in an error"
            self.taken.add((address, flag))
            return self.words[address][0]

    def count(self, address: int) -> int:
        with self.change:
            return self.words.get(address, (0, 0))[0]
