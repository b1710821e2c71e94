# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f32 as TF32 on specialised warps: on the simulator, and as ptxas takes them."""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir.frontend import notation
from support.chips.run_kernels import Specialised

ROUNDED = 2.0**-11  # of a factor, at most


def product(rows, columns, length, left="mk", right="nk", batch=0, finish=None):
    """`left` and `right`: how the factors lie in memory."""
    p = notation.Program("product")
    own = (p.axis("b", batch),) if batch else ()
    at = {"m": p.axis("i", rows), "n": p.axis("j", columns), "k": p.axis("k", length)}
    x_at, w_at = ((*own, *(at[c] for c in order)) for order in (left, right))
    x, w = p.input("x", *x_at, dtype="f32"), p.input("w", *w_at, dtype="f32")
    found = notation.sum(x[x_at] * w[w_at], at["k"])
    if finish is not None:
        found = finish(p, found, at)
    p.output(found, *own, at["m"], at["n"], dtype="f32")
    return p


def bias_and_relu(p, found, at):
    bias = p.input("bias", at["n"], dtype="f32")
    return notation.maximum(found + bias[at["n"]], 0.0)


def factors(left, right, sizes, batch=()):
    rng = np.random.default_rng(7)
    shapes = [(*batch, *(sizes[c] for c in order)) for order in (left, right)]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def expected(x, w, left, right):
    exact = [a.astype(np.float64) for a in (x, w)]
    b = "b" if x.ndim == 3 else ""
    form = f"{b}{left},{b}{right}->{b}mn"
    return np.einsum(form, *exact), np.einsum(form, *map(abs, exact))


def rounds_to_nearest(found, want, size):
    """Factors that are rounded, not cut off: errors that do not add up to one side."""
    bound = 2 * ROUNDED * size
    assert (abs(found - want) <= bound).all()
    assert abs(np.mean((found - want) / size)) < ROUNDED / 16


@pytest.mark.parametrize("left", ["mk", "km"])
@pytest.mark.parametrize("right", ["nk", "kn"])
def test_factors_that_lie_either_way(left, right):
    if (left, right) == ("km", "kn"):
        pytest.skip("neither factor has the sum along its rows")
    sizes = {"m": 132, "n": 264, "k": 76}
    program = product(*sizes.values(), left, right)
    kernel = Specialised(program, precision="tf32", knobs="product_rows:128;product_columns:256")
    x, w = factors(left, right, sizes)
    found = kernel(x, w)
    assert all(block.products and not block.products_by_warp for block in kernel.blocks)
    rounds_to_nearest(found, *expected(x, w, left, right))
