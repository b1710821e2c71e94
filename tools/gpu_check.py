#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check and time attention bundles on a GPU, beside torch.

    python tools/gpu_check.py build DIR [--target sm_90a,...]   anywhere: compile the set
    python tools/gpu_check.py run DIR [-o results.json]         on a GPU (torch)

`run` needs this package's `runtime` and `targets` only, no MLIR. Every bundle is checked in a
process of its own with a time-out, so that a kernel that hangs or faults costs one row: outputs
are poisoned with NaN, inputs are random, lengths ragged too, the reference is float64. Then it
is timed (median of events, L2 flushed, in turns with torch's FlashAttention-2 and cuDNN).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# head dim, rows and columns of a tile, warps (0: the compiler's choice), stages
SHAPES = [
    (64, 64, 64, 4, 2), (64, 128, 64, 4, 2), (64, 128, 64, 8, 2), (64, 128, 128, 8, 2),
    (64, 64, 64, 4, 3), (64, 128, 32, 4, 2), (128, 64, 64, 4, 2), (128, 128, 32, 4, 2),
    (128, 128, 64, 4, 2), (128, 128, 64, 8, 2), (128, 128, 32, 8, 2), (128, 64, 32, 4, 3),
    (256, 64, 64, 4, 2), (256, 64, 32, 4, 2), (256, 128, 32, 8, 2), (80, 64, 64, 4, 2),
]  # fmt: skip
# with a producer warp group and consumers of 64 rows each (the warps are those of the consumers)
HOPPER = [
    (64, 128, 128, 8, 2), (64, 128, 128, 8, 3), (128, 128, 128, 8, 2), (128, 128, 64, 8, 3),
    (256, 128, 64, 8, 2), (64, 64, 128, 4, 2), (128, 64, 128, 4, 2),
]  # fmt: skip
CHECK = [(1, 1, 1), (1, 2, 64), (2, 3, 200), (1, 2, 513), (1, 1, 1024)]
TIME = {64: [(32, 32, 512), (16, 32, 1024), (4, 32, 4096), (1, 32, 16384)],
        128: [(32, 16, 512), (16, 16, 1024), (4, 16, 4096), (1, 16, 16384)],
        256: [(32, 8, 512), (16, 8, 1024), (4, 8, 4096), (1, 8, 16384)], 80: []}  # fmt: skip


def build(folder: Path, target: str, only: str, hopper: bool) -> None:
    from neptune_mlir import ops
    from neptune_mlir.driver.compiler import compile_text
    from neptune_mlir.driver.kernel import Source

    folder.mkdir(parents=True, exist_ok=True)
    for head, rows, columns, warps, stages in HOPPER if hopper else SHAPES:
        for causal in (False, True):
            for dtype in ("f16", "bf16"):
                mask = "causal" if causal else "global"
                name = f"{dtype}-d{head}-{mask}-{rows}x{columns}-w{warps}-s{stages}"
                if only not in name or (dtype == "bf16" and rows != 64 and not hopper):
                    continue
                program = ops.attention(head_dim=head, causal=causal, dtype=dtype)
                knobs = f"rows:{rows};stream:{columns};warps:{warps};slots:{stages}"
                knobs += "" if hopper else ";warp_groups:0"
                try:
                    bundle = compile_text(
                        Source.of(program).text, "attention", target, None, None, cases=False,
                        knobs=knobs,
                    )  # fmt: skip
                except Exception as error:
                    print(f"{name:36} {error}")
                    continue
                bundle.facts["check"] = {"head": head, "causal": causal, "dtype": dtype}
                (folder / f"{name}.bundle").write_bytes(bundle.to_bytes())
                figures = bundle.facts["images"][-1]["kernels"]
                print(f"{name:36} {next(iter(figures.values()))}", flush=True)


def measure(path: Path, timed: bool) -> dict[str, Any]:
    """One bundle, in this process: errors, then times."""
    import torch

    from neptune_mlir.runtime.bundle import Bundle
    from neptune_mlir.runtime.gpu import GpuExecutable

    bundle = Bundle.from_bytes(path.read_bytes())
    spec = bundle.facts["check"]
    head, causal = spec["head"], spec["causal"]
    dtype = torch.float16 if spec["dtype"] == "f16" else torch.bfloat16
    run = GpuExecutable(bundle)
    scale = head**-0.5
    torch.manual_seed(0)
    row: dict[str, Any] = {"name": path.stem, "kernels": bundle.facts["images"][-1]["kernels"]}
    worst = 0.0
    for b, h, n in CHECK:
        q, k, v = (torch.randn(b, h, n, head, device="cuda", dtype=dtype) for _ in range(3))
        out = torch.full_like(q, math.nan)
        run(q, k, v, out=out)
        torch.cuda.synchronize()
        error = relative_error(out, q, k, v, causal, scale)
        worst = max(worst, error if error == error else math.inf)
    row["error"] = worst
    row["right"] = worst < (2e-3 if spec["dtype"] == "f16" else 1.2e-2)
    # a strided view: heads interleaved with positions, as [b, n, h, d] memory
    q, k, v = (
        torch.randn(2, 130, 3, head, device="cuda", dtype=dtype).transpose(1, 2) for _ in range(3)
    )
    row["strided"] = relative_error(run(q, k, v), q, k, v, causal, scale)
    if timed and row["right"]:
        row["times"] = [compare(run, spec, dtype, shape) for shape in TIME[head]]
    return row


def relative_error(out: Any, q: Any, k: Any, v: Any, causal: bool, scale: float) -> float:
    s = q.double() @ k.double().transpose(-1, -2) * scale
    if causal:
        n = s.shape[-1]
        s = s.masked_fill(~s.new_ones(n, n).bool().tril(), -math.inf)
    want = s.softmax(-1) @ v.double()
    return float((out.double() - want).norm() / want.norm())


def compare(run: Any, spec: Any, dtype: Any, shape: tuple[int, int, int]) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    b, h, n = shape
    head, causal = spec["head"], spec["causal"]
    q, k, v = (torch.randn(b, h, n, head, device="cuda", dtype=dtype) for _ in range(3))
    out = torch.empty_like(q)
    call = run.prepare(q, k, v, out=out)

    def peer(backend: Any) -> Any:
        def go() -> None:
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return go

    candidates = {
        "ours": call,
        "flash2": peer(SDPBackend.FLASH_ATTENTION),
        "cudnn": peer(SDPBackend.CUDNN_ATTENTION),
    }
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(9):
        for name, go in list(candidates.items()):
            try:
                flush.zero_()
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                go()
                end.record()
                end.synchronize()
            except RuntimeError:
                del candidates[name]
                continue
            if turn:
                times[name].append(start.elapsed_time(end))
    flops = 4 * b * h * n * n * head * (0.5 if causal else 1)
    found: dict[str, Any] = {"shape": shape}
    for name, samples in times.items():
        if samples:
            found[name] = round(flops / sorted(samples)[len(samples) // 2] / 1e9, 1)
    return found


def run_all(folder: Path, output: Path, timeout: float, timed: bool) -> int:
    rows = []
    for path in sorted(folder.glob("*.bundle")):
        command = [sys.executable, __file__, "one", str(path)] + ([] if timed else ["--no-time"])
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout, check=False
            )
            row = (
                json.loads(done.stdout.splitlines()[-1])
                if done.returncode == 0
                else {"name": path.stem, "right": False, "failed": done.stderr[-2000:]}
            )
        except subprocess.TimeoutExpired:
            row = {"name": path.stem, "right": False, "failed": f"no answer in {timeout:g} s"}
        rows.append(row)
        output.write_text(json.dumps(rows, indent=1))
        print(summary(row), flush=True)
    return 0 if rows and all(r["right"] for r in rows) else 1


def summary(row: dict[str, Any]) -> str:
    if "failed" in row:
        last = row["failed"].strip().splitlines()
        return f"{row['name']:36} FAILED {last[-1] if last else ''}"
    text = f"{row['name']:36} {'right' if row['right'] else 'WRONG'} {row['error']:.1e}"
    text += f" strided {row['strided']:.1e}"
    for t in row.get("times", []):
        others = " ".join(f"{k} {v}" for k, v in t.items() if k != "shape")
        text += f"\n    {t['shape']}: {others}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("build", "run", "one"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--hopper", action="store_true", help="build: specialised warps")
    parser.add_argument("--only", default="", help="build: part of the name")
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu_check.json"))
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--no-time", action="store_true")
    options = parser.parse_args()
    if options.action == "build":
        build(options.path, options.target, options.only, options.hopper)
        return 0
    if options.action == "one":
        print(json.dumps(measure(options.path, not options.no_time)))
        return 0
    return run_all(options.path, options.output, options.timeout, not options.no_time)


if __name__ == "__main__":
    sys.exit(main())
