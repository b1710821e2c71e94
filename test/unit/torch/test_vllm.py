# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of a server on the CPU: mixed batches on a paged cache; vLLM's interface if it is there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from neptune_mlir.torch.batches import AlikeRun, ServerStep, batch_attention, runs_of, store_keys  # noqa: E402

HEADS, KV_HEADS, DIM, PAGE, PAGES = 4, 2, 8, 4, 16
COUNTS, OLD = [1, 1, 3, 5, 0, 2], [6, 0, 4, 0, 3, 0]  # new tokens, and keys before them
TABLE = torch.tensor([[3, 7], [1, -1], [9, 2], [4, 11], [5, 99], [8, -3]], dtype=torch.int32)


def integers(x):
    return torch.tensor(x, dtype=torch.int32)


STARTS = integers([0, 1, 2, 5, 10, 10, 12])
LENGTHS = integers([a + b for a, b in zip(COUNTS, OLD, strict=True)])


def step():
    """Tokens with two of padding, the cache with old keys and garbage, and slots of new tokens."""
    made = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(14, h, DIM, generator=made) for h in (HEADS, KV_HEADS, KV_HEADS))
    cache = torch.full((PAGES, PAGE, KV_HEADS, 2 * DIM), torch.nan).transpose(1, 2)
    slots = []
    for b, (count, old) in enumerate(zip(COUNTS, OLD, strict=True)):
        for j in range(old + count):
            page = int(TABLE[b, j // PAGE])
            if j < old:
                cache[page, :, j % PAGE] = torch.randn(KV_HEADS, 2 * DIM, generator=made)
            else:
                slots.append(page * PAGE + j % PAGE)
    return q, k, v, cache, torch.tensor([*slots, -1, -1])


def expected(q, cache, window=None):
    out = torch.full((14, HEADS, DIM), 7.0, dtype=torch.float64)
    for b, (count, length) in enumerate(zip(COUNTS, LENGTHS.tolist(), strict=True)):
        at = torch.arange(length)
        rows = cache[TABLE[b][at // PAGE].long(), :, at % PAGE].double()
        k, v = (x.repeat_interleave(2, 1) for x in rows.split(DIM, -1))
        here = slice(int(STARTS[b]), int(STARTS[b]) + count)
        s = torch.einsum("ihd,jhd->hij", q[here].double(), k) * DIM**-0.5
        back = at[-count:, None] - at if count else torch.zeros(0, length)
        s = s.masked_fill((back < 0) | (back >= (window or 100)), -torch.inf)
        out[here] = torch.einsum("hij,jhd->ihd", s.softmax(-1), v)
    return out


def test_neighbours_with_as_many_tokens_are_one_call():
    assert runs_of([1, 1, 3, 0, 3]) == (
        AlikeRun(slice(0, 2), slice(0, 2), 1), AlikeRun(slice(2, 3), slice(2, 5), 3),
        AlikeRun(slice(4, 5), slice(5, 8), 3),
    )  # fmt: skip


def test_a_mixed_step():
    q, k, v, cache, slots = step()
    k_pages, v_pages = cache.transpose(1, 2).split(DIM, -1)
    store_keys(k, k_pages, slots)
    store_keys(v, v_pages, slots)
    out = torch.full((14, HEADS, DIM), 7.0)
    batch = ServerStep(runs_of(COUNTS), TABLE, LENGTHS)
    batch_attention(q, k_pages, v_pages, batch, out=out)
    torch.testing.assert_close(out.double(), expected(q, cache), atol=1e-5, rtol=1e-5)


def test_the_interface_of_vllm():
    pytest.importorskip("vllm")
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    from neptune_mlir import vllm

    vllm.register()
    backend = AttentionBackendEnum.CUSTOM.get_class()
    q, k, v, cache, slots = step()
    common = CommonAttentionMetadata(
        query_start_loc=STARTS, query_start_loc_cpu=STARTS, seq_lens=LENGTHS, num_reqs=6,
        num_actual_tokens=12, max_query_len=5, max_seq_len=8, block_table_tensor=TABLE,
        slot_mapping=slots,
    )  # fmt: skip
    config = SimpleNamespace(
        speculative_config=None, parallel_config=SimpleNamespace(decode_context_parallel_size=1)
    )
    spec = SimpleNamespace(block_size=PAGE)
    builder = backend.get_builder_cls()(spec, ["layer"], config, torch.device("cpu"))
    impl = backend.get_impl_cls()(HEADS, DIM, DIM**-0.5, KV_HEADS, sliding_window=3)
    impl.do_kv_cache_update(None, k, v, cache, slots)
    out = torch.full((14, HEADS, DIM), 7.0)
    impl.forward(None, q, k, v, cache, builder.build(0, common), out)
    torch.testing.assert_close(out.double(), expected(q, cache, 3), atol=1e-5, rtol=1e-5)
