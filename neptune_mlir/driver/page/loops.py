# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The program as written and as fused, side by side, with links from line to line.

An operation keeps the place of the one that it was made of. (Where many have one place,
`page/provenance.py` tells.) What was computed into others has no
line of its own any more: it is linked with the lines of those that use it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from neptune_mlir.dialects.op_names import MULTIPROCESSORS, PREFIX
from neptune_mlir.driver.explain import Line, Listing
from neptune_mlir.driver.page.provenance import sources_of
from neptune_mlir.ir.bindings import ir

_WORDS = (
    "stream", "private", "global", "function", "finish", "start", "where", "axes", "return",
    "repair:",
)  # fmt: skip
_REDUCED = re.compile(r"\b(?:sum|max|min|product|prod|all|any) over [\w, ]+:")


class Links:
    """Which lines of one listing go with which of another."""

    def __init__(self, written: Sequence[Listing], fused: Sequence[Listing]):
        self._before = _numbered(written)
        after = _numbered(fused)
        nests = [line.op for _, line in self._before if line.op is not None]
        alone = len({place(op) for op in nests}) * 2 > len(nests)  # places tell them apart
        sources: dict[Any, Any] = {}
        if not alone:
            for before, behind in zip(written, fused, strict=True):
                sources |= sources_of(before, behind)
        self._key: Any = place if alone else _identity
        lines: dict[Any, list[int]] = {}
        for number, line in after:
            if line.op is None or _is_head(line):
                continue
            if alone:
                lines.setdefault(place(line.op), []).append(number)
            elif line.op in sources:
                lines.setdefault(sources[line.op], []).append(number)
        self._lines = lines
        self._known: dict[Any, tuple[int, ...]] = {}
        self.forward = {
            number: self._lines_of(line.op) for number, line in self._before if line.op is not None
        }
        self.back: dict[int, list[int]] = {}
        for number, found in self.forward.items():
            for other in found:
                self.back.setdefault(other, []).append(number)

    def _lines_of(self, op: Any) -> tuple[int, ...]:
        if op not in self._known:
            self._known[op] = ()
            found = self._lines.get(self._key(op))
            if found is None:
                users = [use.owner for result in op.results for use in result.uses]
                found = sorted({n for user in users for n in self._lines_of(_nest(user, op))})
            self._known[op] = tuple(found)
        return self._known[op]


def _identity(op: Any) -> Any:
    return op


def _is_head(line: Line) -> bool:
    return line.text.split(" ", 1)[0] in ("stream", "private", "global", "where")


def _nest(user: Any, beside: Any) -> Any:
    """The operation next to another one that an operation is part of."""
    operation = user.operation
    while operation.block != beside.block:
        operation = operation.parent.operation
    return operation


def _numbered(listings: Sequence[Listing]) -> list[tuple[int, Line]]:
    """The lines that say what a program computes; arithmetic on its extents is left out."""
    shown = [line for listing in listings for line in listing.lines if not _is_host(line)]
    return list(enumerate(shown))


def lines_of(fused: Sequence[Listing]) -> dict[Any, str]:
    """By operation: the id of the first line of the fused listing that says it."""
    found: dict[Any, str] = {}
    for number, line in _numbered(fused):
        if line.op is not None:
            found.setdefault(line.op, f"f{number}")
    return found


def _is_host(line: Line) -> bool:
    """Whether a line computes numbers for the host alone."""
    op = line.op
    if op is None or (op.name.startswith(PREFIX) and op.name != MULTIPROCESSORS):
        return False
    return bool(op.results) and not any(
        isinstance(r.type, ir.RankedTensorType) for r in op.results
    )


def place(op: Any) -> str:
    """Where the program says an operation, as text; operations with one place have one text."""
    return str(op.location)


def source_line(op: Any, text: str) -> tuple[int, str] | None:
    """The number and the text of the line of the program that an operation comes from."""
    location = op.location
    lines = text.splitlines()
    if not isinstance(location, ir.FileLineColLoc):
        return None
    number = location.start_line
    return (number, lines[number - 1].strip()) if 0 < number <= len(lines) else None


def columns(written: Sequence[Listing], fused: Sequence[Listing], text: str) -> str:
    """Both listings as HTML: a line is a link to the first line that it goes with."""
    links = Links(written, fused)
    before = _listing("s", _numbered(written), links.forward, "f", text)
    after = _listing("f", _numbered(fused), links.back, "s", "")
    return (
        '<div class="pair"><figure><figcaption>As written</figcaption>'
        f'<div class="code" tabindex="0">{before}</div></figure>'
        f'<figure><figcaption>As fused</figcaption><div class="code" tabindex="0">{after}</div>'
        "</figure></div>"
    )


def _listing(
    side: str, lines: Iterable[tuple[int, Line]], links: Any, other: str, text: str
) -> str:
    rows = []
    for number, line in lines:
        found = links.get(number, ())
        to = " ".join(f"{other}{n}" for n in found)
        origin = source_line(line.op, text) if line.op is not None and text else None
        hint = f' title="line {origin[0]}: {html.escape(origin[1])}"' if origin else ""
        tag = f'a href="#{other}{found[0]}" data-to="{to}"' if found else "span"
        kind = " repair" if line.text.startswith("repair:") else ""
        from_lines = ""
        if side == "f" and found:
            from_lines = f"<em>{', '.join(str(n + 1) for n in found)}</em>"
        rows.append(
            f'<{tag} class="ln{kind}" id="{side}{number}" style="--d:{line.depth}"{hint}>'
            f"<small>{number + 1}</small><code>{coloured(line.text)}</code>{from_lines}"
            f"</{tag.split()[0]}>"
        )
    return "".join(rows)


def coloured(text: str) -> str:
    """A line of pseudo-code, its words marked."""
    first, _, rest = text.partition(" ")
    if first in _WORDS:
        return f"<b>{html.escape(first)}</b> {_reduced(rest)}" if rest else f"<b>{first}</b>"
    return _reduced(text)


def _reduced(text: str) -> str:
    coloured = _REDUCED.sub(lambda m: f"<i>{m[0]}</i>", html.escape(text))
    return re.sub("-inf|-&gt;", r"<span>\g<0></span>", coloured)  # which no line breaks
