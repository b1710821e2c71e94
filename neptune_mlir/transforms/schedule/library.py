# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules by name, and the numbers that they are bound to, as text; nothing here imports MLIR.

A name is that of a shipped schedule (`shipped/NAME.mlir`), of one that an installed package has
(entry points of the group `neptune_mlir.schedules`), or a path. Bound knobs are written
`rows:64;stream:128`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from neptune_mlir import plugins
from neptune_mlir.errors import UsageError, did_you_mean


@functools.cache
def shipped() -> Mapping[str, str]:
    """The text of each shipped schedule by name."""
    folder = resources.files("neptune_mlir.transforms.schedule") / "shipped"
    found = {
        entry.name.removesuffix(".mlir"): entry.read_text()
        for entry in sorted(folder.iterdir(), key=lambda e: e.name)
        if entry.name.endswith(".mlir")
    }
    return MappingProxyType(found)


def read(name_or_path: str) -> str:
    """The text of a schedule by its name, or of a file.

    Raises:
        UsageError: there is neither.
    """
    known = shipped()
    if name_or_path in known:
        return known[name_or_path]
    added = plugins.entries(plugins.SCHEDULES)
    if name_or_path in added:
        return plugins.schedule_text(name_or_path)
    try:
        return Path(name_or_path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        names = [*known, *added]
        raise UsageError(
            f"no schedule '{name_or_path}': {reason}",
            hint=did_you_mean(name_or_path, names, f"a file, or one of: {', '.join(names)}"),
        ) from None


def knob_text(values: Mapping[str, int]) -> str:
    """Bound knobs as text, in the order of their names. Raises UsageError for what is no number."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"knob '{name}' takes a whole number, not {value!r}")
    return ";".join(f"{name}:{values[name]}" for name in sorted(values))


def knob_values(text: str) -> dict[str, int]:
    """Bound knobs from text; the last of several bindings holds. Raises UsageError."""
    return _numbers(filter(None, text.split(";")), ":")


def knob_arguments(given: Iterable[str]) -> dict[str, int]:
    """Knobs from the command line, each text `NAME=NUMBER,...`. Raises UsageError."""
    return _numbers((item for text in given for item in text.split(",")), "=")


def knob_ranges(given: Iterable[str]) -> dict[str, list[int]]:
    """Options of knobs from the command line, each text `NAME=NUMBER,FIRST:LAST:STEP,...`. Raises
    UsageError."""
    found = {}
    for text in given:
        name, _, numbers = text.partition("=")
        try:
            parts = [[int(n) for n in part.split(":")] for part in numbers.split(",")]
            listed = [n for p in parts for n in ([p[0]] if len(p) == 1 else _range(*p))]
        except (TypeError, ValueError):
            listed = []
        if not name or not listed:
            raise UsageError(f"'{text}' is not NAME=NUMBER,FIRST:LAST:STEP,...")
        found[name] = sorted(set(listed))
    return found


def _range(first: int, last: int, step: int) -> range:
    return range(first, last + 1, step)


def _numbers(items: Iterable[str], sign: str) -> dict[str, int]:
    values = {}
    for item in items:
        name, found, number = item.partition(sign)
        if not found or not name.strip() or not number.strip().lstrip("-").isdecimal():
            raise UsageError(f"knob '{item}' is not NAME{sign}NUMBER")
        values[name.strip()] = int(number)
    return values
