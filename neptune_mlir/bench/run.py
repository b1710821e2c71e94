# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conducts a measurement: every operator, length and dtype, candidates in turns.

A cell is an operator at a length. Its candidates, each in a process of its own that lives as long
as the run, prepare at once (inputs, poisoned outputs, errors against float64), then take turns
over the rounds with the GPU to themselves, then show what they timed once more.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neptune_mlir.bench import figures, peers
from neptune_mlir.bench.check import TOLERANCE
from neptune_mlir.bench.clocks import Clocks
from neptune_mlir.bench.problem import Problem
from neptune_mlir.bench.process import COMMAND, Worker
from neptune_mlir.errors import UsageError
from neptune_mlir.runtime.bundle import Bundle

LENGTHS = tuple(1 << k for k in range(8, 16))
QUICK_LENGTHS = (4096, 1024, 16384)
COMPILE_TIMEOUT = 180.0
TIMEOUT = 60.0
WARMERS = 12


@dataclass(frozen=True)
class Cell:
    """`bundles`: ours by label."""

    problem: Problem
    bundles: dict[str, str]

    def candidates(self, wanted: Sequence[str]) -> list[str]:
        return [*self.bundles, *(n for n in wanted if peers.PEERS[n][0](self.problem))]

    def request(self, candidate: str) -> dict[str, Any]:
        own = {"bundle": self.bundles[candidate]} if candidate in self.bundles else {}
        return {"problem": self.problem.as_json(), **own}

    @property
    def name(self) -> str:
        p = self.problem
        return f"{p.operator} {p.dtype} {p.keys}"


@dataclass
class Options:
    lengths: Sequence[int] = LENGTHS
    dtypes: Sequence[str] = ("f16", "bf16")
    operators: str = ""
    peers: Sequence[str] = tuple(peers.PEERS)
    rounds: int = 3
    budget: float = math.inf


def bundles_of(folder: Path) -> dict[Path, dict[str, Any]]:
    """What each bundle of a folder says of itself. Raises UsageError where there is none."""
    found = {}
    for path in sorted(folder.glob("*.bundle")):
        spec = Bundle.from_bytes(path.read_bytes()).facts.get("bench")
        if spec:
            found[path] = spec
    if not found:
        raise UsageError(f"{folder} has no bundles", hint=f"neptune bench build {folder}")
    return found


def cells_of(folder: Path, options: Options) -> list[Cell]:
    """By dtype, then in the order of lengths, then by operator."""
    groups: dict[tuple[str, str], tuple[dict[str, Any], dict[str, str]]] = {}
    for path, spec in bundles_of(folder).items():
        if spec["kind"] == "operator" and options.operators in spec["operator"]:
            _, labels = groups.setdefault((spec["operator"], spec["dtype"]), (spec, {}))
            labels[spec["label"]] = str(path)
    return [
        Cell(Problem.of(spec, length), labels)
        for dtype in options.dtypes
        for length in options.lengths
        for spec, labels in groups.values()
        if spec["dtype"] == dtype
    ]


class Conductor:
    def __init__(self, cells: Sequence[Cell], options: Options, log: Path,
                 say: Callable[[str], None], command: tuple[str, ...] = COMMAND):  # fmt: skip
        self.cells, self.options, self.log, self.say = cells, options, log, say
        self._command = command
        self._started = time.monotonic()
        self._workers: dict[str, Worker] = {}

    def worker(self, candidate: str) -> Worker:
        if candidate not in self._workers:
            self._workers[candidate] = Worker(candidate, self.log, command=self._command)
        return self._workers[candidate]

    def spent(self) -> float:
        return time.monotonic() - self._started

    def run(self, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """The results; `save` is called with what there is after every cell."""
        found: dict[str, Any] = {"device": self.worker("limits").ask(TIMEOUT, do="device"),
                                 "rounds": self.options.rounds, "limits": [], "rows": [],
                                 "skipped": []}  # fmt: skip
        if "failed" in found["device"]:
            raise UsageError(f"no GPU to measure on: {found['device']['failed']}")
        try:
            self.say(f"device: {found['device']}")
            self._warm()
            self.say(f"compiled the peers, {self.spent():.0f} s")
            self._limits(found)
            for cell in self.cells:
                if self.spent() > self.options.budget:
                    found["skipped"].append(cell.name)
                    continue
                found["rows"] += (rows := self._measure(cell))
                self.say(f"{self.spent():4.0f} s  {cell.name:28} {_brief(rows)}")
                conclude(found)
                save(found)
            self._limits(found)
        finally:
            for worker in self._workers.values():
                worker.stop()
        found["seconds"] = self.spent()
        conclude(found)
        save(found)
        return found

    def _limits(self, found: dict[str, Any]) -> None:
        with Clocks() as clocks:
            answer = self.worker("limits").ask(TIMEOUT, do="limits")
        if "failed" in answer:
            raise UsageError(f"the chip's rates cannot be measured: {answer['failed']}")
        found["limits"].append({**answer, **clocks.figures()})

    def _warm(self) -> None:
        """Fill the compilers' caches on disk, many cells at once, while nothing is measured."""
        work = [
            (name, cell)
            for name in peers.SLOW_TO_COMPILE
            for cell in self.cells
            if name in cell.candidates(self.options.peers)
        ]
        count = min(WARMERS, len(work))
        until = self._started + 0.4 * self.options.budget

        def serve(share: list[tuple[str, Cell]]) -> None:
            environment = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
            own: dict[str, Worker] = {}
            for name, cell in share:
                if time.monotonic() < until:
                    if name not in own:
                        own[name] = Worker(name, self.log, environment, self._command)
                    own[name].ask(COMPILE_TIMEOUT, do="warm", **cell.request(name))
            for worker in own.values():
                worker.stop()

        # neighbours in the list cost about the same, so shares are interleaved; one candidate
        # a process, as far as that goes
        threads = [threading.Thread(target=serve, args=(work[k::count],)) for k in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _measure(self, cell: Cell) -> list[dict[str, Any]]:
        names = cell.candidates(self.options.peers)
        p = cell.problem
        rows = {
            name: {"operator": p.operator, "dtype": p.dtype, "length": p.keys, "candidate": name,
                   "ours": name in cell.bundles, "flops": p.flops, "bytes": p.bytes}
            for name in names
        }  # fmt: skip
        for name in names:
            self.worker(name).send(do="prepare", **cell.request(name))
        for name in names:
            rows[name] |= self.worker(name).answer(COMPILE_TIMEOUT)
        rounds: dict[str, list[list[float]]] = {name: [] for name in names}
        clocks: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for turn in range(self.options.rounds):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                if "failed" in rows[name]:
                    continue
                with Clocks() as watch:
                    answer = self.worker(name).ask(TIMEOUT, do="round")
                samples = answer.pop("us", None)
                rows[name] |= answer
                if samples:
                    rounds[name].append(samples)
                    clocks[name].append(watch.figures())
        for name in names:
            if "failed" not in rows[name]:
                _finish(rows[name], self.worker(name).ask(TIMEOUT, do="finish"), rounds[name],
                        clocks[name])  # fmt: skip
        return list(rows.values())


def _finish(row: dict[str, Any], answer: dict[str, Any], rounds: Any, clocks: Any) -> None:
    """Times and errors of a candidate; the larger errors of before and after the timing."""
    if "failed" in answer:
        row["failed"] = answer["failed"]
        return
    after = answer["errors"]
    row["errors"] = {k: max(v, after[k]) for k, v in row["errors"].items()}
    row["right"] = row["errors"]["relative"] < TOLERANCE[row["dtype"]]
    row["us"] = figures.median([x for samples in rounds for x in samples])
    if row["us"] <= 0:  # a difference of two graphs that drowned in noise
        row["failed"] = "too short to be measured"
        return
    row["rounds_us"] = [figures.median(samples) for samples in rounds]
    row["spread"] = figures.spread(rounds)
    for key in ("sm_mhz", "watts"):
        seen = [c[key] for c in clocks if key in c]
        if seen:
            row[key] = figures.median(seen)


def _brief(rows: Sequence[dict[str, Any]]) -> str:
    return "  ".join(
        f"{r['candidate']} "
        + ("failed" if "failed" in r else f"{r['us']:.1f}" + ("" if r["right"] else " WRONG"))
        for r in rows
    )


def conclude(found: dict[str, Any]) -> None:
    """What needs the chip's rates and the peers: bound, share of it, score, audit."""
    best = {k: max(m[k] for m in found["limits"]) for k in found["limits"][0]}
    rates = figures.Limits(
        max(v for k, v in best.items() if k.startswith("matmul")),
        max(v for k, v in best.items() if k in ("copy", "read_sum", "read_matvec")),
    )
    found["rates"] = {"flops": rates.flops, "bytes": rates.bytes}
    valid = [r for r in found["rows"] if "failed" not in r]
    for row in valid:
        bound = rates.bound_us(row["flops"], row["bytes"])
        base = best_peer(found["rows"], row)
        row |= {
            "tflops": row["flops"] / row["us"] / 1e6, "gbs": row["bytes"] / row["us"] / 1e3,
            "bound_us": bound, "sol": bound / row["us"],
            "score": figures.sol_score(row["us"], bound, base["us"]) if base else None,
            "audit_failure": figures.is_audit_failure(row["us"], bound),
        }  # fmt: skip


def best_peer(rows: Sequence[dict[str, Any]], of: dict[str, Any]) -> dict[str, Any] | None:
    """The fastest right candidate of the same cell that is not ours."""
    same = [
        r for r in rows
        if "failed" not in r and not r["ours"] and r["right"]
        and all(r[k] == of[k] for k in ("operator", "dtype", "length"))
    ]  # fmt: skip
    return min(same, key=lambda r: r["us"]) if same else None


def to_json(found: Any) -> str:
    """Strict JSON: what is not finite is null."""

    def clean(x: Any) -> Any:
        if isinstance(x, dict):
            return {k: clean(v) for k, v in x.items()}
        if isinstance(x, (list, tuple)):
            return [clean(v) for v in x]
        return None if isinstance(x, float) and not math.isfinite(x) else x

    return json.dumps(clean(found), indent=1, allow_nan=False)
