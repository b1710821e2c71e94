# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The sweep: draws beside their peers, and where we are far behind (docs/benchmark.md)."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neptune_mlir.bench.draws import device_of, draws, path_of
from neptune_mlir.bench.figures import geometric_mean
from neptune_mlir.bench.peers import PEERS
from neptune_mlir.bench.problem import problem_of
from neptune_mlir.bench.report import TextTable
from neptune_mlir.bench.results import best_peer, cells
from neptune_mlir.bench.run import BenchCell, bundles_of
from neptune_mlir.errors import UsageError
from neptune_mlir.runtime.bundle import Bundle

WORST = 10
JOBS = 12  # draws in preparation at the same time, on a GPU, where there are as many cores
OURS = "neptune"


def peers_of(device: str) -> tuple[str, ...]:
    """Those that are installed and need no tuning run."""
    return tuple(
        name for name, peer in PEERS.items()
        if not peer.tunes and peer.installed and not (device == "cpu" and peer.gpu)
    )  # fmt: skip


def jobs_of(device: str) -> int:
    """How many draws are prepared at the same time. On the CPU that is timed nothing else runs."""
    return 1 if device == "cpu" else max(1, min(JOBS, (os.cpu_count() or 1) - 1))


def drawn_cells(folder: Path, target: str, seed: int, count: int) -> list[BenchCell]:
    """A cell for each of the first draws of a seed, whose bundles may be still to come."""
    found = []
    for drawn in draws(seed, count, device_of(target)):
        path = path_of(folder, drawn)
        build = {"do": "build", "path": str(path), "target": target, "spec": drawn.spec}
        found.append(_cell(path, drawn.spec, target, build))
    return found


def cells_of(folder: Path) -> list[BenchCell]:
    """A cell for each draw of a folder, in their order.

    Raises UsageError: none is there, or they are for several devices.
    """
    found = []
    for path, spec in bundles_of(folder, "draw-").items():
        found.append(_cell(path, spec, Bundle.from_bytes(path.read_bytes()).target))
        found[-1].facts["why"] = remarks_of(path)
    if len({cell.device for cell in found}) > 1:
        raise UsageError(f"{folder} has draws for CPUs and for GPUs", hint="one folder for each")
    return sorted(found, key=lambda cell: [int(n) for n in cell.problem.operator.split("-")[1:]])


def _cell(
    path: Path, spec: dict[str, Any], target: str, build: dict[str, Any] | None = None
) -> BenchCell:
    problem = problem_of(spec, 0)
    title = problem.title + (" compiled in" if spec.get("fixed") else "")
    facts = {"title": title, "drawn": spec["drawn"], "why": []}
    device = "cpu" if target == "cpu" else ""
    return BenchCell(problem, {OURS: str(path)}, "sweep", False, device, facts, build or {})


def remarks_of(path: Path) -> list[str]:
    """What the compiler remarked on a bundle."""
    return list(Bundle.from_bytes(path.read_bytes()).facts.get("remarks", ()))


def standings(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each draw that we and a peer got right: our row, with the peer's name, time and how many
    times as fast as it we are; the slowest first."""
    found = []
    for cell in cells(rows):
        ours = next((r for r in cell if r["ours"]), None)
        peer = best_peer(cell)
        if ours and peer and "failed" not in ours and ours["right"]:
            found.append({**ours, "peer": peer["candidate"], "peer_us": peer["us"],
                          "speed": peer["us"] / ours["us"]})  # fmt: skip
    return sorted(found, key=lambda row: float(row["speed"]))


def figures_of(speeds: Sequence[float]) -> dict[str, float]:
    """Geometric mean, 5th percentile, minimum, and how many."""
    if not speeds:
        return {"count": 0, "mean": math.nan, "p5": math.nan, "least": math.nan}
    return {"count": len(speeds), "mean": geometric_mean(speeds),
            "p5": float(np.percentile(speeds, 5)), "least": min(speeds)}  # fmt: skip


def report(found: dict[str, Any], markdown: bool = False) -> str:
    """Figures of all draws and by kind, the worst with their remarks, what failed."""
    rows = found["rows"]
    placed = standings(rows)
    groups = {"all": placed}
    for row in placed:
        groups.setdefault(row["drawn"], []).append(row)
    lines = []
    for name, some in groups.items():
        f = figures_of([r["speed"] for r in some])
        numbers = (f["mean"], f["p5"], f["least"])
        lines.append([name, str(int(f["count"])), *(f"{x:.2f}" for x in numbers)])
    header = ["", "draws", "geometric mean", "5th percentile", "least"]
    summary = TextTable("time of the best peer / ours", header, lines)
    worst = [
        [r["title"], f"{r['us']:.1f}", f"{r['peer_us']:.1f}", r["peer"], f"{r['speed']:.2f}",
         f"{100 * r['sol']:.0f}"]
        for r in placed[:WORST]
    ]  # fmt: skip
    slow = TextTable("the worst", ["", "us", "best peer us", "peer", "speed", "SOL %"], worst)
    shown = [t.markdown() if markdown else t.text() for t in (summary, slow)]
    return "\n\n".join(["\n\n".join(shown), _why(placed[:WORST]), _failures(found, placed)])


def _why(worst: Sequence[dict[str, Any]]) -> str:
    parts = []
    for row in worst:
        said = [*row.get("why", ()), *row.get("path", ())]
        remarks = [f"    {text}" for text in said] or ["    no remark"]
        parts.append("\n".join([f"{row['title']} ({row['operator']})", *remarks]))
    return "\n".join(parts)


def _failures(found: dict[str, Any], placed: Sequence[dict[str, Any]]) -> str:
    rows = found["rows"]
    ours = [r for r in rows if r["ours"]]
    bad = [r for r in ours if "failed" in r or not r["right"]]
    lines = [f"{len(ours)} draws, {len(ours) - len(bad)} right"]
    lines += [f"{r['title']} ({r['operator']}): {r.get('failed', 'wrong')}" for r in bad]
    alone = len(ours) - len(bad) - len(placed)
    if alone:
        lines.append(f"{alone} that no peer got right")
    under = [r["operator"] for r in ours if r.get("audit_failure")]
    if under:
        lines.append(f"under the bound: {', '.join(under)}")
    if found["skipped"]:
        lines.append(f"not measured for want of time: {', '.join(found['skipped'])}")
    return "\n".join(lines)
