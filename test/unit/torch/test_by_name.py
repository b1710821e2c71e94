# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention that a library calls by the name "neptune", on a CPU: ours where a call pays."""

import pytest

torch = pytest.importorskip("torch")

from neptune_mlir.targets.roofline import Roof  # noqa: E402
from neptune_mlir.torch import cost, op  # noqa: E402
from neptune_mlir.torch.attention import key_of_mods  # noqa: E402
from neptune_mlir.torch.transformers import attention_forward  # noqa: E402
from support.flex_mods import tensors  # noqa: E402

CORE = Roof("a core with 16 lanes", 192e9, 192e9, 10e9, "")
SEEN = torch.rand(2, 1, 11, 13, generator=torch.Generator().manual_seed(4)) > 0.3


@pytest.mark.parametrize(
    ("options", "kernels"),
    [
        ({}, 0),
        ({"attention_mask": SEEN}, 0),
        ({"attention_mask": torch.where(SEEN, 0.0, -torch.inf).double()}, 0),
        ({"attention_mask": SEEN, "position_bias": torch.randn(1, 4, 11, 13)}, 0),
        ({"is_causal": False, "scaling": 0.3}, 0),
        ({"softcap": 2.0}, 1),  # torch has none of these two
        ({"s_aux": torch.randn(4)}, 1),
    ],
)
@pytest.mark.parametrize("registered", [False, True])
def test_small_attention_is_torchs_where_it_has_it(
    options, kernels, registered, interpreted, monkeypatch
):
    import neptune_mlir.torch as door

    if registered:  # torch's operation is ours then; its own implementation is not
        door.register()
    q, k, v = tensors(kv_heads=2)
    options = {"attention_mask": None, **options}
    try:
        found, _ = attention_forward(torch.nn.Identity(), q, k, v, **options)
        assert len(interpreted) == kernels
        monkeypatch.setattr(Roof, "is_worth_a_call", lambda *_: True)
        ours, _ = attention_forward(torch.nn.Identity(), q, k, v, **options)
    finally:
        door.unregister()
    assert len(interpreted) == 1
    assert found.is_contiguous()
    torch.testing.assert_close(found, ours, atol=3e-6, rtol=1e-5)


def test_a_sinks_share_is_taken_of_rows_of_all_heads(interpreted):
    """As the result lies in memory: inductor writes what is computed by heads by heads, and then
    copies it to where a product reads rows, with divisions for each address."""
    q, k, v = tensors()
    traced = torch.fx.experimental.proxy_tensor.make_fx(
        lambda *qkv: attention_forward(torch.nn.Identity(), *qkv, None, s_aux=torch.randn(4))[0]
    )(q, k, v)
    products = [n for n in traced.graph.nodes if n.target is torch.ops.aten.mul.Tensor]
    assert [tuple(n.meta["val"].shape) for n in products] == [(2, 11, 4, 8)]


def test_a_mask_of_all_heads_is_worked_out_once():
    """Where attention is written out for inductor, which keeps in memory what is read as a view of
    its own; and a row that sees nothing stays 0."""
    q, k, v = tensors(kv_heads=2)
    at, seen = torch.arange(11)[:, None], SEEN.clone()
    seen[0, :, 3] = False

    def written(q, k, v, seen):
        seen = seen & (torch.arange(13) <= at + 2)
        return op.written_out(q, k, v, seen, [], "", 0.3, False, False)[0]

    traced = torch.fx.experimental.proxy_tensor.make_fx(written)(q, k, v, seen)
    views = traced.graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default)
    assert [tuple(n.meta["val"].shape) for n in views] == [(2, 1, 11, 13)]
    seen = seen & (torch.arange(13) <= at + 2)
    wanted, _ = op.dense(q, k, v, op.modify("", []), seen, 0.3, False, False)
    found = traced(q, k, v, SEEN & seen)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
    assert not found[0, :, 3].any()


def test_a_mask_in_a_modifier_is_worked_out_once():
    """As one beside it: what a cap is asked with, or a bias that heads scale; what depends on a
    head is left where it stands."""
    q, k, v = tensors(kv_heads=2)
    seen, slopes = SEEN[:, 0].clone(), torch.rand(4)
    seen[0, 3] = False

    def capped(score, b, h, i, j):
        near = torch.where(i >= j - 2, 0, i - j).to(score.dtype)
        return torch.where(seen[b, i, j], torch.tanh(score) + slopes[h] * near, -torch.inf)

    mods, captured = key_of_mods(q, k, capped, None, None)
    traced = torch.fx.experimental.proxy_tensor.make_fx(
        lambda q, k, v, *captured: op.written_out(q, k, v, None, captured, mods, 0.3, False, False)
    )(q, k, v, *captured)
    views = traced.graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default)
    assert sorted(tuple(n.meta["val"].shape) for n in views) == [(2, 11, 13), (11, 13)]
    wanted, _ = op.dense(q, k, v, op.modify(mods, captured), None, 0.3, False, False)
    found, _ = traced(q, k, v, *captured)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
    assert not found[0, :, 3].any()


@pytest.mark.parametrize(
    ("q", "k", "threads", "ours"),
    [
        ((1, 2, 16, 32), (1, 2, 16, 32), 1, False),
        ((3, 8, 1, 32), (3, 8, 96, 32), 1, False),  # a step of decoding
        ((1, 8, 256, 64), (1, 8, 256, 64), 1, True),
        ((1, 8, 256, 64), (1, 8, 256, 64), 8, False),  # which is 20 us a thread
        ((3, 8, 160, 64), (3, 8, 160, 64), 1, False),  # of whose tiles of keys 3/8 are nothing
        ((3, 8, 256, 64), (3, 8, 256, 64), 1, True),
        ((1, 32, 1, 128), (1, 8, 4096, 128), 1, True),  # by its keys
    ],
)
def test_what_a_call_has_to_save(q, k, threads, ours, monkeypatch):
    monkeypatch.setattr(cost, "roof_of", lambda _: CORE)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    q, k = torch.empty(q), torch.empty(k)
    assert cost.is_worth_a_call(q, k, k) == ours
