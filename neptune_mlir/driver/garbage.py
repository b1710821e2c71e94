# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How often Python looks for cyclic garbage while something is compiled.

A compilation and its imports make hundreds of thousands of objects, of which few are in cycles.
After each 700 that are left over, Python looks at the young ones, and now and then at all that the
process has: with torch imported that is a tenth of a short compilation. Where a command ends, it
looks once more at all that there is: the system takes that back anyhow.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
from collections.abc import Iterator

RARELY = 200_000  # objects between two looks: some tens of megabytes


@contextlib.contextmanager
def collected_rarely(to_the_end: bool = False) -> Iterator[None]:
    """Within: Python looks for garbage after `RARELY` objects, or as rarely as it did before.
    `to_the_end`: the process ends behind it; else all that is new is looked at there."""
    before = gc.get_threshold()
    if not 0 < before[0] < RARELY:  # it never looks, or this is within another one
        yield
        return
    gc.set_threshold(RARELY, *before[1:])
    try:
        yield
    finally:
        if gc.get_threshold()[0] == RARELY and not to_the_end:  # nobody else has changed it
            gc.set_threshold(*before)


def left_at_the_end() -> None:
    """Python does not look for garbage when this process ends: a tenth of a cold compilation."""
    atexit.unregister(gc.freeze)  # (once, however many commands a process runs)
    atexit.register(gc.freeze)
