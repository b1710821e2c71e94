# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of `neptune_mlir.ops` on an NVIDIA GPU, against float64 (run with -m gpu)."""

from __future__ import annotations

import math
from functools import cache

import pytest

from neptune_mlir.runtime.gpu import GpuExecutable
from support.gpu_programs import bundle

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@cache
def kernel(name):
    return GpuExecutable(bundle(name))


def inputs(head, n, *, batch=2, heads=2, kv_heads=None, q_len=None, dtype=None):
    kind = dtype or torch.float16
    sizes = [(heads, q_len or n), (kv_heads or heads, n), (kv_heads or heads, n)]
    return [torch.randn(batch, h, m, head, device="cuda", dtype=kind) for h, m in sizes]


def decode_inputs(n):
    """Of the program "decode"."""
    return inputs(128, n, batch=1, heads=4, q_len=1)


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


@pytest.mark.parametrize("name", [
    *(f"d{head}{mask}" for head in (64, 80, 128, 256) for mask in ("", "-causal")),
    "d64-hopper", "d128-causal-hopper", "d80-hopper", "d72-causal-hopper",
])  # fmt: skip
def test_attention_at_any_length(name):
    head = int(name.partition("-")[0][1:])
    for n in (1, 63, 64, 200, 1025):
        q, k, v = inputs(head, n)
        out = torch.full_like(q, math.nan)
        kernel(name)(q, k, v, out=out)
        assert error(out, q, k, v, causal="causal" in name) < 1e-3, n


@pytest.mark.parametrize("name", ["d64-hopper", "d128-causal-hopper", "d80-hopper"])
def test_more_programs_than_blocks(name):
    head = int(name.partition("-")[0][1:])
    q, k, v = inputs(head, 300, batch=120)
    for _ in range(3):  # the queue of programs starts anew each time
        out = torch.full_like(q, math.nan)
        kernel(name)(q, k, v, out=out)
        assert error(out, q, k, v, causal="causal" in name) < 1e-3


def drifting(kind, head, n):
    """Attention whose scores leave the range of weights by the first tile's maximum."""
    q, k, v = (x.float() for x in inputs(head, n))
    along = torch.linspace(0, 1, n, device="cuda")[:, None]
    some = (torch.rand(n, 1, device="cuda") < 0.02).float()
    match kind:
        case "rising":
            q, k = 0.3 * q + 1, 0.3 * k + 40 * along
        case "falling":
            q, k = 0.3 * q + 1, 0.3 * k - 40 * along
        case "both":
            q, k = 0.3 * q + (2 * torch.randint_like(q[..., :1], 2) - 1), 0.3 * k + 40 * along
        case "jumps":
            q, k = 0.3 * q + 1, 0.3 * k + 10 * torch.floor(7 * along) * some
        case "large":
            q, k = 25 * q, 4 * k
    return [x.half() for x in (q, k, v)]


@pytest.mark.parametrize("kind", ["rising", "falling", "both", "jumps", "large"])
@pytest.mark.parametrize("name", ["d64-hopper", "d128-causal-hopper", "d72-causal-hopper"])
def test_references_that_cannot_stay(name, kind):
    head = int(name.partition("-")[0][1:])
    for n in (130, 1000, 2048):
        q, k, v = drifting(kind, head, n)
        out = torch.full_like(q, math.nan)
        kernel(name)(q, k, v, out=out)
        assert error(out, q, k, v, causal="causal" in name) < 1e-3, n


def test_bf16():
    q, k, v = inputs(128, 500, dtype=torch.bfloat16)
    assert error(kernel("d128-causal-bf16")(q, k, v), q, k, v, causal=True) < 8e-3


def test_grouped_heads():
    q, k, v = inputs(64, 300, heads=8, kv_heads=2)
    assert error(kernel("d64-causal-grouped")(q, k, v), q, k, v, causal=True) < 1e-3


@pytest.mark.parametrize("n", [1, 100, 1000, 5000])
def test_decode(n):
    q, k, v = decode_inputs(n)
    assert error(kernel("decode")(q, k, v), q, k, v) < 1e-3


def test_rms_norm():
    x, weight = torch.randn(77, 1024, device="cuda"), torch.randn(1024, device="cuda")
    got = kernel("rms_norm")(x, weight).double()
    want = x.double() * (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight
    assert float((got - want).norm() / want.norm()) < 1e-6


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0),
    reason="needs sm_90a",
)
def test_a_product_of_scaled_rows():
    """The scales of a tile lie in several panels of one row."""
    x, scale, w = (torch.randn(*s, device="cuda", dtype=torch.float16)
                   for s in ((300, 1024), (1024,), (1024, 1024)))  # fmt: skip
    got = kernel("norm-product")(x, scale, w).double()
    a = x.double() * (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    want = (a * scale.double()) @ w.double()
    assert float((got - want).norm() / want.norm()) < 1e-3


@pytest.mark.parametrize("n", [1, 63, 200, 9000])
def test_a_norm_before_a_product(n):
    x, weight, w = (
        torch.randn(*shape, device="cuda", dtype=torch.float16)
        for shape in ((n, 1024), (1024,), (1024, 320))
    )
    out = torch.full((n, 320), math.nan, device="cuda", dtype=torch.float16)
    kernel("rms_norm_matmul")(x, weight, w, out=out)
    scale = (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    want = (x.double() * scale * weight) @ w.double()
    assert float((out.double() - want).norm() / want.norm()) < 1e-3


@pytest.mark.parametrize("name", ["linear_loss", "linear_loss_any"])
@pytest.mark.parametrize("n", [1, 63, 200, 9000])
def test_a_loss_of_deep_products(n, name):
    x, w = (torch.randn(m, 1024, device="cuda", dtype=torch.float16) for m in (n, 700))
    w /= 32
    target = torch.randint(700, (n,), device="cuda")
    got = kernel(name)(x, w, target)
    want = torch.nn.functional.cross_entropy(x.double() @ w.double().T, target, reduction="none")
    assert float((got.double() - want).norm() / want.norm()) < 1e-5


@pytest.mark.parametrize("n", [1, 70, 3000])
def test_kernels_of_points_around_a_fused_one(n):
    table, k, v = (torch.randn(m, 16, device="cuda") for m in (11, n, n))
    ids = torch.randint(11, (n,), device="cuda")
    got, largest = kernel("lookup")(table, ids, k, v)
    want = (table[ids].double() @ k.double().T).softmax(-1) @ v.double()
    assert float((got.double() - want).norm() / want.norm()) < 1e-5
    assert torch.equal(largest, got.argmax(-1))


def test_heads_beside_positions_in_memory():
    q, k, v = (
        torch.randn(2, 300, 4, 64, device="cuda", dtype=torch.float16).transpose(1, 2)
        for _ in range(3)
    )
    for name in ("d64", "d64-hopper"):
        assert error(kernel(name)(q, k, v), q, k, v) < 1e-3


def test_parts_of_one_packed_array():
    packed = torch.randn(2, 300, 4, 4, 64, device="cuda", dtype=torch.float16)
    q, k, v, out = (packed[:, :, :, part].transpose(1, 2) for part in range(4))
    for name in ("d64", "d64-hopper"):
        kernel(name)(q, k, v, out=out)
        assert error(out, q, k, v) < 1e-3


def test_heads_that_share_memory():
    q, k, v = inputs(64, 200, heads=4, kv_heads=1)
    k, v = k.expand(2, 4, 200, 64), v.expand(2, 4, 200, 64)  # stride 0
    for name in ("d64", "d64-hopper"):
        assert error(kernel(name)(q, k, v), q, k, v) < 1e-3
