# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A process that compiles for the tuner. It reads requests and answers them, one JSON line each.

    {"do": "look", "program": PATH, "target"}   -> {"streams": [...], "why": [...]}
    {"do": "build", "program": PATH, "target", "entry": {...} or null, "facts": {...}, "out": PATH}
                                                 -> {"kernels", "digest", "specialised", "remarks"}
    {"do": "store", "program": PATH, "bundle": PATH, "fixed": {...}, "lengths": [...], "out": PATH}
                                                 -> {"dtype"}

What fails answers {"failed": why}. A process of its own: where MLIR ends it, one candidate is lost.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from neptune_mlir.bench.process import serve
from neptune_mlir.dialects.gpu_attributes import CONSUMERS
from neptune_mlir.errors import NeptuneError
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.targets import tuned
from neptune_mlir.targets.tuned import Entry, Table
from neptune_mlir.tune.arguments import Arguments


def look(message: dict[str, Any]) -> dict[str, Any]:
    """The streams of a program for which a chip has a choice: shape, what the rule takes, and
    the length (0: only a call says)."""
    from neptune_mlir.analysis.tiles import foralls
    from neptune_mlir.driver import compiler

    path = Path(message["program"])
    with tuned.using(Table()), tuned.questions() as asked:
        module, facts = compiler.lower_text(
            path.read_text(), str(path), message["target"], None, "tile"
        )
    suits = any(map(CONSUMERS.on, foralls(module)))
    streams = [
        {"shape": asdict(q.shape), "rule": q.choice.as_json(), "length": q.length}
        for q in asked if suits and not q.few
    ]  # fmt: skip
    return {"streams": streams, "why": [] if streams else facts["remarks"]}


def build(message: dict[str, Any]) -> dict[str, Any]:
    """Compile a program with a table that has this one entry, or none: kernels for any call."""
    from neptune_mlir.driver import compiler

    path = Path(message["program"])
    entry = message["entry"]
    with tuned.using(Table((Entry.from_json(entry),) if entry else ())):
        bundle = compiler.compile_text(
            path.read_text(), str(path), message["target"], None, None, cases=False
        )
    bundle.facts.update(message["facts"])
    knobs = bundle.facts["provenance"]["schedule"]["knobs"]  # of the way that was taken
    Path(message["out"]).write_bytes(bundle.to_bytes())
    return {
        "kernels": bundle.facts["images"][0]["kernels"],
        "digest": hashlib.sha256(bundle.code).hexdigest(),
        "specialised": "warp_groups:1" in knobs.split(";"),
        "remarks": bundle.facts["remarks"],
    }


def store(message: dict[str, Any]) -> dict[str, Any]:
    """Write arguments, and the unfused program's results in float64, for small calls.

    The answer's `dtype` is the coarsest float type of arguments and results.
    """
    import numpy as np

    from neptune_mlir.driver import compiler
    from neptune_mlir.driver.inputs import random_inputs, result_dtype, to_float64

    path = Path(message["program"])
    plan = Bundle.from_bytes(Path(message["bundle"]).read_bytes()).plan
    unfused = compiler.compile_unfused(path.read_text(), str(path), None)
    data: dict[str, Any] = {"calls": len(message["lengths"])}
    for k, length in enumerate(message["lengths"]):
        given = random_inputs(plan, length, k, Arguments(plan, message["fixed"], length).known)
        value = unfused(*given)
        results = value if isinstance(value, tuple) else (value,)
        data |= {f"{k}:arg{n}": array for n, array in enumerate(given)}
        data |= {f"{k}:out{n}": to_float64(array, result_dtype(plan, n))
                 for n, array in enumerate(results)}  # fmt: skip
    np.savez_compressed(message["out"], **data)
    used = {a.dtype for a in plan.arguments}
    used |= {result_dtype(plan, n) for n in range(len(plan.results))}
    return {"dtype": next((t for t in ("bf16", "f16", "f32") if t in used), "f64")}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"look": look, "build": build, "store": store}[message["do"]](message)
    except NeptuneError as error:
        return {"failed": str(error)}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(serve(answer))
