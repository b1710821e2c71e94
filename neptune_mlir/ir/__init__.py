# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What stands on MLIR alone: the bindings, and affine forms of indices."""
