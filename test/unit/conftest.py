# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the helpers in this folder (`fused_programs`, `tile_exec`) importable by every test."""

from small_tiles import small_tiles

__all__ = ["small_tiles"]
