# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a measurement found, as data: rows of cells, what follows from them, and JSON.

    {"device": {...}, "rounds": 3, "limits": [rates before and after, of each run], "rows": [...],
     "skipped": [names of cells], "rates": {"flops", "bytes"}, "seconds"}

A row is one candidate in one cell: operator, dtype, length, batch, candidate, ours, suite, sweep,
flops, bytes, of draws title, drawn and why (remarks), of ours path, and `failed` (why) or errors,
right, us, rounds_us, spread, sm_mhz, watts, tflops, gbs, bound_us, sol, score, audit_failure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from neptune_mlir.bench import figures
from neptune_mlir.errors import InputError

CELL = ("operator", "dtype", "length", "batch")
MEMORY = ("copy", "read", "fill")
DIGITS = 6


def cell_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[k] for k in CELL)


def cells(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Rows of the same cell; operators in the order in which they came, then by size."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    order = {name: k for k, name in enumerate(dict.fromkeys(r["operator"] for r in rows))}
    for row in rows:
        key = (row["suite"], row["dtype"], order[row["operator"]], row["sweep"], row["length"],
               row["batch"])  # fmt: skip
        groups.setdefault(key, []).append(row)
    for key in sorted(groups):
        yield groups[key]


def conclude(found: dict[str, Any]) -> None:
    """Adds what needs the chip's rates and the peers: bound, share of it, score, audit."""
    best = {k: max(m[k] for m in found["limits"]) for k in found["limits"][0]}
    rates = figures.Limits(
        max(v for k, v in best.items() if k.startswith("matmul")),
        max(v for k, v in best.items() if k in MEMORY),
    )
    found["rates"] = {"flops": rates.flops, "bytes": rates.bytes}
    for cell in cells([r for r in found["rows"] if "failed" not in r]):
        base = best_peer(cell)
        for row in cell:
            bound = rates.bound_us(row["flops"], row["bytes"])
            row |= {
                "tflops": row["flops"] / row["us"] / 1e6, "gbs": row["bytes"] / row["us"] / 1e3,
                "bound_us": bound, "sol": bound / row["us"],
                "score": figures.sol_score(row["us"], bound, base["us"]) if base else None,
                "audit_failure": figures.is_audit_failure(row["us"], bound),
            }  # fmt: skip


def best_peer(cell: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The fastest right candidate of a cell that is not ours."""
    peers = [r for r in cell if "failed" not in r and not r["ours"] and r["right"]]
    return min(peers, key=lambda r: r["us"], default=None)


def best_of_ours(cell: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    ours = [r for r in cell if "failed" not in r and r["ours"] and r["right"]]
    return min(ours, key=lambda r: r["us"], default=None)


def error_ratio(row: dict[str, Any], cell: Sequence[dict[str, Any]]) -> float | None:
    """Its relative error over the smallest of the right peers in the cell."""
    peers = [r["errors"]["relative"] for r in cell
             if "failed" not in r and not r["ours"] and r["right"]]  # fmt: skip
    if not peers:
        return None
    return row["errors"]["relative"] / min(peers) if min(peers) else 1.0


def to_json(found: Any) -> str:
    """Strict JSON, a row a line; what is not finite is null, six digits of the rest."""

    def clean(x: Any) -> Any:
        if isinstance(x, dict):
            return {k: clean(v) for k, v in x.items()}
        if isinstance(x, (list, tuple)):
            return [clean(v) for v in x]
        if isinstance(x, float):
            return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None
        return x

    def lines(x: Any) -> str:
        return ",\n".join(json.dumps(clean(row), allow_nan=False) for row in x)

    if isinstance(found, list):
        return f"[\n{lines(found)}\n]\n"
    fields = [
        f"{json.dumps(k)}: "
        + (f"[\n{lines(v)}\n]" if k == "rows" else json.dumps(clean(v), allow_nan=False))
        for k, v in found.items()
    ]
    return "{" + ",\n".join(fields) + "}\n"


def read(
    path: Path, fields: Sequence[str] = ("device", "limits", "rows", "skipped")
) -> dict[str, Any]:
    """What `to_json` wrote, of an object with these fields. Raises InputError."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        missing = [k for k in fields if k not in found]
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read '{path}': {reason}") from None
    if missing:
        raise InputError(f"'{path}' holds no measurement: it has no '{missing[0]}'")
    for row in found["rows"]:
        # an error that was not finite
        row.get("errors", {}).update(
            {k: math.inf for k, v in row.get("errors", {}).items() if v is None}
        )
    return found
