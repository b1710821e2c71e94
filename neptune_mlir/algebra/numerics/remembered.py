# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests by numbers found, kept for other processes by the content of a test."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
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


def remembered(content: Any, find: Callable[[], Any]) -> Any:
    """What `find` returns, or returned of the same content before, in this process or another."""
    kept = store.get()
    if kept is None:
        return find()
    name = hashlib.sha256(_text(content).encode()).hexdigest()
    found = kept.load(name)
    if found is None:
        found = find()
        kept.keep(name, found)
    return found


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
