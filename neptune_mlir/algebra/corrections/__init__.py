# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Other forms of corrections: eager ones, references that move in steps, factors that move,
and rows that saw nothing."""
