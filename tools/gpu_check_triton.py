#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check and time the paper's ten operators, compiled by way of Triton, on a GPU beside torch.

    python tools/gpu_check_triton.py build DIR [--target triton:sm_90a] [--dtype f16,bf16]
    python tools/gpu_check_triton.py run DIR [-o results.json]     on a GPU

`build` runs anywhere and needs the compiler and triton; `run` needs torch and
this package's runtime, no MLIR and no triton. Bundles are those of `tools/gpu_check.py`, and so
is the way of running: one process with a time-out for each, outputs poisoned with NaN, inputs
random, lengths ragged too, float64 as the reference, times as medians of events with the L2
flushed, in turns with torch. `--target sm_90a` builds the same operators with the project's own
NVIDIA lowering instead, for a second opinion.
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
TOLERANCE = {"f16": 2e-3, "bf16": 1.2e-2}


def build(folder: Path, target: str, dtypes: str, only: str) -> int:
    from neptune_mlir import ops
    from neptune_mlir.compiler import compile_text
    from neptune_mlir.errors import NeptuneError

    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for dtype in dtypes.split(","):
        for name, settings in ops.OPERATORS.items():
            stem = f"{name}-{dtype}-{target.split(':')[0]}"
            if only not in stem:
                continue
            started = time.perf_counter()
            try:
                bundle = compile_text(
                    ops.operator(name, dtype=dtype).to_mlir(), name, target, None, None
                )
            except NeptuneError as error:
                failed += 1
                print(f"{stem:36} {error}")
                continue
            bundle.facts["check"] = {"operator": name, "dtype": dtype, **settings}
            (folder / f"{stem}.bundle").write_bytes(bundle.to_bytes())
            print(f"{stem:36} {time.perf_counter() - started:.1f} s", flush=True)
    return 1 if failed else 0


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


def measure(path: Path, timed: bool) -> dict[str, Any]:
    """One bundle, in this process: errors, then times in microseconds."""
    import torch

    from neptune_mlir.runtime.bundle import Bundle
    from neptune_mlir.runtime.cuda import CudaExecutable

    bundle = Bundle.from_bytes(path.read_bytes())
    spec = bundle.facts["check"]
    run = CudaExecutable(bundle)
    torch.manual_seed(0)
    prefill = spec["operator"].startswith("prefill")
    row: dict[str, Any] = {"name": path.stem, "errors": {}, "image": bundle.facts["images"][-1]}
    for queries, keys in PREFILL if prefill else DECODE:
        for strided in (False, True):
            q, k, v, *extra = inputs(spec, queries, keys, strided)
            out = torch.full(q.shape, math.nan, device="cuda", dtype=q.dtype)
            run(q, k, v, *extra, out=out, workspace=workspace(run, q, k, v, *extra))
            torch.cuda.synchronize()
            want = reference(spec, q, k, v, extra[0] if extra else None)
            case = f"{queries}x{keys}{' strided' if strided else ''}"
            row["errors"][case] = relative(out, want)
    row["error"] = max(row["errors"].values())
    row["right"] = row["error"] < TOLERANCE[spec["dtype"]]
    if timed and row["right"]:
        lengths = TIMED["prefill" if prefill else "decode"]
        row["times"] = [compare(run, spec, n if prefill else 1, n) for n in lengths]
    return row


def compare(run: Any, spec: Any, queries: int, keys: int) -> dict[str, Any]:
    """Median microseconds of ours and of torch's attention (without window, softcap, alibi)."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v, *extra = inputs(spec, queries, keys)
    scratch = workspace(run, q, k, v, *extra)
    call = run.prepare(q, k, v, *extra, out=torch.empty_like(q), workspace=scratch)
    causal = bool(spec.get("causal")) and queries > 1  # one last query sees every key
    shared = q.shape[1] != k.shape[1]

    def peer(backend: Any) -> Any:
        def go() -> None:
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

        return go

    candidates: dict[str, Any] = {
        "ours": call, "flash2": peer(SDPBackend.FLASH_ATTENTION),
        "cudnn": peer(SDPBackend.CUDNN_ATTENTION),
    }  # fmt: skip
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(12):
        for name, go in list(candidates.items()):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            try:
                start.record()
                go()
                end.record()
                end.synchronize()
            except RuntimeError:
                del candidates[name]
                continue
            if turn > 2:
                times[name].append(start.elapsed_time(end) * 1e3)
    row: dict[str, Any] = {"queries": queries, "keys": keys}
    same = not any(spec.get(x) for x in ("window", "softcap", "alibi"))
    for name, samples in times.items():
        if samples:
            label = name if same or name == "ours" else f"{name} (plain)"
            row[label] = round(sorted(samples)[len(samples) // 2], 1)
    return row


def run_all(folder: Path, output: Path, timeout: float, timed: bool) -> int:
    rows = []
    for path in sorted(folder.glob("*.bundle")):
        started = time.perf_counter()
        command = [sys.executable, __file__, "one", str(path)] + ([] if timed else ["--no-time"])
        row: dict[str, Any] = {"name": path.stem, "right": False}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout, check=False
            )
            if done.returncode == 0:
                row = json.loads(done.stdout.splitlines()[-1])
            else:
                row["failed"] = done.stderr[-2000:]
        except subprocess.TimeoutExpired:
            row["failed"] = f"no answer in {timeout:g} s"
        row["seconds"] = round(time.perf_counter() - started, 1)
        rows.append(row)
        output.write_text(json.dumps(rows, indent=1))
        print(summary(row), flush=True)
    return 0 if rows and all(r["right"] for r in rows) else 1


def summary(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['name']:36} FAILED {row['failed'].strip().splitlines()[-1]}"
    text = f"{row['name']:36} {'right' if row['right'] else 'WRONG'} {row['error']:.1e}"
    if not row["right"]:
        text += f" {row['errors']}"
    for t in row.get("times", []):
        others = "  ".join(f"{k} {v}" for k, v in t.items() if k not in ("queries", "keys"))
        text += f"\n    {t['queries']}x{t['keys']}: {others} us"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("build", "run", "one"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--target", default="triton:sm_90a")
    parser.add_argument("--dtype", default="f16,bf16")
    parser.add_argument("--only", default="", help="build: part of the name")
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu_check_triton.json"))
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--no-time", action="store_true")
    options = parser.parse_args()
    if options.action == "build":
        return build(options.path, options.target, options.dtype, options.only)
    if options.action == "one":
        print(json.dumps(measure(options.path, not options.no_time)))
        return 0
    return run_all(options.path, options.output, options.timeout, not options.no_time)


if __name__ == "__main__":
    sys.exit(main())
