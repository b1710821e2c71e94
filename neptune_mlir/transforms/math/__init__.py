# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementary functions as arithmetic: one table of coefficients for all targets."""
