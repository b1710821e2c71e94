# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a folder of candidates holds: `tune.json`.

    {"target", "tools", "build" (a hash of all code), "lengths", "jobs": [
      {"name", "program" (its file), "spec", "shape", "rule",
       "stream" (its length; 0 where only a call says),
       "candidates": {label: {"choice", "bundle", "registers", "shared"}},
       "pruned": {reason: how many}}]}

A job is a program and a shape of its streams; its candidate RULE is what the rule takes. No MLIR.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from neptune_mlir.errors import InputError, UsageError

NAME = "tune.json"
RULE = "rule"


def read(folder: Path) -> dict[str, Any]:
    """The manifest of a folder. Raises UsageError where there is none, InputError for a damaged
    one."""
    path = folder / NAME
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        missing = [k for k in ("target", "tools", "build", "lengths", "jobs") if k not in found]
    except OSError:
        raise UsageError(
            f"{folder} has no {NAME}", hint=f"neptune tune build {folder} PROGRAM"
        ) from None
    except (ValueError, TypeError) as error:
        raise InputError(f"'{path}' is damaged: {error}", hint="build the folder again") from None
    if missing:
        raise InputError(f"'{path}' has no '{missing[0]}'", hint="build the folder again")
    return found


def files(folder: Path) -> list[Path]:
    """The bundles that a manifest speaks of; none where there is no manifest, or a damaged one."""
    try:
        jobs = read(folder)["jobs"]
        return [folder / c["bundle"] for job in jobs for c in job["candidates"].values()]
    except (InputError, UsageError, KeyError, TypeError, AttributeError):
        return []
