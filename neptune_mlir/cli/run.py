# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune run`: compile a program, run it, and with --check (`cli/check.py`) judge its numbers."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neptune_mlir.cli.numbers import seed
from neptune_mlir.cli.schedule_options import add_schedule_arguments, knobs_of
from neptune_mlir.cli.timing import time_text, timed
from neptune_mlir.driver.inputs import load_inputs, random_inputs, read_source, result_dtype
from neptune_mlir.errors import ToolError, UsageError
from neptune_mlir.runtime.libraries import array_of, tensor_over

PLAIN, HOSTILE = "plain", "hostile"  # inputs of --check


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", help="MLIR (text or bytecode), StableHLO or ONNX; - for stdin")
    parser.add_argument("--target", default="auto", help="cpu, auto, ...")
    parser.add_argument("--entry", help="the function, where the program has several")
    add_schedule_arguments(parser)
    parser.add_argument(
        "--inputs", metavar="IN.npz", help="arg0, arg1, ...; default: seeded random"
    )
    parser.add_argument("--outputs", metavar="OUT.npz", help="write ret0, ret1, ...")
    parser.add_argument(
        "--size", type=int, default=64, help="run-time extents ('?') of random inputs"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the random inputs")
    parser.add_argument(
        "--check",
        nargs="?",
        metavar="hostile",
        const=PLAIN,
        choices=(PLAIN, HOSTILE),
        help="measure the error beside the unfused program's, both against float64; exit 1 where "
        "it is larger; --check=hostile: on many inputs that hurt as well",
    )
    parser.add_argument(
        "--check-bounds", action="store_true",
        help="before it runs: are all positions that it takes from tables inside of tensors?",
    )  # fmt: skip
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="timed runs (median)")
    parser.add_argument(
        "--figures", action="store_true",
        help="of each kernel on the CPU: time, GFLOP/s, GB/s and share of the machine's roofline",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def complete(arguments: Sequence[str]) -> list[str]:
    """`--check` alone takes no value, so that a file may follow it."""
    return [f"--check={PLAIN}" if a == "--check" else a for a in arguments]


def execute(options: argparse.Namespace) -> int:
    from neptune_mlir.driver.kernel import compile

    if options.repeat < 1 or options.size < 0:
        raise UsageError("--repeat takes 1 or more, --size 0 or more")
    source = read_source(options.input)
    target = "cpu" if options.target == "auto" else options.target
    started = time.perf_counter()
    kernel = compile(source, target, options.schedule, entry=options.entry, knobs=knobs_of(options))
    compile_s = time.perf_counter() - started
    plan = kernel.plan
    if options.inputs:
        arguments = load_inputs(options.inputs, plan.arguments)
    else:
        arguments = random_inputs(plan, options.size, options.seed)
    if options.check_bounds:
        _check_bounds(kernel, arguments)
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
    if options.figures:
        if target != "cpu":
            raise UsageError("--figures are of CPUs", hint="for GPUs: neptune bench run")
        from neptune_mlir.cli import figures
        from neptune_mlir.transforms.schedule import library

        text = library.knob_text(knobs_of(options))
        report["figures"] = figures.measure(kernel, source, text, arguments)
        figures.describe(report["figures"])
    if options.outputs:
        arrays: Any = {f"ret{k}": _storable(r, dtypes[k]) for k, r in enumerate(results)}
        _save(options.outputs, arrays)
    passed = True
    if options.check:
        from neptune_mlir.cli.check import check

        given = bool(options.inputs)
        passed = check(
            source, options.entry, run, plan, arguments, report,
            lambda: _unfused(source, target, options.entry),
            hostile=options.check == HOSTILE, sizes_given=given, seed=options.seed,
        )  # fmt: skip
    if options.json:
        print(json.dumps(report))
    return 0 if passed else 1


def _unfused(source: Any, target: str, entry: str | None) -> Callable[..., Any]:
    """The program by the schedule that fuses nothing, as a function of host arrays."""
    from neptune_mlir.driver.kernel import compile

    kernel = compile(source, target, "unfused", entry=entry)
    return kernel if target == "cpu" else on_gpu(kernel)


def _check_bounds(kernel: Any, arguments: Sequence[Any]) -> None:
    """Raises ArgumentError for a position outside of a tensor."""
    from neptune_mlir.driver.bounds import checked

    debug = checked(kernel)
    if debug.checker is not None:
        checker = debug.checker if kernel.target == "cpu" else on_gpu(debug.checker)
        debug.judge(checker(*arguments))
    print(f"{debug.checks} positions that are looked up stay inside")


def on_gpu(kernel: Any) -> Callable[..., Any]:
    """The kernel as a function of host arrays: torch carries them to the GPU and back.

    Raises:
        ToolError: there is no GPU for it, or no torch that can use the GPU.
    """
    torch = _torch_for(kernel)
    dtypes = [argument.dtype for argument in kernel.plan.arguments]
    # by position: an argument that stays is moved once, so that timing sees the kernel
    resident: dict[int, tuple[Any, Any]] = {}

    def place(k: int, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if k not in resident or resident[k][0] is not value:
            moved = tensor_over(np.ascontiguousarray(value), dtypes[k]).cuda()
            resident[k] = (value, moved)
        return resident[k][1]

    def run(*arguments: Any) -> Any:
        value = kernel(*[place(k, a) for k, a in enumerate(arguments)])
        torch.cuda.synchronize()
        values = value if isinstance(value, tuple) else (value,)
        return tuple(array_of(v.cpu()) if hasattr(v, "cpu") else v for v in values)

    return run


def _torch_for(kernel: Any) -> Any:
    """The module `torch`, if it can use the GPU that runs a kernel. Raises ToolError."""
    from neptune_mlir.runtime.drivers.makers import driver_for

    where = f"--target {kernel.target}"
    try:
        import torch  # before the driver: where torch brings its own HIP runtime, that one is used
    except ImportError:
        hint = "pip install 'neptune-mlir[torch]'"
        message = "running on a GPU takes torch to move arrays"
        raise ToolError(message, loc=where, hint=hint) from None
    try:
        maker = driver_for([image["target"] for image in kernel.facts["images"]]).maker
    except ToolError as error:
        hint = f"{error.hint}; " if error.hint else ""
        raise ToolError(error.message, loc=where, hint=f"{hint}neptune doctor says more") from None
    if not torch.cuda.is_available() or bool(torch.version.hip) != (maker.name == "AMD"):
        raise ToolError(
            f"torch {torch.__version__} was not built for {maker.name} GPUs, or finds none",
            loc=where, hint=f"install torch for {'ROCm' if maker.name == 'AMD' else 'CUDA'}",
        )  # fmt: skip
    return torch


def _save(path: str, arrays: Any) -> None:
    """Write an npz file. Raises UsageError."""
    if os.path.isdir(path):
        raise UsageError(f"cannot write '{path}': it is a folder")
    try:
        np.savez(path, **arrays)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}") from None


def _storable(result: Any, dtype: str) -> Any:
    """The array as an npz file can hold it: bf16 as its bits, which every program takes again."""
    array = np.asarray(result)
    return array.view(np.uint16) if dtype == "bf16" else array


def describe(kernel: Any, report: dict[str, Any]) -> None:
    """What was compiled into what, and how long it took."""
    from neptune_mlir.targets.findings import ProgramFinding

    one = report["kernels"] == 1
    print(
        f"{report['nests']} nests -> {report['kernels']} kernel{'' if one else 's'} on "
        f"{report['target']} ({report['corrections']} corrections, schedule '{report['schedule']}')"
    )
    for entry in kernel.facts.get("provenance", {}).get("tuned", ()):
        if "program" in entry:
            print(f"  knobs that a search found: {ProgramFinding.from_json(entry)}")
    for remark in kernel.facts.get("remarks", ()):
        print(f"  {remark}")
    origin = "from the cache" if report["cached"] else "compiled"
    print(f"{origin} in {report['compile_s']:.2f} s, runs in {time_text(report['run_s'])}")
