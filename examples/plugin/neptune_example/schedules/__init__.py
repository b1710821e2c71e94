# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedules of this package: NAME.mlir is the one that the entry point NAME stands for."""
