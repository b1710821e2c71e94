# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of factors whose rows are not aligned: copied, and multiplied by warp groups."""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir.frontend import notation as N
from neptune_mlir.transforms.schedule import aligned_factors
from support.chips.run_kernels import Specialised


@pytest.fixture(autouse=True)
def small_products(monkeypatch):
    monkeypatch.setattr(aligned_factors, "LEAST_WORK", 0)
    monkeypatch.setattr(aligned_factors, "WORTH", 1)


def product(rows, summed, columns, dtype, across=True, batch=0):
    """Σ_k x[m, k] w[k, n] (not `across`: w[n, k])."""
    p = N.Program("product")
    m, k, n = p.axis("m", rows), p.axis("k", summed), p.axis("n", columns)
    b = (p.axis("b", batch),) if batch else ()
    x = p.input("x", *b, m, k, dtype=dtype)
    w = p.input("w", *((k, n) if across else (n, k)), dtype=dtype)
    wide = [N.cast(x[(*b, m, k)], "f32"), N.cast(w[(k, n) if across else (n, k)], "f32")]
    p.output(N.sum(wide[0] * wide[1], k), *b, m, n, dtype=dtype)
    return p


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


@pytest.mark.parametrize(("shape", "across"), [
    ((130, 67, 261), True), ((130, 67, 256), False), ((256, 96, 131), True),
])  # fmt: skip
def test_values(shape, across):
    rows, summed, columns = shape
    run = Specialised(product(*shape, "f16", across), blocks=2)
    pitches = [b.pitch for b in run.plan.buffers]
    odd = [summed % 8 != 0, (columns if across else summed) % 8 != 0]
    assert sorted(pitches) == sorted([1, *[64] * sum(odd)])
    x, w = numbers(rows, summed), numbers(*((summed, columns) if across else (columns, summed)))
    want = x.astype(np.float64) @ (w if across else w.T).astype(np.float64)
    np.testing.assert_allclose(run(x, w).astype(np.float64), want, rtol=2e-3, atol=2e-3)


def test_what_is_over_soon(monkeypatch):
    """Nothing is copied for a product that is over before a copy is."""
    monkeypatch.setattr(aligned_factors, "WORTH", 1 << 20)
    p = product(128, 67, 256, "f16")
    assert all(b.pitch == 1 for b in Specialised(p).plan.buffers)
