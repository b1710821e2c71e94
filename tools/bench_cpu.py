#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention on the CPU against torch's scaled_dot_product_attention, in one run.

    tools/bench_cpu.py [--threads 2] [--repeat 15] [--json]

Both get the same arrays and threads, and take turns, so that a busy machine slows both. GFLOP/s
count 4 * n * n * d per head, half of that when causal. `ratio` is torch's time over ours. The
second table is one worker's CPU time, which other processes disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import neptune_mlir
from neptune_mlir import ops

# batch, heads, length, head dimension, causal
SHAPES = [
    (1, 8, 2048, 64, False),
    (1, 8, 2048, 64, True),
    (1, 8, 1024, 128, False),
    (4, 8, 512, 64, False),
]


def measure(
    ours: Callable[[], Any], theirs: Callable[[], Any], repeat: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """The least time of each, in turns."""
    best = [float("inf")] * 2
    for _ in range(repeat):
        for k, function in enumerate((ours, theirs)):
            started = clock()
            function()
            best[k] = min(best[k], clock() - started)
    return best[0], best[1]


def run(shape: tuple[int, int, int, int, bool], threads: int, repeat: int) -> dict[str, Any]:
    import torch

    b, h, n, d, causal = shape
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((b, h, n, d), dtype=np.float32) for _ in range(3))
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    kernel = neptune_mlir.compile(ops.attention(head_dim=d, causal=causal))
    out = np.empty_like(q)

    def ours() -> Any:
        return kernel(q, k, v, out=out)

    def theirs() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal)

    flops = 4 * b * h * n * n * d / (2 if causal else 1)
    row: dict[str, Any] = {"shape": [b, h, n, d], "causal": causal}
    clocks = (("wall", threads, time.perf_counter), ("cpu", 1, time.process_time))
    for label, workers, clock in clocks:
        os.environ["NEPTUNE_NUM_THREADS"] = str(workers)
        torch.set_num_threads(workers)
        ours(), theirs()
        mine, other = measure(ours, theirs, repeat, clock)
        row[label] = {
            "neptune": flops / mine / 1e9, "torch": flops / other / 1e9, "ratio": other / mine
        }  # fmt: skip
    wanted = theirs().numpy()
    row["error"] = float(np.linalg.norm(out - wanted) / np.linalg.norm(wanted))
    return row


def peak_memory(n: int = 16384, d: int = 64) -> float:
    """MiB by which one long head raises this process's peak, arrays included."""
    rng = np.random.default_rng(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    q, k, v = (rng.standard_normal((1, 1, n, d), dtype=np.float32) for _ in range(3))
    neptune_mlir.compile(ops.attention(head_dim=d))(q, k, v)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args()
    memory = peak_memory()
    rows = [run(shape, options.threads, options.repeat) for shape in SHAPES]
    for label, title in (("wall", f"{options.threads} threads"), ("cpu", "CPU time of one worker")):
        print(f"{title}, f32, GFLOP/s:")
        print(f"  {'shape':>20} {'causal':>6} {'neptune':>8} {'torch':>8} {'ratio':>6}")
        for row in rows:
            timing = row[label]
            print(
                f"  {row['shape']!s:>20} {'yes' if row['causal'] else 'no':>6} "
                f"{timing['neptune']:8.1f} {timing['torch']:8.1f} {timing['ratio']:6.2f}"
            )
    print(f"largest relative difference from torch: {max(r['error'] for r in rows):.2e}")
    print(f"peak memory, 16384 keys and queries, d 64: {memory:.0f} MiB above the import")
    if options.json:
        print(json.dumps({"rows": rows, "peak_mib": memory}))


if __name__ == "__main__":
    main()
