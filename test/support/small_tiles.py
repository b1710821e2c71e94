# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The shipped schedules with tiny tiles, so that small tensors take several steps of a stream."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def tiny() -> Iterator[None]:
    """Schedules are chosen as always, but have 4 rows and 4 steps of the stream a tile."""
    # (every test session imports this module, on a GPU's machine without MLIR too)
    from neptune_mlir.pipelines import cpu
    from neptune_mlir.transforms.schedule import library

    knob = re.compile(r'knob<"(rows|stream)"> = 0 from options = \[0')
    small = {
        name: knob.sub(r'knob<"\1"> = 4 from options = [4', text)
        for name, text in library.shipped().items()
    }
    tiled = [text for text in small.values() if re.search('knob<"(rows|stream)">', text)]
    assert len(tiled) > 4
    assert all("= 4 from options" in text for text in tiled)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEPTUNE_CACHE_DIR", os.path.join(folder, "cache"))
        patch.setattr(library, "shipped", lambda: small)
        patch.setattr(cpu, "KNOBS", {})
        yield


@pytest.fixture(scope="module")
def small_tiles():
    with tiny():
        yield
