# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar functions of an installed package, for lit tests."""

from neptune_mlir.algebra.functions import Function, register
from neptune_mlir.algebra.terms import make

register(Function("lit_double", 1, lambda x: make("add", x, x)))
register(Function("lit_norm", 2, lambda x, y: make("sqrt", make("add", make("mul", x, x),
                                                                 make("mul", y, y)))))  # fmt: skip
