# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `neptune run --check` does: the errors of the fused and the unfused program against float64.

The rule is that of `algebra/numerics/accuracy.py`. `--check=hostile` applies it to the inputs of
`algebra/numerics/hostile.py` as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.algebra.numerics import hostile as hostile_inputs
from neptune_mlir.algebra.numerics.comparison import Comparison
from neptune_mlir.algebra.numerics.floats import EPSILON
from neptune_mlir.algebra.numerics.programs import Programs
from neptune_mlir.cli.timing import time_text, timed
from neptune_mlir.driver.inputs import hostile_extents, random_inputs
from neptune_mlir.driver.three_ways import judged, plain_values, three_ways
from neptune_mlir.errors import InputError, NeptuneError

Report = dict[str, Any]


def check(
    source: Any, entry: str | None, run: Callable[..., Any], plan: Any, arguments: Sequence[Any],
    report: Report, apart: Callable[[], Callable[..., Any]], *, hostile: bool = False,
    sizes_given: bool = False, seed: int = 0,
) -> bool:  # fmt: skip
    """Judge `run` on these arguments, and with `hostile` on many more; fills the report.

    Args:
        apart: makes the program with nothing fused, for the same target by the same code
            generator: what fusion gains is the time of that one. Numbers are compared with
            upstream's loops, which are plain and slow.
        sizes_given: the shapes of the arguments are what the user wants; else run-time extents
            of hostile inputs are such that they take several tiles.
    """
    from neptune_mlir.driver.compiler import compile_unfused

    unfused = compile_unfused(source.text, source.name, entry)
    values = unfused(*arguments)
    values = list(values) if isinstance(values, tuple) else [values]
    if len(values) != len(plan.results):
        raise InputError("the unfused program gives another number of results")
    programs, exact = three_ways(source, entry, run, unfused, plan)
    plain = [plain_values(a, d) for a, d in zip(arguments, programs.arguments, strict=True)]
    found = judged(programs, plain, exact, seed)
    passed = all(c.ok for c in found)
    _describe(found, report, exact)
    _compare_times(apart, arguments, report)
    if hostile:
        if not sizes_given:
            known, size = hostile_extents(plan)
            given = random_inputs(plan, size, seed, known)
            plain = [plain_values(a, d) for a, d in zip(given, programs.arguments, strict=True)]
        passed &= _hostile(programs, plan, plain, exact, report, seed)
    if not passed:
        print("the check failed", file=sys.stderr)
    return passed


def _worst(found: Sequence[Comparison]) -> Comparison:
    """The result to speak of: one that fails, or the one nearest to it."""
    return max(found, key=lambda c: (not c.ok, c.strangers, c.fused / max(c.bound, 1e-30)))


def _entry(found: Sequence[Comparison]) -> Report:
    """What a report says of one set of inputs."""
    worst = _worst(found)
    return {
        "fused_ulps": worst.fused, "unfused_ulps": worst.unfused, "bound_ulps": worst.bound,
        "strangers": sum(c.strangers for c in found), "runs": max(c.runs for c in found),
        "why": worst.example if worst.strangers else "",
        "ok": all(c.ok for c in found),
    }  # fmt: skip


def _describe(found: Sequence[Comparison], report: Report, exact: str) -> None:
    entry = _entry(found)
    floats = [c for c in found if c.dtype in EPSILON]
    entry["fused_relative"] = max((c.frobenius_fused for c in floats), default=0.0)
    entry["unfused_relative"] = max((c.frobenius_unfused for c in floats), default=0.0)
    report["check"] = entry
    report["max_abs"] = max((c.difference for c in floats), default=0.0)
    report["max_rel"] = entry["fused_relative"]
    verdict = "ok" if entry["ok"] else "FAILED"
    if exact:
        print(f"no float64 reference: {exact}")
    print(
        f"error against {'the unfused program' if exact else 'float64'}, in ulps of the row: fused "
        f"{entry['fused_ulps']:.2g}, unfused {entry['unfused_ulps']:.2g}, at most "
        f"{entry['bound_ulps']:.2g}: {verdict}"
    )
    print(
        f"  relative (Frobenius): fused {entry['fused_relative']:.1e}, unfused "
        f"{entry['unfused_relative']:.1e}; they differ by at most {report['max_abs']:.1e}"
    )
    if entry["why"]:
        print(f"  {entry['strangers']} elements are of another kind: {entry['why']}")
    overflows = sum(c.overflows for c in found)
    if overflows:
        print(f"  {overflows} elements leave the range of their type in the unfused program")


def _compare_times(
    apart: Callable[[], Callable[..., Any]], arguments: Sequence[Any], report: Report
) -> None:
    """Say how long the kernels take that fuse nothing; `unfused_s` in the report."""
    try:
        _, seconds = timed(apart(), arguments, 3)
    except NeptuneError as error:
        print(f"nothing to compare its time with: unfused, {error}")
        return
    report["unfused_s"] = seconds
    ratio = seconds / report["run_s"]
    print(
        f"the same kernels, not fused, run in {time_text(seconds)}: "
        f"the fused ones are {ratio:.2f}x as fast"
    )


def _hostile(
    programs: Programs, plan: Any, values: Sequence[Any], exact: str, report: Report, seed: int
) -> bool:
    """Judge all hostile cases and print them as a table."""
    started = time.perf_counter()
    names = [a.name or f"argument {k}" for k, a in enumerate(plan.arguments)]
    rows = []
    for case in hostile_inputs.cases(values, programs.arguments, names, programs.roles, seed):
        found = judged(programs, case.arguments, exact, seed)
        rows.append({"case": case.name, **_entry(found)})
    report["hostile"] = rows
    width = max(len(r["case"]) for r in rows)
    print(f"\n{'hostile inputs':{width}}  {'fused':>8} {'unfused':>8}   (ulps of the row)")
    for r in rows:
        why = r["why"] or f"at most {r['bound_ulps']:.2g}"
        verdict = "ok" if r["ok"] else f"FAILED {why}"
        line = f"{r['case']:{width}}  {r['fused_ulps']:8.2g} {r['unfused_ulps']:8.2g}   {verdict}"
        print(line)
    failed = sum(not r["ok"] for r in rows)
    print(f"{len(rows)} cases, {failed} failed, {time_text(time.perf_counter() - started)}")
    return not failed
