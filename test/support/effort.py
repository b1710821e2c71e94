# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How hard LLVM works on the CPU code of a test.

Most tests ask what a result is, and half of their time was LLVM's: they have code that it has not
optimised. `NEPTUNE_EFFORT=3` gives all of them the code of the product. Processes that tests start
always have it, but for commands of lit, which are forks of one that has not (`lit_process.py`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

AS_SHIPPED = 3
USUAL = int(os.environ.get("NEPTUNE_EFFORT", "0"))
SHARE = 8  # of random programs one of so many is compiled as it is shipped


def begin() -> None:
    """Set the usual effort, in the context that tests run in."""
    # (every test session imports this module, on a GPU's machine without MLIR too)
    from neptune_mlir.targets.cpu import EFFORT

    EFFORT.set(USUAL)


@contextmanager
def shipped() -> Iterator[None]:
    """Code as the product has it."""
    from neptune_mlir.targets.cpu import EFFORT

    token = EFFORT.set(AS_SHIPPED)
    try:
        yield
    finally:
        EFFORT.reset(token)


@contextmanager
def code_of(seed: int) -> Iterator[None]:
    """The effort for the random program of a seed."""
    if seed % SHARE:
        yield
    else:
        with shipped():
            yield


@pytest.fixture
def as_shipped():
    """For a test of how fast code for CPUs is, or of which code it is."""
    with shipped():
        yield
