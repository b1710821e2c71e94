# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune compile`: a program for a target, whole (a bundle) or at one of its levels."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from neptune_mlir.algebra.rules import MODES
from neptune_mlir.cli.outputs import write
from neptune_mlir.cli.schedule_options import add_schedule_arguments, knobs_of
from neptune_mlir.driver.foreign import to_bytecode
from neptune_mlir.driver.inputs import read_source
from neptune_mlir.errors import UsageError
from neptune_mlir.targets.gpu import PRECISIONS
from neptune_mlir.transforms.schedule import library

LEVELS = (
    "neptune", "fused", "tile", "target", "ttir", "ttgir", "llvm", "ptx", "sass", "asm", "amdgcn",
    "bundle",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", help="MLIR (text or bytecode), StableHLO or ONNX; - for stdin")
    parser.add_argument(
        "--target", default="cpu", help="cpu, sm_90a, gfx942, ...; or several: sm_80,sm_90a"
    )
    parser.add_argument(
        "--emit", choices=LEVELS, default="bundle",
        help=f"one of: {', '.join(LEVELS)}",
    )  # fmt: skip
    parser.add_argument(
        "--stop-after", metavar="PASS", help="print the module after a pass, whatever its level"
    )
    add_schedule_arguments(parser)
    parser.add_argument("--entry", help="the function, where the program has several")
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="what operands of f32 products may be rounded to"
    )
    parser.add_argument(
        "--numerics", choices=MODES, help="which fused forms are accurate enough (default: default)"
    )
    parser.add_argument(
        "--tuning", metavar="TABLE",
        help="a table of 'neptune tune', not the user's; none: the shipped one alone",
    )  # fmt: skip
    parser.add_argument(
        "-o", dest="output", metavar="OUT",
        help="default: IN.bundle for a bundle, else stdout; MLIR bytecode to OUT.mlirbc",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def execute(options: argparse.Namespace) -> int:
    from neptune_mlir.targets import tuned

    with tuned.using(options.tuning):
        return _compile(options)


def _compile(options: argparse.Namespace) -> int:
    from neptune_mlir.driver import compiler
    from neptune_mlir.driver.kernel import Source, compile

    source = read_source(options.input)
    knobs = knobs_of(options)
    if options.precision or options.numerics:
        text = compiler.with_options(
            source.text, source.name, precision=options.precision, numerics=options.numerics
        )
        source = Source(text, source.name)
    if options.stop_after:
        text = compiler.text_after(
            source.text, source.name, options.target, options.schedule, options.entry,
            options.stop_after, library.knob_text(knobs),
        )  # fmt: skip
        return _write(options, options.output, _line(text))
    if options.emit != "bundle":
        text, remarks = compiler.emit_text(
            source.text, source.name, options.target, options.schedule, options.entry,
            options.emit, knobs=library.knob_text(knobs),
        )  # fmt: skip
        print(*remarks, sep="\n", file=sys.stderr)
        if str(options.output).endswith(".mlirbc"):
            if options.emit not in compiler.COMMON_LEVELS:
                levels = ", ".join(compiler.COMMON_LEVELS)
                raise UsageError(f"--emit {options.emit} has no bytecode", hint=f"one of {levels}")
            return _write(options, options.output, to_bytecode(text), remarks=list(remarks))
        return _write(options, options.output, _line(text), remarks=list(remarks))
    kernel = compile(
        source, options.target, options.schedule, entry=options.entry, knobs=knobs,
        on_demand=False,
    )  # fmt: skip
    remarks = list(kernel.facts.get("remarks", ()))
    print(*remarks, sep="\n", file=sys.stderr)
    default = "program.bundle" if options.input == "-" else f"{Path(options.input).stem}.bundle"
    return _write(
        options, options.output or default, kernel.bundle.to_bytes(), remarks=remarks,
        kernels=len(kernel.plan.launches), schedule=kernel.facts["schedule"], cached=kernel.cached,
    )  # fmt: skip


def _line(text: str) -> bytes:
    return text.rstrip("\n").encode() + b"\n"


def _write(options: argparse.Namespace, path: str | None, data: bytes, **said: Any) -> int:
    """The output, and with --json an object about it: text for standard output is in the object."""
    shown = path in (None, "-")
    if options.json and shown and options.emit == "bundle" and not options.stop_after:
        raise UsageError("a bundle on standard output leaves no line for --json", hint="-o OUT")
    if not shown:
        write(Path(str(path)), data)
    elif not options.json:
        sys.stdout.buffer.write(data)
    if options.json:
        made = {"text": data.decode()} if shown else {"output": path}
        print(json.dumps({"target": options.target, **made, **said}))
    return 0
