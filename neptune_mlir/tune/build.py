# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles the candidates of programs into a folder, in parallel; needs no GPU.

The folder has a bundle for each candidate, and a manifest (`manifest.py`) that says what they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from neptune_mlir.algebra.numerics.accuracy import TOLERANCE
from neptune_mlir.bench.process import Worker
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.runtime import cache
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.tuned import Choice, Entry, Shape
from neptune_mlir.tune import manifest
from neptune_mlir.tune.arguments import Arguments
from neptune_mlir.tune.candidates import candidates
from neptune_mlir.tune.manifest import RULE

COMMAND = (sys.executable, "-m", "neptune_mlir.tune.builder")
SMALL = (40, 200)  # lengths of the calls whose results are stored
TIMEOUT = 300.0  # seconds, of a compilation
Say = Callable[[str], None]


@dataclass(frozen=True)
class Subject:
    """A program to tune: its text, and what says how to run it (see `tune/run.py`)."""

    name: str
    text: str
    spec: Mapping[str, Any]


def build(
    folder: Path, subjects: Sequence[Subject], target: str, knobs: Mapping[str, Sequence[int]],
    lengths: Sequence[int], say: Say = print, command: tuple[str, ...] = COMMAND,
) -> dict[str, Any]:  # fmt: skip
    """Write the folder; returns what its manifest says.

    Raises:
        UsageError: the target has no choice, or no program has a stream that one is for.
        InputError: a program cannot be compiled.
    """
    chip = gpu_target(target)
    if not getattr(chip, "warp_groups", False):
        raise UsageError(
            f"there is nothing to tune for '{target}'",
            hint="the table is about kernels of specialised warps: sm_90a",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for old in manifest.files(folder):
        old.unlink(missing_ok=True)
    with _Builders(folder / "build.log", command) as builders:
        jobs = _jobs(folder, subjects, target, knobs, builders, say)
        if not jobs:
            raise UsageError("no program has a stream that the table is about")
        rules = [(job, RULE) for job in jobs]
        others = [(job, n) for job in jobs for n in job["candidates"] if n != RULE]
        show = _progress(len(rules) + len(others), say)
        answers = _compile(folder, rules, target, builders, show)
        _store(folder, jobs, lengths, builders)
        answers |= _compile(folder, others, target, builders, show)
    for job in jobs:
        _keep(folder, job, {n: answers[job["name"], n] for n in job["candidates"]})
        say(summary(job))
        if job["spec"].get("once"):
            say(f"{job['name']}: no call decides an extent; it is measured once for all --lengths")
    codes = sorted(f"{name} {label} {a.get('digest')}" for (name, label), a in answers.items())
    made = {
        "target": target, "tools": cache.compiler_versions(), "lengths": list(lengths),
        "jobs": jobs,
        "build": hashlib.sha256("\n".join(codes).encode()).hexdigest(),
    }  # fmt: skip
    (folder / manifest.NAME).write_text(json.dumps(made, indent=1) + "\n")
    return made


def _progress(total: int, say: Say) -> Callable[[str, dict[str, Any]], None]:
    started, done = time.monotonic(), 0

    def show(name: str, answer: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        left = (time.monotonic() - started) / done * (total - done)
        what = (answer.get("failed", "").splitlines() or ["compiled"])[0]
        say(f"[{done}/{total}, {left:.0f} s left] {name}: {what[:80]}")

    return show


def _compile(
    folder: Path, wanted: Sequence[tuple[dict[str, Any], str]], target: str, builders: _Builders,
    show: Callable[[str, dict[str, Any]], None],
) -> dict[tuple[str, str], dict[str, Any]]:  # fmt: skip
    """What became of candidates, by job and label."""
    messages = [_request(folder, job, label, target) for job, label in wanted]
    names = [f"{job['name']} {label}" for job, label in wanted]
    answers = builders.ask_all(messages, lambda number, answer: show(names[number], answer))
    return {(job["name"], n): a for (job, n), a in zip(wanted, answers, strict=True)}


def _jobs(
    folder: Path, subjects: Sequence[Subject], target: str, knobs: Mapping[str, Sequence[int]],
    builders: _Builders, say: Say,
) -> list[dict[str, Any]]:  # fmt: skip
    """What there is to build, with the candidates of each."""
    for subject in subjects:
        (folder / _program(subject)).write_text(subject.text)
    looks = builders.ask_all([
        {"do": "look", "program": str(folder / _program(s)), "target": target}
        for s in subjects
    ])  # fmt: skip
    jobs = []
    for subject, look in zip(subjects, looks, strict=True):
        if "failed" in look:
            raise InputError(f"'{subject.name}' cannot be compiled for {target}: {look['failed']}")
        if not look["streams"]:
            say("\n  ".join([f"{subject.name}: nothing to tune", *look["why"]]))
        for number, stream in enumerate(look["streams"]):
            shape, rule = Shape(**stream["shape"]), Choice(**stream["rule"])
            found, pruned = candidates(gpu_target(target), shape, knobs)
            name = subject.name + (f"-{number}" if len(look["streams"]) > 1 else "")
            jobs.append({
                "name": name, "program": _program(subject), "spec": dict(subject.spec),
                "shape": asdict(shape), "stream": stream["length"], "rule": rule.as_json(),
                "pruned": pruned,
                "candidates": {
                    RULE: {"choice": rule.as_json()},
                    **{str(c): {"choice": c.as_json()} for c in found if c != rule},
                },
            })  # fmt: skip
    return jobs


def _program(subject: Subject) -> str:
    return f"{subject.name}-program.mlir"


def _request(folder: Path, job: dict[str, Any], label: str, target: str) -> dict[str, Any]:
    candidate = job["candidates"][label]
    candidate["bundle"] = f"{job['name']}-{label.replace(', ', '-').replace(' ', '')}.bundle"
    choice = Choice(**candidate["choice"])
    entry = Entry(target, Shape(**job["shape"]), 0, choice).as_json()
    return {
        "do": "build", "program": str(folder / job["program"]), "target": target,
        "entry": None if label == RULE else entry, "out": str(folder / candidate["bundle"]),
        "facts": {"bench": {**job["spec"], "label": label}},
    }  # fmt: skip


def _store(
    folder: Path, jobs: Sequence[dict[str, Any]], lengths: Sequence[int], builders: _Builders
) -> None:
    """For programs that are no operators of the benchmark: what small calls have to give."""
    messages, asked = [], []
    for job in jobs:
        spec, bundle = job["spec"], folder / job["candidates"][RULE]["bundle"]
        if spec["kind"] != "program" or not bundle.exists():
            continue  # `_keep` says why there is none
        asked.append(job)
        plan = Bundle.from_bytes(bundle.read_bytes()).plan
        for length in lengths:
            Arguments(plan, spec["fixed"], length).check_size()
        spec["once"] = not Arguments(plan, spec["fixed"], lengths[0]).has_length
        spec["stored"] = f"{job['name']}.npz"
        messages.append({
            "do": "store", "program": str(folder / job["program"]), "bundle": str(bundle),
            "fixed": spec["fixed"], "lengths": SMALL, "out": str(folder / spec["stored"]),
        })  # fmt: skip
    for job, answer in zip(asked, builders.ask_all(messages), strict=True):
        if "failed" in answer:
            raise InputError(f"'{job['name']}' has no reference: {answer['failed']}")
        job["spec"]["tolerance"] = TOLERANCE[answer["dtype"]]


def _keep(folder: Path, job: dict[str, Any], answers: Mapping[str, dict[str, Any]]) -> None:
    """Drop the candidates of a job that came to nothing, or to the same code as another."""
    rule = answers[RULE]
    if "failed" in rule:
        raise InputError(f"'{job['name']}' cannot be compiled: {rule['failed']}")
    pruned = Counter(job["pruned"])
    seen: set[str] = set()
    for label, answer in answers.items():
        candidate = job["candidates"][label]
        reason = _useless(answer, seen)
        if reason and label != RULE:
            pruned[reason] += 1
            del job["candidates"][label]
            (folder / candidate["bundle"]).unlink(missing_ok=True)
            continue
        seen.add(answer["digest"])
        figures = answer["kernels"].values()
        candidate["registers"] = max(k["registers"] for k in figures)
        candidate["shared"] = max(k["shared"] for k in figures)
    job["pruned"] = dict(pruned)


def _useless(answer: dict[str, Any], seen: set[str]) -> str:
    """Why what became of a candidate is not worth measuring."""
    if "failed" in answer:
        return "does not compile"
    if not answer["specialised"]:
        unfit = any("warps are not specialised" in remark for remark in answer["remarks"])
        return "does not suit specialised warps" if unfit else "spills"
    if any(kernel["spills"] for kernel in answer["kernels"].values()):
        return "spills"
    return "same code as another" if answer["digest"] in seen else ""


def summary(job: dict[str, Any]) -> str:
    """A line on a job's candidates."""
    pruned = ", ".join(f"{n} {reason}" for reason, n in job["pruned"].items())
    text = f"{job['name']} ({Shape(**job['shape'])}): {len(job['candidates'])} candidates"
    return text + (f"; not tried: {pruned}" if pruned else "")


class _Builders:
    """Processes that compile, as many as there are cores."""

    def __init__(self, log: Path, command: tuple[str, ...]):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._workers = [Worker("builder", log, command=command) for _ in range(cores)]

    def __enter__(self) -> _Builders:
        return self

    def __exit__(self, *_: Any) -> None:
        for worker in self._workers:
            worker.stop()

    def ask_all(
        self, messages: Sequence[dict[str, Any]],
        show: Callable[[int, dict[str, Any]], None] = lambda number, answer: None,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """The answers; `show` hears of each as it comes, with the number of its message."""
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(messages)):
            waiting.put(number)
        answers: list[dict[str, Any]] = [{} for _ in messages]
        lock = threading.Lock()

        def work(worker: Worker) -> None:
            while True:
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    return
                answers[number] = worker.ask(TIMEOUT, **messages[number])
                with lock:
                    show(number, answers[number])

        threads = [threading.Thread(target=work, args=(w,)) for w in self._workers[: len(messages)]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers
