# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention in tile IR, distributed to threads, right on the simulator for ragged lengths."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from support.chips.run_kernels import Simulated
from support.tile_programs import attention

simulated = functools.cache(Simulated)  # a program for several lengths


def reference(q, k, v, scale, causal):
    s = np.einsum("bhid,bhjd->bhij", q, k) * scale
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", p / p.sum(-1, keepdims=True), v)


def check(
    head, tile_i, tile_j, n, causal, dtype="f16", tolerance=2e-3, b=1, h=1, precision="", **options
):
    rng = np.random.default_rng(0)
    text = attention(head, tile_i, tile_j, causal=causal, dtype=dtype)
    if precision:
        body = text.index("{\n", text.index("func.func @attention"))
        text = f'{text[:body]} attributes {{neptune.precision = "{precision}"}} {text[body:]}'
    program = simulated(text, **options)
    q, k, v = (rng.standard_normal((b, h, n, head)).astype(np.float32) for _ in range(3))
    kind = {"f16": np.float16, "f32": np.float32, "bf16": np.float32}[dtype]
    q, k, v = (x.astype(kind) for x in (q, k, v))
    scale = head**-0.5
    out = program(q, k, v, scale).astype(np.float64)
    want = reference(*(x.astype(np.float64) for x in (q, k, v)), scale, causal)
    error = np.linalg.norm(out - want) / np.linalg.norm(want)
    assert error < tolerance, error
    return program


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 64, 130])
def test_f16(n, causal):
    check(64, 64, 64, n, causal)


def test_p_stays_in_registers():
    program = check(64, 64, 32, 70, False, h=2)
    assert not program.remarks
    assert "linalg.copy" not in program.assigned


SHAPES = {
    "bf16": (64, 64, 64, 100, True, "bf16", 1.2e-2),
    "head 80": (80, 64, 32, 70, False),
    "head 128, 8 warps": (128, 128, 32, 130, True),
    "narrow rows": (64, 16, 64, 40, True),
    "32 rows": (64, 32, 64, 40, False),
    "head 24 fits no instruction": (24, 16, 16, 40, True),
    "f32 without matrix instructions": (32, 32, 32, 50, True, "f32", 1e-5),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    check(*SHAPES[name])


@pytest.mark.parametrize(("n", "causal"), [(50, True), (130, False)])
def test_tf32(n, causal):
    """Where the program allows it, f32 products run on matrix instructions, P in registers."""
    program = check(32, 64, 32, n, causal, "f32", 1e-3, precision="tf32")
    assert "16x8x8 f32" in program.assigned and "linalg.copy" not in program.assigned
    with pytest.raises(AssertionError):  # less exact than without
        check(32, 64, 32, n, causal, "f32", 1e-5, precision="tf32")


@pytest.mark.first_of_each()
@pytest.mark.parametrize("slots", [3, 1, 2, 4])
def test_stages(slots):
    check(64, 64, 32, 200, True, slots=slots)


def test_one_stage_waits_for_slow_threads():
    """Without stages a loop overwrites the tile that the iteration before reads: a barrier."""
    program = check(64, 64, 32, 100, False, slots=1)
    (kernel,) = program.functions().values()
    loops = [o.operation for o in kernel.regions[0].blocks[0].operations
             if o.operation.name == "scf.for"]  # fmt: skip
    for loop in loops:
        names = [o.operation.name for o in loop.regions[0].blocks[0].operations]
        assert names.index("gpu.barrier") < names.index("nvvm.cp.async.shared.global")


@pytest.mark.first_of_each()
@pytest.mark.parametrize("warps", [8, 1, 2])
def test_warps(warps):
    check(64, 64, 64, 100, True, warps=warps)
