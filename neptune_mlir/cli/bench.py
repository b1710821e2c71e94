# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune bench`: operators on a GPU beside their peers.

    neptune bench build DIR                                        anywhere: compile
    neptune bench run DIR --json bench.json --plot bench.svg       on a GPU: measure
    neptune bench run DIR --quick                                  in a few minutes
    neptune bench run DIR --check-only                             correctness alone
    neptune bench show bench.json --markdown                       the tables again
    neptune bench trace DIR                                        FlashInfer-Trace data
    neptune bench --suite sweep --seed 1 --count 60 --json s.json  random programs and shapes
    neptune bench build DIR --suite sweep --seed 1 --count 60      the same in two steps: compile,
    neptune bench run DIR --suite sweep --json s.json              and measure elsewhere

`run` needs torch and numpy, and neither MLIR nor the compiler:
`python3 -m neptune_mlir.cli.main bench run DIR --quick --json $OUT/bench.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neptune_mlir.cli.numbers import seed
from neptune_mlir.cli.outputs import check_writable, write
from neptune_mlir.errors import UsageError

QUICK_BUDGET = 400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", dest="sweep", choices=["sweep"], help="compile and measure here")
    parser.add_argument("--target", default="sm_90a", help="cpu, sm_90a, ... (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where bundles are kept (default: nowhere)")
    _add_sweep_arguments(parser, measure=True)
    actions = parser.add_subparsers(dest="action")
    build = actions.add_parser("build", help="compile the bundles (no GPU)")
    build.add_argument("folder", type=Path, help="where the bundles go")
    build.add_argument("--suite", default="operators,prefill,fused,zoo", help="these, or sweep")
    build.add_argument("--target", default="sm_90a", help="default: %(default)s")
    build.add_argument("--dtype", default="f16,bf16", help="default: %(default)s")
    build.add_argument("--only", default="", help="part of the name")
    build.add_argument(
        "--variant", action="append", default=[], metavar="LABEL=NAME:VALUE;...",
        help="one more candidate: ours with knobs (or the schedule) changed",
    )  # fmt: skip
    build.add_argument("--profile", action="store_true", help="with clock samples")
    _add_sweep_arguments(build, measure=False)
    run = actions.add_parser("run", help="measure, on a GPU")
    run.add_argument("folder", type=Path, help="what `build` made")
    run.add_argument("--suite", dest="sweep", choices=["sweep"], help="what `build` drew")
    run.add_argument("--quick", action="store_true", help="f16, lengths 1024, 4096 and 16384")
    run.add_argument("--lengths", help="256,1024,...")
    run.add_argument("--batches", help="of the sweep at length 8192: 2,4,..., or none")
    run.add_argument("--dtype", help="f16,bf16")
    run.add_argument("--operators", default="", help="parts of names: causal,decode_gqa")
    run.add_argument(
        "--peers", help="some of flash2,cudnn,sdpa,flex,triton,flash4,eager,compiled, or none"
    )
    run.add_argument(
        "--rounds", type=int, default=3,
        help="of all candidates (default: %(default)s)",
    )  # fmt: skip
    run.add_argument("--budget", type=float, help="seconds after which no cell is begun")
    run.add_argument("--resume", action="store_true", help="keep what the --json file has")
    _add_jobs(run)
    run.add_argument("--check-only", action="store_true", help="correctness of every bundle")
    run.add_argument(
        "--profile", action="store_true",
        help="where the cycles go of what `build --profile` made, at --lengths",
    )  # fmt: skip
    run.add_argument(
        "--perfetto", type=Path, metavar="OUT.json", help="the profile as a trace for Perfetto"
    )
    trace = actions.add_parser(
        "trace",
        help="FlashInfer-Trace definitions and workloads: ours beside each definition's reference, "
        "which is code that is run",
    )
    trace.add_argument("folder", type=Path, help="has definitions/ and workloads/")
    trace.add_argument("--only", default="", help="part of the definitions' names")
    trace.add_argument("--limit", type=int, default=0, help="workloads of a definition; 0: all")
    trace.add_argument("--device", default="cpu", help="of torch; default: %(default)s")
    trace.add_argument("--json", type=Path, metavar="OUT", help="the rows")
    show = actions.add_parser("show", help="tables of a JSON file")
    show.add_argument("results", type=Path, help="what `run --json` wrote")
    for which in (run, show):
        which.add_argument("--plot", type=Path, metavar="OUT.svg", help="draw throughput, or warps")
    show.add_argument("--markdown", action="store_true", help="tables in Markdown")
    run.add_argument("--json", type=Path, metavar="OUT", help="written after every cell")


def _add_sweep_arguments(parser: argparse.ArgumentParser, measure: bool) -> None:
    parser.add_argument("--seed", type=seed, default=1, help="of the draws (default: %(default)s)")
    parser.add_argument("--count", type=int, default=60, help="draws (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="after which none is begun")
    if measure:
        _add_jobs(parser)
        parser.add_argument("--peers", help="some of them, or none (default: all there are)")
        parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
        parser.add_argument("--resume", action="store_true", help="keep what the --json file has")
        parser.add_argument("--json", type=Path, metavar="OUT", help="written after every draw")


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=int, help="draws that are prepared at the same time (default: 12 on a GPU)"
    )


def execute(options: argparse.Namespace) -> int:
    check_writable(*(getattr(options, name, None) for name in ("json", "plot", "perfetto")))
    if options.action is None:
        return _sweep_here(options)
    return {"build": _build, "run": _run, "show": _show, "trace": _trace}[options.action](options)


def _build(options: argparse.Namespace) -> int:
    from neptune_mlir.bench import build

    if options.suite == build.SWEEP:
        failed = build.build_sweep(
            options.folder, options.target, options.seed, _count(options),
            options.seconds or math.inf, _say,
        )  # fmt: skip
        return 1 if failed else 0
    failed = build.build(
        options.folder, options.suite.split(","), options.target, options.dtype.split(","),
        options.variant, options.only, _say, options.profile,
    )  # fmt: skip
    return 1 if failed else 0


def _count(options: argparse.Namespace) -> int:
    if options.count < 1:
        raise UsageError(f"--count is {options.count}", hint="how many programs to draw: 60, say")
    return int(options.count)


def _sweep_here(options: argparse.Namespace) -> int:
    """Compile and measure on this machine."""
    from neptune_mlir.bench import sweep

    if options.sweep is None:
        raise UsageError("no action", hint="neptune bench build, run or show; or --suite sweep")
    with contextlib.ExitStack() as stack:
        folder = options.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        cells = sweep.drawn_cells(folder, options.target, options.seed, _count(options))
        return _measure_sweep(cells, folder, options, options.seconds or math.inf)


def _measure_sweep(
    cells: Sequence[Any], folder: Path, options: argparse.Namespace, budget: float
) -> int:
    from neptune_mlir.bench import jobs, run, sweep

    device = cells[0].device
    wanted = run.BenchOptions(
        peers=sweep.peers_of(device) if options.peers is None else _peers(options.peers),
        rounds=options.rounds, budget=budget,
    )  # fmt: skip
    count = sweep.jobs_of(device) if options.jobs is None else options.jobs
    if count < 1:
        raise UsageError(f"--jobs is {count}", hint="draws prepared at the same time: 12, say")
    conductor = jobs.JobConductor(cells, wanted, folder / "bench.log", _say, count)
    found = _conducted(conductor, options)
    print(f"\n{sweep.report(found)}")
    ours = [r for r in found["rows"] if r["ours"]]
    return 0 if ours and all(r.get("right") for r in ours) else 1


def _conducted(conductor: Any, options: argparse.Namespace) -> dict[str, Any]:
    """The results of a run, which the --json file gets after each cell."""
    from neptune_mlir.bench import results

    if options.rounds < 1:
        raise UsageError(f"--rounds is {options.rounds}", hint="1 or more; 3 show a spread")
    if options.resume and not options.json:
        raise UsageError("--resume goes on from the file that --json names")
    before = results.read(options.json) if options.resume and options.json.exists() else None

    def save(found: dict[str, Any]) -> None:
        if options.json:
            write(options.json, results.to_json(found))

    found: dict[str, Any] = conductor.run(save, before)
    return found


def _run(options: argparse.Namespace) -> int:
    from neptune_mlir.bench import run, sweep
    from neptune_mlir.bench.report import tables

    log = options.folder / "bench.log"
    if options.check_only:
        return _check(options, log)
    if options.sweep:
        cells = sweep.cells_of(options.folder)
        return _measure_sweep(cells, options.folder, options, options.budget or math.inf)
    if options.profile:
        return _profile(options)
    if options.perfetto:
        raise UsageError("--perfetto writes a profile", hint="add --profile")
    wanted = run.BenchOptions(
        lengths=_numbers("lengths", options.lengths)
        or (run.QUICK_LENGTHS if options.quick else run.LENGTHS),
        batches=_batches(options),
        dtypes=tuple((options.dtype or ("f16" if options.quick else "f16,bf16")).split(",")),
        operators=options.operators,
        peers=_peers(options.peers),
        rounds=options.rounds,
        budget=options.budget or (QUICK_BUDGET if options.quick else math.inf),
    )
    cells = run.cells_of(options.folder, wanted)
    if not cells:
        raise UsageError(f"no bundle of {options.folder} is asked for")
    found = _conducted(run.Conductor(cells, wanted, log, _say), options)
    print(f"\n{tables(found)}")
    _plot(found, options.plot)
    ours = [r for r in found["rows"] if r["ours"]]
    return 0 if all(r.get("right") for r in ours) else 1


def _check(options: argparse.Namespace, log: Path) -> int:
    from neptune_mlir.bench import results, run
    from neptune_mlir.bench.check import check_all

    wanted = (options.dtype or "f16,bf16,f32").split(",")
    found = run.bundles_of(options.folder, options.operators)
    rows = check_all([p for p, spec in found.items() if spec["dtype"] in wanted], log, say=_say)
    if options.json:
        write(options.json, results.to_json(rows))
    right = sum(row["right"] for row in rows)
    print(f"{right} of {len(rows)} bundles right")
    return 0 if rows and right == len(rows) else 1


def _profile(options: argparse.Namespace) -> int:
    from neptune_mlir.bench import profile, results, run
    from neptune_mlir.bench.problem import problem_of
    from neptune_mlir.bench.timeline import WINDOW, timeline

    lengths = _numbers("lengths", options.lengths) or run.LENGTHS[:1]
    bundles = run.bundles_of(options.folder, options.operators, profile=True)
    found, rows = {}, []
    for (path, spec), length in itertools.product(bundles.items(), lengths):
        if spec["kind"] == "zoo" or (options.dtype or spec["dtype"]) != spec["dtype"]:
            continue
        problem = problem_of(spec, length)
        recorded = profile.record(path, problem)
        plain = path.with_name(path.name.replace("-profile", ""))
        us = {"us": profile.record(plain, problem).us} if plain.exists() else {}
        us["us_sampled"] = recorded.us
        for kernel, tracks in recorded.kernels.items():
            row = {"bundle": path.stem, "kernel": kernel, "length": length,
                   "where": recorded.where, **us, "roles": profile.shares(tracks),
                   "tracks": profile.in_window(tracks, WINDOW)}  # fmt: skip
            rows.append(row)
            found[profile.title(row)] = tracks
            print(f"{profile.table(row).text()}\n", flush=True)
    if options.json:
        write(options.json, results.to_json(rows))
    if options.plot:
        write(options.plot, timeline(found))
    if options.perfetto:
        from neptune_mlir.bench.perfetto import trace

        write(options.perfetto, trace(found))
    return 0


def _trace(options: argparse.Namespace) -> int:
    from neptune_mlir.bench import results, trace

    rows = trace.run(options.folder, options.device, options.only, options.limit, _say)
    if options.json:
        write(options.json, results.to_json(rows))
    done = [row for row in rows if "right" in row]
    right = sum(row["right"] for row in done)
    print(f"{right} of {len(done)} workloads right, {len(rows) - len(done)} skipped")
    return 0 if done and right == len(done) else 1


def _show(options: argparse.Namespace) -> int:
    from neptune_mlir.bench import results, sweep
    from neptune_mlir.bench.report import tables

    found = results.read(options.results)
    drawn = [r for r in found["rows"] if r["suite"] == "sweep"]
    if drawn:
        print(sweep.report(found, options.markdown))
    if len(drawn) < len(found["rows"]):
        print(tables(found, options.markdown))
    _plot(found, options.plot)
    return 0


def _plot(found: dict, path: Path | None) -> None:
    if path:
        from neptune_mlir.bench.plot import plot, plot_draws
        from neptune_mlir.bench.sweep import standings

        drawn = [r for r in found["rows"] if r["suite"] == "sweep"]
        write(path, plot_draws(standings(drawn)) if drawn else plot(found))


def _batches(options: argparse.Namespace) -> tuple[int, ...]:
    from neptune_mlir.bench import run

    if options.batches is None:
        return () if options.quick or options.lengths else run.SWEEP_BATCHES
    return () if options.batches == "none" else _numbers("batches", options.batches)


def _numbers(name: str, text: str | None) -> tuple[int, ...]:
    try:
        found = tuple(int(n) for n in text.split(",")) if text else ()
    except ValueError:
        found = (0,)
    if any(n < 1 for n in found):
        raise UsageError(f"--{name} is '{text}'", hint="numbers such as 256,1024,4096")
    return found


def _peers(text: str | None) -> tuple[str, ...]:
    from neptune_mlir.bench.peers import PEERS

    if text is None:
        return tuple(name for name, peer in PEERS.items() if peer.installed)
    wanted = () if text == "none" else tuple(text.split(","))
    unknown = [n for n in wanted if n not in PEERS]
    if unknown:
        raise UsageError(f"no peer '{unknown[0]}'", hint=f"{', '.join(PEERS)}, or none")
    return wanted


def _say(text: str) -> None:
    print(text, flush=True, file=sys.stdout)
