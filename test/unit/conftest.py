# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the helpers in this folder (`fused_programs`, `tile_exec`) importable by every test."""

import os

from small_tiles import small_tiles

from neptune_mlir.targets import tuned

__all__ = ["small_tiles"]

os.environ[tuned.ENVIRONMENT] = "none"  # a user's table is no test's
