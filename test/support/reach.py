# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A plugin of pytest: processor seconds of each test, and which lines and branches of the compiler
it reaches (Python 3.12 or later).

    NEPTUNE_REACH=FOLDER pytest -p support.reach

Each worker writes a file `FOLDER/*.jsonl`, a line a test: its name, seconds of fixtures and test
with what it started, places that no test of the worker reached before, and numbers of those that
this one reached, the differences of one to the next. `tools/often_tests.py` reads it. A place is a
line, or a branch with where it went, of which one that goes the same way `OFTEN` times is not asked
about any more in that test.
"""

from __future__ import annotations

import array
import base64
import json
import os
import resource
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

ENVIRONMENT = "NEPTUNE_REACH"
TOOL = 3  # of sys.monitoring: none of those with a name
OFTEN = 16


def seconds() -> float:
    """Of this process, and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Reach:
    """What has been reached: `places` have numbers in the order in which they were seen."""

    def __init__(self, root: str) -> None:
        self.places: dict[tuple[Any, ...], int] = {}
        self.told = 0  # how many of them are in the file
        self.now: set[int] = set()
        self._root = root
        self._files: dict[CodeType, str] = {}
        self._ways: dict[tuple[CodeType, int], tuple[set[int], list[int]]] = {}
        self._lock = threading.Lock()  # the compiler's threads reach some, too

    def watch(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        events, self._once = monitoring.events, monitoring.DISABLE
        monitoring.use_tool_id(TOOL, "reach")
        monitoring.register_callback(TOOL, events.LINE, self._line)
        monitoring.register_callback(TOOL, events.BRANCH, self._branch)
        monitoring.set_events(TOOL, events.LINE | events.BRANCH)

    def begin(self) -> None:
        """Another test: everything may be reached again."""
        self.now = set()
        self._ways.clear()
        sys.monitoring.restart_events()  # type: ignore[attr-defined]

    def _file(self, code: CodeType) -> str:
        found = self._files.get(code)
        if found is None:
            path = code.co_filename or ""
            found = path[len(self._root) :] if path.startswith(self._root) else ""
            self._files[code] = found
        return found

    def _reached(self, *place: Any) -> None:
        number = self.places.get(place)
        if number is None:
            with self._lock:
                number = self.places.setdefault(place, len(self.places))
        self.now.add(number)

    def _line(self, code: CodeType, line: int) -> Any:
        if file := self._file(code):
            self._reached("line", file, line)
        return self._once

    def _branch(self, code: CodeType, offset: int, to: int) -> Any:
        file = self._file(code)
        if not file:
            return self._once
        ways, times = self._ways.setdefault((code, offset), (set(), [0]))
        times[0] += 1
        if to not in ways:
            ways.add(to)
            self._reached("branch", file, code.co_firstlineno, code.co_name, offset, to)
        return self._once if len(ways) == 2 or times[0] > OFTEN else None

    def row(self) -> dict[str, Any]:
        """Places of this test, in few bytes."""
        new = list(self.places)[self.told :]
        self.told += len(new)
        reached = sorted(n for n in list(self.now) if n < self.told)
        steps = array.array("I", [b - a for a, b in zip([0, *reached], reached, strict=False)])
        return {"new": new, "reached": base64.b64encode(zlib.compress(steps.tobytes(), 9)).decode()}


class Plugin:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._reach: Reach | None = None

    def pytest_collection_finish(self) -> None:
        import neptune_mlir

        self._reach = Reach(str(Path(neptune_mlir.__file__).parent) + os.sep)
        self._reach.watch()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        assert self._reach is not None
        self._reach.begin()
        before = seconds()
        try:
            return (yield)
        finally:
            row = {"test": item.nodeid, "seconds": round(seconds() - before, 3)}
            self._file.write(json.dumps(row | self._reach.row()) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    if worker != "alone" or not config.getoption("numprocesses", None):
        folder = Path(os.environ[ENVIRONMENT])
        folder.mkdir(parents=True, exist_ok=True)
        config.pluginmanager.register(Plugin(folder / f"{worker}.jsonl"), "reach")
