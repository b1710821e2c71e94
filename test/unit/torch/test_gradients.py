# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention in training: gradients by the derived kernels, against torch's autograd in float64."""

import contextlib
import math
import warnings

import pytest

torch = pytest.importorskip("torch")

import neptune_mlir.torch as door  # noqa: E402
from neptune_mlir import ops  # noqa: E402
from neptune_mlir.errors import InputError, UsageError  # noqa: E402
from neptune_mlir.torch import attention, gradients  # noqa: E402
from support.flex_mods import causal, documents, tensors  # noqa: E402

SDPA = torch.nn.functional.scaled_dot_product_attention
generator = torch.Generator().manual_seed(5)
slopes = torch.rand(4, generator=generator, dtype=torch.float64)
bias = torch.randn(4, 12, 20, generator=generator, dtype=torch.float64)
table = torch.randn(4, 24, generator=generator, dtype=torch.float64)
rope_q, rope_k = (torch.randn(2, n, 3, generator=generator, dtype=torch.float64) for n in (11, 13))


def alibi(s, b, h, i, j):
    return s + slopes[h] * (i - j)


def biased(s, b, h, i, j):
    return s * slopes[h] + bias[h, i, j]


def relative(s, b, h, i, j):
    return s + table[h, i - j + 12]


def rows(s, b, h, i, j):
    return s + torch.dot(rope_q[b, i], rope_k[b, j])


def near(b, h, i, j):
    return (i - j < 4) & (documents[b, i] == documents[b, j])


def test_a_package_gives_none_for_an_empty_list():
    """AOTInductor's does, and what it calls is this."""
    q = torch.randn(1, 2, 5, 8)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU)
    options = ["", 8**-0.5, True, False]
    with torch.no_grad():
        found, _ = gradients._forward(keys, q, q, q, None, None, *options)
    torch.testing.assert_close(found, SDPA(q, q, q, is_causal=True))


CASES = {
    "plain": {}, "causal": {"is_causal": True}, "grouped": {"enable_gqa": True},
    "alibi": {"score_mod": alibi, "learned": [slopes]},
    "two tensors": {"score_mod": biased, "mask_mod": causal, "learned": [slopes, bias]},
    "table": {"score_mod": relative, "learned": [table]},
    "rows": {"score_mod": rows, "mask_mod": near, "learned": [rope_q, rope_k]},
    "lse": {"return_lse": True, "mask_mod": near, "scale": 0.3},
}  # fmt: skip


def formula(q, k, v, *, score_mod=None, mask_mod=None, scale=None, is_causal=False,
            enable_gqa=False, return_lse=False):  # fmt: skip
    """Attention by torch's own operations, with all scores."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    at = torch.meshgrid(*map(torch.arange, s.shape), indexing="ij")

    def everywhere(mod, *first):
        flat = [x.reshape(-1) for x in (*first, *at)]
        return torch.stack([mod(*point) for point in zip(*flat, strict=True)]).view(s.shape)

    s = everywhere(score_mod, s) if score_mod else s
    s = s.masked_fill(~everywhere(mask_mod), -math.inf) if mask_mod else s
    s = s.masked_fill(at[3] > at[2], -math.inf) if is_causal else s
    lse = s.logsumexp(-1)
    w = (s - lse.detach().masked_fill(lse == -math.inf, 0)[..., None]).exp()
    out = (w / w.sum(-1, keepdim=True).clamp_min(1e-30)) @ v
    return (out, lse) if return_lse else out


@contextlib.contextmanager
def learning(*xs):
    for x in xs:
        x.requires_grad_()
    try:
        yield
    finally:
        for x in xs:
            x.requires_grad_(False)


def weighted(made):
    """A number that all results go into, but for log-sum-exps of rows that see nothing."""
    made = made if isinstance(made, tuple) else (made,)
    made = [x.masked_fill(x == -math.inf, 0) for x in made]
    return sum((x * torch.arange(1, 1 + x.numel()).view(x.shape).cos()).sum() for x in made)


def compare(found, wanted, learned):
    for f, w in zip(torch.autograd.grad(weighted(found), learned),
                    torch.autograd.grad(weighted(wanted), learned), strict=True):  # fmt: skip
        torch.testing.assert_close(f, w, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_of_all_that_is_read(name, interpreted):
    options = dict(CASES[name])
    captured = options.pop("learned", [])
    inputs = tensors(torch.float64, kv_heads=2 if name == "grouped" else 4)
    with learning(*inputs, *captured), warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(attention(*inputs, **options), formula(*inputs, **options), [*inputs, *captured])
    assert [p.name for p in interpreted] == ["attention", "attention_backward"]


def test_of_captured_tensors_alone(interpreted):
    """What needs no gradient gets none, and no kernel computes it."""
    q, k, v = tensors(torch.float64)
    with learning(slopes):
        found = attention(q, k, v, score_mod=biased)
        compare(found, formula(q, k, v, score_mod=biased), [slopes])
    assert [o.name for o in interpreted[-1].outputs] == ["d_x0"]


@pytest.mark.parametrize("mask", [(11, 13), (2, 1, 1, 13), (4, 1, 13)])
def test_of_registered_sdpa_and_its_mask(mask, interpreted):
    inputs = tensors(torch.float64)
    mask = torch.randn(mask, generator=generator, dtype=torch.float64)
    with learning(*inputs, mask):
        wanted = SDPA(*inputs, attn_mask=mask)
        door.register()
        try:
            found = SDPA(*inputs, attn_mask=mask)
        finally:
            door.unregister()
        compare(found, wanted, [*inputs, mask])
    assert len(interpreted) == 2


def test_an_operation_without_log_sum_exp_computes_it_again(interpreted):
    inputs = tensors(torch.float64)
    with learning(*inputs):
        found = torch.ops.neptune.attention(*inputs, None, [], "", 0.3, True, False)[0]
        compare(found, formula(*inputs, scale=0.3, is_causal=True), inputs)


def test_by_torch_func_checkpoints_and_compile(interpreted):
    q, k, v = tensors(torch.float64)

    def call(q):
        return attention(q, k, v, is_causal=True)

    with learning(q):
        (wanted,) = torch.autograd.grad(weighted(call(q)), [q])
        kept = torch.utils.checkpoint.checkpoint(call, q, use_reentrant=False)
        compiled = torch.compile(call, backend="aot_eager", fullgraph=True)(q)
        for made in (kept, compiled):
            assert torch.equal(torch.autograd.grad(weighted(made), [q])[0], wanted)
    assert torch.equal(torch.func.grad(lambda q: weighted(call(q)))(q), wanted)
    pulled = torch.func.vjp(call, q)[1](torch.ones_like(q))[0]
    assert pulled.shape == q.shape


def test_a_second_derivative_is_refused_by_name(interpreted):
    q, k, v = tensors(torch.float64)
    with learning(q):
        (once,) = torch.autograd.grad(attention(q, k, v).sum(), [q], create_graph=True)
        with pytest.raises(UsageError, match="second derivative of neptune's attention"):
            torch.autograd.grad(once.sum(), [q])
    with pytest.raises(UsageError, match="second derivative of neptune's attention"):
        torch.func.grad(lambda q: torch.func.grad(lambda q: attention(q, k, v).sum())(q).sum())(q)


def test_what_has_no_derivative_comes_from_torch_and_says_so_once(interpreted, monkeypatch):
    def refuse(*_, **__):
        raise InputError("'score_mod' has no adjoint")

    monkeypatch.setattr(gradients, "vjp", refuse)
    gradients._say_once.cache_clear()
    inputs = tensors(torch.float64)
    options = {"score_mod": alibi, "mask_mod": causal, "return_lse": True}
    with learning(*inputs, slopes):
        with pytest.warns(UserWarning, match="stores all scores: 'score_mod' has no adjoint"):
            compare(attention(*inputs, **options), formula(*inputs, **options), [*inputs, slopes])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            attention(*inputs, **options)[0].sum().backward()
    gradients._say_once.cache_clear()


@pytest.mark.parametrize(("dtype", "learns_bias"), [
    (torch.float32, False), pytest.param(torch.bfloat16, True, marks=pytest.mark.nightly)
])  # fmt: skip
def test_compiled_kernels(dtype, learns_bias):
    """Without an interpreter: heads in groups, documents, a bias that learns."""
    inputs = [x.to(dtype) for x in tensors(torch.float64, kv_heads=2)]
    learned = [bias.float()] if learns_bias else []
    exact = [x.double() for x in (*inputs, *learned)]

    def call(kind, q, k, v, b=None):
        def mod(s, _, h, i, j):
            return s + b[h, i, j]

        mods = {"mask_mod": near, "score_mod": None if b is None else mod}
        return weighted(kind(q, k, v, **mods, enable_gqa=True).double())

    with learning(*inputs, *learned, *exact):
        found = torch.autograd.grad(call(attention, *inputs, *learned), [*inputs, *learned])
        wanted = torch.autograd.grad(call(formula, *exact), exact)
    for f, w in zip(found, wanted, strict=True):
        size = w.abs().max()
        assert (f.double() - w).abs().max() < (3e-6 if dtype is torch.float32 else 3e-2) * size


def test_tensors_that_do_not_run_along_their_last_dimension(interpreted):
    """Transposed ones, and the gradient of a sum, which is one number: GPUs read along rows."""
    q, k, v = (torch.randn(1, 2, 4, 9).mT.requires_grad_() for _ in range(3))
    found, wanted = (
        torch.autograd.grad(op(q, k, v, is_causal=True).sum(), (q, k, v))
        for op in (door.attention, SDPA)
    )
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_the_call_that_comes_has_the_axes_of_the_forward_one(monkeypatch):
    """Results and their adjoints, too. An input with another axis says nothing of its length."""
    _, backward = gradients.vjp(ops.attention(head_dim=64, dtype="f16"), wrt=["q", "k", "v"])
    monkeypatch.setattr(gradients.op, "call_of", lambda shapes, device: shapes)
    q, k = (torch.empty(2, 3, n, 64, device="meta") for n in (5, 7))
    found = gradients._call_of(backward, q, k, k)
    rows, keys = (2, 3, 5, 64), (2, 3, 7, 64)
    wanted = {"q": rows, "k": keys, "v": keys, "out0": rows, "saved0": rows[:3], "d_out0": rows}
    assert found == [wanted[name] for name in backward.inputs]
    backward.input("table", backward.axis("t"))
    assert gradients._call_of(backward, q, k, k) is None


@pytest.mark.parametrize("asked", [False, True])
def test_bits_that_are_the_same_in_every_run(asked, monkeypatch):
    """Where torch asks for them, no kernel for Hopper adds to a result in any order."""
    seen = []

    def watched(program, target, coming, knobs=None):
        assert coming is None  # no GPU has these tensors
        seen.append(knobs)
        return None

    monkeypatch.setattr(gradients.op, "compile", watched)
    monkeypatch.setattr(gradients.op, "target_of", lambda device: "sm_90a")
    q = torch.empty(1, 2, 64, 64, dtype=torch.float16, device="meta")
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: asked)
    gradients.backward_of(q, q, q, None, "", 0.125, True, False, [True] * 3)
    assert seen == [{"ordered": 1} if asked else None]
