# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Backward passes on specialised warps, right on the simulator: tiles that lie the other way round,
and vectors of f32 beside them."""

from __future__ import annotations

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.targets.tuned import Choice
from neptune_mlir.zoo import relative_error
from support.chips.run_kernels import Specialised


@pytest.mark.parametrize(("wrt", "causal"), [
    (("k", "v"), True), (("k", "v"), False), (("q",), True)
])  # fmt: skip
def test_attention(wrt, causal):
    """dK and dV by a stream over the queries, dQ by one over the keys; lengths that end in a
    tile."""
    program = ops.attention(head_dim=64, dtype="f16", causal=causal, align="start")
    forward, backward = neptune.vjp(program, wrt=wrt)
    rng = np.random.default_rng(1)
    q, k, v, d_out = (rng.standard_normal((1, 1, n, 64)).astype(np.float16)
                      for n in (150, 90, 90, 150))  # fmt: skip
    out, lse = forward.reference(*(x.astype(float) for x in (q, k, v)))
    given = {"q": q, "k": k, "v": v, "out0": out.astype(np.float16),
             "saved0": lse.astype(np.float32), "d_out0": d_out}  # fmt: skip
    arrays = [given[n] for n in backward.inputs]
    kernel = Specialised(backward, Choice(128, 64, resident=False))
    found = kernel(*arrays)
    assert any(block.products and block.threads == 3 * 128 for block in kernel.blocks)
    wanted = backward.reference(*(x.astype(float) for x in arrays))
    many = isinstance(wanted, tuple)
    for f, w in zip(found if many else [found], wanted if many else [wanted], strict=True):
        assert relative_error(f, w) < 2e-3
