# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune zoo`: every example program, compiled and compared."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from neptune_mlir.cli.numbers import seed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="examples (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--grad", action="store_true", help="their gradients instead")
    parser.add_argument("--hard", action="store_true", help="adversarial inputs")
    parser.add_argument("--seed", type=seed, default=0, help="of the inputs")


_COLUMNS = ("name", "reductions", "kernels", "passes", "corrections", "added", "proved",
            "err", "unfused")  # fmt: skip
_GRADIENT_COLUMNS = ("name", "inputs", "reductions", "kernels", "free", "off", "err", "unfused",
                     "right")  # fmt: skip


def execute(options: argparse.Namespace) -> int:
    from neptune_mlir.zoo import examine, examine_gradient, find

    look = examine_gradient if options.grad else examine
    rows: list[Any] = []
    examples = find(options.names)
    for number, example in enumerate(examples):
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{len(examples)} {example.name:<30}", end="", file=sys.stderr)
        rows.append(look(example, options.seed, options.hard))
    if sys.stderr.isatty():
        print(f"\r{'':<40}\r", end="", file=sys.stderr)
    if options.json:
        for row in rows:
            print(json.dumps(row.as_json()))
    else:
        print(gradient_table(rows) if options.grad else table(rows))
    return 0 if all(row.right if options.grad else row.proved for row in rows) else 1


def gradient_table(rows: list) -> str:
    """The rows of gradients as an aligned table."""
    cells = [_GRADIENT_COLUMNS]
    for row in rows:
        cells.append((
            row.name, str(row.inputs), str(row.reductions), str(row.kernels), str(row.free),
            f"{row.off:.0e}", f"{row.err:.1e}", f"{row.err_unfused:.1e}",
            "yes" if row.right else "NO",
        ))  # fmt: skip
    return _aligned(cells)


def table(rows: list) -> str:
    """The rows as an aligned table, with notes below."""
    cells = [_COLUMNS]
    for row in rows:
        kinds = sorted(set(row.corrections), key=row.corrections.index)
        forms = ", ".join(f"{row.corrections.count(k)} {k}" for k in kinds) or "none"
        mark = "*" if row.note else ""
        cells.append((
            row.name, str(row.reductions), str(row.kernels), f"{row.passes}{mark}", forms,
            str(row.auxiliaries), "yes" if row.proved else "NO",
            f"{row.err:.1e}", f"{row.err_unfused:.1e}",
        ))  # fmt: skip
    notes = [f"* {row.name}: {row.note}" for row in rows if row.note]
    return "\n".join([_aligned(cells), "", *notes]).rstrip()


def _aligned(cells: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
             for row in cells]  # fmt: skip
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)
