# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which tests run with each change: those without which a line or a branch of the compiler would
not be reached, and those that cost little.

    NEPTUNE_REACH=FOLDER pytest -p support.reach
    python tools/often_tests.py FOLDER [--cheap SECONDS]

says, of each test that costs more, whether cheaper ones reach all that it reaches. It writes no
list: whether another test asserts what a test asserts is for a reader to say, and what may go
stands in `test/nightly.txt`. `--without FILE` says what is reached no longer where the tests that
FILE names do not run.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np


class Table:
    """Tests, what each costs, and which places each reaches."""

    def __init__(self, folder: Path) -> None:
        self.places: dict[tuple[Any, ...], int] = {}
        rows = [row for path in sorted(folder.glob("*.jsonl")) for row in self._rows(path)]
        rows.sort(key=lambda row: row[0])
        self.tests = [name for name, _, _ in rows]
        self.seconds = np.array([cost for _, cost, _ in rows])
        self.reached = np.zeros((len(rows), len(self.places)), bool)
        for n, (_, _, reached) in enumerate(rows):
            self.reached[n, reached] = True

    def _rows(self, path: Path) -> Any:
        own: list[int] = []  # numbers of a worker's places, by its own
        for line in path.read_text().splitlines():
            row = json.loads(line)
            own += [self.places.setdefault(tuple(p), len(self.places)) for p in row["new"]]
            steps = np.frombuffer(zlib.decompress(base64.b64decode(row["reached"])), "u4")
            yield row["test"], row["seconds"], np.array(own, int)[np.cumsum(steps)]

    def named(self, path: Path) -> np.ndarray:
        """The tests that a list names."""
        names = set(path.read_text().splitlines())
        return np.array([t in names or t.partition("[")[0] in names for t in self.tests])


def needed(table: Table, cheap: float) -> list[int]:
    """Tests that cost more, without which something would not be reached: first whatever reaches
    most that is new for its cost, then without those that became superfluous."""
    reached = table.reached
    costly = np.flatnonzero(table.seconds >= cheap)
    have = reached[table.seconds < cheap].sum(0)
    chosen: list[int] = []
    while True:
        new = reached[costly][:, have == 0].sum(1)
        if not new.any():
            break
        best = int(costly[np.argmax(new / table.seconds[costly])])
        chosen.append(best)
        have = have + reached[best]
    for n in sorted(chosen, key=lambda n: -table.seconds[n]):
        if not (have[reached[n]] == 1).any():
            have = have - reached[n]
            chosen.remove(n)
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cheap", type=float, default=0.15, help="what costs little, in seconds")
    parser.add_argument("--without", type=Path, help="a list of tests that would not run")
    options = parser.parse_args()
    table = Table(options.folder)
    if options.without:
        out = table.named(options.without)
        lost = table.reached.any(0) & ~table.reached[~out].any(0)
        print(f"{out.sum()} tests, {table.seconds[out].sum():.0f} of {table.seconds.sum():.0f} s")
        print(f"{lost.sum()} of {len(lost)} places would not be reached")
        places = list(table.places)
        for n in np.flatnonzero(lost):
            print(" ", *places[n])
        return int(lost.any())
    keep = set(needed(table, options.cheap))
    for n in np.argsort(-table.seconds):
        if table.seconds[n] >= options.cheap:
            print(f"{table.seconds[n]:7.2f} {'needed' if n in keep else 'others'} {table.tests[n]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
