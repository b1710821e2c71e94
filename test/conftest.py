# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""For every test: no user's tuning table, compiled Python files for the processes it starts, and
machine code that one test made for another."""

import gc
import os
import shutil
import tempfile

from neptune_mlir.targets import tuned
from support import kept_code
from support.small_tiles import small_tiles

__all__ = ["small_tiles"]

os.environ[tuned.ENVIRONMENT] = "none"  # a user's table is no test's
# Hundreds of processes import this package: without its compiled files a quarter of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # the workers of pytest-xdist share the folder
        config.kept_code = os.environ[kept_code.ENVIRONMENT] = tempfile.mkdtemp(prefix="neptune-")
    kept_code.install()


def pytest_unconfigure(config):
    if hasattr(config, "kept_code"):
        shutil.rmtree(config.kept_code, ignore_errors=True)


def pytest_collection_finish():
    # What imports and collection leave stays to the end: no later garbage collection walks it.
    gc.collect()
    gc.freeze()
