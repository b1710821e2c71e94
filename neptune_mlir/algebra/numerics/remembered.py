# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests by numbers found, kept for other processes by the content of a test, and taken for
granted while something else can be done."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term


class Store(Protocol):
    """Keeps verdicts, each as JSON data that is not None."""

    def load(self, content: str) -> Any:
        """What was said of a test with this content, or None."""

    def keep(self, content: str, found: Any) -> None:
        """Say it to those who come later."""


store: ContextVar[Store | None] = ContextVar("store", default=None)


class Mistaken(Exception):
    """A verdict that was taken for granted is another one."""


_open: ContextVar[list[Callable[[], None]] | None] = ContextVar("open", default=None)


@contextlib.contextmanager
def taken_for_granted() -> Iterator[Callable[[], None]]:
    """Within, tests with a likely verdict do not run: it is taken for granted until `settle` or
    what this yields is called, or the block ends. Then they run, and what comes after runs at once.

    Raises:
        Mistaken: one of them says something else; what was made meanwhile is void.
    """
    token = _open.set([])
    try:
        try:
            yield settle
        except Exception:  # perhaps because of a wrong verdict
            settle()
            raise
        settle()
    finally:
        _open.reset(token)


def settle() -> None:
    """Run the tests whose verdicts are taken for granted here, if any: something else is at work
    that takes as long. Raises Mistaken."""
    tests = _open.get() or []
    _open.set(None)
    for test in tests:
        test()


def remembered(content: Any, find: Callable[[], Any], likely: Any = None) -> Any:
    """What `find` returns, or returned of the same content before, in this process or another.

    Args:
        likely: what it says nearly always (see `taken_for_granted`).
    """
    kept = store.get()
    name = hashlib.sha256(_text(content).encode()).hexdigest() if kept else ""
    found = kept.load(name) if kept else None
    if found is not None:
        return found

    def run() -> Any:
        found = find()
        if kept:
            kept.keep(name, found)
        return found

    def test() -> None:
        if run() != likely:
            raise Mistaken

    tests = _open.get()
    if likely is None or tests is None:
        return run()
    tests.append(test)
    return likely


def _text(content: Any) -> str:
    """Text that only this content has, the same in every process."""
    if isinstance(content, Term):
        return T.digest(content)
    if isinstance(content, frozenset):
        return f"{{{','.join(sorted(map(_text, content)))}}}"
    if isinstance(content, (tuple, list)):
        return f"({','.join(map(_text, content))})"
    if isinstance(content, Mapping):
        return f"[{_text(tuple(content.items()))}]"
    if dataclasses.is_dataclass(content):
        fields = (getattr(content, field.name) for field in dataclasses.fields(content))
        return f"{type(content).__name__}{_text(tuple(fields))}"
    return repr(content)
