# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR on CPUs: destinations of tiles, loop orders, kernels and the launch plan."""
