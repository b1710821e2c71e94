#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts of the inner loops of AMD kernels, as a table in Markdown, from assembly alone.

    tools/amd_loops.py [--chips gfx942,gfx950] [--operators NAME ...] [--knob interleave=0]

Columns: kernel; registers and scratch bytes of a thread; of the shortest way through the inner
loop, instructions of a wave on matrix units, other vector instructions, transcendental functions,
accesses to shared and to global memory; cycles of a matrix unit and of the vector unit; cycles of
a wave that is alone (the model of `codegen/amd/loops.py`), and the longest way's.
"""

from __future__ import annotations

import argparse
import re

from neptune_mlir import ops
from neptune_mlir.codegen.amd.loops import GLOBAL, MATRIX, SHARED, SLOW, VECTOR, Loop, inner_loops
from neptune_mlir.driver.compiler import emit_text
from neptune_mlir.driver.kernel import Source
from neptune_mlir.targets.amd import TARGETS, amd

HEADER = (
    "| kernel | registers | scratch | matrix | vector | exp | shared | global | matrix cycles "
    "| vector cycles | alone | alone, longest |"
)


def row(assembly: str, loop: Loop) -> str:
    """One line of the table."""
    notes = assembly[assembly.index(f".name:           {loop.kernel}\n") :]
    registers, scratch = (
        re.findall(rf"\.{name}:\s+(\d+)", notes)[0]
        for name in ("vgpr_count", "private_segment_fixed_size")
    )
    usual = loop.shortest
    counts = [usual.counts[kind] for kind in (MATRIX, VECTOR, SLOW, SHARED, GLOBAL)]
    cycles = [usual.busy[MATRIX], usual.issue, usual.alone, loop.longest.alone]
    cells = [loop.kernel, registers, scratch, *counts, *(f"{c:.0f}" for c in cycles)]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chips", default=",".join(TARGETS))
    parser.add_argument("--operators", nargs="*", default=list(ops.OPERATORS))
    parser.add_argument("--knob", action="append", default=[])
    options = parser.parse_args()
    knobs = ";".join(k.replace("=", ":") for k in options.knob)
    for chip in options.chips.split(","):
        print(f"\n{chip}\n\n{HEADER}\n|{'---|' * (HEADER.count('|') - 1)}", flush=True)
        for name in options.operators:
            text = Source.of(ops.operator(name)).text
            assembly, _ = emit_text(text, name, chip, None, None, "asm", knobs)
            for loop in inner_loops(assembly, amd(chip)):
                print(row(assembly, loop), flush=True)


if __name__ == "__main__":
    main()
