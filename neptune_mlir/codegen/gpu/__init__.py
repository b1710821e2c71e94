# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR with layouts to the code of one thread."""
