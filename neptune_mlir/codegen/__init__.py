# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From MLIR's LLVM dialect to machine code, and the pieces that lowerings to it share."""
