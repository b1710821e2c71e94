#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows and attention on the CPU beside torch, in one run.

    tools/bench_cpu.py [--threads 2] [--seconds 2] [--only softmax,bf16] [--markdown] [--json]

Both get the same arrays and threads, and take turns, so that a busy machine slows both. Times are
the least of all rounds, in microseconds. A ratio is torch's time over ours: of the wall time with
all threads, and of one thread's CPU time, which other processes disturb less. The error is the
relative difference (Frobenius norm) from torch in float64, ours over torch's own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import neptune_mlir
from neptune_mlir import ops

MATRICES = [(4096, 1024), (4096, 1000), (1024, 8192), (64, 131072), (1, 1000000), (100000, 64)]
# batch, heads, heads of keys, queries, keys, head dimension, causal
ATTENTION = [
    (1, 8, 8, 1, 4096, 64, False),
    (1, 8, 2, 1, 4096, 64, False),
    (1, 8, 2, 1, 4096, 128, False),
    (1, 8, 8, 16, 4096, 64, False),
    (1, 8, 8, 128, 4096, 64, False),
    (4, 8, 8, 128, 128, 64, False),
    (1, 8, 8, 512, 512, 64, False),
    (1, 8, 8, 2048, 2048, 64, False),
    (1, 8, 8, 2048, 2048, 64, True),
    (1, 8, 8, 1024, 1024, 128, False),
    (1, 1, 1, 1, 1, 64, False),
]
DTYPES = ("f32", "bf16")


@dataclass
class Row:
    """One program at one shape: ours, torch's, and torch's in float64."""

    name: str
    ours: Callable[[], Any]
    torch: Callable[[], Any]
    exact: Callable[[], Any]


def matrix_rows(only: Callable[[str], bool]) -> Iterator[Row]:
    import torch
    import torch.nn.functional as F

    programs: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
        "softmax": (ops.softmax, lambda x, w, b, t: torch.softmax(x, -1)),
        "layer_norm": (ops.layer_norm, lambda x, w, b, t: F.layer_norm(x, w.shape, w, b)),
        "rms_norm": (ops.rms_norm, lambda x, w, b, t: F.rms_norm(x, w.shape, w, 1e-6)),
        "cross_entropy": (
            ops.cross_entropy, lambda x, w, b, t: F.cross_entropy(x, t, reduction="none")
        ),
    }  # fmt: skip
    of = {"softmax": "x", "layer_norm": "xwb", "rms_norm": "xw", "cross_entropy": "xt"}
    for name, (program, plain) in programs.items():
        for r, c in MATRICES:
            if not only(title := f"{name} {r}x{c} f32"):
                continue
            x, w, b = torch.randn(r, c), torch.randn(c), torch.randn(c)
            t = torch.randint(0, c, (r,))
            arrays = {"x": x, "w": w, "b": b, "t": t}
            kernel = neptune_mlir.compile(program())
            out = torch.empty(r) if name == "cross_entropy" else torch.empty_like(x)
            mine = [arrays[a] for a in of[name]]
            wide = (x.double(), w.double(), b.double(), t)
            yield Row(
                title,
                lambda k=kernel, a=mine, o=out: k(*a, out=o),  # type: ignore[misc]
                lambda f=plain, a=(x, w, b, t): f(*a),  # type: ignore[misc]
                lambda f=plain, a=wide: f(*a),  # type: ignore[misc]
            )


def attention_rows(only: Callable[[str], bool]) -> Iterator[Row]:
    import torch

    attend = torch.nn.functional.scaled_dot_product_attention
    for dtype in DTYPES:
        for b, h, hk, m, n, d, causal in ATTENTION:
            title = f"attention {b}x{h}/{hk} {m}x{n} d{d}{' causal' * causal} {dtype}"
            if not only(title):
                continue
            kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
            q = torch.randn(b, h, m, d, dtype=kind)
            k, v = (torch.randn(b, hk, n, d, dtype=kind) for _ in range(2))
            program = ops.attention(head_dim=d, group=h // hk, causal=causal, dtype=dtype)
            kernel, out = neptune_mlir.compile(program), torch.empty_like(q)
            options = {"is_causal": causal, "enable_gqa": h != hk}
            wide = [x.double() for x in (q, k, v)]
            yield Row(
                title,
                lambda f=kernel, a=(q, k, v), o=out: f(*a, out=o),  # type: ignore[misc]
                lambda a=(q, k, v), o=options: attend(*a, **o),  # type: ignore[misc]
                lambda a=wide, o=options: attend(*a, **o),  # type: ignore[misc]
            )


def measure(row: Row, seconds: float, clock: Callable[[], float]) -> tuple[float, float]:
    """The least time of each, in turns, in microseconds."""
    best = [float("inf")] * 2
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 5 or time.perf_counter() < end:
        rounds += 1
        for k, function in enumerate((row.ours, row.torch)):
            started = clock()
            function()
            best[k] = min(best[k], clock() - started)
    return best[0] * 1e6, best[1] * 1e6


def run(row: Row, threads: int, seconds: float) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {"row": row.name}
    clocks = (("wall", threads, time.perf_counter), ("cpu", 1, time.process_time))
    for label, workers, clock in clocks:
        os.environ["NEPTUNE_NUM_THREADS"] = str(workers)
        torch.set_num_threads(workers)
        row.ours(), row.torch()
        mine, other = measure(row, seconds / 2, clock)
        found[label] = {"neptune": mine, "torch": other, "ratio": other / mine}
    exact = row.exact()
    mine, other = (float((f().double() - exact).norm()) for f in (row.ours, row.torch))
    found["error"] = mine / float(exact.norm())
    found["of_torch"] = mine / other if other else float(mine > 0)
    return found


def peak_memory(n: int = 16384, d: int = 64) -> float:
    """MiB by which one long head raises this process's peak, arrays included."""
    rng = np.random.default_rng(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    q, k, v = (rng.standard_normal((1, 1, n, d), dtype=np.float32) for _ in range(3))
    neptune_mlir.compile(ops.attention(head_dim=d))(q, k, v)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def line(row: dict[str, Any], markdown: bool) -> str:
    wall, cpu = row["wall"], row["cpu"]
    cells = [
        *(f"{wall[k]:10.1f}" for k in ("neptune", "torch")), f"{wall['ratio']:6.2f}",
        *(f"{cpu[k]:10.1f}" for k in ("neptune", "torch")), f"{cpu['ratio']:6.2f}",
        f"{row['error']:8.1e}", f"{row['of_torch']:6.2f}",
    ]  # fmt: skip
    if markdown:
        return f"| {row['row']} | " + " | ".join(c.strip() for c in cells) + " |"
    return f"{row['row']:36}" + " ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    parser.add_argument("--only", default="", help="parts of names, with commas between")
    parser.add_argument("--memory", action="store_true", help="the peak of a long head too")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args()
    memory = peak_memory() if options.memory else None
    parts = options.only.split(",")

    def only(name: str) -> bool:
        return any(part in name for part in parts)

    head = ["ours", "torch", "ratio", "ours 1", "torch 1", "ratio", "error", "/ torch"]
    if options.markdown:
        print(f"| row | {' | '.join(head)} |\n|{'---|' * (len(head) + 1)}")
    else:
        widths = (10, 10, 6, 10, 10, 6, 8, 6)
        cells = (f"{h:>{w}}" for h, w in zip(head, widths, strict=True))
        print(f"{'row':36}" + " ".join(cells))
    rows = []
    for make in (matrix_rows, attention_rows):
        for row in make(only):
            rows.append(run(row, options.threads, options.seconds))
            print(line(rows[-1], options.markdown), flush=True)
    if memory is not None:
        print(f"peak memory, 16384 keys and queries, d 64: {memory:.0f} MiB above the import")
    if options.json:
        print(json.dumps({"rows": rows, "peak_mib": memory}))


if __name__ == "__main__":
    main()
