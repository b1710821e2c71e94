# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of bf16 by pairs: AMX, the chip's own where it has it, and `vdpbf16ps`, else emulated in
LLVM IR."""

import dataclasses
from contextlib import contextmanager

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


@contextmanager
def compiling_for(how, folder):
    """Compile for a chip with these instructions; gives the texts that were compiled."""
    ranks = ("none", "dots", "tiles")
    real = how == "tiles" and ranks.index(host().pairs) == 2
    wide = dataclasses.replace(host(), vector_bits=512, vector_registers=32)
    made = []
    compiled = native.object_code

    def object_code(text, target, **options):
        made.append(text)
        return compiled(text if real else emulated(text), target, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuTarget, "pairs", how)
        patch.setattr(cpu, "host", lambda: wide)
        patch.setenv("NEPTUNE_CACHE_DIR", str(folder))
        patch.setattr(native, "object_code", object_code)
        if not real:
            patch.setenv("NEPTUNE_NUM_THREADS", "1")
        yield made


@pytest.fixture(scope="module", params=["dots", "tiles"])
def kernel(request, tmp_path_factory):
    with compiling_for(request.param, tmp_path_factory.mktemp("cache")) as made:
        found = neptune.compile(ops.attention(head_dim=64, dtype="bf16"))
        run(found, *(np.zeros((1, 1, 128, 64), np.uint16) for _ in range(3)))
        name = {"dots": "dpbf16ps.512", "tiles": "tdpbf16ps"}[request.param]
        assert any(name in text for text in made)
        yield found


def rounded(values):
    return bf16_bits(np.asarray(values, np.float32))


def wide(bits):
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def attention(q, k, v, causal):
    """In f64, of bf16 numbers as bits."""
    q, k, v = map(wide, (q, k, v))
    s = q @ np.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    if causal:
        rows, columns = s.shape[-2:]
        seen = np.tri(rows, columns, columns - rows, dtype=bool)
        s = np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v


def run(kernel, *arrays):
    return wide(np.asarray(kernel(*(x.view(ml_dtypes.bfloat16) for x in arrays))).view(np.uint16))


def close(kernel, queries, keys, causal, width=64):
    random = np.random.default_rng(queries)
    q, k, v = (rounded(random.standard_normal((1, 2, n, width))) for n in (queries, keys, keys))
    return np.abs(run(kernel, q, k, v) - attention(q, k, v, causal)).max() < 0.02


def test_attention(kernel):
    """Queries and keys that end within tiles."""
    assert all(close(kernel, *shape, False) for shape in ((150, 150), (128, 256), (40, 131)))


def test_no_number_needs_f32(tmp_path, monkeypatch):
    """Ordinary numbers do not take the code for others. Zeros fill sums of 80 products."""
    multiply = tile_pairs.PairProducts.multiply
    monkeypatch.setattr(
        tile_pairs.PairProducts, "multiply",
        lambda self, c, start, scratch, otherwise: multiply(self, c, start, scratch, lambda: None),
    )  # fmt: skip
    with compiling_for("tiles", tmp_path):
        kernel = neptune.compile(ops.attention(head_dim=80, dtype="bf16", causal=True))
        assert close(kernel, 150, 150, True, 80) and close(kernel, 40, 131, True, 80)


# what q, k and v are multiplied by, so that one is denormal; and weights of 1 and e^-88
DENORMAL = {"v": (1, 1, 2.0**-127), "q": (2.0**-127, 2.0**126, 1), "p": None}


@pytest.mark.parametrize("which", DENORMAL)
def test_denormal_numbers(kernel, which):
    """Neither a value nor a weight that is denormal counts as zero."""
    random = np.random.default_rng(2)
    if DENORMAL[which] is not None:
        case = [random.standard_normal((128, 64)) * scale for scale in DENORMAL[which]]
    else:
        case = [np.zeros((128, 64)), np.zeros((128, 64)), np.full((128, 64), 1e38)]
        case[0][:, 0], case[1][1:, 0], case[2][0] = 88 * 8, -1, 0
    q, k, v = (rounded(x.reshape(1, 1, 128, 64)) for x in case)
    wanted = attention(q, k, v, False)
    assert np.abs(run(kernel, q, k, v) - wanted).max() < 0.02 * np.abs(wanted).max() + 2.0**-133
