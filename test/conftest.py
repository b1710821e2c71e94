# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""For every test: no user's tuning table, and compiled Python files for the processes it starts."""

import os

from neptune_mlir.targets import tuned
from support.small_tiles import small_tiles

__all__ = ["small_tiles"]

os.environ[tuned.ENVIRONMENT] = "none"  # a user's table is no test's
# Hundreds of processes import this package: without its compiled files a quarter of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
