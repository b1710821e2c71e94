# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pure Python algebra: terms, the correction solver, proofs. Imports no MLIR."""
