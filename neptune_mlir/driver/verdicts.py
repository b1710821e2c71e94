# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests by numbers said of chains and of whole programs, on disk beside compiled programs.

A program is compiled for other targets, calls and sizes, and with small changes, and most of its
chains stay what they were. A verdict belongs to the content of a test, to this compiler, and to
the other packages whose combiners and functions it may have run. `NEPTUNE_VERDICTS=none` neither
reads nor writes any.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neptune_mlir import plugins
from neptune_mlir.algebra.numerics.remembered import store
from neptune_mlir.runtime import cache

ENVIRONMENT = "NEPTUNE_VERDICTS"


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Within: the disk is asked before a test runs."""
    token = None if os.environ.get(ENVIRONMENT) == "none" else store.set(_Folder())
    try:
        yield
    finally:
        if token is not None:
            store.reset(token)


class _Folder:
    """A file for each verdict, in the folder of the cache: a digest of what follows, and that."""

    def __init__(self) -> None:
        self._others = [plugins.fingerprint(g) for g in (plugins.COMBINERS, plugins.FUNCTIONS)]

    def load(self, content: str) -> Any:
        try:
            digest, _, text = self._path(content).read_text().partition("\n")
        except (OSError, ValueError):
            return None
        # damaged: the test runs, and its verdict is written again
        return json.loads(text) if digest == _digest(text) else None

    def keep(self, content: str, found: Any) -> None:
        path, text = self._path(content), json.dumps(found)
        with contextlib.suppress(OSError):  # a folder that cannot be written keeps nothing
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            try:
                with os.fdopen(handle, "w") as file:
                    file.write(f"{_digest(text)}\n{text}")
                os.replace(temporary, path)  # whoever reads now has all of one of the two
            except OSError:
                os.unlink(temporary)

    def _path(self, content: str) -> Path:
        name = cache.key("verdict", content, *self._others)
        return cache.folder() / name[:2] / f"{name}.verdict"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
