# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Diagnostics for people and for tests: `file:line:col: error: ...`, and the check of
`// expected-error {{...}}` comments that `neptune-opt --verify-diagnostics` does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir import errors
from neptune_mlir.errors import NeptuneError

_LOCATED = re.compile(r"(?P<file>.*?):(?P<line>\d+):(?P<col>\d+)$", re.DOTALL)
_PLACE = re.compile(r"(?P<loc>[^\s:]+:\d+:\d+): ")
_TEXT = re.compile(r"(?P<loc>.+?:\d+:\d+): (?P<kind>error|warning|remark|note): (?P<message>.*)")

HINT = "hint: "


@dataclass(frozen=True)
class Diagnostic:
    """One diagnostic: `kind` is error, warning, remark or note; `loc` is `file:line:col`. `width`:
    how many characters from there on are marked."""

    kind: str
    loc: str
    message: str
    width: int = 1

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


def as_object(entries: Sequence[Diagnostic]) -> dict[str, Any]:
    """What ended a command, for programs: its first error, with all that is said beside it."""
    first = next((e for e in entries if e.kind == "error"), entries[0])
    hints = [e.message for e in entries if e.message.startswith(HINT)]
    return {
        "error": first.message,
        "loc": first.loc,
        "hint": hints[0].removeprefix(HINT) if hints else "",
        "diagnostics": [{"kind": e.kind, "loc": e.loc, "message": e.message} for e in entries],
    }


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
        if _TEXT.match(error.message):
            return _of_text(error.message)
        entries = [Diagnostic("error", error.loc or fallback, error.message)]
        if error.hint:
            entries.append(Diagnostic("note", error.loc or fallback, f"{HINT}{error.hint}"))
        return entries
    if isinstance(error, OSError) and error.filename is not None:  # a file that the user named
        text = f"cannot open '{error.filename}': {error.strerror}"
        return [Diagnostic("error", fallback, text)]
    if isinstance(error, MemoryError):
        return [Diagnostic("error", fallback, f"not enough memory: {error}".removesuffix(": "))]
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


def _of_text(text: str) -> list[Diagnostic]:
    """Diagnostics of a parse that are text already; one (of an op) may have several lines."""
    entries: list[Diagnostic] = []
    for line in text.splitlines():
        match = _TEXT.match(line)
        if match:
            entries.append(Diagnostic(match["kind"], match["loc"], match["message"]))
        else:
            entries[-1] = replace(entries[-1], message=f"{entries[-1].message}\n{line}")
    return entries


def show(entries: Iterable[Diagnostic], source: str | bytes, file: str) -> None:
    """Print entries to stderr as `mlir-opt` does: an error, a warning, or a note at another place
    than what it belongs to, has its line of `source` below it, if that is text."""
    lines = source.splitlines() if isinstance(source, str) else []
    place = ""
    for entry in entries:
        print(entry, file=sys.stderr)
        known = entry.kind == "remark" or (entry.kind == "note" and entry.loc == place)
        place = place if entry.kind == "note" else entry.loc
        match = None if known else _LOCATED.match(entry.loc)
        if match and match["file"] == file and 0 < int(match["line"]) <= len(lines):
            print(lines[int(match["line"]) - 1], file=sys.stderr)
            print(" " * (int(match["col"]) - 1) + "^" + "~" * (entry.width - 1), file=sys.stderr)


# upstream's own expression: the text ends with the line
_EXPECTED = re.compile(
    r"expected-(?P<kind>error|warning|remark|note)(?P<re>-re)?"
    r" *(?:@(?P<where>[+-]\d+|above|below|unknown))? *\{\{(?P<text>.*)\}\}$"
)


@dataclass(frozen=True)
class _Expectation:
    kind: str
    line: int | None
    text: str
    pattern: re.Pattern[str]
    loc: str

    def meets(self, entry: Diagnostic) -> bool:
        return (
            self.kind == entry.kind
            and self.line == entry.line
            and self.pattern.search(entry.message) is not None
        )


def check_expected(
    source: str, entries: Iterable[Diagnostic], file: str, *, every: bool = True
) -> list[Diagnostic]:
    """What differs between the `expected-...` comments of `source` and the entries, as errors.

    With `every`, each error, warning and remark must be expected, and every expectation met; a note
    may go unmentioned (mlir-opt's rule). `expected-error-re` takes regular expressions in `{{}}`.
    """
    expected = _expectations(source, file)
    problems = []
    for entry in entries:
        found = next((e for e in expected if e.meets(entry)), None)
        if found:
            expected.remove(found)
        elif every and entry.kind != "note":
            text = f"unexpected {entry.kind}: {entry.message}"
            problems.append(Diagnostic("error", entry.loc or file, text))
    for e in expected:
        text = f'expected {e.kind} "{e.text}" was not produced'
        problems.append(Diagnostic("error", e.loc, text, len(e.text) if e.line else 1))
    return problems


def _expectations(source: str, file: str) -> list[_Expectation]:
    """The comments, with the lines that they are about: "above" is the last line without one,
    "below" the next."""
    found: list[_Expectation] = []
    waiting: list[int] = []  # what is about the next line
    plain = 0
    for number, text in enumerate(source.splitlines(), start=1):
        match = _EXPECTED.search(text)
        if match is None:
            plain = number
            for k in waiting:
                found[k] = replace(found[k], line=number)
            waiting.clear()
            continue
        where = match["where"]
        line = {None: number, "above": plain, "below": number, "unknown": None}.get(where, -1)
        if line == -1:
            line = number + int(where)
        elif where == "below":
            waiting.append(len(found))
        place = "<unknown>:0" if line is None else f"{file}:{number}:{match.start() + 1}"
        pattern = _pattern(match["text"]) if match["re"] else re.escape(match["text"])
        found.append(
            _Expectation(match["kind"], line, match["text"], re.compile(pattern), place)
        )  # fmt: skip
    return found


def _pattern(text: str) -> str:
    """Text with regular expressions in `{{...}}` as one expression."""
    parts = re.split(r"\{\{(.*?)\}\}", text)
    return "".join(f"(?:{p})" if k % 2 else re.escape(p) for k, p in enumerate(parts))
