# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What installed packages add, found by their entry points (docs/extending.md).

    [project.entry-points."neptune_mlir.passes"]
    merge-scales = "my_package.merge_scales"        # a module that registers the pass

    [project.entry-points."neptune_mlir.schedules"]
    wide-rows = "my_package.schedules"              # a package with the file wide-rows.mlir

    [project.entry-points."neptune_mlir.combiners"]
    logaddexp = "my_package.reductions"             # a module that registers the combiner

    [project.entry-points."neptune_mlir.functions"]
    softplus = "my_package.scalars"                 # a module that registers the scalar function

    [project.entry-points."neptune_mlir.targets"]
    sm_87 = "my_package.chips"                      # a module that registers the GPU target

    [project.entry-points."neptune_mlir.patterns"]
    gelu-by-tanh = "my_package.spellings"           # a module that registers the pattern

Nothing here imports MLIR, nor a package before one of its entries is used.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neptune_mlir.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PASSES = "neptune_mlir.passes"
SCHEDULES = "neptune_mlir.schedules"
COMBINERS = "neptune_mlir.combiners"
FUNCTIONS = "neptune_mlir.functions"
TARGETS = "neptune_mlir.targets"
PATTERNS = "neptune_mlir.patterns"


@functools.cache
def entries(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, in the order of their names.

    Raises:
        UsageError: two packages have one of the same name.
    """
    from importlib.metadata import entry_points  # not on every start: it takes a while

    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=group), key=lambda e: (e.name, e.value)):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise UsageError(
                f"{owner(other)} and {owner(entry)} both have an entry '{entry.name}' of {group}",
                hint="uninstall one of them",
            )
    return found


def load(group: str, name: str) -> Any:
    """The module that an entry names, imported. Raises UsageError where that fails."""
    entry = entries(group)[name]
    try:
        return importlib.import_module(entry.value)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"'{name}' of {owner(entry)} cannot be imported: {type(error).__name__}: {error}",
            hint=f"python -c 'import {entry.value}' shows why",
        ) from error


def schedule_text(name: str) -> str:
    """The script of a schedule that a package ships. Raises UsageError where there is no file."""
    from importlib.resources import files

    entry = entries(SCHEDULES)[name]
    try:
        return (files(entry.value) / f"{name}.mlir").read_text()
    except (OSError, ImportError, TypeError) as error:
        raise UsageError(
            f"schedule '{name}' of {owner(entry)} cannot be read: {error}",
            hint=f"the file {name}.mlir belongs into the package {entry.value}",
        ) from None


@functools.cache
def fingerprint(group: str) -> str:
    """What identifies what installed packages have of a group: compiled code may depend on it."""
    digest = hashlib.sha256()
    for name, entry in entries(group).items():
        digest.update(f"{name} {entry.value} {owner(entry)}\n".encode())
        try:
            spec = importlib.util.find_spec(entry.value)
        except ImportError:
            spec = None
        if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
            digest.update(Path(spec.origin).read_bytes())
    return digest.hexdigest()


def owner(entry: EntryPoint) -> str:
    """The package that has an entry, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
