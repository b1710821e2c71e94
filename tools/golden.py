#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hashes of what the compiler makes of every program that it ships: did a change alter any code?

    python tools/golden.py record BEFORE.json [--targets cpu,sm_90a] [--only 'zoo/*'] [--keep DIR]
    python tools/golden.py compare BEFORE.json AFTER.json

The programs are the zoo, test/inputs and the benchmark suites. The compiler is that of the first
checkout on PYTHONPATH, else this one's, so the tool records other commits too; it needs of them
`compile_text`, the command `neptune compile` and the list of benchmark programs. A record
has, by program and target, hashes at these levels:

    program  the text that is compiled
    tile     what `neptune compile --emit tile` prints
    text     LLVM IR and PTX, whatever is given to a code generator or an assembler
    code     the machine code of the bundle
    plan     the launch plan, and what a launch has to know of each kernel
    error    the message, where the program does not compile for the target

Records of one tree are equal, byte for byte. `compare` prints which programs differ and where, and
exits with 1 if any does. Results of code generators and assemblers are kept by the hash of their
input (`--cache`), so a second run only compiles down to their inputs.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import importlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import golden_tools

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("cpu", "sm_80", "sm_90a", "gfx942", "gfx1100")
LEVELS = ("program", "tile", "text", "code", "plan", "error")
DTYPES = ("f16", "bf16")
PACKAGES = ("torch-mlir", "llvmlite", "ziglang", "nvidia-cuda-nvcc")
TIMEOUT = 1800  # seconds for one program, all targets
_PLACE = re.compile(r'loc\("[^"]*":\d+:\d+\)')  # a line of this file: whoever builds a program


def tree() -> Path:
    """The checkout whose compiler is imported."""
    listed = [Path(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return next((p.resolve() for p in listed if (p / "neptune_mlir").is_dir()), ROOT)


# ---- the programs

def programs(only: str = "*") -> dict[str, str]:
    """The text of each program whose name (`suite/name`) matches a pattern."""
    from neptune_mlir.bench.build import SUITES
    from neptune_mlir.bench.build import programs as suites

    found = {}
    for path in sorted((tree() / "test" / "inputs").glob("*.mlir")):
        if fnmatch.fnmatch(name := f"inputs/{path.stem}", only):
            found[name] = path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        for stem, build, spec, _ in suites(SUITES, DTYPES, Path(folder)):
            name = f"{spec['suite']}/{stem.removeprefix(spec['suite'] + '-')}"
            if fnmatch.fnmatch(name, only):
                found[name] = _PLACE.sub('loc("program":1:1)', build().to_mlir())
    return found


# ---- one program, in a process of its own

def digest(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def levels_of(
    name: str, text: str, target: str, tools: golden_tools.Tools, keep: str
) -> dict[str, str]:
    """The hashes of a program for a target. `keep`: a folder for files, or ""."""
    from neptune_mlir.errors import NeptuneError

    hashes = {"program": digest(text)}
    tools.begin()
    try:
        bundle = compiler().compile_text(text, name, target, None, None)
        given = tools.end()
        tile = _emit(text, target, "tile")
    except NeptuneError as error:
        tools.end()
        return hashes | {"error": _without_folders(f"{type(error).__name__}: {error}")}
    except Exception as error:  # a defect of the compiler is a result to compare, too
        tools.end()
        return hashes | {"error": _without_folders(f"defect, {type(error).__name__}: {error}")}
    if keep:
        _keep(Path(keep) / f"{name}.{target}", tile, given)
    return hashes | {
        "tile": digest(tile),
        "text": digest("\n".join(sorted(map(digest, given)))),
        "code": digest(bundle.code),
        "plan": digest(json.dumps(_launches(bundle), sort_keys=True)),
    }


def compiler() -> Any:
    """The module that compiles, wherever the tree has it."""
    # by its files: an installation of another checkout has modules that this one lacks
    floors = (tree() / "neptune_mlir" / "driver").is_dir()
    return importlib.import_module(f"neptune_mlir.{'driver.' if floors else ''}compiler")


def _emit(text: str, target: str, level: str) -> str:
    """What `neptune compile --emit` prints. Raises NeptuneError."""
    from neptune_mlir.cli import main

    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "program.mlir", Path(folder) / "emitted"
        source.write_text(text)
        command = ["compile", str(source), "--target", target, "--emit", level, "-o", str(output)]
        done = main.main(command)
        return output.read_text() if done == 0 else f"exit {done}"


def _launches(bundle: Any) -> list[Any]:
    """The plan, and what a runtime is told of images and kernels."""
    told = ("plan", "alignment", "kernels")
    images = [{k: i[k] for k in told if k in i} for i in bundle.facts.get("images", ())]
    return [bundle.plan.to_json(), bundle.facts.get("alignment"), images]


def _without_folders(message: str) -> str:
    """A message that does not depend on the names of temporary folders."""
    return re.sub(re.escape(tempfile.gettempdir()) + r"/[\w.-]+", "TEMPORARY", message)


def _keep(stem: Path, tile: str, given: Sequence[bytes]) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{stem}.tile.mlir").write_text(tile)
    for k, text in enumerate(sorted(given)):
        suffix = "ptx" if b".version" in text[:2000] else "ll"
        Path(f"{stem}.{k}.{suffix}").write_bytes(text)


def compile_one() -> int:
    """The child: a request on standard input, its results on the last line of standard output."""
    request = json.load(sys.stdin)
    tools = golden_tools.Tools(Path(request["cache"]), tree())
    found, seconds = {}, {}
    with tools.installed():
        for target in request["targets"]:
            started = time.perf_counter()
            found[target] = levels_of(
                request["name"], request["text"], target, tools, request["keep"]
            )
            seconds[target] = time.perf_counter() - started
    print()
    print(json.dumps({"found": found, "seconds": seconds}))
    return 0


# ---- record

def environment() -> dict[str, str]:
    """Of the children: nothing of the user's own, and one kind of CPU on all machines like it."""
    own = {k: v for k, v in os.environ.items() if k not in ("NEPTUNE_DUMP", "NEPTUNE_TUNING")}
    own["NEPTUNE_TUNING"] = "none"
    own["PYTHONPATH"] = os.pathsep.join([str(tree()), os.environ.get("PYTHONPATH", "")])
    if platform.machine() == "x86_64":
        own.setdefault("NEPTUNE_CPU", "x86-64-v3")
    return own


def ask(name: str, text: str, options: argparse.Namespace) -> dict[str, Any]:
    """The results of one program, of a child."""
    targets = options.targets.split(",")
    request = {"name": name, "text": text, "targets": targets,
               "cache": str(options.cache.resolve()),
               "keep": str(options.keep.resolve()) if options.keep else ""}  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, os.path.abspath(__file__), "compile-one"],
            input=json.dumps(request), text=True, capture_output=True, env=environment(),
            timeout=TIMEOUT, check=False,
            cwd=tree(),  # which is first on the path of what a compiler starts with `-m`
        )  # fmt: skip
        failed = f"exit {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        failed = f"not done in {TIMEOUT} s"
    if failed:
        error = {"program": digest(text), "error": f"the compiler's process: {failed}"}
        return {"found": dict.fromkeys(targets, error), "seconds": {}}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def record(options: argparse.Namespace) -> int:
    started = time.perf_counter()
    chosen = programs(options.only)
    if not chosen:
        print(f"golden: error: no program matches '{options.only}'", file=sys.stderr)
        return 2
    found, seconds = {}, dict.fromkeys(options.targets.split(","), 0.0)
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, answer in zip(
            chosen, pool.map(lambda n: ask(n, chosen[n], options), chosen), strict=True
        ):
            found[name] = answer["found"]
            for target, spent in answer["seconds"].items():
                seconds[target] += spent
            if not options.json:
                print(f"{name:48} {sum(answer['seconds'].values()):6.1f} s", flush=True)
    made = {
        "tree": tree_digest(), "only": options.only, "targets": options.targets.split(","),
        "tools": versions(), "programs": found,
    }  # fmt: skip
    options.output.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    whole = time.perf_counter() - started
    failed = sum("error" in levels for of in found.values() for levels in of.values())
    summary = {"programs": len(found), "failed": failed, "seconds": round(whole, 1),
               "seconds_by_target": {t: round(s, 1) for t, s in seconds.items()}}  # fmt: skip
    print(json.dumps(summary) if options.json else _said(summary, options.jobs))
    return 0


def _said(summary: dict[str, Any], jobs: int) -> str:
    by_target = ", ".join(f"{t} {s} s" for t, s in summary["seconds_by_target"].items())
    return (
        f"{summary['programs']} programs in {summary['seconds']} s with {jobs} processes;"
        f" {summary['failed']} do not compile for a target\ntime by target: {by_target}"
    )


def tree_digest() -> str:
    """A hash of the compiler's own files."""
    files = sorted(p for p in (tree() / "neptune_mlir").rglob("*") if p.suffix in (".py", ".mlir"))
    return digest("\n".join(f"{p.relative_to(tree())} {digest(p.read_bytes())}" for p in files))


def versions() -> dict[str, str]:
    found = {"cpu": environment().get("NEPTUNE_CPU", platform.processor())}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return found


# ---- compare

def differences(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """Where two records differ: program, target and levels, sorted by target.

    Targets and programs that one of the two did not ask for are left out. A program that the
    second record lacks although it asked for it is a difference ("gone"); one that only the
    second has is "new", which `compare` prints but does not count.
    """
    found = []
    for target, name in asked(before, after):
        old, new = (one["programs"].get(name, {}).get(target) for one in (before, after))
        if old is None or new is None:
            levels = ["new" if old is None else "gone"]
        else:
            levels = [level for level in LEVELS if old.get(level) != new.get(level)]
        if levels:
            found.append({"program": name, "target": target, "levels": levels})
    return found


def asked(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str]]:
    """Each target and program that both records asked for and one has at least."""
    names = [
        name for name in sorted({*before["programs"], *after["programs"]})
        if all(fnmatch.fnmatch(name, one["only"]) for one in (before, after))
    ]  # fmt: skip
    return [(t, name) for t in before["targets"] if t in after["targets"] for name in names]


def compare(options: argparse.Namespace) -> int:
    try:
        before, after = (json.loads(p.read_text()) for p in (options.before, options.after))
        found = differences(before, after)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"golden: error: not two records: {error}", file=sys.stderr)
        return 2
    counted = [d for d in found if d["levels"] != ["new"]]
    if options.json:
        print(json.dumps({"differ": len(counted), "differences": found}))
        return bool(counted)
    for name in sorted({*before["tools"], *after["tools"]}):
        old, new = (one["tools"].get(name) for one in (before, after))
        if old != new:
            print(f"note: {name} {old} made the first record, {new} the second")
    for d in found:
        print(f"{d['target']:8} {d['program']:48} {', '.join(d['levels'])}")
    print(f"{len(counted)} of {len(asked(before, after))} differ")
    return bool(counted)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["compile-one"]:
        return compile_one()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record", help="compile every program and write the hashes")
    one.add_argument("output", type=Path, metavar="OUT.json")
    one.add_argument("--targets", default=",".join(TARGETS), help="default: %(default)s")
    one.add_argument("--only", default="*", metavar="PATTERN", help="programs, such as 'zoo/*'")
    one.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    one.add_argument("--keep", type=Path, metavar="DIR", help="write tile IR, LLVM IR and PTX too")
    one.add_argument("--cache", type=Path, default=golden_tools.default_folder(), metavar="DIR",
                     help="results of tools by content; default: %(default)s")  # fmt: skip
    two = commands.add_parser("compare", help="which programs differ between two records")
    two.add_argument("before", type=Path, metavar="BEFORE.json")
    two.add_argument("after", type=Path, metavar="AFTER.json")
    for command in (one, two):
        command.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(tree()))
    return record(options) if options.command == "record" else compare(options)


if __name__ == "__main__":
    sys.exit(main())
