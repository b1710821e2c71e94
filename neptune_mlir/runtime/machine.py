# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What this machine reaches: products of f32 by NumPy's library, and copies of large arrays.

Measured once, in a third of a second, and kept beside the cache of programs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np

from neptune_mlir.runtime import cache, workers
from neptune_mlir.targets.roofline import Roof

_SIDE = 1024  # of the matrices
_COPIED = 64 << 20  # bytes: more than caches hold


def roof() -> Roof:
    """The limits of this machine with as many threads as programs get."""
    path = cache.folder() / f"machine-{workers.count()}.json"
    try:
        return Roof(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        found = measure()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(found)))
    except OSError:  # a figure is worth no failure
        pass
    return found


def measure() -> Roof:
    """Measure both limits."""
    a = np.ones((_SIDE, _SIDE), np.float32)
    flops = 2 * _SIDE**3 / _best(lambda: a @ a)
    count = workers.count()
    sources = np.zeros((count, _COPIED // count), np.uint8)
    targets = np.ones_like(sources)
    with ThreadPoolExecutor(count) as pool:
        def copy() -> None:
            list(pool.map(np.copyto, targets, sources))

        moved = 2 * sources.nbytes / _best(copy)
    return Roof(
        f"this machine, {count} threads", flops, flops, moved, "NumPy's matmul and copies"
    )


def _best(function: Callable[[], object], times: int = 3) -> float:
    """The shortest of some calls, behind one that is not counted."""
    function()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        function()
        found.append(time.perf_counter() - started)
    return min(found)
