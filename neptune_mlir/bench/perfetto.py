# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Profiles as traces that Perfetto (and chrome://tracing) opens: a process a kernel and block, a
thread a warp. A cycle is shown as a nanosecond."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from neptune_mlir.bench.profile import Span, Track

_CYCLE = 1e-3  # of the unit of the format, a microsecond


def trace(kernels: Mapping[str, Sequence[Track]]) -> str:
    """The trace of all sampled warps, as JSON."""
    events: list[dict[str, Any]] = []
    processes: dict[tuple[str, int], int] = {}
    for name, tracks in kernels.items():
        for track in tracks:
            process = processes.setdefault((name, track.block), len(processes) + 1)
            if process == len(processes) and not _named(events, process):
                events.append(_name("process_name", process, 0, f"{name}, block {track.block}"))
            own, products = 2 * track.warp, 2 * track.warp + 1
            label = f"warp {track.warp}: {track.role}"
            events.append(_name("thread_name", process, own, label))
            events += [_event(span, process, own) for span in track.spans]
            if track.products:
                events.append(_name("thread_name", process, products, f"{label}, products"))
                events += [_event(span, process, products) for span in track.products]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events})


def _named(events: Sequence[Mapping[str, Any]], process: int) -> bool:
    return any(e["name"] == "process_name" and e["pid"] == process for e in events)


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _event(span: Span, process: int, thread: int) -> dict[str, Any]:
    return {
        "ph": "X", "name": span.kind, "cat": "warp", "pid": process, "tid": thread,
        "ts": span.start * _CYCLE, "dur": (span.end - span.start) * _CYCLE,
    }  # fmt: skip
