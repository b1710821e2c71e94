# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Up to where front ends write out in parallel what is else a loop."""

# Elements (or slices) of a row times updates of it, which a scatter compares: each target has these
# in parallel. Longer rows are loops over updates.
PAIRS = 1 << 16
