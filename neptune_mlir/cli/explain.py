# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune explain`: the fused loop nest as pseudo-code, with every correction."""

from __future__ import annotations

import argparse
from pathlib import Path

from neptune_mlir.cli.schedule_options import add_schedule_arguments, knobs_of
from neptune_mlir.driver.inputs import read_source
from neptune_mlir.transforms.schedule import library


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", help="MLIR (text or bytecode), StableHLO or ONNX; - for stdin")
    add_schedule_arguments(parser)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--grad", action="store_true", help="its gradient, and how it was derived")
    parser.add_argument("--html", metavar="OUT", help="write one self-contained page instead")


def execute(options: argparse.Namespace) -> int:
    from neptune_mlir.driver import explain
    from neptune_mlir.driver.compiler import lower_text

    source = read_source(options.input)
    if options.grad:
        from neptune_mlir.driver.kernel import Source
        from neptune_mlir.frontend.gradient import grad

        source = Source(Source.of(grad(source)).text, source.name)
    module, facts = lower_text(
        source.text, source.name, options.target, options.schedule, "fused",
        library.knob_text(knobs_of(options)),
    )  # fmt: skip
    derivation = explain.derivations(module)
    if options.html:
        page = explain.explain_html(
            module,
            source.text,
            f"{Path(source.name).name}, fused",
            [*facts["remarks"], *derivation],
        )
        Path(options.html).write_text(page)
        return 0
    print(explain.explain(module, source.text))
    print(f"\nschedule: {facts['schedule']}")
    print(*facts["remarks"], sep="\n")
    for line in derivation:
        print(line)
    return 0
