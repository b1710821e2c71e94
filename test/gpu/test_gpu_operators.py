# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of `neptune_mlir.ops` on an NVIDIA GPU, against float64 (run with -m gpu)."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


def target() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


@pytest.fixture(scope="module")
def attention():
    import neptune_mlir
    from neptune_mlir import ops

    kernels = {}

    def get(**options):
        key = tuple(sorted(options.items()))
        if key not in kernels:
            kernels[key] = neptune_mlir.compile(ops.attention(**options), target=target())
        return kernels[key]

    return get


def inputs(head, n, *, heads=2, kv_heads=None, q_len=None, dtype=None):
    kind = dtype or torch.float16
    sizes = [(heads, q_len or n), (kv_heads or heads, n), (kv_heads or heads, n)]
    return [torch.randn(2, h, m, head, device="cuda", dtype=kind) for h, m in sizes]


def error(out, q, k, v, *, causal=False):
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), *(x.double().repeat_interleave(group, 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        rows, columns = s.shape[-2:]
        keep = torch.ones(rows, columns, device="cuda", dtype=torch.bool).tril(columns - rows)
        s = s.masked_fill(~keep, -math.inf)
    want = s.softmax(-1) @ v
    return float((out.double() - want).norm() / want.norm())


@pytest.mark.parametrize("head", [64, 80, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 63, 64, 200, 1025])
def test_one_bundle_serves_every_length(attention, head, causal, n):
    q, k, v = inputs(head, n)
    out = attention(head_dim=head, dtype="f16", causal=causal)(q, k, v)
    assert error(out, q, k, v, causal=causal) < 1e-3


def test_bf16(attention):
    q, k, v = inputs(128, 500, dtype=torch.bfloat16)
    out = attention(head_dim=128, dtype="bf16", causal=True)(q, k, v)
    assert error(out, q, k, v, causal=True) < 8e-3


def test_grouped_heads(attention):
    q, k, v = inputs(64, 300, heads=8, kv_heads=2)
    out = attention(head_dim=64, dtype="f16", causal=True, group=4)(q, k, v)
    assert error(out, q, k, v, causal=True) < 1e-3


def test_decode(attention):
    q, k, v = inputs(128, 1000, q_len=1)
    out = attention(head_dim=128, dtype="f16", q_len=1)(q, k, v)
    assert error(out, q, k, v) < 1e-3


def test_strides_and_graphs(attention):
    kernel = attention(head_dim=64, dtype="f16")
    q, k, v = (
        torch.randn(2, 300, 4, 64, device="cuda", dtype=torch.float16).transpose(1, 2)
        for _ in range(3)
    )
    out = torch.empty(2, 4, 300, 64, device="cuda", dtype=torch.float16)
    kernel(q, k, v, out=out)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kernel(q, k, v, out=out)
    out.fill_(math.nan)
    q.copy_(torch.randn_like(q))
    graph.replay()
    assert error(out, q, k, v) < 1e-3


def test_wrong_arguments(attention):
    from neptune_mlir.errors import ArgumentError

    kernel = attention(head_dim=64, dtype="f16")
    q, k, v = inputs(64, 64)
    with pytest.raises(ArgumentError, match="not on a GPU"):
        kernel(q.cpu(), k, v)
    with pytest.raises(ArgumentError, match="type"):
        kernel(q.float(), k, v)
    with pytest.raises(ArgumentError, match="overlaps"):
        kernel(q, k, v, out=q)
    with pytest.raises(ArgumentError, match="aligned"):
        kernel(torch.randn(2 * 2 * 64 * 64 + 1, device="cuda").half()[1:].view(2, 2, 64, 64), k, v)
