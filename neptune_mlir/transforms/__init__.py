# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes, one a file; `registry` maps their names to them."""
