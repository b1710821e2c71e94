#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write the reference in docs/ from the docstrings; `--check` only compares."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from gen_reference import MADE, PAGES, block  # noqa: E402

from neptune_mlir.dialects import aref, attributes, matmul, neptune, warps  # noqa: E402
from neptune_mlir.dialects.attribute_types import Attribute  # noqa: E402
from neptune_mlir.transforms import registry  # noqa: E402


def passes() -> str:
    parts = ["# Passes", MADE, "`neptune-opt --NAME[=option=value,...]` runs one."]
    for name in registry.built_in():
        found = registry.lookup(name)
        text = inspect.getdoc(sys.modules[found.run.__module__]) or ""
        options = inspect.getdoc(found.run)
        parts += [f"## `{name}`", found.summary[0].upper() + found.summary[1:] + ".", block(text)]
        if found.options:
            kinds = ", ".join(f"`{k.replace('_', '-')}` ({v.__name__})"
                              for k, v in found.options.items())  # fmt: skip
            parts.append(f"Options: {kinds}.")
        if options:
            parts.append(block(options))
    return "\n\n".join(parts) + "\n"


def dialect() -> str:
    parts = ["# The `neptune` dialect", MADE]
    parts += [block(inspect.getdoc(module) or "") for module in (neptune, aref, matmul, warps)]
    for op in neptune.Neptune.operations:
        parts += [f"## `{op.OPERATION_NAME}`", block(inspect.getdoc(op) or "")]
    parts += ["## Attributes of passes", block(inspect.getdoc(attributes) or ""), _attributes()]
    return "\n\n".join(parts) + "\n"


def _attributes() -> str:
    rows = ["| attribute | type | on | meaning | written by | read by |", "|" + "---|" * 6]
    for found in vars(attributes).values():
        if isinstance(found, Attribute):
            modules = (", ".join(f"`{m}`" for m in part) for part in (found.writers, found.readers))
            cells = [f"`{found}`", found.kind.text, found.holders, found.meaning, *modules]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> int:
    stale = []
    made = {"passes.md": passes, "dialect.md": dialect, **PAGES}
    for name, write in made.items():
        path, text = ROOT / "docs" / name, write()
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
        else:
            path.write_text(text)
    if stale:
        print(f"out of date: {', '.join(stale)}; run tools/gen_docs.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
