# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hand-written tile IR of attention, through the whole CPU route, against float64 NumPy."""

import functools

import numpy as np
import pytest

from neptune_mlir.dialects.context import parse
from neptune_mlir.pipelines import cpu
from neptune_mlir.runtime import CpuExecutable
from neptune_mlir.targets.cpu import NAMED, describe, host
from support.tile_programs import attention


@functools.cache
def compiled(head, tile_i, tile_j, causal=False, dtype="f32"):
    text = attention(head, tile_i, tile_j, causal=causal, dtype=dtype)
    return CpuExecutable(cpu.compile_tiles(parse(text)))


def reference(q, k, v, scale, causal):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = np.einsum("bhid,bhjd->bhij", q, k) * scale
    if causal:
        s = np.where(np.arange(s.shape[-1]) <= np.arange(s.shape[-2])[:, None], s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def arrays(shape, keys=None, dtype=np.float32):
    rng = np.random.default_rng(1)
    b, h, n, d = shape
    return [rng.standard_normal((b, h, m, d)).astype(dtype) for m in (n, keys or n, keys or n)]


def error(got, wanted):
    return np.linalg.norm(got.astype(np.float64) - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 31, 64, 129])
def test_one_compilation_serves_every_length(length, causal):
    q, k, v = arrays((2, 3, length, 64))
    got = compiled(64, 32, 64, causal)(q, k, v, 0.125)
    assert error(got, reference(q, k, v, 0.125, causal)) < 2e-6


@pytest.mark.parametrize("head", [1, 3, 33, 80, 130])
def test_head_dimensions(head):
    q, k, v = arrays((1, 2, 45, head), keys=70)
    got = compiled(head, 16, 32)(q, k, v, 0.3)
    assert error(got, reference(q, k, v, 0.3, False)) < 2e-6


@pytest.mark.parametrize("tiles", [(64, 16), (20, 24), (1, 64), (128, 128)])
def test_tile_sizes(tiles):
    q, k, v = arrays((1, 2, 150, 24))
    got = compiled(24, *tiles, True)(q, k, v, 0.2)
    assert error(got, reference(q, k, v, 0.2, True)) < 2e-6


def test_half_precision():
    q, k, v = arrays((1, 2, 100, 64), dtype=np.float16)
    got = compiled(64, 32, 32, False, "f16")(q, k, v, 0.125)
    assert got.dtype == np.float16 and error(got, reference(q, k, v, 0.125, False)) < 2e-3


def test_any_strides():
    q, k, v = arrays((2, 3, 77, 64))
    wanted = reference(q, k, v, 0.125, False)
    heads_inside = np.ascontiguousarray(q.swapaxes(1, 2)).swapaxes(1, 2)
    transposed = np.ascontiguousarray(k.swapaxes(2, 3)).swapaxes(2, 3)
    backwards = v[..., ::-1, :].copy()[..., ::-1, :]
    run = compiled(64, 32, 64)
    assert error(run(heads_inside, transposed, backwards, 0.125), wanted) < 2e-6
    one = np.broadcast_to(k[:, :1], k.shape)  # stride 0
    assert error(run(q, one, v, 0.125), reference(q, one, v, 0.125, False)) < 2e-6


def test_large_logits_and_nan():
    q, k, v = arrays((1, 1, 40, 64))
    run = compiled(64, 32, 64)
    assert (
        error(run(q * 1e2, k * 1e2, v, 0.125), reference(q * 1e2, k * 1e2, v, 0.125, False)) < 1e-4
    )
    q[0, 0, 7, 3] = np.nan
    got = run(q, k, v, 0.125)
    assert np.isnan(got[0, 0, 7]).all() and not np.isnan(np.delete(got, 7, axis=2)).any()


@pytest.mark.parametrize("chip", ["x86-64", "x86-64-v3"])
def test_other_chips(chip):
    if chip != "x86-64" and not host().has("avx2"):
        pytest.skip("this machine lacks the instructions")
    target = describe(chip, NAMED[chip], host().triple)
    bundle = cpu.compile_tiles(parse(attention(40, 16, 32)), target=target)
    q, k, v = arrays((1, 2, 50, 40))
    got = CpuExecutable(bundle)(q, k, v, 0.1)
    assert error(got, reference(q, k, v, 0.1, False)) < 2e-6


@pytest.mark.usefixtures("as_shipped")
def test_kernels_make_no_memory_of_their_own():
    """Tiles live in the worker's scratch: a kernel allocates nothing."""
    from neptune_mlir.runtime.loader import undefined_symbols

    bundle = cpu.compile_tiles(parse(attention(64, 64, 64)))
    assert set(undefined_symbols(bundle.code)) <= {"memset", "memcpy"}
    assert 0 < bundle.plan.scratch < 1 << 20


def test_compilation_is_deterministic():
    texts = [cpu.compile_tiles(parse(attention(16, 16, 16))).to_bytes() for _ in range(2)]
    assert texts[0] == texts[1]
