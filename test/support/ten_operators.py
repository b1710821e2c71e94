# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ten operators at sizes that a simulator can run, and what they compute, in float64."""

from __future__ import annotations

import numpy as np

from neptune_mlir import ops

HEADS = {"gqa": (4, 2), "softcap": (2, 1), "windowed": (4, 1), "alibi": (2, 2)}
WINDOW = 40


def small(name, head_dim=32, **options):
    """An operator with few heads and a short window."""
    heads, kv_heads = HEADS.get(name.split("_")[1], (1, 1))
    window = {"window": WINDOW} if name == "prefill_windowed" else {}
    return ops.operator(
        name, head_dim=head_dim, heads=heads, kv_heads=kv_heads, **window, **options
    )


def inputs(name, n, head_dim=32, seed=0):
    """q, k, v in f16, and the slopes in f32 where the operator takes them; `n` keys."""
    rng = np.random.default_rng(seed)
    heads, kv_heads = HEADS.get(name.split("_")[1], (1, 1))
    rows = 1 if name.startswith("decode") else n

    def array(*shape):
        return rng.standard_normal(shape).astype(np.float16)

    made = [array(1, heads, rows, head_dim), array(1, kv_heads, n, head_dim),
            array(1, kv_heads, n, head_dim)]  # fmt: skip
    if name.endswith("alibi"):
        made.append(rng.standard_normal(heads).astype(np.float32))
    return made


def reference(name, q, k, v, slopes=None):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1])
    i = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    j = np.arange(k.shape[2])[None]
    if slopes is not None:
        scores = scores + slopes[None, :, None, None].astype(np.float64) * (j - i)
    if name.endswith(("softcap", "windowed")):
        scores = 50 * np.tanh(scores / 50)
    live = np.ones((q.shape[2], k.shape[2]), bool) if name == "prefill_global" else j <= i
    if name == "prefill_windowed":
        live &= i - j < WINDOW
    scores = np.where(live, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", weights / weights.sum(-1, keepdims=True), v)
