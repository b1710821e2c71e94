# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The process that makes an image (`image_child` asks for it)."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import sys
from collections.abc import Sequence

from neptune_mlir.codegen import llvm_child
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.dialects.context import make_context, parse
from neptune_mlir.errors import OutOfMemory, Refused, ToolError
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines import nvvm
from neptune_mlir.targets.chips import TARGETS
from neptune_mlir.targets.nvidia import NvidiaTarget
from neptune_mlir.transforms import registry


def prepare() -> None:
    """Import what a fork needs, and what is looked for only once."""
    llvm_child.prepare()
    chips = [chip for chip in TARGETS.values() if isinstance(chip, NvidiaTarget)]
    steps = [step.name for chip in chips for step in nvvm.steps_of(None, chip.name)]
    for name in filter(registry.is_loaded, dict.fromkeys(steps)):
        registry.lookup(name)
    bindings.module("dialects.llvm")
    make_context()
    with contextlib.suppress(ToolError):  # a fork says so
        ptxas.version()


def main(arguments: Sequence[str]) -> int:
    """An image of the tile program on standard input, or who refuses it, on standard output."""
    gc.disable()  # the process ends soon
    name, chip, entry, source = arguments
    pipeline = importlib.import_module(name)
    with bindings.source_name(source), llvm_child.here():
        module = parse(sys.stdin.read(), source=source)
        try:
            begun = pipeline.begin_tiles(module, target=chip, entry=entry or None, facts={})
            made = begun.finish().to_bytes()
        except (OutOfMemory, Refused) as error:
            said = type(error).__name__, error.message, error.loc, error.hint
            made = json.dumps(said).encode()
    sys.stdout.buffer.write(made)
    return 0
