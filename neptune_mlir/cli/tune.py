# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune tune`: measures what the schedules of programs leave open, and keeps what is best.

    neptune tune build DIR --suite prefill --lengths 1024,8192     anywhere: compile the candidates
    neptune tune run DIR --json tune.json                          on a GPU: measure them
    neptune tune record tune.json                                  into the user's table

`run` needs torch and numpy, and neither MLIR nor the compiler.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from neptune_mlir.errors import InputError, UsageError

RESULTS = "results.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="compile the candidates (no GPU)")
    build.add_argument("folder", type=Path)
    build.add_argument("--suite", default="prefill", help="operators, prefill, or both")
    build.add_argument("--target", default="sm_90a")
    build.add_argument("--dtype", default="f16")
    build.add_argument("--only", default="", help="parts of names: causal_d64,global")
    build.add_argument("--lengths", default="1024,4096,16384", help="of the streams")
    build.add_argument(
        "--knob", action="append", default=[], metavar="NAME=NUMBER,...",
        help="what to choose from: rows, stream, slots, turns, skew, resident",
    )  # fmt: skip
    run = actions.add_parser("run", help="measure, on a GPU")
    run.add_argument("folder", type=Path)
    run.add_argument("--lengths", help="instead of those of build")
    run.add_argument("--rounds", type=int, default=4, help="of those that lead")
    run.add_argument("--budget", type=float, default=math.inf, help="seconds to begin cells in")
    run.add_argument("--again", type=Path, metavar="JSON",
                     help="only what won in these results, beside the rule")  # fmt: skip
    run.add_argument("--json", type=Path, metavar="OUT",
                     help="results, written after every cell; an earlier run goes on from there"
                     f" (default: DIR/{RESULTS})")  # fmt: skip
    record = actions.add_parser("record", help="keep what won in a table")
    record.add_argument("results", type=Path, nargs="+",
                        help="JSON of run, or its DIR; what counts has won in all")  # fmt: skip
    record.add_argument("--table", default="user", help="a file; default: the user's table")


def execute(options: argparse.Namespace) -> int:
    return {"build": _build, "run": _run, "record": _record}[options.action](options)


def _build(options: argparse.Namespace) -> int:
    from neptune_mlir.bench.build import programs
    from neptune_mlir.tune.build import Subject, build
    from neptune_mlir.tune.candidates import parse_knobs

    knobs = parse_knobs(options.knob)
    lengths = _numbers("lengths", options.lengths)
    only = options.only.split(",")
    subjects = [
        Subject(name, program().to_mlir(), spec)
        for name, program, spec, _ in programs(
            options.suite.split(","), options.dtype.split(","), options.folder
        )
        if spec["kind"] == "operator" and any(part in name for part in only)
    ]
    if not subjects:
        raise UsageError(f"no program has '{options.only}' in its name")
    build(options.folder, subjects, options.target, knobs, lengths, _say)
    return 0


def _run(options: argparse.Namespace) -> int:
    from neptune_mlir.bench.results import to_json
    from neptune_mlir.tune import manifest as manifests
    from neptune_mlir.tune import record, run

    manifest = manifests.read(options.folder)
    if options.rounds < 1:
        raise UsageError(f"--rounds is {options.rounds}", hint="1 or more; 4 show a spread")
    lengths = _numbers("lengths", options.lengths) if options.lengths else ()
    only = record.winners([run.read(options.again)]) if options.again else None
    wanted = run.Options(options.rounds, options.budget, lengths, only)
    cells = run.cells_of(options.folder, manifest, wanted)
    if not cells:
        raise UsageError("there is nothing to measure", hint="nothing won, or nothing was built")
    path = options.json or options.folder / RESULTS
    if options.again and path.exists() and path.samefile(options.again):
        raise UsageError("--again needs another --json file for its own results")
    before = run.read(path) if path.exists() else None
    log = options.folder / "run.log"
    found = run.Tuner(manifest, cells, wanted, log, _say).run(
        lambda some: _write(path, to_json(some)), before
    )
    for line in record.report([found]):
        _say(line)
    if found["skipped"]:
        _say(f"{len(found['skipped'])} cells left: the same command goes on")
    return 0 if all(row["right"] for row in found["rows"] if row["candidate"] == "rule") else 1


def _record(options: argparse.Namespace) -> int:
    from neptune_mlir.targets import tuned
    from neptune_mlir.tune import record, run

    runs = [run.read(p / RESULTS if p.is_dir() else p) for p in options.results]
    for line in record.report(runs):
        _say(line)
    path = tuned.user_path() if options.table == "user" else Path(options.table)
    if path is None:
        raise UsageError(f"{tuned.ENVIRONMENT}=none: there is no user's table",
                         hint="name one: --table PATH")  # fmt: skip
    there = tuned.read(path) if path.exists() else tuned.Table()
    base = there.over(tuned.shipped()) if options.table == "user" else there
    known = {(e.chip, e.shape) for e in there.entries}
    table = record.merge(base, runs)
    changed = {(e.chip, e.shape) for e in record.entries(runs)}
    kept = [e for e in table.entries if (e.chip, e.shape) in known | changed]
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, tuned.Table(tuple(kept)).to_json())
    _say(f"{path}: {len(kept)} entries")
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}") from None


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(n) for n in text.split(","))
    except ValueError:
        found = (0,)
    if any(n < 1 for n in found):
        raise UsageError(f"--{name} is '{text}'", hint="numbers such as 1024,4096")
    return found


def _say(text: str) -> None:
    print(text, flush=True)
