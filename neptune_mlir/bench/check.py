# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Correctness alone: every bundle at awkward lengths, and the zoo against its definitions."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neptune_mlir.bench import figures
from neptune_mlir.bench.problem import Problem, problem_of
from neptune_mlir.bench.process import Worker
from neptune_mlir.bench.rows import Rows

# queries and keys: one, a tile, ragged, fewer queries, more queries than keys, past a window
PREFILL = ((1, 1), (64, 64), (77, 333), (300, 300), (513, 513), (100, 50), (1000, 1000),
           (200, 5000))  # fmt: skip
DECODE = ((1, 1), (1, 31), (1, 256), (1, 513), (1, 4099), (1, 20000))
ROWS = (1, 64, 77, 300)
TOLERANCE = {"f16": 2e-3, "bf16": 1.2e-2, "f32": 1e-4, "f64": 1e-12}  # relative Frobenius


def check(path: str, run: Any) -> dict[str, Any]:
    """One bundle, in a process with a GPU: the error of each case."""
    spec = run.bundle.facts["bench"]
    kinds: dict[str, Any] = {"operator": _operator, "rows": _rows}
    cases = _zoo(Path(path), run) if spec["kind"] == "zoo" else kinds[spec["kind"]](spec, run)
    worst = max(cases.values())
    dtype = spec["dtype"]
    return {"cases": cases, "error": worst, "right": worst < TOLERANCE[dtype]}


def poison(out: Any) -> Any:
    """A result, or several, full of NaN."""
    for one in out if isinstance(out, tuple) else (out,):
        one.fill_(math.nan)
    return out


def doubles(out: Any) -> Any:
    """A result, or several, in float64 on the host."""
    if isinstance(out, tuple):
        return tuple(one.double().cpu() for one in out)
    return out.double().cpu()


def workspace(run: Any, arguments: Sequence[Any]) -> Any:
    """The scratch memory that a call needs."""
    import torch

    needed = run.requirements(*arguments).workspace
    return torch.empty(needed, dtype=torch.uint8, device="cuda")


def _operator(spec: dict[str, Any], run: Any) -> dict[str, float]:
    if "problem" in spec:
        return {"drawn": _error(problem_of(spec, 0), run, whole=False)}
    decode = spec["settings"].get("q_len") == 1
    cases = {}
    for queries, keys in DECODE if decode else PREFILL:
        for strided in (False, True):
            p = Problem(spec["operator"], spec["dtype"], queries, keys, spec["settings"],
                        spec["head_dim"], 2 if spec.get("tokens") else 1, strided)  # fmt: skip
            name = f"{queries}x{keys}{' strided' if strided else ''}"
            cases[name] = _error(p, run)
    return cases


def _rows(spec: dict[str, Any], run: Any) -> dict[str, float]:
    if "problem" in spec:  # its rows are long
        return {"drawn": _error(problem_of(spec, 0), run, whole=False)}
    return {str(rows): _error(Rows.of(spec, rows), run) for rows in ROWS}


def _error(p: Problem | Rows, run: Any, whole: bool = True) -> float:
    import torch

    arrays = p.inputs("cuda")
    out = poison(p.result(arrays))
    run(*arrays, out=out, workspace=workspace(run, arrays))
    torch.cuda.synchronize()
    wanted = doubles(p.expected(arrays, whole=whole))
    # the others are finite, or not, as the reference is
    if not all(bool(one.isfinite().all()) for one in (out if isinstance(out, tuple) else (out,))):
        return math.inf
    return figures.worst_errors(doubles(p.picked(out, whole=whole)), wanted)["relative"]


def _zoo(path: Path, run: Any) -> dict[str, float]:
    """Inputs and float64 results of the definition lie beside the bundle."""
    import torch

    with np.load(path.with_suffix(".npz")) as stored:
        data = dict(stored)
    arguments = []
    for k, wanted in enumerate(run.plan.arguments):
        value = data[f"arg{k}"]
        arguments.append(
            torch.from_numpy(np.ascontiguousarray(value)).cuda()
            if wanted.kind == "tensor"
            else value.item()
        )
    expected = [data[f"out{k}"] for k in range(len(run.plan.results))]
    out = []
    for (kind, k), e in zip(run.plan.results, expected, strict=True):
        dtype = run.plan.buffers[k].dtype if kind == "buffer" else "f32"
        named = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
                 "f64": torch.float64, "i32": torch.int32, "i64": torch.int64}[dtype]  # fmt: skip
        poison = math.nan if named.is_floating_point else -1
        out.append(torch.full(e.shape, poison, device="cuda", dtype=named))
    results = run(*arguments, out=out, workspace=workspace(run, arguments))
    torch.cuda.synchronize()
    got = results if isinstance(results, tuple) else (results,)
    return {
        f"result {k}": figures.errors(g.double().cpu(), e)["relative"]
        for k, (g, e) in enumerate(zip(got, expected, strict=True))
    }


def check_all(
    bundles: Sequence[Path], log: Path, processes: int = 4, timeout: float = 120,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:  # fmt: skip
    """A row for each bundle: error of each case, or why there is none."""
    waiting: queue.Queue[Path] = queue.Queue()
    for bundle in bundles:
        waiting.put(bundle)
    rows: list[dict[str, Any]] = []
    lock = threading.Lock()

    def work() -> None:
        worker = Worker("check", log)
        while True:
            try:
                bundle = waiting.get_nowait()
            except queue.Empty:
                worker.stop()
                return
            row = {"name": bundle.stem, "right": False,
                   **worker.ask(timeout, do="check", bundle=str(bundle))}  # fmt: skip
            with lock:
                rows.append(row)
                say(line(row))

    threads = [threading.Thread(target=work) for _ in range(min(processes, len(bundles)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(rows, key=lambda row: row["name"])


def line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['name']:44} FAILED {row['failed']}"
    text = f"{row['name']:44} {'right' if row['right'] else 'WRONG'}  {row['error']:.1e}"
    if not row["right"]:
        text += "  " + ", ".join(f"{k}: {v:.1e}" for k, v in row["cases"].items())
    return text
