# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune tune`: measures what the schedules of programs leave open, and keeps what is best.

    neptune tune PROGRAM --extent q.0=4,q.1=16                     all of it, where a GPU is
    neptune tune build DIR --suite prefill --lengths 1024,8192     anywhere: compile the candidates
    neptune tune run DIR --json tune.json                          on a GPU: measure them
    neptune tune record tune.json                                  into the user's table

    neptune tune search PROGRAM --target cpu                       the knobs of one program

`run` needs torch and numpy, and neither MLIR nor the compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neptune_mlir.cli.numbers import seed
from neptune_mlir.cli.outputs import check_writable, write
from neptune_mlir.errors import UsageError

RESULTS = "results.json"
ACTIONS = ("build", "run", "record", "search", "all")


def complete(arguments: Sequence[str]) -> list[str]:
    """`tune PROGRAM` means `tune all PROGRAM`."""
    named = arguments and arguments[0] in (*ACTIONS, "-h", "--help")
    return [*arguments] if named or not arguments else ["all", *arguments]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="compile the candidates (no GPU)")
    run = actions.add_parser("run", help="measure, on a GPU")
    record = actions.add_parser("record", help="keep what won in a table")
    _add_search(actions.add_parser(
        "search", help="the knobs of one program, on this machine (any target that it runs)"
    ))  # fmt: skip
    everything = actions.add_parser("all", help="all three, where a GPU is (the default)")
    for which in (build, run):
        which.add_argument("folder", type=Path, metavar="DIR", help="of the candidates")
    run.add_argument("--lengths", help="instead of those of build")
    run.add_argument("--again", type=Path, metavar="JSON",
                     help="only what won in these results, beside the rule")  # fmt: skip
    run.add_argument("--json", type=Path, metavar="OUT",
                     help="results, written after every cell; an earlier run goes on from there"
                     f" (default: DIR/{RESULTS})")  # fmt: skip
    build.add_argument("--target", default="sm_90a", help="default: %(default)s")
    everything.add_argument("--folder", type=Path, metavar="DIR", help="default: in the cache's")
    for which in (build, everything):
        _add_subjects(which)
    for which in (run, everything):
        which.add_argument("--rounds", type=int, default=4, help="of those that lead, at least")
        which.add_argument("--budget", type=float, default=math.inf,
                           help="seconds in which measurements may begin")  # fmt: skip
    record.add_argument("results", type=Path, nargs="+", metavar="JSON",
                        help="of run, or its DIR; what counts has won in all of them")  # fmt: skip
    for which in (record, everything):
        which.add_argument("--table", default="user", help="a file; default: the user's table")


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="PROGRAM", help="MLIR, StableHLO or ONNX")
    parser.add_argument("--target", default="cpu", help="default: %(default)s")
    parser.add_argument(
        "--schedule", action="append", default=[],
        help="a script of your own, or one or several that ship (default: the rule's choice)",
    )  # fmt: skip
    parser.add_argument(
        "--knob", action="append", default=[], metavar="NAME=NUMBER,FIRST:LAST:STEP,...",
        help="options of a knob (default: those that the script lists; of schedules that ship, of "
        "the sizes alone)",
    )  # fmt: skip
    parser.add_argument(
        "--extent", action="append", default=[], metavar="ARGUMENT.DIMENSION=NUMBER,...",
        help="run-time extents that are not the length: q.0=2,q.1=16",
    )  # fmt: skip
    parser.add_argument("--lengths", help="of calls, where a call decides one (default: 1024)")
    parser.add_argument("--evaluations", type=int, default=50, help="points (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="in which points may begin")
    parser.add_argument("--rounds", type=int, default=10, help="of the best three and the rule")
    parser.add_argument("--seed", type=seed, default=0, help="of what is random")
    parser.add_argument("--json", type=Path, metavar="OUT", help="all that was tried")
    parser.add_argument("--table", default="user", help="a file; default: the user's table")


def _add_subjects(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=".mlir files")
    parser.add_argument(
        "--extent", action="append", default=[], metavar="ARGUMENT.DIMENSION=NUMBER,...",
        help="run-time extents of the programs that are not the length: q.0=2,q.1=16",
    )  # fmt: skip
    parser.add_argument("--suite", help="of the benchmark: operators, prefill, fused")
    parser.add_argument("--only", default="", help="of the suite: parts of names (causal_d64,...)")
    parser.add_argument("--dtype", default="f16", help="of the suite")
    parser.add_argument("--lengths", default="1024,4096,16384", help="of calls")
    parser.add_argument(
        "--knob", action="append", default=[], metavar="NAME=NUMBER,...",
        help="what to choose from: rows, stream, columns, slots, turns, skew, resident, boxed, "
        "keeps, blocks, early, late, lefts, beside, adder, apart",
    )  # fmt: skip


def execute(options: argparse.Namespace) -> int:
    if options.action == "all":
        return _all(options)
    if options.action == "search":
        return _search(options)
    if options.action == "build":
        _build(options, options.folder, options.target)
        return 0
    if options.action == "run":
        return _run(options, options.folder, options.json or options.folder / RESULTS)
    return _record(options.results, options.table)


def _build(options: argparse.Namespace, folder: Path, target: str) -> None:
    from neptune_mlir.bench.build import programs
    from neptune_mlir.driver.inputs import read_source
    from neptune_mlir.tune.arguments import parse_extents
    from neptune_mlir.tune.build import Subject, build
    from neptune_mlir.tune.candidates import parse_knobs

    knobs = parse_knobs(options.knob)
    lengths = _numbers("lengths", options.lengths)
    own = {"kind": "program", "fixed": parse_extents(options.extent)}
    subjects = [Subject(Path(p).stem, read_source(p).text, own) for p in options.programs]
    if options.suite:
        parts = options.only.split(",")
        subjects += [
            Subject(name, program().to_mlir(), spec)
            for name, program, spec, _ in programs(
                options.suite.split(","), options.dtype.split(","), folder
            )
            if spec["kind"] != "zoo" and any(part in name for part in parts)
        ]
    if not subjects:
        raise UsageError("there is nothing to tune", hint="name a program, or --suite prefill")
    names = [s.name for s in subjects]
    if len(set(names)) < len(names):
        raise UsageError("two programs have the same name", hint="it is that of the file")
    build(folder, subjects, target, knobs, lengths, _say)
    (folder / RESULTS).unlink(missing_ok=True)  # of another build


def _run(options: argparse.Namespace, folder: Path, path: Path) -> int:
    from neptune_mlir.bench.results import to_json
    from neptune_mlir.tune import manifest as manifests
    from neptune_mlir.tune import record, run

    manifest = manifests.read(folder)
    check_writable(path)
    if options.rounds < 1:
        raise UsageError(f"--rounds is {options.rounds}", hint="1 or more; 4 show the noise")
    wanted = run.Options(options.rounds, options.budget)
    if options.action == "run":
        wanted.lengths = _numbers("lengths", options.lengths) if options.lengths else ()
        if options.again:
            wanted.only = record.winners([run.read(options.again)])
            if path.exists() and path.samefile(options.again):
                raise UsageError("--again needs another --json file for its own results")
    cells = run.cells_of(folder, manifest, wanted)
    if not cells:
        raise UsageError("there is nothing to measure", hint="nothing won, or nothing was built")
    before = run.read(path) if path.exists() else None
    found = run.Tuner(manifest, cells, wanted, folder / "run.log", _say).run(
        lambda some: write(path, to_json(some)), before
    )
    for line in record.report([found]):
        _say(line)
    if found["skipped"]:
        _say(f"{len(found['skipped'])} cells left: the same command goes on")
    return 0 if all(row["right"] for row in found["rows"] if row["candidate"] == "rule") else 1


def _search(options: argparse.Namespace) -> int:
    from neptune_mlir.driver.inputs import read_source
    from neptune_mlir.targets import tuned
    from neptune_mlir.transforms.schedule import library
    from neptune_mlir.tune import session, trial
    from neptune_mlir.tune.arguments import parse_extents

    if options.evaluations < 1 or options.rounds < 2:
        raise UsageError("--evaluations takes 1 or more, --rounds 2 or more")
    path = _table_path(options.table)
    source = read_source(options.program)
    check_writable(options.json, path)  # before minutes of work
    given: list[str] = options.schedule
    own = [name for name in given if name not in library.shipped()]
    if own and len(given) > 1:
        raise UsageError(f"'{own[0]}' stands beside other schedules",
                         hint="one of your own, or several that ship")  # fmt: skip
    lengths = _numbers("lengths", options.lengths) if options.lengths else None
    # the file that NEPTUNE_TUNING names may be one that this search is to begin
    with tuned.using(tuned.shipped() if path == tuned.user_path() and not path.exists() else None):
        subject = trial.Trial(
            source, options.target, own[0] if own else None, lengths,
            parse_extents(options.extent), trial.Host() if options.target == "cpu" else trial.Gpu(),
        )  # fmt: skip
        chosen = library.knob_ranges(options.knob)
        names = given or [subject.rule.facts["schedule"]]
        space = {name: trial.options_of(name, chosen) for name in names}
        budget = session.Budget(options.evaluations, options.seconds, options.rounds)
        found, winner = session.run(subject, space, budget, options.seed, _say)
    if options.json:
        write(options.json, json.dumps(found, indent=1) + "\n")
    if winner is None:
        return 0
    there = tuned.read(path) if path.exists() else tuned.Table()
    write(path, there.with_finding(winner).to_json())
    _say(f"{path}: {winner.schedule}, {winner.knobs}")
    return 0


def _table_path(name: str) -> Path:
    """The file of a table by its name on the command line; the user's own gets its folder.

    Raises:
        UsageError: there is no user's table.
    """
    from neptune_mlir.targets import tuned

    if name != "user":
        return Path(name)
    path = tuned.user_path()
    if path is None:
        raise UsageError(f"{tuned.ENVIRONMENT}=none: there is no user's table",
                         hint="name one: --table PATH")  # fmt: skip
    with contextlib.suppress(OSError):  # whoever writes the file says why it cannot be
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _record(results: Sequence[Path], name: str) -> int:
    from neptune_mlir.targets import tuned
    from neptune_mlir.tune import record, run

    runs = [run.read(p / RESULTS if p.is_dir() else p) for p in results]
    path = _table_path(name)
    there = tuned.read(path) if path.exists() else tuned.Table()
    # of shapes that the user's table is to speak for, it says all that there is to say
    table = record.merge(there, runs, tuned.shipped() if name == "user" else tuned.Table())
    write(path, table.to_json())
    _say(f"{path}: entries {len(table.entries)}, of these results {len(record.entries(runs))}")
    return 0


def _all(options: argparse.Namespace) -> int:
    from neptune_mlir.runtime import cache
    from neptune_mlir.targets.chips import best_for
    from neptune_mlir.targets.nvidia import architecture
    from neptune_mlir.tune import run

    check_writable(_table_path(options.table))  # before minutes of work
    name = "-".join([Path(p).stem for p in options.programs] + [options.suite or ""])
    folder = options.folder or cache.folder() / "tune" / name.strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    device = run.device(folder / "run.log")
    best = best_for(architecture(device["capability"]))
    if best is None:
        raise UsageError(f"there is nothing to tune for {device['name']}")
    _build(options, folder, best.name)
    code = _run(options, folder, folder / RESULTS)
    return code or _record([folder / RESULTS], options.table)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(n) for n in text.split(","))
    except ValueError:
        found = (0,)
    if any(n < 1 for n in found):
        raise UsageError(f"--{name} is '{text}'", hint="numbers such as 1024,4096")
    return found


def _say(text: Any) -> None:
    print(text, flush=True)
