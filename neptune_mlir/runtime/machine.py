# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What this machine reaches: products of f32 by NumPy's library, and copies of large arrays.

Measured once, in a third of a second, and kept beside the cache of programs. Other processes
make both figures too low, so a kernel that is faster has them measured again, and they only grow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from neptune_mlir.runtime import cache, workers
from neptune_mlir.targets.roofline import Roof

_SIDE = 512  # of the matrices: a product ends before another process gets the core
_SECONDS = 0.15  # of calls
_COPIED = 64 << 20  # bytes: more than caches hold


def roof() -> Roof:
    """The limits of this machine with as many threads as programs get."""
    try:
        return Roof(**json.loads(_path().read_text()))
    except (OSError, ValueError, TypeError):
        return _kept(measure())


def raised(known: Roof, reached: float) -> Roof:
    """The limits measured again, none of them lower than it was known.

    Args:
        reached: operations a second of a kernel on this machine.
    """
    found = measure()
    flops = max(found.flops, known.flops)
    source = found.source if reached <= flops else "a kernel is faster than NumPy's matmul"
    flops = max(flops, reached)
    moved = max(found.bytes, known.bytes)
    return _kept(replace(found, flops=flops, products=flops, bytes=moved, source=source))


def _path() -> Path:
    return cache.folder() / f"machine-{workers.count()}.json"


def _kept(found: Roof) -> Roof:
    try:
        _path().parent.mkdir(parents=True, exist_ok=True)
        _path().write_text(json.dumps(asdict(found)))
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


def _best(function: Callable[[], object]) -> float:
    """The shortest of the calls of _SECONDS, behind one that is not counted."""
    function()
    found, end = [], time.perf_counter() + _SECONDS
    while not found or time.perf_counter() < end:
        started = time.perf_counter()
        function()
        found.append(time.perf_counter() - started)
    return min(found)
