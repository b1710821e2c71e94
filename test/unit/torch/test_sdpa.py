# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`register()` brings torch's own attention to the kernels, and takes what they can do only."""

import contextlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import neptune_mlir.torch as door  # noqa: E402
from neptune_mlir.torch import backend, op  # noqa: E402
from support.flex_mods import tensors  # noqa: E402

F = torch.nn.functional


@pytest.fixture
def registered(interpreted, monkeypatch):
    """The calls that reach the kernels, with torch's attention overridden."""
    calls, run = [], op.run

    def counting(*arguments):
        calls.append(arguments)
        return run(*arguments)

    monkeypatch.setattr(op, "run", counting)
    door.register()
    yield calls
    door.unregister()


def exact(q, k, v, mask=None, **options):
    """In float64, by torch's plain formula, which no override reaches."""
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    mask = mask if mask is None else mask.double()
    found = torch.ops.aten._scaled_dot_product_attention_math(
        q.double(), k.double(), v.double(), mask, 0.0, **options
    )
    return found[0].nan_to_num(0.0)  # rows of -inf


generator = torch.Generator().manual_seed(3)
SEEN = torch.rand(2, 1, 1, 13, generator=generator) > 0.3
SEEN[1] = False  # a sequence that is all padding
MASKS = {
    "none": {}, "causal": {"is_causal": True}, "scale": {"scale": 0.3},
    "padding": {"attn_mask": SEEN},
    "pairs": {"attn_mask": torch.rand(11, 13, generator=generator) > 0.5},
    "numbers": {"attn_mask": torch.randn(2, 4, 11, 13, generator=generator)},
    "by head": {"attn_mask": torch.randn(4, 1, 13, generator=generator).bfloat16()},
    "grouped": {"enable_gqa": True}, "one head of keys": {"is_causal": True},
}  # fmt: skip
KV_HEADS = {"grouped": 2, "one head of keys": 1}  # which torch broadcasts


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("context", [contextlib.nullcontext, torch.inference_mode])
def test_eager(name, context, registered):
    options = MASKS[name]
    q, k, v = tensors(kv_heads=KV_HEADS.get(name, 4))
    with context():
        found = F.scaled_dot_product_attention(q, k, v, **options)
    assert len(registered) == 1
    wanted = exact(q, k, v, options.get("attn_mask"),
                   **{n: x for n, x in options.items() if n != "attn_mask"})  # fmt: skip
    np.testing.assert_allclose(found, wanted, atol=2e-6)


LEFT = {
    "dropout": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5),
    "no rows": lambda q, k, v: F.scaled_dot_product_attention(q[:, :, :0], k, v),
    "one batch of keys": lambda q, k, v: F.scaled_dot_product_attention(q, k[:1], v[:1]),
    "three dimensions": lambda q, k, v: F.scaled_dot_product_attention(q[0], k[0], v[0]),
}


@pytest.mark.parametrize("name", LEFT)
def test_left_to_torch(name, registered):
    found = LEFT[name](*tensors())
    assert found.dtype is torch.float32
    assert registered == []
    assert found.requires_grad == (name in ("gradients", "learned mask"))


def test_what_does_not_compile_runs_as_before(registered, monkeypatch):
    def refuse(program, target, coming):
        raise op.ToolError("no code")

    monkeypatch.setattr(op, "compile", refuse)
    q, k, v = tensors()
    np.testing.assert_allclose(F.scaled_dot_product_attention(q, k, v), exact(q, k, v), atol=2e-6)
    compiled = torch.compile(F.scaled_dot_product_attention, backend="aot_eager", fullgraph=True)
    with torch.no_grad(), pytest.warns(UserWarning, match="no code"):
        np.testing.assert_allclose(compiled(q, k, v), exact(q, k, v), atol=2e-6)


class Attention(torch.nn.Module):
    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def test_compiled_and_exported_programs(registered):
    q, k, v = tensors()
    layer, wanted = Attention(), exact(q, k, v, SEEN)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        np.testing.assert_allclose(compiled(q, k, v, SEEN), wanted, atol=2e-6)
    program = torch.export.export(layer, (q, k, v, SEEN))
    assert len(registered) == 1
    np.testing.assert_allclose(program.module()(q, k, v, SEEN), wanted, atol=2e-6)
    assert len(registered) == 2


def test_compiled_programs_follow_a_change(interpreted):
    """Also gradients, which a dispatch that is out of date would lose."""
    q, k, v = (x.requires_grad_() for x in tensors(torch.float64))
    wanted = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v).sum(), q)
    for on in (True, False, True):
        (door.register if on else door.unregister)()
        torch._dynamo.reset()
        compiled = torch.compile(F.scaled_dot_product_attention, backend="aot_eager")
        found = torch.autograd.grad(compiled(q, k, v).sum(), q)
        torch.testing.assert_close(found, wanted)
        op._kernels.clear()
        with torch.no_grad():
            compiled(q, k, v)
        assert len(op._kernels) == on
    door.unregister()


def test_kept_programs_are_told_apart():
    """torch keeps compiled programs on disk, for a graph that is the same with both."""
    config = torch.compiler.config
    with config.patch(cache_key_tag="mine"):
        door.register()
        tag = config.cache_key_tag
        door.register()
        assert config.cache_key_tag == tag != "mine"
        door.unregister()
        assert config.cache_key_tag == "mine"


@pytest.mark.nightly
def test_programs_that_inductor_keeps_follow_a_change(interpreted, tmp_path, monkeypatch):
    if not backend._has_compiler():
        pytest.skip("no C++ compiler")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    q, k, v = tensors()
    for on in (False, True):
        (door.register if on else door.unregister)()
        torch._dynamo.reset()
        op._kernels.clear()
        with torch.no_grad():
            torch.compile(F.scaled_dot_product_attention)(q, k, v)
        assert len(op._kernels) == on
    door.unregister()


def test_autocast(registered):
    q, k, v = tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = F.scaled_dot_product_attention(q, k, v)
    assert found.dtype is torch.bfloat16
    assert registered[0][0].dtype is torch.bfloat16


def test_unregister_and_again(interpreted):
    q, k, v = tensors()
    for _ in range(2):
        door.register()
        door.register()
        F.scaled_dot_product_attention(q, k, v)
        assert len(interpreted) == 1
        registry = torch.nn.attention
        if hasattr(registry, "current_flash_attention_impl"):
            assert registry.current_flash_attention_impl() == "neptune"
        door.unregister()
        door.unregister()
        before = dict(op._kernels)
        op._kernels.clear()
        F.scaled_dot_product_attention(q, k, v)
        assert op._kernels == {}
        op._kernels.update(before)
