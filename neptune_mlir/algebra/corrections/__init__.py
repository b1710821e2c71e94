# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Corrections of other forms than the usual: eager ones, references that move in steps, factors that
move, rows that saw nothing."""
