#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check and time programs compiled by way of Triton beside the project's own lowering, on a GPU.

    python tools/gpu_check_triton.py build DIR [--chip sm_90a] [--dtype f16,bf16] [--only PART]
    python tools/gpu_check_triton.py run DIR [-o results.json]     on a GPU

`build` runs anywhere and needs the compiler and triton: the paper's ten operators and the zoo,
each twice. `run` needs torch and this package's runtime, no MLIR and no triton: one process with
a time-out for each program, both kernels in it, outputs poisoned with NaN, lengths ragged too,
float64 as the reference, times as medians of events with the L2 flushed, in turns.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

HEAD = 128
PREFILL = [(256, 256), (300, 300), (77, 333), (1024, 1024)]  # lengths of queries and keys
DECODE = [(1, 256), (1, 513), (1, 1), (1, 4099), (1, 32768)]
TIMED = {"prefill": [1024, 4096, 16384], "decode": [1024, 8192, 32768]}
TOLERANCE = {"f16": 2e-3, "bf16": 1.2e-2, "f32": 1e-5}


PATHS = ("native", "triton")  # the project's own lowering, and that by way of Triton


def build(folder: Path, chip: str, dtypes: str, only: str) -> int:
    from neptune_mlir import ops
    from neptune_mlir.zoo import ZOO

    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for dtype in dtypes.split(","):
        for name, settings in ops.OPERATORS.items():
            if only in f"{name}-{dtype}":
                spec = {"operator": name, "dtype": dtype, **settings}
                program = ops.operator(name, dtype=dtype)
                failed += build_both(folder, f"{name}-{dtype}", program, chip, spec)
    for example in ZOO:
        if only in f"zoo-{example.name}":
            failed += build_zoo(folder, example, chip)
    return 1 if failed else 0


def build_both(folder: Path, stem: str, program: Any, chip: str, spec: dict[str, Any]) -> int:
    """Write the bundles of a program, one for each path; how many could not be built."""
    from neptune_mlir.driver.compiler import compile_text
    from neptune_mlir.errors import NeptuneError

    failed = 0
    for path in PATHS:
        started = time.perf_counter()
        target = chip if path == "native" else f"triton:{chip}"
        try:
            bundle = compile_text(program.to_mlir(), stem, target, None, None)
        except NeptuneError as error:
            failed += 1
            print(f"{stem:36} {path}: {error}")
            continue
        bundle.facts["check"] = spec
        (folder / f"{stem}.{path}.bundle").write_bytes(bundle.to_bytes())
        print(f"{stem:36} {path} {time.perf_counter() - started:.1f} s", flush=True)
    return failed


def build_zoo(folder: Path, example: Any, chip: str) -> int:
    """An example with inputs and what the definition makes of them in float64."""
    import numpy as np

    program = example.build()
    arrays = example.inputs(np.random.default_rng(0))
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    want = program.reference(*wide)
    want = want if isinstance(want, tuple) else (want,)
    saved = {f"in{k}": a for k, a in enumerate(arrays)}
    saved |= {f"out{k}": np.asarray(a) for k, a in enumerate(want)}
    stem = f"zoo-{example.name}"
    np.savez_compressed(folder / f"{stem}.npz", **saved)
    return build_both(folder, stem, program, chip, {"zoo": example.name, "dtype": "f32"})


def reference(spec: Any, q: Any, k: Any, v: Any, slope: Any) -> Any:
    """The operator in float64, a few heads at a time."""
    import torch

    queries, keys = q.shape[2], k.shape[2]
    group = q.shape[1] // k.shape[1]
    position = torch.arange(queries, device=q.device)[:, None] + (keys - queries)
    key = torch.arange(keys, device=q.device)[None, :]
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device=q.device)
    if spec.get("causal"):
        hidden |= key > position
    if spec.get("window"):
        hidden |= position - key >= spec["window"]
    rows = []
    for h in range(q.shape[1]):
        s = q[:, h].double() @ k[:, h // group].double().transpose(-1, -2) / math.sqrt(HEAD)
        if spec.get("softcap"):
            s = spec["softcap"] * torch.tanh(s / spec["softcap"])
        if slope is not None:
            s = s + slope[h].double() * (key - position)
        s = s.masked_fill(hidden, -math.inf)
        weights = torch.exp(s - s.amax(-1, keepdim=True).clamp_min(-1e300))
        total = weights.sum(-1, keepdim=True)
        rows.append((weights @ v[:, h // group].double()) / total.clamp_min(1e-300))
    return torch.stack(rows, 1)


def inputs(spec: Any, queries: int, keys: int, strided: bool = False) -> list[Any]:
    import torch

    kind = torch.float16 if spec["dtype"] == "f16" else torch.bfloat16

    def array(heads: int, n: int) -> Any:
        if strided:  # heads beside positions in memory
            return torch.randn(1, n, heads, HEAD, device="cuda", dtype=kind).transpose(1, 2)
        return torch.randn(1, heads, n, HEAD, device="cuda", dtype=kind)

    made = [array(spec["heads"], queries), array(spec["kv_heads"], keys),
            array(spec["kv_heads"], keys)]  # fmt: skip
    if spec.get("alibi"):
        slope = 2.0 ** -(torch.arange(1, spec["heads"] + 1, device="cuda") * 8.0 / spec["heads"])
        made.append(slope.float())
    return made


def workspace(run: Any, *arguments: Any) -> Any:
    import torch

    needed = run.requirements(*arguments).workspace
    return torch.empty(needed, dtype=torch.uint8, device="cuda")


def relative(got: Any, want: Any) -> float:
    error = float((got.double() - want).norm() / want.norm())
    return error if math.isfinite(error) else math.inf


def measure(stem: Path, timed: bool) -> dict[str, Any]:
    """Both kernels of a program, in this process: errors, then times in microseconds."""
    import torch

    from neptune_mlir.runtime.bundle import Bundle
    from neptune_mlir.runtime.gpu import GpuExecutable

    files = {path: stem.with_name(f"{stem.name}.{path}.bundle") for path in PATHS}
    bundles = {p: Bundle.from_bytes(f.read_bytes()) for p, f in files.items() if f.exists()}
    runs = {path: GpuExecutable(bundle) for path, bundle in bundles.items()}
    spec = next(iter(bundles.values())).facts["check"]
    torch.manual_seed(0)
    row: dict[str, Any] = {
        "name": stem.name, "errors": {path: {} for path in runs}, "apart": 0.0,
        "images": {path: bundle.facts["images"][-1] for path, bundle in bundles.items()},
    }  # fmt: skip
    for case, arguments, wanted in cases(stem, spec):
        found = {}
        for path, run in runs.items():
            found[path] = call(run, arguments)
            row["errors"][path][case] = max(map(relative, found[path], wanted))
        if len(found) == 2:
            pairs = zip(*found.values(), strict=True)
            row["apart"] = max(row["apart"], *(relative(b, a.double()) for a, b in pairs))
    row["error"] = {path: max(errors.values()) for path, errors in row["errors"].items()}
    row["right"] = all(error < TOLERANCE[spec["dtype"]] for error in row["error"].values())
    if timed:
        row["times"] = [compare(runs, *given) for given in timed_inputs(stem, spec)]
    return row


def cases(stem: Path, spec: Any) -> Any:
    """Names, arguments and wanted results."""
    import numpy as np
    import torch

    if "zoo" in spec:
        saved = np.load(stem.with_name(f"{stem.name}.npz"))
        arrays = [torch.from_numpy(saved[k]).cuda() for k in saved.files if k.startswith("in")]
        wanted = [torch.from_numpy(saved[k]).cuda() for k in saved.files if k.startswith("out")]
        yield "zoo", arrays, wanted
        return
    for queries, keys in PREFILL if spec["operator"].startswith("prefill") else DECODE:
        for strided in (False, True):
            q, k, v, *extra = inputs(spec, queries, keys, strided)
            want = reference(spec, q, k, v, extra[0] if extra else None)
            yield f"{queries}x{keys}{' strided' if strided else ''}", [q, k, v, *extra], [want]


def timed_inputs(stem: Path, spec: Any) -> Any:
    if "zoo" in spec:
        for _, arrays, _ in cases(stem, spec):
            yield "zoo", arrays
        return
    prefill = spec["operator"].startswith("prefill")
    for n in TIMED["prefill" if prefill else "decode"]:
        yield str(n), inputs(spec, n if prefill else 1, n)


def call(run: Any, arguments: Any) -> list[Any]:
    """The results, in memory that was full of NaN (or of large integers)."""
    import torch

    poisoned = [torch.empty_like(a) for a in outputs(run(*arguments))]
    for array in poisoned:
        array.fill_(math.nan if array.is_floating_point() else 77)
    out = poisoned[0] if len(poisoned) == 1 else tuple(poisoned)
    run(*arguments, out=out, workspace=workspace(run, *arguments))
    torch.cuda.synchronize()
    return poisoned


def outputs(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


def compare(runs: Any, case: str, arguments: Any) -> dict[str, Any]:
    """Median microseconds of each path, in turns."""
    import torch

    calls = {
        path: run.prepare(
            *arguments, out=run(*arguments), workspace=workspace(run, *arguments)
        )
        for path, run in runs.items()
    }  # fmt: skip
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {path: [] for path in calls}
    for turn in range(12):
        for path, go in calls.items():
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            go()
            end.record()
            end.synchronize()
            if turn > 2:
                times[path].append(start.elapsed_time(end) * 1e3)
    medians = {path: round(sorted(s)[len(s) // 2], 1) for path, s in times.items()}
    return {"case": case, **medians}


def run_all(folder: Path, output: Path, timeout: float, timed: bool) -> int:
    rows = []
    for name in sorted({path.name.split(".")[0] for path in folder.glob("*.bundle")}):
        started = time.perf_counter()
        command = [sys.executable, __file__, "one", str(folder / name)]
        command += [] if timed else ["--no-time"]
        row: dict[str, Any] = {"name": name, "right": False}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout, check=False
            )
            if done.returncode == 0:
                row = json.loads(done.stdout.splitlines()[-1])
            else:
                row["failed"] = done.stderr[-2000:] or f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            row["failed"] = f"no answer in {timeout:g} s"
        row["seconds"] = round(time.perf_counter() - started, 1)
        rows.append(row)
        output.write_text(json.dumps(rows, indent=1))
        print(summary(row), flush=True)
    return 0 if rows and all(r["right"] for r in rows) else 1


def summary(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['name']:30} FAILED {row['failed'].strip().splitlines()[-1]}"
    errors = "  ".join(f"{path} {error:.1e}" for path, error in row["error"].items())
    text = f"{row['name']:30} {'right' if row['right'] else 'WRONG'} {errors}"
    text += f"  apart {row['apart']:.1e}"
    for t in row.get("times", []):
        text += f" | {t['case']}: " + ", ".join(f"{p} {t[p]} us" for p in PATHS if p in t)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("build", "run", "one"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--chip", default="sm_90a")
    parser.add_argument("--dtype", default="f16,bf16")
    parser.add_argument("--only", default="", help="build: part of the name")
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu_check_triton.json"))
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--no-time", action="store_true")
    options = parser.parse_args()
    if options.action == "build":
        return build(options.path, options.chip, options.dtype, options.only)
    if options.action == "one":
        print(json.dumps(measure(options.path, not options.no_time)))
        return 0
    return run_all(options.path, options.output, options.timeout, not options.no_time)


if __name__ == "__main__":
    sys.exit(main())
