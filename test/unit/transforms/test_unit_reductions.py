# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of one element, where the program says so: no stream, and NaN where unfused has it."""

import numpy as np

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.driver.compiler import compile_unfused
from neptune_mlir.frontend import notation as N


def test_softmax_of_one_element():
    program = ops.softmax(cols=1)
    kernel = neptune.compile(program)
    assert not kernel.facts["fused"]
    x = np.array([[3.0], [-1e30], [np.inf], [-np.inf], [np.nan], [0.0]], np.float32)
    np.testing.assert_array_equal(kernel(x), compile_unfused(program.to_mlir(), "one", None)(x))
    np.testing.assert_array_equal(
        np.isnan(kernel(x))[:, 0], [False, False, True, True, True, False]
    )


def test_an_outer_product():
    p = N.Program("outer")
    i, j, k = p.axis("i"), p.axis("j"), p.axis("k", 1)
    a, b = p.input("a", i, k), p.input("b", k, j)
    p.output(N.sum(a[i, k] * b[k, j], k), i, j)
    x, y = np.arange(5, dtype=np.float32)[:, None], np.arange(7, dtype=np.float32)[None]
    np.testing.assert_array_equal(neptune.compile(p)(x, y), x * y)
