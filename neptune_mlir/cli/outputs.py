# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that commands write. Folders that a user names have to be there: a mistyped path is an
error, and one before minutes of work rather than after it."""

from __future__ import annotations

from pathlib import Path

from neptune_mlir.errors import UsageError


def check_writable(*paths: Path | None) -> None:
    """Raises UsageError where `write` will fail; leaves every file as it is."""
    for path in filter(None, paths):
        there = path.exists()
        try:
            path.open("a").close()
            if not there:
                path.unlink()
        except OSError as error:
            raise UsageError(f"cannot write '{path}': {error.strerror}") from None


def write(path: Path, data: str | bytes) -> None:
    """Raises UsageError."""
    try:
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}") from None
