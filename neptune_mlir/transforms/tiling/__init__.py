# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fused nests to tile IR: one program over static tiles, and the host's plan."""
