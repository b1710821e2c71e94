# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A package that adds a pass and a schedule to neptune-mlir (docs/extending.md)."""
