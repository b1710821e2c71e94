# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune verify`: prove and stress-test the corrections of a program.

Every fusion that rolling update makes is proved (by z3 too, with --z3), then its algebra runs in
float64 and in the program's types on inputs that hurt, with several tile sizes and split counts,
against the definition. Compilation asks the same test and fuses nothing that fails it, so another
length or seed is what this adds. A failing input is written to a file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from neptune_mlir.cli.numbers import at_least, seed
from neptune_mlir.cli.outputs import write
from neptune_mlir.driver.inputs import read_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", help="MLIR (text or bytecode), StableHLO or ONNX; - for stdin")
    parser.add_argument(
        "--length", type=at_least(1), default=24, help="extent of the streamed axis"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the inputs")
    parser.add_argument("--z3", action="store_true", help="decide every obligation with z3 too")
    parser.add_argument("--smt2", metavar="OUT", help="write the obligations as SMT-LIB 2")
    parser.add_argument(
        "--failure", metavar="OUT.npz", default="failing-input.npz",
        help="where a failing input goes (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def execute(options: argparse.Namespace) -> int:
    import numpy as np

    from neptune_mlir.algebra.numerics.stress import stress
    from neptune_mlir.algebra.proofs import smtlib
    from neptune_mlir.driver.compiler import planned_fusions

    source = read_source(options.input)
    report: list[dict[str, Any]] = []
    smt2: list[str] = []
    passed = True
    for fusion in planned_fusions(source.text, source.name):
        solution = fusion.solution
        entry: dict[str, Any] = {
            "reductions": [r.name for r in fusion.chain],
            "obligations": len(solution.obligations),
            "proved": solution.proved,
        }
        if options.z3:
            verdicts = [smtlib.decide(o, solution.facts).status for o in solution.obligations]
            entry["z3"] = {v: verdicts.count(v) for v in sorted(set(verdicts))}
            passed &= "refuted" not in verdicts
        if options.smt2:
            smt2 += [s for o in solution.obligations for s in smtlib.scripts(o, solution.facts)]
        written = fusion.definition
        tested = stress(
            written.chain, solution, fusion.group.stream, outputs=dict(written.outputs),
            fused_outputs=fusion.outputs, nonneg=fusion.nonneg, length=options.length,
            seed=options.seed,
        )  # fmt: skip
        entry |= {
            "runs": tested.runs,
            "worst_ulps": tested.worst,
            "unfused_ulps": max(tested.unfused.values(), default=0.0),
            "ok": tested.ok,
        }
        passed &= tested.ok and solution.proved
        report.append(entry)
        _describe(entry)
        if tested.failure is not None:
            data: Any = {str(k): v for k, v in tested.failure.data.items()}
            np.savez(options.failure, **data)
            print(f"  {tested.failure}\n  the input is in {options.failure}")
    if not report:
        print("nothing fuses, so there is nothing to verify")
    if options.smt2:
        write(Path(options.smt2), "(reset)\n".join(smt2))
    if options.json:
        print(json.dumps({"fusions": report, "ok": passed}))
    return 0 if passed else 1


def _describe(entry: dict[str, Any]) -> None:
    z3 = ", ".join(f"{count} {verdict}" for verdict, count in entry.get("z3", {}).items())
    print(
        f"{', '.join(entry['reductions'])}: {entry['obligations']} obligations "
        f"{'proved' if entry['proved'] else 'NOT proved'}"
        + (f" (z3: {z3})" if z3 else "")
    )
    print(
        f"  {entry['runs']} runs on adversarial inputs, worst {entry['worst_ulps']:.1f} ulp "
        f"(unfused {entry['unfused_ulps']:.1f}): {'ok' if entry['ok'] else 'FAILED'}"
    )
