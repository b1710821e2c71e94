# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled bundles on disk, found again by the content of what made them.

The folder is `NEPTUNE_CACHE_DIR`, else the user's cache folder. An entry is written to a
temporary file and renamed, so readers see all of it or none; a damaged one counts as absent.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from neptune_mlir.errors import ToolError
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.version import __version__


def folder() -> Path:
    """Where entries live (not made until one is written)."""
    chosen = os.environ.get("NEPTUNE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("neptune-mlir"))


def key(*parts: str) -> str:
    """A name for what these texts (a program, a target, options) and this compiler make."""
    digest = hashlib.sha256()
    for part in (*parts, compiler_version()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part.encode())
    return digest.hexdigest()


_LINES = re.compile(r"""(?:^|(?<=loc\("))[^"\n]*?:\d+ (?=\('torch\.[\w.]+'\))""", re.M)


def without_lines(text: str) -> str:
    """A program, or a remark, without the places in Python that called its operations of torch:
    they are of a machine, and move with lines that have nothing to do with the program."""
    return _LINES.sub("", text)


_ROOT = str(Path(__file__).parent.parent)


def _own(path: str) -> str:
    """The name of a file from the package's folder on."""
    return path.removeprefix(_ROOT)


@functools.cache
def own_files() -> tuple[str, ...]:
    """The files of this package that shape compiled code: its modules, the shipped schedules and
    the shipped tuning table."""
    found = []
    for folder, _, names in os.walk(_ROOT):  # a tenth of what pathlib takes
        found += [f"{folder}/{name}" for name in names if name.endswith((".py", ".mlir", ".json"))]
    return tuple(sorted(found))


@functools.cache
def compiler_version() -> str:
    """Versions of the tools, and the time stamps of this package's own files."""
    tools = [f"{name}={version}" for name, version in tool_versions().items()]
    files = [
        f"{_own(path)}:{stat.st_mtime_ns}:{stat.st_size}"
        for path in own_files()
        for stat in [os.stat(path)]
    ]
    return " ".join(tools) + hashlib.sha256("\n".join(files).encode()).hexdigest()


@functools.cache  # (each is looked for in all folders that Python imports from)
def tool_versions() -> Mapping[str, str]:
    """The packages that shape compiled code, with their versions."""
    found = {}
    for name in ("torch-mlir", "mlir", "llvmlite", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return MappingProxyType(found)


def compiler_versions() -> dict[str, str]:
    """This compiler, by a hash of its files, and `tool_versions`."""
    return {"neptune-mlir": f"{__version__}+{source_digest()}", **tool_versions()}


@functools.cache
def source_digest() -> str:
    """The first 12 digits of a hash of this package's own files."""
    digest = hashlib.sha256()
    for path in own_files():
        with open(path, "rb", buffering=0) as file:
            digest.update(f"{_own(path)}\n".encode() + file.read())
    return digest.hexdigest()[:12]


def load(name: str) -> Bundle | None:
    """The entry of that name, or None when there is none (or a damaged one)."""
    try:
        return Bundle.from_bytes(_path(name).read_bytes())
    except (OSError, ToolError):
        return None


def store(name: str, bundle: Bundle) -> None:
    """Write an entry. A folder that cannot be written is no error: nothing is cached then."""
    path = _path(name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(bundle.to_bytes())
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)


def get_or_make(name: str, make: Callable[[], Bundle]) -> tuple[Bundle, bool]:
    """The entry, made and stored when absent; and whether it was there already."""
    found = load(name)
    if found is not None:
        return found, True
    bundle = make()
    store(name, bundle)
    return bundle, False


def _path(name: str) -> Path:
    return folder() / name[:2] / f"{name}.bundle"
