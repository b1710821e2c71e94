# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The threads that run kernels. A call through ctypes holds no interpreter lock."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from neptune_mlir.errors import UsageError

_local = threading.local()


def count() -> int:
    """How many threads to use: NEPTUNE_NUM_THREADS, else the CPUs this process may run on."""
    chosen = os.environ.get("NEPTUNE_NUM_THREADS")
    if chosen is None:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    if not chosen.isdigit() or int(chosen) < 1:
        raise UsageError(f"NEPTUNE_NUM_THREADS is '{chosen}', not a positive number")
    return int(chosen)


@functools.cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, thread_name_prefix="neptune")


def run(task: Callable[[], Any], workers: int) -> None:
    """Run `task` on this thread and on `workers - 1` others; return when all are done."""
    helpers = [_pool(workers - 1).submit(task) for _ in range(workers - 1)] if workers > 1 else []
    try:
        task()
    finally:
        for helper in helpers:
            helper.result()


def scratch(size: int) -> np.ndarray[Any, Any]:
    """This thread's scratch memory, at least `size` bytes, aligned to a page."""
    held: np.ndarray[Any, Any] | None = getattr(_local, "scratch", None)
    if held is None or held.nbytes < size:
        raw = np.zeros(size + 4096, np.uint8)
        start = -raw.__array_interface__["data"][0] % 4096
        held = _local.scratch = raw[start : start + size]
    return held


if hasattr(os, "register_at_fork"):
    # threads do not survive a fork: the child makes its own
    os.register_at_fork(after_in_child=_pool.cache_clear)
