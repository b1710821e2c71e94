# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Torch functions for caches in 8 bits, trees and cascades, on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import neptune_mlir.torch as nt  # noqa: E402
from neptune_mlir.errors import UsageError  # noqa: E402

pytestmark = pytest.mark.usefixtures("small_tiles")  # what a result is, not its speed

PAGE, DIM, HEADS, KV_HEADS = 8, 16, 4, 2
TABLE = torch.tensor([[3, 1], [0, -1], [2, 5]], dtype=torch.int32)
LENGTHS = torch.tensor([13, 4, 16], dtype=torch.int32)


def dense(q, k, v, seen):
    """In float64; q [heads, n, dim], k and v [keys, kv_heads, dim]."""
    k, v = (x.transpose(0, 1).repeat_interleave(HEADS // KV_HEADS, 0).double() for x in (k, v))
    s = q.double() @ k.transpose(1, 2) * DIM**-0.5
    s = s.masked_fill(~seen, -torch.inf)
    return s.softmax(-1) @ v, s.logsumexp(-1)


def causal(n, keys):
    return torch.arange(keys) <= torch.arange(n)[:, None] + keys - n


def rows(pages, b):
    return pages[TABLE[b].clamp(min=0).long()].flatten(0, 1)[: LENGTHS[b]]


def queries(n):
    return torch.randn(3, HEADS, n, DIM, generator=torch.Generator().manual_seed(n))


OF_HEADS, OF_PAGES, OF_TOKENS = (KV_HEADS,), (6, KV_HEADS), (6, PAGE, KV_HEADS)


# each kind, and each shape, once; ops/test_serving_caches.py has pairs of them
@pytest.mark.parametrize(
    ("kind", "shapes"),
    [(torch.int8, [OF_HEADS, OF_PAGES]), (torch.float8_e4m3fn, [OF_TOKENS]),
     pytest.param(torch.int8, [OF_TOKENS], marks=pytest.mark.nightly),
     pytest.param(torch.float8_e4m3fn, [OF_HEADS, OF_PAGES], marks=pytest.mark.nightly)],
)  # fmt: skip
def test_scales_say_by_their_shape_what_they_are_for(kind, shapes):
    made = torch.Generator().manual_seed(0)
    numbers = [torch.randn(6, PAGE, KV_HEADS, DIM, generator=made) * 20 for _ in range(2)]
    k, v = (x.to(kind) for x in numbers)
    q = queries(2)
    for shape in shapes:
        scales = [torch.rand(shape, generator=made) * 0.05 for _ in range(2)]
        out = nt.paged_attention(
            q, k, v, TABLE, LENGTHS, k_scales=scales[0], v_scales=scales[1], chunks=4
        )
        whole = [s[:, None] if s.dim() == 2 else s for s in scales]
        k_wide, v_wide = (x.float() * s[..., None] for x, s in zip((k, v), whole, strict=True))
        for b in range(3):
            seen = causal(2, int(LENGTHS[b]))
            wanted, _ = dense(q[b], rows(k_wide, b), rows(v_wide, b), seen)
            torch.testing.assert_close(out[b].double(), wanted, atol=2e-5, rtol=1e-5)
    with pytest.raises(UsageError, match="not alike"):
        nt.paged_attention(q, k, v, TABLE, LENGTHS, k_scales=scales[0])
    with pytest.raises(UsageError, match="chunks is 3"):  # on a CPU as where it means something
        nt.paged_attention(q, k, v, TABLE, LENGTHS, chunks=3)


def test_shared_keys_and_a_tree():
    made = torch.Generator().manual_seed(0)
    k, v = (torch.randn(6, PAGE, KV_HEADS, DIM, generator=made) for _ in range(2))
    k_shared, v_shared = (torch.randn(21, KV_HEADS, DIM, generator=made) for _ in range(2))
    tree = torch.rand(3, 3, 3, generator=made) < 0.6
    q = queries(3)
    for given in (None, tree):
        out, lse = nt.cascade_attention(
            q, k_shared, v_shared, k, v, TABLE, LENGTHS, return_lse=True, tree=given
        )
        for b in range(3):
            keys, values = (torch.cat([s, rows(x, b)]) for s, x in ((k_shared, k), (v_shared, v)))
            seen = causal(3, len(keys))
            if given is not None:
                seen = torch.ones_like(seen)
                seen[:, -3:] = tree[b]
            wanted, sums = dense(q[b], keys, values, seen)
            torch.testing.assert_close(out[b].double(), wanted, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(lse[b].double(), sums, atol=1e-5, rtol=1e-5)


def test_ragged_with_a_window_slopes_and_a_sink():
    """(The program takes them in the order of the options, as that of caches in pages does.)"""
    made = torch.Generator().manual_seed(0)
    starts = torch.tensor([0, 5, 5, 7], dtype=torch.int32)
    keys = torch.tensor([0, 9, 10, 12], dtype=torch.int32)
    q = torch.randn(7, HEADS, DIM, generator=made)
    k, v = (torch.randn(12, KV_HEADS, DIM, generator=made) for _ in range(2))
    slopes, sink = (torch.rand(HEADS, generator=made) for _ in range(2))
    out, lse = nt.ragged_attention(
        q, k, v, starts, keys, window=3, slopes=slopes, sink=sink, return_lse=True
    )
    for b in range(3):
        rows, own = slice(*starts[b : b + 2]), slice(*keys[b : b + 2])
        count, length = rows.stop - rows.start, own.stop - own.start
        back = torch.arange(count)[:, None] + length - count - torch.arange(length)
        wide = (x[own].transpose(0, 1).repeat_interleave(HEADS // KV_HEADS, 0).double()
                for x in (k, v))  # fmt: skip
        keys_, values = wide
        s = q[rows].transpose(0, 1).double() @ keys_.transpose(1, 2) * DIM**-0.5
        s = (s - slopes[:, None, None] * back).masked_fill((back < 0) | (back >= 3), -torch.inf)
        s = torch.cat([s, sink.double()[:, None, None].expand(-1, count, 1)], -1)
        wanted = s.softmax(-1)[..., :-1] @ values
        torch.testing.assert_close(out[rows].transpose(0, 1).double(), wanted, atol=1e-5, rtol=1e-5)
        sums = s.logsumexp(-1)
        torch.testing.assert_close(lse[rows].T.double(), sums, atol=1e-5, rtol=1e-5)
