# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images for a call that comes, made beside the one for any call: each by a process of its own.

    a call:  tiles for any call, its kernels ─┬─ which calls take others ─ ... ──┐
    LLVM, ptxas of it:                        └──────────────────────────────────┼─ both
    a fork:                      kernels, LLVM, ptxas of the call's own image ───┘

From tile IR to LLVM's text is the work of Python, of which a process does one thing at a time. So a
process that has imported the compiler (`child.forked`) forks for an image. What it makes is what
this process would make, and what it cannot make is tried here again, which says why. It takes
processors that have nothing else to do: with few, images are made one after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextvars import ContextVar

from neptune_mlir import child
from neptune_mlir.codegen import llvm_child
from neptune_mlir.errors import OutOfMemory, Refused
from neptune_mlir.runtime.bundle import Bundle

NAME = "neptune_mlir.pipelines.image_process"
CORES = 8  # with which it pays: this process, two images, some that a later case is better than
TIMEOUT = 300.0
_REFUSALS = {kind.__name__: kind for kind in (OutOfMemory, Refused)}

_used: ContextVar[bool] = ContextVar("used", default=False)


def is_worth() -> bool:
    """Whether processors are left, and nobody wants to see what an image goes through."""
    if "NEPTUNE_DUMP" in os.environ or not hasattr(os, "sched_getaffinity"):
        return False
    return len(os.sched_getaffinity(0)) >= CORES


def start() -> None:
    """Have what images need imported, while something else is done."""
    llvm_child.start()
    if is_worth():
        child.start(NAME)


@contextlib.contextmanager
def used() -> Iterator[None]:
    """Within: images are made by other processes."""
    token = _used.set(True)
    try:
        yield
    finally:
        _used.reset(token)


def is_used() -> bool:
    return _used.get()


def make(pipeline: str, tiles: str, chip: str, entry: str, source: str) -> Bundle | None:
    """The bundle of one image; None, where something is wrong with it that a fork cannot say.

    Args:
        pipeline: the module with `begin_tiles` for the chip.
        tiles: the text of a tile program, with locations.
        source: what diagnostics call its program.

    Raises:
        OutOfMemory, Refused: the target does not take it.
    """
    late = f"the code for {chip} was not made in {TIMEOUT:g} s"
    ended = child.forked(NAME, [pipeline, chip, entry, source], tiles.encode(), TIMEOUT, late)
    if ended.status or not ended.made:
        return None
    if Bundle.begins(ended.made):
        return Bundle.from_bytes(ended.made)
    kind, message, loc, hint = json.loads(ended.made)
    raise _REFUSALS[kind](message, loc=loc, hint=hint)
