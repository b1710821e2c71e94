# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What groups of warps of one program give each other, and when they take turns."""
