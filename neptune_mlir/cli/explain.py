# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune explain`: the fused loop nest as pseudo-code, with every correction; with `--target`
also the chip's bound, the path that calls take, and the fast paths that they miss and why."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from neptune_mlir.cli.outputs import write
from neptune_mlir.cli.schedule_options import add_schedule_arguments, knobs_of
from neptune_mlir.driver.inputs import read_source
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.transforms.schedule import library


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", help="MLIR (text or bytecode), StableHLO or ONNX; - for stdin")
    add_schedule_arguments(parser)
    parser.add_argument(
        "--target", help="cpu, sm_90a, gfx942, ...: compile, and say how fast it can be and why not"
    )
    parser.add_argument("--grad", action="store_true", help="its gradient, and how it was derived")
    parser.add_argument(
        "--html", metavar="OUT", help="write one self-contained page with figures instead"
    )
    parser.add_argument(
        "--size", metavar="N,NAME.DIM=N", help="run-time extents that bounds and figures assume"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument(
        "--profile", metavar="JSON", help="of `neptune bench run --profile`: warps over time"
    )


def execute(options: argparse.Namespace) -> int:
    from neptune_mlir.driver import explain
    from neptune_mlir.driver.compiler import lower_text

    if not options.html and options.profile:
        raise UsageError("--profile is for a page", hint="add --html OUT")
    if options.size and not (options.html or options.target):
        raise UsageError("--size is for bounds and figures", hint="add --target T or --html OUT")
    target = options.target or "cpu"
    source = read_source(options.input)
    if options.grad:
        from neptune_mlir.driver.kernel import Source
        from neptune_mlir.frontend.gradient import grad

        source = Source(Source.of(grad(source)).text, source.name)

    def lowered(level: str) -> Any:
        return lower_text(
            source.text, source.name, target, options.schedule, level,
            library.knob_text(knobs_of(options)),
        )  # fmt: skip

    module, facts = lowered("fused")
    if options.html:
        from neptune_mlir.driver.page.page import Request, page
        from neptune_mlir.driver.page.sizes import parse_sizes

        every, given = parse_sizes(options.size)
        request = Request(
            lowered("neptune")[0], module, source.text, Path(source.name).name, target,
            Path(facts["schedule"]).name, facts["remarks"], every, given,
            _profile(options.profile),
        )  # fmt: skip
        write(Path(options.html), page(request))
        if options.json:
            print(json.dumps({"html": options.html, "remarks": list(facts["remarks"])}))
        return 0
    knobs = facts["provenance"]["schedule"]["knobs"].replace(":", " ").replace(";", ", ")
    report: dict[str, Any] = {
        "text": explain.explain(module, source.text),
        "schedule": f"{facts['schedule']}{f' with {knobs}' if knobs else ''}",
        "remarks": list(facts["remarks"]),
        "derivations": list(explain.derivations(module)),
    }
    if not options.json:
        print(f"{report['text']}\n\nschedule: {report['schedule']}")
        print(*report["remarks"], sep="\n")
        print(*report["derivations"], sep="\n", end="\n" if report["derivations"] else "")
    speed = _speed(source, module, options) if options.target else []
    if options.json:
        print(json.dumps(report | {"speed": speed}))
    elif speed:
        print(*speed, sep="\n")
    return 0


def _speed(source: Any, module: Any, options: argparse.Namespace) -> list[str]:
    """The bound, the paths of the compiled program and what it misses."""
    from neptune_mlir.driver.bound import bounds
    from neptune_mlir.driver.compiler import compile_text
    from neptune_mlir.driver.page.sizes import parse_sizes
    from neptune_mlir.runtime.paths import paths

    knobs = library.knob_text(knobs_of(options))
    bundle = compile_text(
        source.text, source.name, options.target, options.schedule, None, knobs=knobs
    )
    return ["", *bounds(module, source.text, options.target, *parse_sizes(options.size)),
            *paths(bundle)]  # fmt: skip


def _profile(path: str | None) -> list[dict[str, Any]]:
    """The rows of a profile. Raises InputError."""
    if path is None:
        return []
    try:
        rows = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read '{path}': {reason}") from None
    if not isinstance(rows, list) or not all("roles" in row for row in rows):
        hint = "write one with `neptune bench run DIR --profile --json FILE`"
        raise InputError(f"'{path}' holds no profile", hint=hint)
    return rows
