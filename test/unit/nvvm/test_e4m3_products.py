# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of two factors of e4m3 on specialised warps: attention whose q, k, v and weights have
8 bits, run on the simulator."""

import functools

import ml_dtypes
import numpy as np
import pytest

from neptune_mlir import ops
from support.chips.run_kernels import Specialised

E4M3 = ml_dtypes.float8_e4m3fn
DIM, ROWS, KEYS, WINDOW = 64, 70, 256, 90


@functools.cache
def kernel(causal):
    program = ops.e4m3_attention(
        head_dim=DIM, batch=1, heads=2, kv_len=KEYS, causal=causal, scales=True
    )
    return Specialised(program)


def references(q, k, v, scales, causal):
    """The result in f64: exact, and with weights that are rounded to e4m3 as the program says."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    by_head = [s.astype(np.float64)[None, :, None, None] for s in scales]
    s = np.einsum("bhid,bhjd->bhij", q, k) * DIM**-0.5 * by_head[0] * by_head[1]
    if causal:
        s = np.where(np.arange(KEYS) <= np.arange(ROWS)[:, None] + KEYS - ROWS, s, -np.inf)
    w = np.exp(s - s.max(-1, keepdims=True))
    rounded = w.astype(np.float32).astype(E4M3).astype(np.float64)
    return [x / w.sum(-1, keepdims=True) @ v * by_head[2] for x in (w, rounded)]


def moved(kind, q, k):
    """Scores that grow or fall along the keys, so that references move in each tile or never."""
    if kind in ("growing", "falling"):
        q[..., 0] = 8
        k[..., 0] = np.arange(KEYS) * (0.08 if kind == "growing" else -0.08)
    return (q * 8, k) if kind == "large" else (q, k)


@pytest.mark.first_of_each("kind")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["random", "growing", "falling", "large"])
def test_attention_is_as_exact_as_its_weights(kind, causal):
    generator = np.random.default_rng(0)
    q, k, v = (generator.standard_normal((1, 2, n, DIM)) for n in (ROWS, KEYS, KEYS))
    q, k = moved(kind, q, k)
    q, k, v = (x.astype(E4M3) for x in (q, k, v))
    scales = [np.array(s, np.float32) for s in ([0.5, 2], [1.5, 0.7], [3, 0.1])]
    made = kernel(causal)
    found = made(*(x.view(np.uint8) for x in (q, k, v)), *scales).astype(np.float64)
    exact, rounded = references(q, k, v, scales, causal)
    size = np.linalg.norm(exact)
    error, bound = np.linalg.norm(found - exact) / size, np.linalg.norm(rounded - exact) / size
    # (a weight of 1 is exact where references are maxima; where they lag none is)
    assert error < max(1.3 * bound, 0.025)
    assert 0.004 < bound < 0.04  # that is what 4 bits cost
    assert sum(block.products for block in made.blocks) > 8


@functools.cache
def kernel_of_any_length():
    return Specialised(ops.e4m3_attention(head_dim=DIM, causal=True, window=WINDOW))


@pytest.mark.parametrize("keys", [256, 250, 33])
def test_numbers_of_keys_that_a_call_knows(keys):
    """Rows of the copied values begin at multiples of 128 bytes, whatever their length is, and
    tiles under a window begin with whole 16s."""
    generator, made = np.random.default_rng(0), kernel_of_any_length()
    q, k, v = (generator.standard_normal((1, 2, n, DIM)).astype(E4M3) for n in (ROWS, keys, keys))
    found = made(*(x.view(np.uint8) for x in (q, k, v))).astype(np.float64)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = np.einsum("bhid,bhjd->bhij", q, k) * DIM**-0.5
    ago = np.arange(ROWS)[:, None] + keys - ROWS - np.arange(keys)
    w = np.where((ago >= 0) & (ago < WINDOW), np.exp(s - s.max(-1, keepdims=True)), 0)
    wanted = w / np.maximum(w.sum(-1, keepdims=True), 1e-30) @ v
    assert np.linalg.norm(found - wanted) < 0.025 * np.linalg.norm(wanted)
    assert [b.pitch for b in made.plan.buffers] == [128, 1]


@pytest.mark.parametrize("made", [lambda: kernel(True), kernel_of_any_length])
def test_references_are_kept(made):
    """Rounding weights to 8 bits compares numbers, and is no mask: warps try old references, and
    multiply again on their own where these do not do."""
    assert "nvvm.mma.sync" in str(made().module)


def test_values_are_copied_with_keys_along_rows():
    copied, attention = kernel(False).plan.launches
    assert copied.kernel != attention.kernel
    (buffer,) = [b for b in kernel(False).plan.buffers if b.dtype == "i8"]
    assert list(buffer.shape[-2:]) == [DIM, KEYS]
