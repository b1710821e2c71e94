# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that a portable kernel copies element by element, since rows have any length: many elements
for each thread, whose addresses may not fill its registers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from neptune_mlir.driver.compiler import compile_text, lower_text
from neptune_mlir.frontend.notation import Program, sum
from support.chips.run_kernels import Simulated


def product(dtype):
    """[rows, inner] @ [inner, out], all of them known to a call only."""
    p = Program("product")
    i, k, j = p.axis("i"), p.axis("k"), p.axis("j")
    a, b = p.input("a", i, k, dtype=dtype), p.input("b", k, j, dtype=dtype)
    p.output(sum(a[i, k] * b[k, j], k), i, j, dtype=dtype)
    return p.to_mlir()


@cache
def simulated():
    module, _ = lower_text(product("f16"), "product", "sm_80", None, "tile")
    return Simulated(module, target="sm_80")


@pytest.mark.first_of_each()
@pytest.mark.parametrize(("dtype", "target"), [("bf16", "sm_80"), ("f16", "sm_90a")])
def test_no_spills(dtype, target):
    """1276 bytes a thread, while the loop kept an address for each element."""
    bundle = compile_text(product(dtype), "product", target, None, None, cases=False)
    (kernel,) = bundle.facts["images"][0]["kernels"].values()
    assert kernel["spills"] == 0


@pytest.mark.parametrize(
    ("rows", "inner", "out"), [(1, 1, 1), (130, 135, 67), (127, 64, 3), (128, 65, 64)]
)
def test_tiles_end_anywhere(rows, inner, out):
    rng = np.random.default_rng(rows)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((rows, inner), (inner, out)))
    assert "mov.b32" in str(simulated().module)  # addresses are made in the loop
    found = simulated()(a, b)
    want = a.astype(float) @ b.astype(float)
    assert np.linalg.norm(found - want) <= 2e-3 * np.linalg.norm(want)
