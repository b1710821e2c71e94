# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dependent reductions that are not attention: a variance under softmax weights.

Written in the obvious way the rows are read four times: the maximum, the sum of weights, the
weighted mean, and the squares around that mean. Compiled, they are read once; the last
reduction needs accumulators that the program does not have, and the compiler adds them.

    python examples/weighted_variance.py
"""

import numpy as np

import neptune_mlir as neptune
from neptune_mlir.frontend.notation import Program, exp, max, sum

p = Program("weighted_variance")
i, j = p.axes("i j")
score, x = p.input("score", i, j)[i, j], p.input("x", i, j)[i, j]
w = exp(score - max(score, j))
total = sum(w, j)
mean = sum(w * x, j) / total
p.output(sum(w * (x - mean) ** 2, j) / total, i)

kernel = neptune.compile(p)
print(kernel.explain())

rng = np.random.default_rng(0)
score = rng.standard_normal((100, 1000)).astype(np.float32)
x = (1000 + rng.standard_normal((100, 1000))).astype(np.float32)  # far from 0: nothing cancels
wanted = p.reference(score, x)
error = np.abs(kernel(score, x) / wanted - 1).max()
print(f"worst relative error against float64 {error:.1e}")
assert error < 1e-5
