# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures of each kernel on the CPU: time, operations and bytes a second, share of the roofline.

Operations are those that the mask leaves; bytes are those that no cache can avoid. A share
above 100% is of data that stay in caches between calls: no copy of large arrays is as fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neptune_mlir.cli.timing import time_text
from neptune_mlir.driver.page.svg import rate_text
from neptune_mlir.targets.roofline import Roof


def measure(kernel: Any, source: Any, knobs: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """The machine's limits, and the figures of each launch of a call, as JSON data."""
    from neptune_mlir.driver.compiler import lower_text
    from neptune_mlir.driver.page.work import kernel_costs
    from neptune_mlir.runtime import machine, workers

    roof = machine.roof()
    module, _ = lower_text(source.text, source.name, "cpu", kernel.schedule, "fused", knobs)
    plan = kernel.plan
    shapes = [np.shape(a) if isinstance(a, np.ndarray) else None for a in arguments]
    costs = kernel_costs(module, source.text, plan.entry, shapes, workers.count())
    times = kernel.launch_times(*arguments)
    rows = _rows(times, costs, roof)
    if any(row.get("of_roof", 0) > 1 for row in rows):
        reached = max(row.get("gflops", 0) for row in rows) * 1e9
        roof = machine.raised(roof, reached)
        rows = _rows(times, costs, roof)
    limits = {"flops": roof.flops, "bytes": roof.bytes, "source": roof.source}
    return {"roof": limits, "kernels": rows}


def _rows(
    times: Sequence[tuple[str, float]], costs: Mapping[str, Any], roof: Roof
) -> list[dict[str, Any]]:
    """The figures of each launch, which takes so many seconds."""
    rows = []
    for name, seconds in times:
        row: dict[str, Any] = {"kernel": name, "s": seconds}
        cost = costs.get(name)
        if cost is not None and seconds > 0:
            limit = max(cost.flops / roof.flops, cost.bytes / roof.bytes)
            row |= {
                "gflops": cost.flops / seconds / 1e9, "gbs": cost.bytes / seconds / 1e9,
                "flop": cost.flops, "bytes": cost.bytes, "of_roof": limit / seconds,
            }  # fmt: skip
        rows.append(row)
    return rows


def describe(found: dict[str, Any]) -> None:
    """The figures as a table."""
    roof = found["roof"]
    limits = f"{rate_text(roof['flops'], 'FLOP/s')}, {rate_text(roof['bytes'], 'B/s')}"
    print(f"this machine: {limits} ({roof['source']})")
    lines = [("kernel", "time", "GFLOP/s", "GB/s", "of the roofline")]
    for row in found["kernels"]:
        known = "gflops" in row
        lines.append((
            row["kernel"], time_text(row["s"]), f"{row['gflops']:.1f}" if known else "",
            f"{row['gbs']:.1f}" if known else "", f"{row['of_roof']:.0%}" if known else "",
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
        print("  " + "  ".join(cells).rstrip())
