# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times on a GPU: the L2 is flushed before each, and the host is out of them.

From GRAPH_BELOW_US on, a sample is the time between two events around one call; enough work is
queued in front of it that the GPU never waits for the host in between. Below, a sample is a tenth
of a CUDA graph that flushes and calls ten times, less a tenth of one that only flushes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from neptune_mlir.bench.figures import median

GRAPH_BELOW_US = 200.0
REPEATS = 10  # calls in a graph
GRAPH_SAMPLES = 7  # a round
ROUND_US = 80_000.0  # what a round of event samples aims at
AHEAD_US = 200.0  # for the host to queue a call in, beside what the call itself takes of it
CYCLES_PER_US = 2000  # at most

Call = Callable[[], Any]
_flush: Any = None


def flush() -> None:
    """Evict the L2 (and whatever it holds) by writing more than it has room for."""
    global _flush
    if _flush is None:
        _flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    _flush.zero_()


def event_us(call: Call, host_us: float = 0.0) -> float:
    """One call that takes `host_us` of the host, between two events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    _keep_busy(host_us)
    flush()
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _keep_busy(host_us: float) -> None:
    torch.cuda._sleep(int((AHEAD_US + 1.5 * host_us) * CYCLES_PER_US))


def host_us(call: Call) -> float:
    """What a call takes of the host."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    end = time.perf_counter()
    torch.cuda.synchronize()
    return (end - start) * 1e6


class Timed:
    """A call that was warmed up, and the way that its time is taken."""

    def __init__(self, call: Call):
        self.call = call
        self.note = ""
        self.output: Any = None
        for _ in range(2):
            self.output = call()
        self.host_us = median([host_us(call) for _ in range(3)])
        self.estimate = median([event_us(call, self.host_us) for _ in range(3)])
        self.graph: Any = None
        if self.estimate < GRAPH_BELOW_US:
            try:
                self.graph = self._capture(self._flush_and_call)
                self.empty = self._capture(flush, keep=False)
            except RuntimeError as error:  # not every peer can be captured
                self.graph = None
                self.note = f"no CUDA graph: {str(error).splitlines()[0][:120]}"
                torch.cuda.synchronize()

    def _flush_and_call(self) -> Any:
        flush()
        return self.call()

    def _capture(self, body: Call, keep: bool = True) -> Any:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            body()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(REPEATS):
                output = body()
        if keep:
            self.output = output
        graph.replay()
        torch.cuda.synchronize()
        return graph

    def round_us(self) -> list[float]:
        """The samples of one round."""
        if self.graph is None:
            count = int(min(max(ROUND_US / max(self.estimate, 1.0), 3), 15))
            return [event_us(self.call, self.host_us) for _ in range(count)]
        return [
            max(self._replay_us(self.graph) - self._replay_us(self.empty), 0.0) / REPEATS
            for _ in range(GRAPH_SAMPLES)
        ]

    def _replay_us(self, graph: Any) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        _keep_busy(0.0)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3

    def poisoned(self) -> Any:
        """The result of what was timed, computed into memory that held NaN."""
        for one in self.output if isinstance(self.output, tuple) else (self.output,):
            one.fill_(float("nan"))
        if self.graph is None:
            self.output = None  # where a call makes its own, it gets this memory again
            return self.call()
        self.graph.replay()
        torch.cuda.synchronize()
        return self.output


def limits() -> dict[str, float]:
    """What the chip reaches: matrix products (operations a second) and memory (bytes a second).

    Products of random numbers run into the power limit; those of ones, whose bits hardly switch,
    run at the full clock. A kernel may draw less than random products, so the latter bound it.
    The memory rate is the best of a copy (bytes read and written), of reading and of writing 8 GiB:
    over less, the rate of kernels that read much is underrated.
    """
    found = {}
    for name, kind, make in (
        ("bf16", torch.bfloat16, torch.randn), ("f16", torch.float16, torch.randn),
        ("ones", torch.float16, torch.ones),
    ):  # fmt: skip
        a, b = (make(8192, 8192, device="cuda", dtype=kind) for _ in range(2))
        out = torch.empty_like(a)
        us = _median_us(partial(torch.mm, a, b, out=out))
        found[f"matmul_{name}"] = 2 * 8192**3 / us * 1e6
        del a, b, out
    source = torch.zeros(1 << 31, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    size = source.numel() * 4
    found["copy"] = 2 * size / _median_us(lambda: target.copy_(source)) * 1e6
    found["read"] = size / _median_us(lambda: source.view(torch.float64).sum()) * 1e6
    found["fill"] = size / _median_us(lambda: source.zero_()) * 1e6
    return found


def _median_us(call: Call) -> float:
    for _ in range(3):
        call()
    return median([event_us(call) for _ in range(11)])
