# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A process that compiles draws of the sweep. It reads requests and answers them in lines of JSON.

    {"do": "build", "path": PATH, "target": NAME, "spec": {...}}               -> {"said": a line}

What fails answers {"failed": why}. A process of its own: beside others that compile too, and where
MLIR ends it, one draw is lost.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from neptune_mlir.bench.build import build_draw
from neptune_mlir.bench.process import serve


def answer(message: dict[str, Any]) -> dict[str, Any]:
    said: list[str] = []
    path, target, spec = (message[name] for name in ("path", "target", "spec"))
    try:
        made = build_draw(Path(path), target, spec, said.append)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"said": said[-1]} if made else {"failed": said[-1]}


if __name__ == "__main__":
    sys.exit(serve(answer))
