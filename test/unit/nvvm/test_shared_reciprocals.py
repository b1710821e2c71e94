# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tangents of a try share reciprocals, and rows do not: not what one has that is no number, and not
what overflows in one."""

from __future__ import annotations

import numpy as np

from neptune_mlir import ops
from neptune_mlir.codegen.gpu.functions import TOGETHER
from neptune_mlir.targets.tuned import Choice
from support.chips.run_kernels import Specialised

HEAD, STREAM, QUERIES, KEYS = 64, 64, 128, 333
ODD, LARGE, OPPOSITE = 3, 40, 77


def test_capped_scores():
    program = ops.attention(head_dim=HEAD, dtype="f16", softcap=5.0)
    kernel = Specialised(program, Choice(128, STREAM, resident=False))
    tile, rows = 64 * STREAM // 128, 2  # of a thread
    # first tiles, and tiles whose try failed, each with a mask and without; tries; the last sums
    wanted = 4 * tile + 2 * tile // TOGETHER + rows
    assert str(kernel.module).count("nvvm.rcp") == wanted
    rng = np.random.default_rng(5)
    q = rng.standard_normal((1, 1, QUERIES, HEAD)).astype(np.float16)
    k, v = rng.standard_normal((2, 1, 1, KEYS, HEAD)).astype(np.float16)
    q[..., LARGE, :] = 200 * k[..., -105, :]  # exp(2x) of some scores is infinite, of others 0
    q[..., OPPOSITE, :] = -200 * k[..., -110, :]
    q[..., ODD, 7], k[..., -100, 7] = 0, np.inf  # no number in one row, infinite in others
    found, want = kernel(q, k, v), program.reference(*(x.astype(float) for x in (q, k, v)))
    assert np.isnan(found[..., ODD, :]).all()
    others = np.arange(QUERIES) != ODD
    error = np.linalg.norm((found - want)[..., others, :], axis=-1)
    assert (error < 2e-3 * np.linalg.norm(want[..., others, :], axis=-1)).all()
    assert kernel.blocks[0].products_by_warp  # of warps whose try failed
