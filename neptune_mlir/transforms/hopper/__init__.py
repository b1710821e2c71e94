# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR on sm_90a: a producer and consumers, software-pipelined products."""
