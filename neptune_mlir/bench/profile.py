# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where a kernel's cycles go, from clock samples (`neptune_mlir.codegen.clock_samples`).

The samples of a call are read back and become tracks, one a warp: spans of what it waited for or
issued. What lies between spans is its other work. Warps with the same part in the program
(producer, each consumer group) are summed up together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neptune_mlir.bench.figures import median
from neptune_mlir.bench.problem import Problem
from neptune_mlir.bench.report import TextTable
from neptune_mlir.bench.rows import Rows
from neptune_mlir.codegen.clock_samples import BLOCKS, CAPACITY, KERNEL, Sampled
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.drivers.cuda import CudaDriver
from neptune_mlir.runtime.plan import describe

if TYPE_CHECKING:
    from neptune_mlir.runtime.gpu import PreparedCall

ISSUE, WAIT, COPY = "issue products", "wait for products", "start a copy"
UNDER_WAY, OTHER = "products under way", "other work"
GROUP = 4  # warps


@dataclass(frozen=True)
class Span:
    """Cycles since the block's first sample."""

    kind: str
    start: int
    end: int


@dataclass
class Track:
    """What one warp did. `products` are the times from issuing matrix products to having them."""

    block: int
    warp: int
    role: str = ""
    spans: list[Span] = field(default_factory=list)
    products: list[Span] = field(default_factory=list)
    start: int = 0
    end: int = 0


class SampleDriver(CudaDriver):
    """A driver that reads and clears global arrays of modules."""

    def _array(
        self, context: int, module: int, symbol: str
    ) -> tuple[ctypes.c_uint64, ctypes.c_size_t]:
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        self.inside(context, "cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size),
                     ctypes.c_void_p(module), symbol.encode())  # fmt: skip
        return address, size

    def clear(self, context: int, module: int, symbol: str) -> None:
        address, size = self._array(context, module, symbol)
        self.inside(context, "cuMemsetD8_v2", address, 0, size)

    def read(self, context: int, module: int, symbol: str) -> np.ndarray[Any, Any]:
        """The array as 32-bit words."""
        address, size = self._array(context, module, symbol)
        words = np.zeros(size.value // 4, np.uint32)
        self.inside(context, "cuMemcpyDtoH_v2",
                     ctypes.c_void_p(words.ctypes.data), address, size)  # fmt: skip
        return words


@dataclass(frozen=True)
class Recorded:
    """A call of a bundle: what each kernel did, which calls its image is for ("": any), and the
    time that it takes."""

    kernels: dict[str, list[Track]]
    where: str
    us: float


def record(path: Path, problem: Problem | Rows) -> Recorded:
    """Run a bundle, with or without samples, in a process with a GPU and torch. The L2 is flushed
    before each call."""
    import torch

    from neptune_mlir.bench.check import workspace
    from neptune_mlir.bench.timing import event_us
    from neptune_mlir.runtime.gpu import GpuExecutable

    bundle = Bundle.from_bytes(path.read_bytes())
    driver = SampleDriver()
    execute = GpuExecutable(bundle, driver)
    arrays = problem.inputs("cuda")
    out = problem.result(arrays)
    call = execute.prepare(*arrays, out=out, workspace=workspace(execute, arrays))
    call()
    us = median([event_us(call) for _ in range(5)])
    context, sampled = call.image.context, launched(call)
    for module, kernel in sampled.values():
        driver.clear(context, module, kernel.symbol)
    event_us(call)
    torch.cuda.synchronize()
    found = {name: tracks(driver.read(context, module, kernel.symbol), kernel)
             for name, (module, kernel) in sampled.items()}  # fmt: skip
    names = [argument.name for argument in bundle.plan.arguments]
    when = call.image.when
    return Recorded(found, describe(when, names) if when else "", us)


def launched(call: PreparedCall) -> dict[str, tuple[int, Sampled]]:
    """The kernels with samples that a call launches: the module of each (the image is the one that
    the runtime picked), and what its samples mean."""
    functions = {launch.function.value for launch in call.launches}
    kernels = call.image.kernels
    return {name: (kernels[name].module, Sampled.from_json(data))
            for name, data in call.image.facts.get("clock_samples", {}).items()
            if kernels[name].function.value in functions}  # fmt: skip


def tracks(words: Any, kernel: Sampled) -> list[Track]:
    """What each warp did that wrote samples, up to the time when the first one ran out of room."""
    samples = np.asarray(words, np.uint32).reshape(BLOCKS, kernel.warps, CAPACITY, 2)
    found = []
    for block, warps in enumerate(samples):
        written = warps[..., 1] != 0
        if not written.any():
            continue
        clocks = warps[..., 0].astype(np.int64)
        counts = written.sum(1)
        # the clock has 32 bits
        clocks = (clocks - _earliest(clocks[counts > 0, 0])) % (1 << 32)
        until = clocks[counts == CAPACITY, -1].min(initial=1 << 32)
        for warp in np.flatnonzero(counts):
            at = clocks[warp, : counts[warp]]
            seen = at <= until
            track = _track(at[seen], warps[warp, : counts[warp], 1][seen].astype(int), kernel)
            if track.spans:
                track.block, track.warp = block, int(warp)
                found.append(track)
    return _with_roles(found)


def _earliest(starts: Any) -> int:
    """Of 32-bit clocks that lie close together."""
    after_first = (starts - starts[0] + (1 << 31)) % (1 << 32) - (1 << 31)
    return int(starts[0] + after_first.min())


def _track(at: Any, tags: Any, kernel: Sampled) -> Track:
    track = Track(0, 0)
    begun: dict[int, int] = {}
    issued: list[int] = []
    for clock, tag in zip(at.tolist(), tags.tolist(), strict=True):
        site, ends = (tag - 1) // 2, tag % 2 == 0
        track.end = clock
        kind = kernel.sites[site]
        if kind == KERNEL:
            track.start = track.start if ends else clock
        elif not ends:
            begun[site] = clock
            if kind == ISSUE:
                issued.append(clock)
        elif site in begun:
            track.spans.append(Span(kind, begun.pop(site), clock))
            if kind == WAIT:
                done = max(len(issued) - kernel.pending.get(site, 0), 0)
                track.products += [Span(UNDER_WAY, start, clock) for start in issued[:done]]
                issued = issued[done:]
    return track


def _with_roles(found: Sequence[Track]) -> list[Track]:
    """A warp that starts copies and multiplies nothing, beside warps that do, is a producer; the
    rest of its group is idle and left out."""
    kinds = {id(t): {span.kind for span in t.spans} for t in found}
    multiplying = any(ISSUE in seen for seen in kinds.values())
    producers = {
        t.warp for t in found
        if multiplying and COPY in kinds[id(t)] and ISSUE not in kinds[id(t)]
    }  # fmt: skip
    idle = {warp // GROUP for warp in producers}
    kept = [t for t in found if t.warp in producers or t.warp // GROUP not in idle]
    for track in kept:
        group = f"consumer {track.warp // GROUP}" if producers else "all warps"
        track.role = "producer" if track.warp in producers else group
    return kept


def union(spans: Sequence[Span]) -> int:
    """Cycles that at least one of the spans covers."""
    total, reached = 0, -1
    for span in sorted(spans, key=lambda s: s.start):
        total += max(0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total


def shares(found: Sequence[Track]) -> list[dict[str, Any]]:
    """Of each role, over the sampled blocks, and of a block as a whole: cycles (the mean), when the
    first product or copy was issued (the mean; None: never), and what its cycles went to, in
    percent."""
    kinds = list(dict.fromkeys(span.kind for track in found for span in track.spans))
    lines: list[dict[str, Any]] = []
    for role in sorted({track.role for track in found}):
        own = [t for t in found if t.role == role]
        cycles = sum(t.end - t.start for t in own)
        spent = {k: sum(s.end - s.start for t in own for s in t.spans if s.kind == k)
                 for k in kinds}  # fmt: skip
        spent[OTHER] = cycles - sum(spent.values())
        spent[UNDER_WAY] = sum(union(t.products) for t in own)
        issued = [at for t in own if (at := first_issue(t)) is not None]
        lines.append({"role": role, "cycles": cycles / len(own),
                      "first_issue": sum(issued) / len(issued) if issued else None,
                      "percent": {k: 100 * n / cycles for k, n in spent.items()}})  # fmt: skip
    together, length = 0, 0
    for block in {t.block for t in found}:
        own = [t for t in found if t.block == block]
        together += union([s for t in own for s in t.products])
        length += max(t.end for t in own) - min(t.start for t in own)
    if together:
        lines.append({"role": "block", "cycles": length / len({t.block for t in found}),
                      "first_issue": None,
                      "percent": {UNDER_WAY: 100 * together / length}})  # fmt: skip
    return lines


def first_issue(track: Track) -> int | None:
    """When a warp issued its first product; one that multiplies nothing, started its first copy."""
    for kind in (ISSUE, COPY):
        if starts := [span.start for span in track.spans if span.kind == kind]:
            return min(starts)
    return None


def one_block(found: Sequence[Track]) -> list[Track]:
    """Of the first sampled block one warp of each role, in the order of roles."""
    rows: dict[str, Track] = {}
    for track in found:
        if track.block == found[0].block:
            rows.setdefault(track.role, track)
    return [rows[role] for role in sorted(rows)]


def in_window(found: Sequence[Track], window: int) -> list[dict[str, Any]]:
    """The first cycles of `one_block` as JSON data: spans are kind, start and end."""
    tracks = one_block(found)
    low = min((t.start for t in tracks), default=0)

    def cut(spans: Sequence[Span]) -> list[Span]:
        return [Span(s.kind, s.start - low, min(s.end - low, window))
                for s in spans if s.start - low < window]  # fmt: skip

    return [
        {
            "role": track.role, "start": track.start - low, "end": min(track.end - low, window),
            "spans": [[s.kind, s.start, s.end] for s in cut(track.spans)],
            "products": [[s.start, s.end] for s in cut(track.products)],
        }
        for track in tracks
    ]  # fmt: skip


def title(row: dict[str, Any]) -> str:
    where = f" where {row['where']}" if row["where"] else ""
    without = f", {row['us']:.0f} us without" if "us" in row else ""
    return (f"{row['bundle']}, {row['kernel']}{where}, length {row['length']}, "
            f"{row['us_sampled']:.0f} us with samples{without}")  # fmt: skip


def table(row: dict[str, Any]) -> TextTable:
    """One kernel, for people: bundle, kernel, where, length, us, us_sampled, roles (`shares`)."""
    lines = row["roles"]
    kinds = list(dict.fromkeys(kind for line in lines for kind in line["percent"]))
    cells = [
        [line["role"], f"{line['cycles']:.0f}",
         "" if line["first_issue"] is None else f"{line['first_issue']:.0f}",
         *(f"{x:.1f}" if (x := line["percent"].get(k)) else "" for k in kinds)]
        for line in lines
    ]  # fmt: skip
    return TextTable(f"{title(row)}, % of cycles", ["", "cycles", "first issue", *kinds], cells)
