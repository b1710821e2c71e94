#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Many random programs that could lose digits, on inputs that hurt, in many processes.

    python tools/fuzz_hostile.py run cpu.jsonl --seeds 0:5000 [--target cpu] [--jobs 16]
    python tools/fuzz_hostile.py run gpu.jsonl --seeds 0:1000 --target sm_80 [--cases 12]
    python tools/fuzz_hostile.py show cpu.jsonl

A seed stands for a program (`test/unit/hostile_programs.py`); targets other than the CPU run on
the simulators of the tests. Each seed gives one line of JSON: `verdict` is right, wrong (by the
rule of `--check`), error (an exception), crash or timeout; `reason` says which case and by how
much; `unfused` has the remarks of what was not fused. Seeds that the file has already are not
run again, so an interrupted run goes on where it was. The end of a run, and `show`, print
what failed; the exit status is 1 if anything did. Needs what the CPU needs, and pytest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parent.parent
HELPERS = [str(ROOT), str(ROOT / "test")]
LIFE = 50  # programs in one process: what is compiled stays in its memory

Row = dict[str, Any]


def examine(seed: int, target: str, cases: int | None) -> Row:
    """What is wrong with one program, if anything is."""
    from support.hostile_programs import Choices
    from support.hostile_runs import attempt, described

    choices = Choices(seed)
    try:
        tried = attempt(choices, target, cases)
    except Exception as error:
        text = " ".join(str(error).split())[:500]
        row: Row = {"verdict": "error", "reason": f"{type(error).__name__}: {text}"}
    else:
        wrong = str(tried.found[0]) if tried.found else ""
        row = {"verdict": "wrong" if wrong else "right", "unfused": tried.unfused}
        row |= {"reason": wrong} if wrong else {}
    failed = row["verdict"] != "right"
    return row | ({"program": described(choices.taken).splitlines()} if failed else {})


def work(target: str, cases: int | None) -> int:
    """A process of `run`: seeds come in as lines, rows go out as lines."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed
    from support import effort, poison
    from support.small_tiles import tiny

    effort.begin()  # the same roundings, sooner
    poison.install()
    with tiny():
        for line in sys.stdin:
            print(json.dumps(examine(int(line), target, cases)), file=out)
    return 0


class Worker:
    """A process that examines seeds, started again when it dies, hangs or is old."""

    def __init__(self, options: argparse.Namespace):
        self.timeout: float = options.timeout
        self.command = [sys.executable, __file__, "work", "--target", options.target]
        self.command += ["--cases", str(options.cases)] if options.cases else []
        self.process: subprocess.Popen[bytes] | None = None
        self.said: Any = None  # what it writes besides rows
        self.done = 0

    def examine(self, seed: int) -> Row:
        if self.process is None:
            one = {"NEPTUNE_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            known = filter(None, [os.environ.get("PYTHONPATH")])
            one["PYTHONPATH"] = os.pathsep.join([*HELPERS, *known])
            self.said = tempfile.TemporaryFile()
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self.said, env={**os.environ, **one}, bufsize=0,
            )  # fmt: skip
        process = self.process
        try:
            process.stdin.write(b"%d\n" % seed)
            ready, _, _ = select.select([process.stdout], [], [], self.timeout)
            line = process.stdout.readline() if ready else b""
        except BrokenPipeError:
            ready, line = True, b""
        self.done += 1
        said = self.last_line() if ready and not line else ""
        if not line or self.done % LIFE == 0:
            self.stop()
        if line:
            return json.loads(line)
        if not ready:
            return {"verdict": "timeout", "reason": f"more than {self.timeout:g} s"}
        status = f"exit status {process.returncode}"
        return {"verdict": "crash", "reason": f"{status}: {said}" if said else status}

    def last_line(self) -> str:
        """What a process that ended said last, once it has."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.said.seek(max(0, os.fstat(self.said.fileno()).st_size - 400))
        lines = self.said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.said.close()
            self.process = None


def rows_of(path: Path) -> list[Row]:
    """The rows of a file; a last line that was cut short is none."""
    rows = []
    for line in path.read_text().split("\n") if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def run(options: argparse.Namespace) -> int:
    first, _, last = options.seeds.partition(":")
    known = {r["seed"] for r in rows_of(options.file) if r["target"] == options.target}
    seeds = [s for s in range(int(first), int(last or int(first) + 1)) if s not in known]
    pending: queue.SimpleQueue[int] = queue.SimpleQueue()
    for seed in seeds:
        pending.put(seed)
    lock = threading.Lock()
    started = time.perf_counter()
    with open(options.file, "a") as out:
        out.write("\n" if out.tell() else "")  # behind a line that was cut short
        threads = [
            threading.Thread(target=drain, args=(Worker(options), pending, options, out, lock))
            for _ in range(min(options.jobs, len(seeds)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"{len(seeds)} programs in {time.perf_counter() - started:.0f} s")
    return show(options)


def drain(
    worker: Worker, pending: queue.SimpleQueue[int], options: argparse.Namespace, out: TextIO,
    lock: threading.Lock,
) -> None:  # fmt: skip
    """Take seeds until there are none, and write a row for each."""
    while True:
        try:
            seed = pending.get_nowait()
        except queue.Empty:
            return worker.stop()
        began = time.perf_counter()
        row = {"seed": seed, "target": options.target, **worker.examine(seed)}
        row["seconds"] = round(time.perf_counter() - began, 2)
        with lock:
            out.write(json.dumps(row) + "\n")
            out.flush()
            if row["verdict"] != "right":
                print(f"{row['target']} {seed}: {row['verdict']}: {row['reason']}", flush=True)


def show(options: argparse.Namespace) -> int:
    rows = sorted(rows_of(options.file), key=lambda r: (r["target"], r["seed"]))
    for row in rows:
        if row["verdict"] != "right":
            print(f"\n{row['target']} {row['seed']}: {row['verdict']}: {row['reason']}")
            print("\n".join(f"    {line}" for line in row.get("program", ())))
    partly = sum(bool(r.get("unfused")) for r in rows)
    counts = Counter(r["verdict"] for r in rows)
    text = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
    print(f"\n{len(rows)} programs: {text}; {partly} not fused, or not entirely")
    return int(counts["right"] < len(rows))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "show", "work"):
        command = commands.add_parser(name)
        if name != "work":
            command.add_argument("file", type=Path, help="one line of JSON a program")
        if name != "show":
            command.add_argument("--target", default="cpu")
            command.add_argument("--cases", type=int, help="inputs a program, spread over all")
        if name == "run":
            command.add_argument("--seeds", default="0:60", help="FIRST:BEYOND")
            command.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
            command.add_argument("--timeout", type=float, default=120.0, help="seconds a program")
    options = parser.parse_args()
    if options.command == "work":
        return work(options.target, options.cases)
    return run(options) if options.command == "run" else show(options)


if __name__ == "__main__":
    raise SystemExit(main())
