# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Diagnostics for people and for tests: `file:line:col: error: ...`, and the check of
`// expected-error {{...}}` comments that `neptune-opt --verify-diagnostics` does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from neptune_mlir import errors
from neptune_mlir.errors import NeptuneError

_LOCATED = re.compile(r"(?P<file>.*?):(?P<line>\d+):(?P<col>\d+)$", re.DOTALL)
_PLACE = re.compile(r"(?P<loc>[^\s:]+:\d+:\d+): ")
_TEXT = re.compile(r"(?P<loc>.+?:\d+:\d+): (?P<kind>error|warning|remark|note): (?P<message>.*)")


@dataclass(frozen=True)
class Diagnostic:
    """One diagnostic: `kind` is error, warning, remark or note; `loc` is `file:line:col`."""

    kind: str
    loc: str
    message: str

    @property
    def line(self) -> int | None:
        """The line, or None where the location has none."""
        # a location built of several (fused, call site) counts as its first
        match = _LOCATED.match(self.loc) or re.search(r":(?P<line>\d+):\d+", self.loc)
        return int(match["line"]) if match else None

    def __str__(self) -> str:
        return (
            f"{self.loc}: {self.kind}: {self.message}"
            if self.loc
            else (f"{self.kind}: {self.message}")
        )


def of_diagnostic(diagnostic: Any) -> list[Diagnostic]:
    """The entries of an MLIR diagnostic: itself, then its notes."""
    from neptune_mlir.ir.bindings import location_text

    kind = str(diagnostic.severity).rpartition(".")[2].lower()
    entries = [Diagnostic(kind, location_text(diagnostic.location), diagnostic.message)]
    for note in diagnostic.notes:
        entries += of_diagnostic(note)
    return entries


def of_exception(error: BaseException, fallback: str = "") -> list[Diagnostic]:
    """The entries that an exception stands for.

    `fallback` locates errors that know no place. An exception that nobody raised on purpose
    is a defect of this program; it still becomes one line, and `NEPTUNE_TRACEBACK=1` shows more.
    """
    if hasattr(error, "error_diagnostics"):
        return [e for d in error.error_diagnostics for e in of_diagnostic(d)] or [
            Diagnostic("error", fallback, str(error))
        ]
    if isinstance(error, NeptuneError):
        cause = error.__cause__
        if cause is not None and hasattr(cause, "error_diagnostics"):
            return [*of_exception(cause), Diagnostic("note", fallback, error.message)]
        located = [_TEXT.match(line) for line in error.message.splitlines()]
        if located and all(located):  # diagnostics of a parse, already as text
            return [Diagnostic(m["kind"], m["loc"], m["message"]) for m in located if m]
        entries = [Diagnostic("error", error.loc or fallback, error.message)]
        if error.hint:
            entries.append(Diagnostic("note", error.loc or fallback, f"hint: {error.hint}"))
        return entries
    last = str(error).rstrip().rpartition("\n")[2]
    name, _, message = last.partition(": ")
    if isinstance(error, RuntimeError) and hasattr(errors, name):
        # MLIR's walk turns an exception of ours into text, traceback and all
        place = _PLACE.match(message)
        if place:
            return [Diagnostic("error", place["loc"], message[place.end() :])]
        return [Diagnostic("error", fallback, message)]
    text = f"internal error, please report it: {type(error).__name__}: {last}"
    return [
        Diagnostic("error", fallback, text),
        Diagnostic("note", fallback, "NEPTUNE_TRACEBACK=1 shows where it came from"),
    ]


def show(entries: Iterable[Diagnostic], source: str | bytes, file: str) -> None:
    """Print entries to stderr, each error in `file` with its line of `source`, if that is text."""
    lines = source.splitlines() if isinstance(source, str) else []
    for entry in entries:
        print(entry, file=sys.stderr)
        match = _LOCATED.match(entry.loc)
        if entry.kind != "error" or not match or match["file"] != file:
            continue
        if 0 < int(match["line"]) <= len(lines):
            print(lines[int(match["line"]) - 1], file=sys.stderr)
            print(" " * (int(match["col"]) - 1) + "^", file=sys.stderr)


_EXPECTED = re.compile(
    r"expected-(?P<kind>error|warning|remark|note)(?P<re>-re)?"
    r"\s*(?:@(?P<where>[+-]\d+|above|below|unknown))?\s*(?P<count>\d+)?\s*\{\{(?P<text>.*?)\}\}"
)


@dataclass(frozen=True)
class _Expectation:
    kind: str
    line: int | None
    text: str
    pattern: re.Pattern[str]

    def meets(self, entry: Diagnostic) -> bool:
        return (
            self.kind == entry.kind
            and self.line == entry.line
            and self.pattern.search(entry.message) is not None
        )


def check_expected(
    source: str, entries: Iterable[Diagnostic], file: str, *, every: bool = True
) -> list[str]:
    """What differs between the `expected-...` comments of `source` and the entries.

    With `every`, each error, warning and remark must be expected, and every expectation met; a note
    may go unmentioned (mlir-opt's rule). `expected-error-re` takes a regular expression.
    """
    expected: list[_Expectation] = []
    for number, text in enumerate(source.splitlines(), start=1):
        for match in _EXPECTED.finditer(text):
            pattern = match["text"] if match["re"] else re.escape(match["text"])
            line = _target_line(number, match["where"])
            one = _Expectation(match["kind"], line, match["text"], re.compile(pattern))
            expected += [one] * int(match["count"] or 1)
    problems = []
    for entry in entries:
        found = next((e for e in expected if e.meets(entry)), None)
        if found:
            expected.remove(found)
        elif every and entry.kind != "note":
            problems.append(f"{entry.loc or file}: unexpected {entry.kind}: {entry.message}")
    for e in expected:
        where = f"{file}:{e.line}" if e.line else f"{file} (unknown location)"
        problems.append(f"{where}: expected {e.kind} '{e.text}' was not produced")
    return problems


def _target_line(number: int, where: str | None) -> int | None:
    if where == "unknown":
        return None
    offset = {None: 0, "above": -1, "below": 1}.get(where)
    return number + (int(where or 0) if offset is None else offset)
