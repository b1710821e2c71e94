# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention with score and mask modifiers of your own, in the style of FlexAttention.

The functions are traced, not called per score. They take further inputs by name, and those are
run-time values: no recompilation for another slope, window or set of documents.

    python examples/flex_attention.py
"""

import numpy as np

import neptune_mlir as neptune
from neptune_mlir.frontend.notation import tanh
from neptune_mlir.ops import Extra


def score_mod(score, b, h, q, kv, slope):
    """ALiBi, then a soft cap."""
    return 20.0 * tanh((score + slope[h] * (kv - q)) / 20.0)


def mask_mod(b, h, q, kv, doc, window):
    """Causal, within a document, and not further back than the window."""
    return (q >= kv) & (doc[b, q] == doc[b, kv]) & (q - kv < window)


program = neptune.ops.attention(
    head_dim=32,
    group=2,  # two query heads share a key head
    score_mod=score_mod,
    mask_mod=mask_mod,
    inputs={"slope": Extra("h"), "doc": Extra("b kv", "i32"), "window": Extra(dtype="index")},
)
kernel = neptune.compile(program)

rng = np.random.default_rng(0)
q = rng.standard_normal((2, 4, 150, 32)).astype(np.float32)
k, v = rng.standard_normal((2, 2, 2, 150, 32)).astype(np.float32)
slope = 2.0 ** -np.arange(1, 5, dtype=np.float32)
doc = np.sort(rng.integers(0, 3, (2, 150)), axis=1).astype(np.int32)
for window in (16, 64):
    out = kernel(q, k, v, slope, doc, window)
    error = np.abs(out - program.reference(q, k, v, slope, doc, window)).max()
    print(f"window {window}: worst error against float64 {error:.1e}")
    assert error < 1e-5
