# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as a formula: the compiler finds the one-pass kernel, no hint given.

    python examples/attention.py
"""

import numpy as np

import neptune_mlir as neptune
from neptune_mlir.frontend.notation import Program, exp, inf, max, sum, where

p = Program("attention")
b, h, i, j, d, e = p.axes("b h i j d e", d=64, e=64)  # sizes not given: known at run time
q, k, v = p.input("q", b, h, i, d), p.input("k", b, h, j, d), p.input("v", b, h, j, e)
s = where(j <= i, sum(q[b, h, i, d] * k[b, h, j, d], d) / 8, -inf)
w = exp(s - max(s, j))
p.output(sum(w / sum(w, j) * v[b, h, j, e], j), b, h, i, e)

kernel = neptune.compile(p)
print(kernel.explain())

rng = np.random.default_rng(0)
for length in (100, 257):  # one compilation serves every length
    arrays = rng.standard_normal((3, 2, 4, length, 64)).astype(np.float32)
    error = np.abs(kernel(*arrays) - p.reference(*arrays)).max()
    print(f"length {length}: worst error against float64 {error:.1e}")
    assert error < 1e-5
