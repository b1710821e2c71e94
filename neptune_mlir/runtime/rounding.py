# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which way this thread's processor rounds what floats cannot hold: C's `fesetround`."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

# What <fenv.h> has for downwards and upwards; to the nearest is 0.
_MODES = {"x86_64": (0x400, 0x800), "aarch64": (0x800000, 0x400000)}
WAYS = _MODES.get(platform.machine(), ())


@contextmanager
def rounded(way: int) -> Iterator[None]:
    """Round in one of WAYS, of which there may be none."""
    library = ctypes.CDLL(None)
    library.fesetround(way)
    try:
        yield
    finally:
        library.fesetround(0)
