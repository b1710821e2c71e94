# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of StableHLO in forms that have a conversion to linalg."""
