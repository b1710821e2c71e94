# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conducts a measurement: every operator, length and dtype, candidates in turns.

A cell is an operator at a length and batch. Its candidates, each in a process of its own that
lives as long as the run, prepare at once (inputs, poisoned outputs, errors against float64), then
take turns over the rounds with the GPU to themselves, then show what they timed once more.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neptune_mlir.bench import figures, peers, results
from neptune_mlir.bench.check import TOLERANCE
from neptune_mlir.bench.clocks import Clocks
from neptune_mlir.bench.problem import Problem, problem_of
from neptune_mlir.bench.process import COMMAND, Worker, message_of
from neptune_mlir.bench.rows import Rows
from neptune_mlir.errors import UsageError
from neptune_mlir.runtime.bundle import Bundle

# the most telling first, for a run that ends early
LENGTHS = (4096, 1024, 16384, 512, 2048, 8192, 32768, 256)
QUICK_LENGTHS = LENGTHS[:3]
SWEEP_LENGTH, SWEEP_BATCHES = 8192, (2, 4, 8, 16, 32)
COMPILE_TIMEOUT = 180.0
TIMEOUT = 60.0
HELPERS = 14  # processes that compile, before anything is measured
HELPER = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


@dataclass(frozen=True)
class BenchCell:
    """`bundles`: ours by label. `sweep`: it is there for its batch, not its length. `device`:
    "cpu", or "" for a GPU. `facts`: what its rows say beside that. `build`: asks for a bundle that
    may not be there yet (`builder.py`)."""

    problem: Problem | Rows
    bundles: dict[str, str]
    suite: str = "operators"
    sweep: bool = False
    device: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    build: dict[str, Any] = field(default_factory=dict)

    def candidates(self, wanted: Sequence[str]) -> list[str]:
        able = [
            name for name in wanted
            if peers.PEERS[name].can(self.problem) and not (self.device and peers.PEERS[name].gpu)
        ]  # fmt: skip
        return [*self.bundles, *able]

    def request(self, candidate: str) -> dict[str, Any]:
        own = {"bundle": self.bundles[candidate]} if candidate in self.bundles else {}
        return {"problem": self.problem.as_json(), "device": self.device, **own}

    def row(self, candidate: str) -> dict[str, Any]:
        p = self.problem
        return {
            "operator": p.operator, "dtype": p.dtype, "length": p.keys, "batch": p.batch,
            "candidate": candidate, "ours": candidate in self.bundles, "suite": self.suite,
            "sweep": self.sweep, "flops": p.flops, "bytes": p.bytes, **self.facts,
        }  # fmt: skip

    @property
    def name(self) -> str:
        p = self.problem
        return f"{p.operator} {p.dtype} {p.keys}" + (f" x{p.batch}" if p.batch > 1 else "")


@dataclass
class BenchOptions:
    """`operators`: parts of names, separated by commas; "" is all. `batches`: of the sweep."""

    lengths: Sequence[int] = LENGTHS
    batches: Sequence[int] = SWEEP_BATCHES
    dtypes: Sequence[str] = ("f16", "bf16")
    operators: str = ""
    peers: Sequence[str] = tuple(peers.PEERS)
    rounds: int = 3
    budget: float = math.inf


def bundles_of(
    folder: Path, operators: str = "", profile: bool = False
) -> dict[Path, dict[str, Any]]:
    """What each bundle of a folder says of itself; those with clock samples or those without.

    Raises UsageError where there is none.
    """
    found = {}
    for path in sorted(folder.glob("*.bundle")):
        facts = Bundle.from_bytes(path.read_bytes()).facts
        spec = facts.get("bench")
        if not spec or spec.get("profile", False) != profile:
            continue
        if any(part in spec["operator"] for part in operators.split(",")):
            found[path] = spec
    if not found:
        raise UsageError(f"{folder} has no bundles" + (f" of {operators}" if operators else ""),
                         hint=f"neptune bench build {folder}" + " --profile" * profile)  # fmt: skip
    return found


def cells_of(folder: Path, options: BenchOptions) -> list[BenchCell]:
    """By dtype, then in the order of lengths, then by operator; the sweep at last."""
    groups: dict[tuple[str, str], tuple[dict[str, Any], dict[str, str]]] = {}
    for path, spec in bundles_of(folder, options.operators).items():
        if spec["kind"] != "zoo" and "problem" not in spec:
            _, labels = groups.setdefault((spec["operator"], spec["dtype"]), (spec, {}))
            labels[spec["label"]] = str(path)
    sizes = [(n, 1, False) for n in options.lengths]
    sizes += [(SWEEP_LENGTH, batch, True) for batch in options.batches]
    return [
        BenchCell(problem_of(spec, length, batch), labels, spec["suite"], sweep)
        for dtype in options.dtypes
        for length, batch, sweep in sizes
        for spec, labels in groups.values()
        if spec["dtype"] == dtype
        and ("lengths" not in spec or (not sweep and length in spec["lengths"]))
    ]


class Conductor:
    def __init__(self, cells: Sequence[BenchCell], options: BenchOptions, log: Path,
                 say: Callable[[str], None], command: tuple[str, ...] = COMMAND):  # fmt: skip
        self.cells, self.options, self.log, self.say = cells, options, log, say
        self.device = cells[0].device if cells else ""
        self.command = command
        self._started = time.monotonic()
        self._workers: dict[str, Worker] = {}

    def worker(self, candidate: str) -> Worker:
        if candidate not in self._workers:
            self._workers[candidate] = Worker(candidate, self.log, command=self.command)
        return self._workers[candidate]

    def spent(self) -> float:
        return time.monotonic() - self._started

    def run(
        self, save: Callable[[dict[str, Any]], None], before: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The results; `save` is called with what there is after every cell.

        `before`: results of a run that ended early, on the same device and software. What they
        have is not measured again.
        """
        device = self.worker("limits").ask(TIMEOUT, do="device", device=self.device)
        if "failed" in device:
            raise UsageError(f"no device to measure on: {message_of(device['failed'])}")
        found: dict[str, Any] = before or {"device": device, "rounds": self.options.rounds,
                                           "limits": [], "rows": []}  # fmt: skip
        if found["device"] != device:
            raise UsageError(f"cannot go on from results of {found['device']}",
                             hint=f"this is {device}")  # fmt: skip
        found["skipped"] = []
        earlier = found.get("seconds", 0.0)
        left = self._left(found["rows"])
        try:
            self.say(f"device: {device}")
            self.begin(left)
            self._limits(found)
            for cell, rows in self.measured(left):
                if not rows:
                    found["skipped"].append(cell.name)
                    continue
                new = results.cell_of(rows[0])
                found["rows"] = [r for r in found["rows"] if results.cell_of(r) != new] + rows
                found["seconds"] = earlier + self.spent()
                self.say(f"{self.spent():4.0f} s  {cell.name:28} {_brief(rows)}")
                results.conclude(found)
                save(found)
            self._limits(found)
        finally:
            self.stop()
        results.conclude(found)
        save(found)
        return found

    def begin(self, left: Sequence[BenchCell]) -> None:
        """What can be done before the chip's rates are measured."""
        self._warm(left)
        self.say(f"{self.spent():4.0f} s  peers compiled, {len(left)} cells to measure")

    def measured(
        self, left: Sequence[BenchCell]
    ) -> Iterator[tuple[BenchCell, list[dict[str, Any]]]]:
        """Each cell with its rows; without any where the budget did not suffice."""
        for cell in left:
            yield cell, [] if self.spent() > self.options.budget else self._measure(cell)

    def stop(self) -> None:
        for worker in self._workers.values():
            worker.stop()

    def _left(self, rows: Sequence[dict[str, Any]]) -> list[BenchCell]:
        """Cells of which a candidate has no row."""
        had: dict[Any, set[str]] = {}
        for row in rows:
            had.setdefault(results.cell_of(row), set()).add(row["candidate"])
        return [
            cell for cell in self.cells
            if not had.get(results.cell_of(cell.row("")), set())
            >= set(cell.candidates(self.options.peers))
        ]  # fmt: skip

    def _limits(self, found: dict[str, Any]) -> None:
        with Clocks() as clocks:
            answer = self.worker("limits").ask(TIMEOUT, do="limits", device=self.device)
        if "failed" in answer:
            raise UsageError(f"the chip's rates cannot be measured: {answer['failed']}")
        found["limits"].append({**answer, **clocks.figures()})

    def _warm(self, cells: Sequence[BenchCell]) -> None:
        """Start every candidate, and fill the compilers' caches on disk with helpers beside
        them, while nothing is measured."""
        first: dict[str, BenchCell] = {}
        jobs: dict[Any, tuple[str, BenchCell]] = {}
        for cell in cells:
            for name in cell.candidates(self.options.peers):
                first.setdefault(name, cell)
                serves = peers.PEERS[name].compiles if name in peers.PEERS else ""
                p = cell.problem
                kind = (name, p.operator, p.dtype)
                if serves:
                    jobs.setdefault(
                        kind if serves == "operator" else (*kind, p.keys, p.batch), (name, cell)
                    )
        waiting: dict[str, list[BenchCell]] = {}
        for name, cell in jobs.values():
            if first[name] is not cell:
                waiting.setdefault(name, []).append(cell)
        until = self._started + 0.4 * self.options.budget
        lock = threading.Lock()

        def start(name: str, cell: BenchCell) -> None:
            self.worker(name).ask(COMPILE_TIMEOUT, do="warm", **cell.request(name))

        def take(name: str) -> tuple[str, BenchCell] | None:
            """A job for the same candidate if there is one, else of the one with the most."""
            with lock:
                own = name if waiting[name] else max(waiting, key=lambda n: len(waiting[n]))
                return (own, waiting[own].pop(0)) if waiting[own] else None

        def help_compiling(name: str) -> None:
            worker = Worker(name, self.log, HELPER, self.command)
            while time.monotonic() < until and (job := take(worker.candidate)):
                name, cell = job
                if name != worker.candidate:
                    worker.stop()
                    worker = Worker(name, self.log, HELPER, self.command)
                worker.ask(COMPILE_TIMEOUT, do="warm", **cell.request(name))
            worker.stop()

        for name in first:
            self.worker(name)
        threads = [threading.Thread(target=start, args=item) for item in first.items()]
        count = min(HELPERS, sum(map(len, waiting.values())))
        threads += [
            threading.Thread(target=help_compiling, args=(list(waiting)[k % len(waiting)],))
            for k in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _measure(self, cell: BenchCell) -> list[dict[str, Any]]:
        rows = {n: cell.row(n) for n in cell.candidates(self.options.peers)}
        tuning = [n for n in rows if n in peers.PEERS and peers.PEERS[n].tunes]
        for together in [[n for n in rows if n not in tuning], *([n] for n in tuning)]:
            for name in together:
                self.worker(name).send(do="prepare", **cell.request(name))
            for name in together:
                rows[name] |= self.worker(name).answer(COMPILE_TIMEOUT)
        self.take_turns(rows, lambda name, **request: self.worker(name).ask(TIMEOUT, **request))
        return list(rows.values())

    def take_turns(
        self, rows: dict[str, dict[str, Any]], ask: Callable[..., dict[str, Any]]
    ) -> None:
        """Time candidates that are prepared, and note in their rows what was found.

        Args:
            ask: answers a request to a candidate.
        """
        names = list(rows)
        rounds: dict[str, list[list[float]]] = {name: [] for name in names}
        clocks: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for turn in range(self.options.rounds):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                if "failed" in rows[name]:
                    continue
                with Clocks() as watch:
                    answer = ask(name, do="round", device=self.device)
                samples = answer.pop("us", None)
                rows[name] |= answer
                if samples:
                    rounds[name].append(samples)
                    clocks[name].append(watch.figures())
        for name in names:
            if "failed" not in rows[name]:
                answer = ask(name, do="finish", device=self.device)
                _finish(rows[name], answer, rounds[name], clocks[name])


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
