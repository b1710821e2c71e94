# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune bench`: operators on a GPU beside their peers.

    neptune bench build DIR --suite operators,zoo --dtype f16      anywhere: compile
    neptune bench run DIR --quick --json bench.json --plot bench.svg     on a GPU: measure
    neptune bench run DIR --check-only                             on a GPU: correctness alone
    neptune bench show bench.json --plot bench.svg                 the tables and plot again

`run` needs torch, numpy and cuda-bindings, and neither MLIR nor the compiler:
`python3 -m neptune_mlir.cli.main bench run DIR --quick --json $OUT/bench.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from neptune_mlir.errors import InputError, UsageError

QUICK_BUDGET = 400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="compile the bundles (no GPU)")
    build.add_argument("folder", type=Path)
    build.add_argument("--suite", default="operators", help="operators,prefill,zoo")
    build.add_argument("--target", default="sm_90a")
    build.add_argument("--dtype", default="f16,bf16")
    build.add_argument("--only", default="", help="part of the name")
    build.add_argument(
        "--variant", action="append", default=[], metavar="LABEL=NAME:VALUE;...",
        help="one more candidate of ours: schedule, its knobs, options of the target's compiler",
    )  # fmt: skip
    run = actions.add_parser("run", help="measure, on a GPU")
    run.add_argument("folder", type=Path)
    run.add_argument("--quick", action="store_true", help="f16, lengths 1024, 4096 and 16384")
    run.add_argument("--lengths", help="256,1024,...")
    run.add_argument("--dtype", help="f16,bf16")
    run.add_argument("--operators", default="", help="part of the name")
    run.add_argument("--peers", help="flash2,cudnn,flex,triton,flash4 (those installed), or none")
    run.add_argument("--rounds", type=int, default=3)
    run.add_argument("--budget", type=float, help="seconds after which no cell is begun")
    run.add_argument("--check-only", action="store_true", help="correctness of every bundle")
    show = actions.add_parser("show", help="tables of a JSON file")
    show.add_argument("results", type=Path)
    for which in (run, show):
        which.add_argument("--plot", type=Path, metavar="OUT.svg")
    run.add_argument("--json", type=Path, metavar="OUT")


def execute(options: argparse.Namespace) -> int:
    return {"build": _build, "run": _run, "show": _show}[options.action](options)


def _build(options: argparse.Namespace) -> int:
    from neptune_mlir.bench.build import build

    failed = build(
        options.folder, options.suite.split(","), options.target, options.dtype.split(","),
        options.variant, options.only, _say,
    )  # fmt: skip
    return 1 if failed else 0


def _run(options: argparse.Namespace) -> int:
    from neptune_mlir.bench import run
    from neptune_mlir.bench.report import tables

    log = options.folder / "bench.log"
    if options.check_only:
        return _check(options, log)
    wanted = run.Options(
        lengths=_lengths(options.lengths) or (run.QUICK_LENGTHS if options.quick else run.LENGTHS),
        dtypes=tuple((options.dtype or ("f16" if options.quick else "f16,bf16")).split(",")),
        operators=options.operators,
        peers=_peers(options.peers),
        rounds=options.rounds,
        budget=options.budget or (QUICK_BUDGET if options.quick else math.inf),
    )
    if wanted.rounds < 1:
        raise UsageError(f"--rounds is {wanted.rounds}", hint="1 or more; 3 show a spread")
    cells = run.cells_of(options.folder, wanted)
    if not cells:
        raise UsageError(f"no bundle of {options.folder} is asked for")

    def save(found: dict) -> None:
        if options.json:
            options.json.write_text(run.to_json(found))

    found = run.Conductor(cells, wanted, log, _say).run(save)
    print(f"\n{tables(found)}")
    _plot(found, options.plot)
    ours = [r for r in found["rows"] if r["ours"]]
    return 0 if all(r.get("right") for r in ours) else 1


def _check(options: argparse.Namespace, log: Path) -> int:
    from neptune_mlir.bench import run
    from neptune_mlir.bench.check import check_all

    wanted = (options.dtype or "f16,bf16,f32").split(",")
    bundles = [
        path
        for path, spec in run.bundles_of(options.folder).items()
        if options.operators in spec["operator"] and (spec["dtype"] in wanted)
    ]
    rows = check_all(bundles, log, say=_say)
    if options.json:
        options.json.write_text(run.to_json(rows))
    right = sum(row["right"] for row in rows)
    print(f"{right} of {len(rows)} bundles right")
    return 0 if rows and right == len(rows) else 1


def _show(options: argparse.Namespace) -> int:
    from neptune_mlir.bench.report import tables

    try:
        found = json.loads(options.results.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read '{options.results}': {error}") from None
    print(tables(found))
    _plot(found, options.plot)
    return 0


def _plot(found: dict, path: Path | None) -> None:
    if path:
        from neptune_mlir.bench.plot import plot

        path.write_text(plot(found))


def _lengths(text: str | None) -> tuple[int, ...]:
    try:
        found = tuple(int(n) for n in text.split(",")) if text else ()
    except ValueError:
        found = (0,)
    if any(n < 1 for n in found):
        raise UsageError(f"--lengths is '{text}'", hint="256,1024,4096")
    return found


def _peers(text: str | None) -> tuple[str, ...]:
    from neptune_mlir.bench.peers import PEERS, installed

    if text is None:
        return tuple(name for name in PEERS if installed(name))
    wanted = () if text == "none" else tuple(text.split(","))
    unknown = [n for n in wanted if n not in PEERS]
    if unknown:
        raise UsageError(f"no peer '{unknown[0]}'", hint=f"{', '.join(PEERS)}, or none")
    return wanted


def _say(text: str) -> None:
    print(text, flush=True, file=sys.stdout)
