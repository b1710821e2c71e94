# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch.compile(backend="neptune")`: attention is ours, the rest is inductor's or eager."""

import importlib
import pickle
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from neptune_mlir.targets.roofline import Roof  # noqa: E402
from neptune_mlir.torch import backend, cost, op  # noqa: E402
from neptune_mlir.torch.backend import neptune  # noqa: E402
from neptune_mlir.torch.transformers import attention_forward  # noqa: E402
from support.flex_mods import causal, documents, tensors  # noqa: E402

flex = torch.nn.attention.flex_attention
SDPA = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def eager_rest(request, monkeypatch):
    """Graphs run in eager mode after our part, but for the nightly test of inductor."""
    torch._dynamo.reset()
    if request.node.get_closest_marker("nightly") is None:
        monkeypatch.setattr(backend, "_has_compiler", lambda: False)


@pytest.fixture
def ours(interpreted, monkeypatch):
    calls, run = [], op.run

    def counting(*arguments):
        calls.append(arguments)
        return run(*arguments)

    monkeypatch.setattr(op, "run", counting)
    monkeypatch.setattr(Roof, "is_worth_a_call", lambda *_: True)
    return calls


def sdpa(q, k, v):
    return SDPA(2 * q, k, v, is_causal=True).relu()


def flexible(q, k, v):
    return flex.flex_attention(
        2 * q, k, v, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s - (i - j), -torch.inf)
    ).relu()


def layer(q, k, v):
    seen = documents[:, None, : q.shape[2], None] == documents[:, None, None, : k.shape[2]]
    mixed = SDPA(q, k, v, attn_mask=seen)
    return SDPA(torch.nn.functional.layer_norm(mixed, (8,)), k, v) + q


@pytest.mark.parametrize(("function", "count"), [(sdpa, 1), (flexible, 1), (layer, 2)])
def test_attention_of_all_lengths_is_ours(function, count, ours, interpreted):
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return neptune(graph, inputs)

    with torch.no_grad():
        compiled = torch.compile(function, backend=counting, fullgraph=True, dynamic=True)
        for n in (11, 7, 5):
            q, k, v = tensors(queries=n, keys=n)
            before = len(ours)
            torch.testing.assert_close(compiled(q, k, v), function(q, k, v), atol=3e-6, rtol=1e-5)
            assert len(ours) == before + count
        assert len(interpreted) == count, "one compilation each serves all lengths"
        assert len(graphs) == 1, "and one graph"


@pytest.mark.parametrize(
    ("shape", "dynamic", "taken"),
    [
        ((1, 2, 16, 32), False, 0),
        ((1, 2, 16, 32), True, 1),  # another call may be longer
        ((1, 8, 256, 64), False, 1),
        ((64, 4, 8, 32), False, 0),  # as many operations, and 256 programs of them
        ((1, 1, 0, 32), False, 1),  # none at all, which our operation hands on
    ],
)
def test_attention_that_is_not_worth_a_call_is_inductors(shape, dynamic, taken, monkeypatch):
    core = Roof("a core with 16 lanes", 192e9, 192e9, 10e9, "")
    monkeypatch.setattr(cost, "roof_of", lambda _: core)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    found = []

    def counting(graph, inputs):
        found.append(backend.take_attention(graph))
        return graph.forward

    q = torch.randn(shape)
    with torch.no_grad():
        torch.compile(sdpa, backend=counting, fullgraph=True, dynamic=dynamic)(q, q, q)
    assert found == [taken]


@pytest.mark.parametrize("mods", [{}, {"softcap": 2.0}, {"s_aux": True}])
def test_small_attention_by_name_is_inductors(mods, monkeypatch, ours):
    monkeypatch.setattr(Roof, "is_worth_a_call", lambda *_: False)
    mods = {name: torch.randn(4) if x is True else x for name, x in mods.items()}
    seen = torch.rand(2, 1, 11, 13) > 0.3
    found = []

    def named(q, k, v):
        return attention_forward(torch.nn.Identity(), q, k, v, seen, **mods)[0].relu()

    def counting(graph, inputs):
        backend.take_attention(graph)
        found.append(sum(n.target is torch.ops.neptune.attention for n in graph.graph.nodes))
        return neptune(graph, inputs)

    q, k, v = tensors(kv_heads=2)
    with torch.no_grad():
        wanted = named(q, k, v)
        before = len(ours)
        compiled = torch.compile(named, backend=counting, fullgraph=True, dynamic=False)
        torch.testing.assert_close(compiled(q, k, v), wanted, atol=3e-6, rtol=1e-5)
    assert found == [0]
    assert len(ours) == before


def test_what_does_not_fit_runs_by_torch(ours):
    q, k, v = tensors()
    blocks = flex.create_block_mask(causal, None, None, 11, 13, device="cpu")

    def mixed(q, k, v):
        listed = flex.flex_attention(q, k, v, block_mask=blocks)
        odd = flex.flex_attention(q, k, v, score_mod=lambda s, *at: torch.special.bessel_j0(s))
        return listed + odd + SDPA(q[..., :0], k[..., :0], v, scale=1.0).sum() + q.cumsum(0)

    with torch.no_grad():
        compiled = torch.compile(mixed, backend=neptune, fullgraph=True)
        torch.testing.assert_close(compiled(q, k, v), mixed(q, k, v), atol=3e-6, rtol=1e-5)
    assert ours == []


def test_capped_scores_read_a_mask_in_place(ours, interpreted):
    """Masks of one head and one batch have no position there."""
    q, k, v = tensors()
    mask = torch.rand(1, 1, q.shape[2], k.shape[2]) > 0.3
    mask[..., 0] = True

    def capped(q, k, v):
        return attention_forward(torch.nn.Identity(), q, k, v, mask, softcap=2.0)[0]

    with torch.no_grad():
        compiled = torch.compile(capped, backend=neptune, fullgraph=True)
        torch.testing.assert_close(compiled(q, k, v), capped(q, k, v), atol=3e-6, rtol=1e-5)
    assert len(ours) == 2


def test_training_is_ours(ours, interpreted):
    q, k, v = (x.requires_grad_() for x in tensors(torch.float64))
    wanted = torch.autograd.grad(sdpa(q, k, v).sum(), (q, k, v))
    found = torch.compile(sdpa, backend=neptune, fullgraph=True)(q, k, v)
    found = torch.autograd.grad(found.sum(), (q, k, v))
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f, w)
    assert len(ours) == 1
    assert sorted(p.name for p in interpreted) == ["attention", "attention_backward"]


def test_the_name_is_an_entry_point():
    """Of the project's file: what is installed may be older."""
    tomllib = pytest.importorskip("tomllib")
    root = Path(__file__).parents[3]
    points = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, name = points["torch_dynamo_backends"]["neptune"].partition(":")
    assert getattr(importlib.import_module(module), name) is neptune


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options", [{}, {"mode": "reduce-overhead"}, {"options": {"debug": False}}]
)
def test_inductor_compiles_the_rest(options, ours):
    if not backend._has_compiler():
        pytest.skip("no C++ compiler")
    q, k, v = tensors()
    with torch.no_grad():
        compiled = torch.compile(layer, backend=neptune, fullgraph=True, **options)
        torch.testing.assert_close(compiled(q, k, v), layer(q, k, v), atol=3e-6, rtol=1e-5)
    assert len(ours) == 2
    assert "torch._inductor" in sys.modules


def _handed_over(monkeypatch, **options):
    """What inductor is called with for a graph in which nothing is ours."""
    from torch._inductor import compile_fx

    seen = []

    def recording(graph, inputs, **given):
        seen.append((graph.code, given))
        return graph.forward

    monkeypatch.setattr(backend, "_has_compiler", lambda: True)
    monkeypatch.setattr(compile_fx, "compile_fx", recording)
    monkeypatch.setattr(Roof, "is_worth_a_call", lambda *_: False)
    found = []
    for compiler in (neptune, "inductor"):
        torch._dynamo.reset()
        seen.clear()
        with torch.no_grad():
            torch.compile(sdpa, backend=compiler, fullgraph=True, **options)(*tensors())
        found.append(seen.copy())
    return found


@pytest.mark.parametrize(
    "options", [{}, {"mode": "max-autotune-no-cudagraphs"}, {"options": {"epilogue-fusion": False}}]
)
def test_where_nothing_is_ours_inductor_is_called_as_by_its_name(options, monkeypatch):
    ours, theirs = _handed_over(monkeypatch, **options)
    assert len(ours) == 1
    assert ours == theirs


def test_an_option_that_inductor_does_not_know_is_named(monkeypatch):
    monkeypatch.setattr(backend, "_has_compiler", lambda: True)
    compiled = torch.compile(sdpa, backend=neptune, options={"fusions": True})
    with pytest.raises(Exception, match="Unexpected optimization option fusions"):
        compiled(*tensors())


@pytest.mark.nightly
def test_where_nothing_is_ours_the_program_is_inductors(monkeypatch):
    """Its own cache takes the second graph for the first: same operations, order and layouts."""
    if not backend._has_compiler():
        pytest.skip("no C++ compiler")
    from torch._inductor.utils import fresh_inductor_cache

    monkeypatch.setattr(Roof, "is_worth_a_call", lambda *_: False)
    found = []
    with fresh_inductor_cache(), torch.no_grad():
        for compiler in ("inductor", neptune):
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            torch.compile(layer, backend=compiler, fullgraph=True)(*tensors())
            counts = torch._dynamo.utils.counters["inductor"]
            found.append((counts["fxgraph_cache_miss"], counts["fxgraph_cache_hit"]))
    assert found == [(1, 0), (0, 1)]


def test_inductor_can_keep_what_it_compiled():
    """Its cache pickles the passes in its configuration: with one that cannot be, it keeps nothing,
    of any program of the process."""
    from torch._inductor import config
    from torch._inductor.custom_graph_pass import CustomGraphPass

    ours = config.pre_grad_custom_pass
    assert isinstance(ours, CustomGraphPass) and ours.uuid()
    assert pickle.loads(pickle.dumps(ours)).uuid() == ours.uuid()
