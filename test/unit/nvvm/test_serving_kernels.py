# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads through tables on GPUs: right on the simulators of both makers, whatever unused pages and
table entries hold, with loads that run ahead of their iteration."""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver import compiler
from support.chips.run_kernels import Simulated, Specialised
from support.serving_cases import Paged, ragged_sequences

LENGTHS = [0, 1, 15, 16, 17, 48]


def simulated(program, target):
    if target == "sm_90a":
        return Specialised(program)
    module, _ = compiler.lower_text(program.to_mlir(), "test", target, None, "tile")
    return Simulated(module, target=target)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
def test_decode_of_grouped_heads(target):
    case = Paged(LENGTHS, 16, heads=16, group=16, dim=32, dtype=np.float16)
    program = ops.paged_attention(head_dim=32, page_size=16, group=16, dtype="f16")
    kernel = simulated(program, target)
    assert not [r for r in kernel.remarks if "matrix instruction" in r.message]
    np.testing.assert_allclose(kernel(*case.arguments), case.expected()[0], atol=2e-3)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_several_queries_in_small_pages(target):
    case = Paged(LENGTHS[:4], 4, heads=2, group=1, dim=16, q_len=3)
    kernel = simulated(ops.paged_attention(head_dim=16, page_size=4, q_len=3), target)
    np.testing.assert_allclose(kernel(*case.arguments), case.expected()[0], atol=1e-5)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_sequences_one_behind_the_other(target):
    """The loop over keys is bounded by numbers that the program finds in its tile of queries."""
    rng = np.random.default_rng(0)
    queries, keys = [3, 0, 1, 70], [3, 4, 0, 75]
    starts = [np.cumsum([0, *n]).astype(np.int32) for n in (queries, keys)]
    q, k, v = (rng.standard_normal((n, 1, 16)).astype(np.float16)
               for n in (sum(queries), sum(keys), sum(keys)))  # fmt: skip
    kernel = simulated(ops.ragged_attention(head_dim=16, dtype="f16"), target)
    out = kernel(q, k, v, *starts)
    for mine, wanted, _ in ragged_sequences(q, k, v, *starts):
        np.testing.assert_allclose(out[mine], wanted, atol=3e-3)
