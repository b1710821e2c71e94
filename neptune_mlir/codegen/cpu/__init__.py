# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR to vector code over flat memory, and to machine code for a CPU."""
