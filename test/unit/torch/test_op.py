# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operation in torch's machinery: schemas, fake tensors, autograd, torch.compile, export."""

import contextlib

import pytest

torch = pytest.importorskip("torch")

from neptune_mlir.errors import UsageError  # noqa: E402
from neptune_mlir.torch import attention, op  # noqa: E402
from neptune_mlir.torch.attention import key_of_mods, masked_attention  # noqa: E402
from neptune_mlir.torch.flex import is_marked, take_flex  # noqa: E402
from neptune_mlir.torch.losses import linear_cross_entropy  # noqa: E402
from support.flex_mods import DIM, HEADS, QUERIES, definition, documents, tensors  # noqa: E402

SCALE = DIM**-0.5
slopes = torch.rand(HEADS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
width = 3


def alibi(s, b, h, i, j):
    return s + slopes[h] * (j - i) * width


def same(b, h, i, j):
    return documents[b, i] == documents[b, j]


def calls():
    q, k, v = tensors()
    mask = torch.rand(1, HEADS, QUERIES, k.shape[2]) > 0.3
    mods, captured = key_of_mods(q, k, alibi, same, None)
    learned = [x.clone().requires_grad_() for x in (q, k, v, mask.float())]
    return {
        "causal": (q, k, v, None, [], "", SCALE, True, False),
        "mask": (q, k, v, mask, [], "", SCALE, False, True),
        "mods": (q, k, v, None, captured, mods, SCALE, False, True),
        "learned": (*learned, [], "", SCALE, False, True),
    }


@pytest.mark.parametrize("name", ["causal", "mask", "mods", "learned"])
def test_opcheck(name, interpreted):
    done = torch.library.opcheck(torch.ops.neptune.attention.default, calls()[name])
    assert set(done.values()) == {"SUCCESS"}


def test_repeated_calls_and_autocast():
    """Whether a call is like an earlier one has to do with autocast."""
    q, k, v = tensors()
    for kind in (q.dtype, torch.bfloat16, torch.bfloat16, q.dtype):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind is torch.bfloat16):
            for _ in range(2):
                assert attention(q, k, v).dtype is kind


def test_autocast(interpreted):
    """As FlexAttention's operands, and those of torch's products."""
    q, k, v = tensors()
    dtype = torch.bfloat16
    classes, targets = torch.randn(10, q.shape[-1]), torch.randint(0, 10, q.shape[:-1])
    low = [x.to(dtype) for x in (q, k, v)]
    with torch.autocast("cpu", dtype=dtype):
        found = attention(q, k, v, score_mod=lambda s, b, h, i, j: s + 1)
        mixed = attention(q, low[1], v, is_causal=True)
        loss = linear_cross_entropy(low[0], classes, targets)
    assert found.dtype is mixed.dtype is dtype and loss.dtype is torch.float32
    torch.testing.assert_close(mixed, attention(*low, is_causal=True), rtol=0, atol=0)
    torch.testing.assert_close(loss, linear_cross_entropy(low[0], classes.to(dtype), targets))


@pytest.mark.parametrize("compiles", [True, False])
def test_results_on_a_cpu_have_the_heads_of_a_row_together(compiles, interpreted, monkeypatch):
    def refuse(program, target, coming):
        raise op.ToolError("no code")

    if not compiles:  # by torch, with the same layout: a graph was compiled for it
        monkeypatch.setattr(op, "compile", refuse)
    q, k, v = tensors()
    with contextlib.nullcontext() if compiles else pytest.warns(UserWarning, match="no code"):
        out = torch.ops.neptune.attention(q, k, v, None, [], "", SCALE, True, False)[0]
    assert out.shape == (*q.shape[:3], v.shape[3])
    assert out.transpose(1, 2).is_contiguous()
    torch.testing.assert_close(
        out, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        atol=1e-5, rtol=1e-5,
    )  # fmt: skip


class Layer(torch.nn.Module):
    def __init__(self, **mods):
        super().__init__()
        self.mods = mods

    def forward(self, q, k, v):
        return attention(2 * q, k, v, **self.mods).sin()


def test_torch_compile_without_a_break_and_export(interpreted):
    layer, (q, k, v) = Layer(is_causal=True), tensors()
    wanted = layer(q, k, v)
    with torch.no_grad():
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(q, k, v), wanted)
    length = torch.export.Dim("length", min=2, max=100)
    dims = {2: length}
    x = q[:, :, :8].contiguous()
    program = torch.export.export(layer, (x, x, x), dynamic_shapes=(dims, dims, dims))
    torch.testing.assert_close(program.module()(q, q, q), layer(q, q, q))
    assert len(interpreted) == 1


def taking(graph, inputs):
    """What inductor's hook does, and nothing else."""
    assert take_flex(graph, is_marked) == 1
    return graph.forward


@pytest.mark.parametrize(
    "backend", [taking, pytest.param("inductor", marks=pytest.mark.nightly)]
)
def test_modifiers_under_torch_compile_are_ours(backend, interpreted):
    """Also with dynamic lengths; tensors and numbers that change are seen."""
    q, k, v = (x[:, :, :9] for x in tensors(torch.float64))
    layer = Layer(score_mod=alibi, mask_mod=same)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    with torch.no_grad():
        torch.testing.assert_close(compiled(q, k, v), layer(q, k, v))
        assert len(interpreted) == 2, "masks are one modifier with the score's when compiled"
        slopes.add_(1)
        torch.testing.assert_close(compiled(q, k, v), layer(q, k, v))
        globals()["width"] = 5
        torch.testing.assert_close(compiled(q, k, v), layer(q, k, v))
        q, k, v = (x[:, :, :5] for x in (q, k, v))
        torch.testing.assert_close(compiled(q, k, v), layer(q, k, v))
        wanted = definition(2 * q, k, v, SCALE, alibi, same)[0].sin()
        torch.testing.assert_close(compiled(q, k, v), wanted)


def test_modifiers_with_gradients_under_torch_compile():
    q, k, v = (x[:, :, :5].clone().requires_grad_() for x in tensors(torch.float64))
    layer = Layer(score_mod=alibi, mask_mod=same)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    compiled(q, k, v).sum().backward()
    found, q.grad = q.grad, None
    wanted = definition(2 * q, k, v, SCALE, alibi, same)[0].sin()
    wanted.sum().backward()
    torch.testing.assert_close(found, q.grad)


@pytest.mark.parametrize(
    ("shape", "cut", "copied"),
    [
        ((6, 4), (slice(None), slice(0, 1)), True),  # a column of a matrix
        ((6, 1), (slice(None),), False),
        ((4, 6), (slice(0, 1),), False),
        ((4, 6), (slice(None), slice(None, None, 2)), True),
    ],
)
def test_kernels_read_along_rows_and_along_columns_of_one(shape, cut, copied):
    x = torch.rand(shape)[cut]
    made = op.by_rows(x)
    assert (made is not x) == copied and torch.equal(made, x)
    assert made.stride(-2 if made.shape[-1] == 1 else -1) == 1


def test_what_has_no_memory_no_tangent_and_one_dimension_more(interpreted):
    """The call before each of these is like it, by all that its signature says."""
    given = tensors()
    wanted, functional = attention(*given), torch.nn.functional.scaled_dot_product_attention
    attention(*given)
    assert attention(*(x.to("meta") for x in given)).shape == wanted.shape
    with pytest.raises(UsageError, match="meta, cpu and cpu"):
        attention(given[0].to("meta"), *given[1:])

    def along(f):
        return torch.func.jvp(lambda q: f(q, *given[1:]), (given[0],), (given[0],))[1]

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        torch.testing.assert_close(along(attention), along(functional))
    mask = torch.rand(3, *wanted.shape[:1], 1, 1, given[1].shape[2]) > 0.3
    several = torch.stack([given[0], 2 * given[0], -given[0]], 2)

    def masked(q, mask):
        return masked_attention(q, *given[1:], mask, None, SCALE, False)

    mapped = torch.vmap(masked, (2, 0))(several, mask)
    for k in range(3):
        torch.testing.assert_close(mapped[k], masked(several[:, :, k], mask[k]))
