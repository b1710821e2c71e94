# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A process that compiles for the tuner. It reads requests and answers them, one JSON line each.

    {"do": "look", "program": PATH, "target"}   -> {"streams": [{"shape", "rule"}], "why": [...]}
    {"do": "build", "program": PATH, "target", "entry": {...} or null, "facts": {...}, "out": PATH}
                                                 -> {"kernels", "digest", "way", "remarks"}

What fails answers {"failed": why}. A process of its own: where MLIR ends it, one candidate is lost.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from neptune_mlir.bench.process import serve
from neptune_mlir.errors import NeptuneError
from neptune_mlir.targets import tuned
from neptune_mlir.targets.tuned import Entry, Table


def look(message: dict[str, Any]) -> dict[str, Any]:
    """The streams of a program for which a chip has a choice, and what its rule takes."""
    from neptune_mlir import compiler
    from neptune_mlir.analysis.tiles import foralls

    path = Path(message["program"])
    with tuned.using(Table()), tuned.questions() as asked:
        module, facts = compiler.lower_text(
            path.read_text(), str(path), message["target"], None, "tile"
        )
    suits = any("neptune.consumers" in forall.attributes for forall in foralls(module))
    streams = [
        {"shape": asdict(q.shape), "rule": q.choice.as_json()}
        for q in asked if suits and not q.few
    ]  # fmt: skip
    return {"streams": streams, "why": [] if streams else facts["remarks"]}


def build(message: dict[str, Any]) -> dict[str, Any]:
    """Compile a program with a table that has this one entry, or none."""
    from neptune_mlir import compiler

    path = Path(message["program"])
    entry = message["entry"]
    with tuned.using(Table((Entry.from_json(entry),) if entry else ())):
        bundle = compiler.compile_text(
            path.read_text(), str(path), message["target"], None, None
        )
    bundle.facts.update(message["facts"])
    Path(message["out"]).write_bytes(bundle.to_bytes())
    return {
        "kernels": next(i["kernels"] for i in bundle.facts["images"] if "when" not in i),
        "digest": hashlib.sha256(bundle.code).hexdigest(),
        "way": bundle.facts["provenance"]["schedule"]["knobs"],
        "remarks": bundle.facts["remarks"],
    }


def answer(message: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"look": look, "build": build}[message["do"]](message)
    except NeptuneError as error:
        return {"failed": str(error)}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(serve(answer))
