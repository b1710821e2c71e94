# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A package that adds a pass, a schedule, a scalar function, a combiner, a chip and a pattern to
neptune-mlir (docs/extending.md)."""
