# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GPU targets of other packages: found by their entry points when a name is asked for."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, TypeVar

from neptune_mlir import plugins
from neptune_mlir.errors import UsageError

T = TypeVar("T")


def add(table: MutableMapping[str, Any], name: str, target: Any) -> None:
    """Put a target into a maker's table. Raises UsageError where another one has its name."""
    if table.setdefault(name, target) != target:
        raise UsageError(f"there is a target '{name}' already")


def find(table: Mapping[str, T], name: str, what: str) -> T:
    """The target of a name, of a table or (then its module is imported) of an installed package.
    `what` it is, for messages. Raises UsageError."""
    if name not in table and name in plugins.entries(plugins.TARGETS):
        plugins.load(plugins.TARGETS, name)
    if name not in table:
        listed = dict.fromkeys([*table, *plugins.entries(plugins.TARGETS)])
        raise UsageError(f"unknown {what} '{name}'", hint=f"one of: {', '.join(listed)}")
    return table[name]
