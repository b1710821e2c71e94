# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel for CPUs leaves in memory that it reads later."""

import numpy as np

import neptune_mlir as neptune
from neptune_mlir.frontend import notation as N
from support import poison


def correlation():
    """One of rows, with weights of any sign: two tiles are made in the loop that sums them, and a
    sum that takes away does not run along its vectors."""
    p = N.Program("correlation")
    i, j = p.axis("i"), p.axis("j")
    x, y, w = (N.cast(p.input(name, i, j, dtype="f16")[i, j], "f32") for name in "xyw")
    x, total = x * -1.0, N.sum(w, j)
    dx, dy = (a - N.sum(w * a, j) / total for a in (x, y))
    both, first, second = (N.sum(w * (a * b), j) / total for a, b in ((dx, dy), (dx, dx), (dy, dy)))
    p.output(both * N.rsqrt(first * second + 1e-6), i)
    return p


def test_ragged_tiles_hold_nothing_that_was_not_written():
    # wrong by 1e12 beside what the last kernel had left, and right in a new process (before)
    kernel = neptune.compile(correlation(), numerics="fast")
    for rows, columns in ((5, 37), (3, 300)):
        generator = np.random.default_rng(0)
        x, y, w = generator.standard_normal((3, rows, columns)).astype(np.float16)
        poison.install(0)
        clean = kernel(x, y, w)
        poison.install()
        found = kernel(x, y, w)
        assert np.isfinite(found).any()
        np.testing.assert_array_equal(found, clean)
