# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of bf16 by pairs: AMX and `vdpbf16ps`, the chip's own where it has them, else emulated
in LLVM IR."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.codegen.cpu import native, tile_pairs
from neptune_mlir.driver.inputs import bf16_bits
from neptune_mlir.pipelines import cpu
from neptune_mlir.targets.cpu import CpuTarget, host
from support.pair_instructions import emulated

HOW = ("dots", "tiles")


@pytest.fixture(params=HOW)
def pairs(request, monkeypatch, tmp_path):
    """Compile for a chip with these instructions."""
    ranks = ("none", "dots", "tiles")
    real = ranks.index(host().pairs) >= ranks.index(request.param)
    wide = dataclasses.replace(host(), vector_bits=512, vector_registers=32)
    monkeypatch.setattr(CpuTarget, "pairs", request.param)
    monkeypatch.setattr(cpu, "host", lambda: wide)
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path))
    made = []
    compiled = native.object_code

    def object_code(text, target, **options):
        made.append(text)
        return compiled(text if real else emulated(text), target, **options)

    monkeypatch.setattr(native, "object_code", object_code)
    if not real:
        monkeypatch.setenv("NEPTUNE_NUM_THREADS", "1")
    return made


def rounded(values):
    return bf16_bits(np.asarray(values, np.float32))


def wide(bits):
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def attention(q, k, v, causal):
    """In f64, of bf16 numbers as bits."""
    q, k, v = map(wide, (q, k, v))
    s = q @ np.swapaxes(k, -1, -2) / 8
    if causal:
        rows, columns = s.shape[-2:]
        seen = np.tri(rows, columns, columns - rows, dtype=bool)
        s = np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v


def run(kernel, *arrays):
    return wide(np.asarray(kernel(*(x.view(ml_dtypes.bfloat16) for x in arrays))).view(np.uint16))


@pytest.mark.parametrize("causal", [False, True])
def test_attention(pairs, causal):
    """Queries and keys that end within tiles."""
    kernel = neptune.compile(ops.attention(head_dim=64, dtype="bf16", causal=causal))
    name = {"dots": "dpbf16ps.512", "tiles": "tdpbf16ps"}[CpuTarget.pairs]
    random = np.random.default_rng(0)
    for queries, keys in ((150, 150), (128, 256), (40, 131)):
        q, k, v = (rounded(random.standard_normal((1, 2, n, 64))) for n in (queries, keys, keys))
        wanted = attention(q, k, v, causal)
        assert np.abs(run(kernel, q, k, v) - wanted).max() < 0.02, (queries, keys)
    assert any(name in text for text in pairs)


def test_no_number_needs_f32(pairs, monkeypatch):
    """Ordinary numbers do not take the code for others."""
    multiply = tile_pairs.PairProducts.multiply
    monkeypatch.setattr(
        tile_pairs.PairProducts, "multiply",
        lambda self, c, start, scratch, otherwise: multiply(self, c, start, scratch, lambda: None),
    )  # fmt: skip
    kernel = neptune.compile(ops.attention(head_dim=64, dtype="bf16"))
    random = np.random.default_rng(1)
    q, k, v = (rounded(random.standard_normal((1, 1, 128, 64))) for _ in range(3))
    assert np.abs(run(kernel, q, k, v) - attention(q, k, v, False)).max() < 0.02


# what q, k and v are multiplied by, so that one is denormal; and weights of 1 and e^-88
DENORMAL = {"v": (1, 1, 2.0**-127), "q": (2.0**-127, 2.0**126, 1), "p": None}


@pytest.mark.parametrize("which", DENORMAL)
def test_denormal_numbers(pairs, which):
    """Neither a value nor a weight that is denormal counts as zero."""
    kernel = neptune.compile(ops.attention(head_dim=64, dtype="bf16"))
    random = np.random.default_rng(2)
    if DENORMAL[which] is not None:
        case = [random.standard_normal((128, 64)) * scale for scale in DENORMAL[which]]
    else:
        case = [np.zeros((128, 64)), np.zeros((128, 64)), np.full((128, 64), 1e38)]
        case[0][:, 0], case[1][1:, 0], case[2][0] = 88 * 8, -1, 0
    q, k, v = (rounded(x.reshape(1, 1, 128, 64)) for x in case)
    wanted = attention(q, k, v, False)
    assert np.abs(run(kernel, q, k, v) - wanted).max() < 0.02 * np.abs(wanted).max() + 2.0**-133
