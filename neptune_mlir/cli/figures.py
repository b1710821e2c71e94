# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures of each kernel on the CPU: time, operations and bytes a second, share of the roofline.

Operations are those that the mask leaves; bytes are those that no cache can avoid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neptune_mlir.cli.timing import time_text
from neptune_mlir.driver.page.svg import rate_text


def measure(kernel: Any, source: Any, knobs: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """The machine's limits, and the figures of each launch of a call, as JSON data."""
    from neptune_mlir.driver.compiler import lower_text
    from neptune_mlir.driver.page.work import kernel_costs
    from neptune_mlir.runtime import machine, workers

    roof = machine.roof()
    module, _ = lower_text(source.text, source.name, "cpu", kernel.schedule, "fused", knobs)
    plan = kernel.bundle.plan
    shapes = [np.shape(a) if isinstance(a, np.ndarray) else None for a in arguments]
    costs = kernel_costs(module, source.text, plan.entry, shapes, workers.count())
    rows = []
    for name, seconds in kernel.launch_times(*arguments):
        row: dict[str, Any] = {"kernel": name, "s": seconds}
        cost = costs.get(name)
        if cost is not None and seconds > 0:
            limit = max(cost.flops / roof.flops, cost.bytes / roof.bytes)
            row |= {
                "gflops": cost.flops / seconds / 1e9, "gbs": cost.bytes / seconds / 1e9,
                "flop": cost.flops, "bytes": cost.bytes, "of_roof": limit / seconds,
            }  # fmt: skip
        rows.append(row)
    return {"roof": {"flops": roof.flops, "bytes": roof.bytes}, "kernels": rows}


def describe(found: dict[str, Any]) -> None:
    """The figures as a table."""
    roof = found["roof"]
    print(f"this machine: {rate_text(roof['flops'], 'FLOP/s')}, {rate_text(roof['bytes'], 'B/s')}")
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
