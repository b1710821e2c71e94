# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long a call takes, and how it is said."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any


def timed(
    function: Callable[..., Any], arguments: Sequence[Any], repeat: int
) -> tuple[list[Any], float]:
    """The results as a list, and the median time of `repeat` calls after a first one."""
    value = function(*arguments)
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - started)
    return list(value) if isinstance(value, tuple) else [value], statistics.median(times)


def time_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
