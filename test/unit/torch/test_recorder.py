# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modifiers are recorded as graphs, on elements that have no values."""

import builtins

import pytest

torch = pytest.importorskip("torch")

from neptune_mlir.torch import recorder, trace  # noqa: E402
from support.flex_mods import MASK_MODS, SCORE_MODS, slopes  # noqa: E402

F32, I32 = torch.float32, torch.int32


def recorded(mod, *dtypes):
    graph = recorder.record(mod, dtypes, "cpu")
    return [getattr(n.target, "__name__", n.target) for n in graph.graph.nodes
            if n.op == "call_function"]  # fmt: skip


def test_tracing_imports_neither_dynamo_nor_sympy(monkeypatch):
    """They are hundreds of modules: seconds, where torch has no byte code."""
    plain, seen = builtins.__import__, set()

    def noted(name, *more, **named):
        seen.add(name)
        return plain(name, *more, **named)

    monkeypatch.setattr(trace, "_traces", {})
    monkeypatch.setattr(trace, "_recent", {})
    monkeypatch.setattr(builtins, "__import__", noted)
    for mods, score in ((SCORE_MODS, F32), (MASK_MODS, None)):
        for mod in mods.values():
            trace._graph(mod, score, "cpu")
    large = [n for n in seen if n.startswith(("sympy", "torch._dynamo", "torch.fx.experimental"))]
    assert not large


def test_operations_are_those_of_the_dispatcher():
    assert recorded(lambda s, h: s * slopes[h] + 1, F32, I32) == [
        "index.Tensor", "mul.Tensor", "add.Tensor",
    ]  # fmt: skip
    rows = torch.arange(8.0).reshape(2, 4)
    assert recorded(lambda s, h: s + rows[h].max(0).values, F32, I32) == [
        "index.Tensor", "max.dim", "getitem", "add.Tensor",
    ]  # fmt: skip


def test_a_place_that_is_written_is_read_as_written():
    def twice(s):
        t = s.clone()
        t.add_(1)
        return t * t

    graph = recorder.record(twice, [F32], "cpu")
    assert graph(torch.tensor(2.0)) == 9


def test_what_a_function_captures_is_kept_once_and_not_copied():
    weights = torch.nn.Parameter(torch.ones(4))
    graph = recorder.record(lambda s, h: s * weights[h] + weights[0], [F32, I32], "cpu")
    (name,) = {n.target for n in graph.graph.nodes if n.op == "get_attr"}
    assert getattr(graph, name) is weights


def test_a_large_tensor_takes_no_memory():
    large = torch.zeros(()).expand(1 << 20, 1 << 20)
    assert recorded(lambda s, i: s + large[i, 1], F32, I32)[-1] == "add.Tensor"


@pytest.mark.parametrize(
    "mod",
    [
        lambda s: s + slopes[0].item(),
        lambda s: s + slopes.nonzero()[0, 0],
        lambda s: s + slopes[slopes > 0][0],
        lambda s: s if s > 0 else -s,
    ],
)
def test_values_are_not_known(mod):
    with pytest.raises(TypeError, match="depends on an element's value"):
        recorder.record(mod, [F32], "cpu")


def test_an_element_is_of_its_device():
    def own(s):
        assert s.device.type == (s + 1).device.type == "meta"
        return s + torch.zeros((), device=s.device) + torch.zeros_like(s)

    graph = recorder.record(own, [F32], "meta")
    assert [n.kwargs.get("device") for n in graph.graph.nodes if "zeros." in str(n.target)] == [
        torch.device("meta")
    ]


def test_an_operation_of_somebody_is_what_it_is_written_in():
    library = torch.library.Library("neptune_test", "DEF")
    library.define("capped(Tensor x) -> Tensor")
    library.impl("capped", lambda x: 2 * torch.tanh(x / 2), "CompositeExplicitAutograd")
    capped = torch.ops.neptune_test.capped
    assert recorded(lambda s: capped(s) + 1, F32) == [
        "div.Tensor", "tanh.default", "mul.Tensor", "add.Tensor",
    ]  # fmt: skip
