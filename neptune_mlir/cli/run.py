# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune run`: compile a program, run it, and with --check compare it with the unfused one."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neptune_mlir.cli.inputs import load_inputs, random_inputs, read_source, to_float64
from neptune_mlir.errors import InputError, ToolError, UsageError
from neptune_mlir.runtime.libraries import array_of, tensor_over

# The largest accepted Frobenius error relative to the unfused result, by element type: a few
# units in the last place, times what summing in another order costs.
TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", help="an .mlir file, or - for stdin")
    parser.add_argument("--target", default="auto", help="cpu, auto, ...")
    parser.add_argument("--entry", help="the function, where the program has several")
    parser.add_argument("--schedule", help="a schedule script, or a shipped one by name")
    parser.add_argument(
        "--inputs", metavar="IN.npz", help="arg0, arg1, ...; default: seeded random"
    )
    parser.add_argument("--outputs", metavar="OUT.npz", help="write ret0, ret1, ...")
    parser.add_argument(
        "--size", type=int, default=64, help="run-time extents ('?') of random inputs"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare with the unfused program; exit 1 past the tolerance",
    )
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="timed runs (median)")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def execute(options: argparse.Namespace) -> int:
    from neptune_mlir.kernel import compile

    if options.repeat < 1 or options.size < 0:
        raise UsageError("--repeat takes 1 or more, --size 0 or more")
    source = read_source(options.input)
    target = "cpu" if options.target == "auto" else options.target
    started = time.perf_counter()
    kernel = compile(source, target, options.schedule, entry=options.entry)
    compile_s = time.perf_counter() - started
    plan = kernel.bundle.plan
    if options.inputs:
        arguments = load_inputs(options.inputs, plan.arguments)
    else:
        arguments = random_inputs(plan, options.size, options.seed)
    run = kernel if target == "cpu" else on_gpu(kernel)
    results, run_s = timed(run, arguments, options.repeat)
    dtypes = [result_dtype(plan, k) for k in range(len(results))]
    report: dict[str, Any] = {
        "target": target,
        "nests": kernel.facts["nests"],
        "kernels": len(plan.launches),
        "corrections": kernel.facts["corrections"],
        "schedule": kernel.facts["schedule"],
        "cached": kernel.cached,
        "compile_s": compile_s,
        "run_s": run_s,
    }
    describe(kernel, report)
    if options.outputs:
        arrays: Any = {f"ret{k}": _storable(r, dtypes[k]) for k, r in enumerate(results)}
        np.savez(options.outputs, **arrays)
    passed = True
    if options.check:
        passed = check(source, options.entry, arguments, results, dtypes, report)
    if options.json:
        print(json.dumps(report))
    return 0 if passed else 1


def on_gpu(kernel: Any) -> Callable[..., Any]:
    """The kernel as a function of host arrays: torch carries them to the GPU and back."""
    try:
        import torch
    except ImportError:
        hint = "pip install 'neptune-mlir[torch]'"
        raise ToolError("running on a GPU takes torch to move arrays", hint=hint) from None
    if not torch.cuda.is_available():
        raise ToolError("there is no usable GPU here", hint="neptune compile needs none")
    dtypes = [argument.dtype for argument in kernel.bundle.plan.arguments]
    resident: dict[int, Any] = {}  # an argument is moved once, so that timing sees the kernel

    def place(value: Any, dtype: str) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if id(value) not in resident:
            resident[id(value)] = tensor_over(np.ascontiguousarray(value), dtype).cuda()
        return resident[id(value)]

    def run(*arguments: Any) -> Any:
        value = kernel(*map(place, arguments, dtypes))
        torch.cuda.synchronize()
        values = value if isinstance(value, tuple) else (value,)
        return tuple(array_of(v.cpu()) if hasattr(v, "cpu") else v for v in values)

    return run


def _storable(result: Any, dtype: str) -> Any:
    """The array as an npz file can hold it: bf16 as its bits, which every program takes again."""
    array = np.asarray(result)
    return array.view(np.uint16) if dtype == "bf16" else array


def timed(
    function: Callable[..., Any], arguments: Sequence[Any], repeat: int
) -> tuple[list[Any], float]:
    """The results as a list, and the median time of `repeat` calls after a first one."""
    value = function(*arguments)
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - started)
    return list(value) if isinstance(value, tuple) else [value], statistics.median(times)


def result_dtype(plan: Any, k: int) -> str:
    """The MLIR element type of result `k` of a launch plan."""
    kind, number = plan.results[k]
    return (plan.buffers if kind == "buffer" else plan.arguments)[number].dtype


def describe(kernel: Any, report: dict[str, Any]) -> None:
    """What was compiled into what, and how long it took."""
    one = report["kernels"] == 1
    print(
        f"{report['nests']} nests -> {report['kernels']} kernel{'' if one else 's'} on "
        f"{report['target']} ({report['corrections']} corrections, schedule '{report['schedule']}')"
    )
    for remark in kernel.facts.get("remarks", ()):
        print(f"  {remark}")
    origin = "from the cache" if report["cached"] else "compiled"
    print(f"{origin} in {report['compile_s']:.2f} s, runs in {_time_text(report['run_s'])}")


def _time_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def check(
    source: Any, entry: str | None, arguments: Sequence[Any], results: Sequence[Any],
    dtypes: Sequence[str], report: dict[str, Any],
) -> bool:  # fmt: skip
    """Compare with the unfused program; fills the report and says whether it is close enough."""
    from neptune_mlir.compiler import compile_unfused

    unfused = compile_unfused(source.text, source.name, entry)
    wanted, unfused_s = timed(unfused, arguments, 1)
    if len(wanted) != len(results):
        raise InputError("the unfused program gives another number of results")
    report |= {"unfused_s": unfused_s, "max_abs": 0.0, "max_rel": 0.0, "tolerance": 0.0}
    passed, undefined = True, 0
    for got, reference, dtype in zip(results, wanted, dtypes, strict=True):
        error = Error.between(to_float64(got, dtype), to_float64(reference, dtype))
        tolerance = TOLERANCE.get(dtype, 0.0)
        passed &= error.relative <= tolerance
        undefined += error.undefined
        report["max_abs"] = max(report["max_abs"], error.absolute)
        report["max_rel"] = max(report["max_rel"], error.relative)
        report["tolerance"] = max(report["tolerance"], tolerance)
    print(
        f"against the unfused program: worst absolute error {report['max_abs']:.2e}, relative "
        f"(Frobenius) {report['max_rel']:.2e}, tolerance {report['tolerance']:.0e}: "
        f"{'ok' if passed else 'FAILED'}"
    )
    if undefined:
        print(f"  {undefined} elements are NaN in the unfused program and were not compared")
    ratio = unfused_s / report["run_s"]
    print(f"unfused runs in {_time_text(unfused_s)}: the fused one is {ratio:.2f}x as fast")
    if not passed:
        print("the check failed", file=sys.stderr)
    return passed


class Error:
    """How far a result is from its reference.

    Attributes:
        absolute: the largest difference of an element.
        relative: Frobenius norm of the difference over that of the reference; infinite where
            only the result is NaN or one is infinite and the other not.
        undefined: elements that are NaN in the reference, which nothing can be compared with
            (a row whose every key is masked: 0/0 unfused, 0 fused).
    """

    def __init__(self, absolute: float, relative: float, undefined: int):
        self.absolute, self.relative, self.undefined = absolute, relative, undefined

    @classmethod
    def between(cls, got: Any, wanted: Any) -> Error:
        if got.shape != wanted.shape:
            return cls(float("inf"), float("inf"), 0)
        undefined = np.isnan(wanted)
        infinite = np.isinf(wanted) & (got == wanted)
        rest = ~(undefined | infinite)
        difference = np.abs(got[rest] - wanted[rest])
        if not difference.size:
            return cls(0.0, 0.0, int(undefined.sum()))
        if not np.isfinite(difference).all():
            return cls(float("inf"), float("inf"), int(undefined.sum()))
        scale = float(np.linalg.norm(wanted[rest]))
        norm = float(np.linalg.norm(difference))
        relative = norm / scale if scale else norm
        return cls(float(difference.max()), relative, int(undefined.sum()))
