# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which way this thread's processor rounds what floats cannot hold: C's `fesetround`."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import partial
from typing import Any

NEAREST = 0
# Down and up in <fenv.h>: the two bits of a register that say it.
_MODES = {"x86_64": (1 << 10, 2 << 10), "aarch64": (2 << 22, 1 << 22)}
WAYS = _MODES.get(platform.machine(), ())


def each_way(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """A function with all of its roundings down, and with all of them up; none of the two on a
    processor of which nobody knows how to say that."""
    return [partial(_rounding, way, function) for way in WAYS]


def _rounding(way: int, function: Callable[..., Any], *arguments: Any) -> Any:
    library = ctypes.CDLL(None)
    library.fesetround(way)
    try:
        return function(*arguments)
    finally:
        library.fesetround(NEAREST)
