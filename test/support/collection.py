# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How workers of pytest-xdist collect all tests: every other one from the end.

Each of them imports all tests. In a fresh checkout a file is compiled by whoever imports it first,
the packages that it imports, too, and what is asserted in it is rewritten: two workers that go the
same way do all that twice, at the same time. Half of a worker's collection is that. The same holds
for large packages, which are installed without compiled files: most tests import torch first.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterable

import pytest


def is_every_other(config: pytest.Config) -> bool:
    """Whether this process is a worker that collects from the end. (A part of the tests, or tests
    in an order that somebody gave, has not much to compile.)"""
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return int(number) % 2 == 1 and config.args == config.getini("testpaths")


def import_what_others_import_late() -> None:
    """While another worker compiles torch, compile what is left: a fifth of the processor time of
    both."""
    for name in ("jax", "onnx", "sympy"):
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)


class Backwards(pytest.Dir):
    """A folder, the last file first."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        return reversed([*super().collect()])


def restore(items: list[pytest.Item]) -> None:
    """Put tests in the order in which pytest collects folders: all workers have to have the same.
    (Those of a file are in order.)"""
    items.sort(key=lambda item: item.path.parts)
