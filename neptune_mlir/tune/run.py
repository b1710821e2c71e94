# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the candidates of a folder on a GPU, side by side; needs torch, and no MLIR.

A cell is a job at a length. Its candidates, each in a process of its own, prepare at once (inputs,
poisoned outputs, errors against float64), then take turns: after each round the slower half leaves,
down to FINALISTS, which go on until it is clear who is better than the rule (or for MOST times the
rounds asked for). The rule's choice stays to the end. Who is not
right, before the rounds or after, is out.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neptune_mlir.bench import figures, results
from neptune_mlir.bench.check import TOLERANCE
from neptune_mlir.bench.problem import problem_of
from neptune_mlir.bench.process import Worker, message_of
from neptune_mlir.errors import UsageError
from neptune_mlir.targets.nvidia import architecture, nvidia
from neptune_mlir.tune.gain import gain
from neptune_mlir.tune.manifest import RULE

FINALISTS = 4  # the rule among them
COMMAND = (sys.executable, "-m", "neptune_mlir.tune.worker")
MOST = 3  # times as many rounds as asked for, while noise hides who is best
PREPARE_TIMEOUT, TIMEOUT = 180.0, 60.0


@dataclass(frozen=True)
class Cell:
    """`request`: what is to be measured. `bundles`: paths by label. `common`: what the row of each
    candidate says."""

    request: dict[str, Any]
    bundles: Mapping[str, str]
    common: Mapping[str, Any]
    choices: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, int]:
        return self.common["job"], self.common["length"]


@dataclass
class Options:
    """`rounds`: of the finalists, in turns. `only`: the candidates of a job that count, besides
    the rule's (None: all)."""

    rounds: int = 4
    budget: float = math.inf
    lengths: Sequence[int] = ()
    only: Mapping[str, set[str]] | None = None


def cells_of(folder: Path, manifest: dict[str, Any], options: Options) -> list[Cell]:
    """Length by length, so that an early end leaves something of every job."""
    found = []
    lengths = options.lengths or manifest["lengths"]
    for length in lengths:
        for job in manifest["jobs"]:
            if job["spec"].get("once") and length != lengths[0]:
                continue
            wanted = None if options.only is None else {RULE, *options.only.get(job["name"], ())}
            labels = [n for n in job["candidates"] if wanted is None or n in wanted]
            if len(labels) < 2:
                continue
            spec = job["spec"]
            common = {"job": job["name"], "length": length, "shape": job["shape"],
                      "stream": job["stream"] or length,
                      "tolerance": spec.get("tolerance") or TOLERANCE[spec["dtype"]]}  # fmt: skip
            found.append(Cell(
                _request(folder, spec, length),
                {n: str(folder / job["candidates"][n]["bundle"]) for n in labels}, common,
                {n: job["candidates"][n]["choice"] for n in labels},
            ))  # fmt: skip
    return found


def _request(folder: Path, spec: dict[str, Any], length: int) -> dict[str, Any]:
    """What a process is to make up: an operator of the benchmark, or arguments of a program."""
    if spec["kind"] != "program":
        return {"problem": problem_of(spec, length).as_json()}
    stored = str(folder / spec["stored"])
    return {"program": {"fixed": spec["fixed"], "length": length, "stored": stored}}


def device(log: Path, command: tuple[str, ...] = COMMAND) -> dict[str, Any]:
    """What GPU there is: name, capability, versions. Raises UsageError where there is none."""
    worker = Worker("device", log, command=command)
    try:
        return _device(worker)
    finally:
        worker.stop()


def _device(worker: Worker) -> dict[str, Any]:
    found = worker.ask(PREPARE_TIMEOUT, do="device")
    if "failed" in found:
        raise UsageError(
            f"no GPU to measure on: {message_of(found['failed'])}",
            hint="'neptune tune build' works anywhere, 'neptune tune run' where a GPU is",
        )
    return found


class Tuner:
    """Measures cells; `command` starts the process of a candidate."""

    def __init__(self, manifest: dict[str, Any], cells: Sequence[Cell], options: Options,
                 log: Path, say: Callable[[str], None] = print,
                 command: tuple[str, ...] = COMMAND):  # fmt: skip
        self.manifest, self.cells, self.options, self.say = manifest, cells, options, say
        self._log, self._command = log, command
        self._workers: list[Worker] = []
        self._started = time.monotonic()

    def run(
        self, save: Callable[[dict[str, Any]], None], before: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The results (see `results`); `save` gets what there is after each cell.

        `before`: results of a run that ended early. What they have is not measured again.
        """
        found = before or {"device": {}, "rows": [], "build": self.manifest["build"]}
        if found["build"] != self.manifest["build"]:
            raise UsageError("the results are those of another build",
                             hint="remove the file, or name another with --json")  # fmt: skip
        found |= {"target": self.manifest["target"], "tools": self.manifest["tools"],
                  "rounds": self.options.rounds, "skipped": []}  # fmt: skip
        try:
            self._meet_device(found)
            had = {(row["job"], row["length"]) for row in found["rows"]}
            for cell in self.cells:
                if cell.key in had:
                    continue
                if time.monotonic() - self._started > self.options.budget:
                    found["skipped"].append(list(cell.key))
                    continue
                rows = self._measure(cell)
                found["rows"] += rows
                self.say(f"{time.monotonic() - self._started:4.0f} s  {standing(rows)}")
                save(found)
        finally:
            for worker in self._workers:
                worker.stop()
        save(found)
        return found

    def _meet_device(self, found: dict[str, Any]) -> None:
        device = _device(self._worker(0))
        if found["device"] not in ({}, device):
            raise UsageError(f"cannot go on from results of {found['device']}",
                             hint=f"this is {device}; name another --json file")  # fmt: skip
        target = self.manifest["target"]
        if not nvidia(target).runs_on(architecture(device["capability"])):
            raise UsageError(f"{device['name']} does not run code for {target}",
                             hint="build the folder with the device's --target")  # fmt: skip
        found["device"] = device
        self.say(f"device: {device}")

    def _worker(self, number: int) -> Worker:
        while len(self._workers) <= number:
            name = f"candidate {len(self._workers)}"
            self._workers.append(Worker(name, self._log, command=self._command))
        return self._workers[number]

    def _measure(self, cell: Cell) -> list[dict[str, Any]]:
        race = _Race(cell)
        workers = {label: self._worker(k) for k, label in enumerate(cell.bundles)}
        for label, worker in workers.items():
            worker.send(do="prepare", **cell.request, bundle=cell.bundles[label])
        for label, worker in workers.items():
            race.prepared(label, worker.answer(PREPARE_TIMEOUT))
        race.compare()
        if race.running:  # the chip gets warm: who is first would be faster than the rest
            workers[race.running[-1]].ask(TIMEOUT, do="round")
        turn = last = 0
        while race.running and (
            last < self.options.rounds or (last < MOST * self.options.rounds and race.is_open)
        ):
            order = race.running
            shift = turn % len(order)
            for label in order[shift:] + order[:shift]:
                race.timed(label, workers[label].ask(TIMEOUT, do="round"))
            turn += 1
            last += len(race.running) <= FINALISTS
            for label in race.halve():
                race.finished(label, workers[label].ask(TIMEOUT, do="finish"))
        for label in race.running:
            race.finished(label, workers[label].ask(TIMEOUT, do="finish"))
        return list(race.rows.values())


@dataclass
class _Race:
    """The candidates of a cell: their rows, and who is still running."""

    cell: Cell
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    out: set[str] = field(default_factory=set)
    samples: dict[str, Any] = field(default_factory=dict)

    @property
    def running(self) -> list[str]:
        return [label for label in self.rows if label not in self.out]

    def prepared(self, label: str, answer: dict[str, Any]) -> None:
        row = {**self.cell.common, "candidate": label, "choice": self.cell.choices[label],
               "rounds_us": [], "right": False}  # fmt: skip
        self.rows[label] = row
        self._judge(label, answer)
        if "sample" in answer:
            self.samples[label] = answer["sample"]

    def compare(self) -> None:
        """Who disagrees with the rule's result is out."""
        wanted = self.samples.get(RULE)
        for label, got in self.samples.items():
            if wanted is None or label not in self.running:
                continue
            error = figures.errors(got, wanted)["relative"]
            if not error < self.rows[label]["tolerance"]:
                self._fail(label, f"the result differs from the rule's by {error:.1e}")

    def timed(self, label: str, answer: dict[str, Any]) -> None:
        if "failed" in answer:
            self._fail(label, answer["failed"])
            return
        self.rows[label]["rounds_us"].append(figures.median(answer["us"]))

    def finished(self, label: str, answer: dict[str, Any]) -> None:
        self._judge(label, answer)
        times = self.rows[label]["rounds_us"]
        if times and min(times) > 0:
            self.rows[label]["us"] = figures.median(times)
        elif "failed" not in self.rows[label]:
            self._fail(label, "too short to be measured")

    def halve(self) -> list[str]:
        """Sends the slower half out, but for FINALISTS and the rule; returns who left."""
        order = sorted(self.running, key=lambda n: figures.median(self.rows[n]["rounds_us"]))
        kept = set(order[: max(FINALISTS, -(-len(order) // 2))])
        if RULE in order and RULE not in kept:
            kept = {RULE, *[n for n in order if n in kept][:-1]}
        left = [n for n in order if n not in kept]
        self.out.update(left)
        return left

    @property
    def is_open(self) -> bool:
        """Whether more rounds might say of someone that it is better than the rule."""
        if RULE not in self.running:
            return False
        rule = self.rows[RULE]["rounds_us"]
        gains = [gain(rule, self.rows[n]["rounds_us"]) for n in self.running if n != RULE]
        return any(g.might and not g.counts for g in gains)

    def _judge(self, label: str, answer: dict[str, Any]) -> None:
        """Takes errors; the larger of before the rounds and after counts."""
        row = self.rows[label]
        if "failed" in answer:
            self._fail(label, answer["failed"])
            return
        error, before = answer["errors"]["relative"], row.get("errors", {}).get("relative", 0.0)
        row["errors"] = {"relative": before if error < before else error}  # NaN stays
        row["right"] = row["errors"]["relative"] < row["tolerance"]
        if not row["right"]:
            self.out.add(label)

    def _fail(self, label: str, why: str) -> None:
        self.rows[label] |= {"failed": why, "right": False}
        self.out.add(label)


def standing(rows: Sequence[dict[str, Any]]) -> str:
    """A line on a cell: the rule's time, the best ones', what failed."""
    one = rows[0]
    timed = sorted((r for r in rows if r["right"] and "us" in r), key=lambda r: r["us"])
    parts = [f"{r['candidate']} {r['us']:.1f}" for r in timed[:3]]
    rule = [r for r in timed[3:] if r["candidate"] == RULE]
    parts += [f"{RULE} {r['us']:.1f}" for r in rule]
    wrong = len(rows) - sum(r["right"] for r in rows)
    parts += [f"{wrong} WRONG OR FAILED"] if wrong else []
    return f"{one['job']:20} {one['length']:6}  us: {', '.join(parts)}"


def read(path: Path) -> dict[str, Any]:
    """Results in a file: device, target, tools, build, rounds, skipped, and rows, one for each
    candidate of each cell: job, length, shape, stream (its length), tolerance, candidate, choice,
    rounds_us, right, errors, us, failed. Raises InputError."""
    return results.read(path, ("device", "target", "tools", "build", "rows"))
