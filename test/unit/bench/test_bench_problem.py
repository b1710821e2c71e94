# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an operator costs, which rows are checked, and the reference against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neptune_mlir.bench import figures
from neptune_mlir.bench.problem import Problem

torch = pytest.importorskip("torch")


def problem(queries: int, keys: int, head_dim: int = 16, **settings: Any) -> Problem:
    heads = {"heads": 4, "kv_heads": 2}
    return Problem("x", "f16", queries, keys, {**heads, **settings}, head_dim)


@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (3, 9), (9, 3), (1, 5)])
@pytest.mark.parametrize("settings", [{}, {"causal": True}, {"causal": True, "window": 4}])
def test_pairs(queries: int, keys: int, settings: dict[str, Any]) -> None:
    p = problem(queries, keys, **settings)
    seen = 0
    for i in range(queries):
        for j in range(keys):
            back = i + keys - queries - j
            seen += (not p.settings.get("causal") or back >= 0) and (
                not p.settings.get("window") or back < p.settings["window"]
            )
    assert p.pairs == seen
    assert p.flops == 4 * 4 * seen * 16
    seen = min(keys, queries + settings.get("window", keys + 1) - 1)
    assert p.bytes == 2 * 16 * (2 * 4 * queries + 2 * 2 * seen)


def test_a_batch_that_keeps_its_tokens() -> None:
    spec = {"operator": "x", "dtype": "f16", "head_dim": 64, "tokens": 16384,
            "settings": {"heads": 32, "kv_heads": 32}}  # fmt: skip
    assert Problem.of(spec, 1024).batch == 16
    assert Problem.of(spec, 32768).batch == 1
    assert Problem.of({**spec, "tokens": None}, 1024, 8).batch == 8


def test_sample_has_both_ends_and_is_the_same_every_time() -> None:
    p = problem(5000, 5000)
    heads, rows = p.sample()
    assert heads == [0, 1, 2, 3] and len(rows) == 64 == len(set(rows))
    assert rows[0] == 0 and rows[-1] == 4999 and rows == sorted(rows)
    assert p.sample() == (heads, rows)
    assert problem(100, 100).sample(whole=True) == (heads, list(range(100)))


def scores(p: Problem, s: Any, arrays: Any) -> Any:
    """The operator's scores and mask, written with torch's broadcasting in another way."""
    i = torch.arange(p.queries)[:, None] + p.keys - p.queries
    j = torch.arange(p.keys)[None, :]
    if cap := p.settings.get("softcap"):
        s = torch.tanh(s / cap) * cap
    if p.settings.get("alibi"):
        s = s - arrays[3].double()[:, None, None] * (i - j)
    keep = torch.ones_like(s, dtype=torch.bool)
    if p.settings.get("causal"):
        keep &= i >= j
    if window := p.settings.get("window"):
        keep &= i < j + window
    return s.masked_fill(~keep, -torch.inf)


@pytest.mark.parametrize("queries", [1, 20, 33])
@pytest.mark.parametrize(
    "settings",
    [{}, {"causal": True}, {"causal": True, "alibi": True}, {"causal": True, "softcap": 2.0},
     {"causal": True, "window": 6, "softcap": 2.0}],
)  # fmt: skip
@pytest.mark.parametrize("strided", [False, True])
def test_reference(queries: int, settings: dict[str, Any], strided: bool) -> None:
    heads = {"heads": 4, "kv_heads": 2}
    p = Problem("x", "f16", queries, 33, {**heads, **settings}, 16, 2, strided)
    arrays = p.inputs("cpu")
    q, k, v = (a[-1].double() for a in arrays[:3])
    k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
    wanted = scores(p, q @ k.mT / 4, arrays).softmax(-1) @ v
    chosen, rows = [0, 3], list(range(0, queries, 3))
    found = p.reference(arrays, chosen, rows)
    assert figures.errors(found, wanted[chosen][:, rows])["relative"] < 1e-12


def test_a_query_that_sees_nothing_gives_zero() -> None:
    p = problem(5, 3, causal=True)
    found = p.reference(p.inputs("cpu"), [0], list(range(5)))[0]
    assert (found[:2] == 0).all() and (found[2:] != 0).any()


def test_inputs_are_the_same_for_every_candidate() -> None:
    p = problem(9, 9, alibi=True)
    for first, second in zip(p.inputs("cpu"), p.inputs("cpu"), strict=True):
        assert torch.equal(first, second)
    slope = p.inputs("cpu")[3]
    assert np.allclose(slope, [1 / 4, 1 / 16, 1 / 64, 1 / 256])


@pytest.mark.parametrize("name", ["flash2", "flex"])
@pytest.mark.parametrize("queries", [1, 64])
@pytest.mark.parametrize(
    "settings",
    [{}, {"causal": True}, {"causal": True, "alibi": True}, {"causal": True, "softcap": 2.0},
     {"causal": True, "window": 16}],
)  # fmt: skip
def test_peers_do_the_same_work(
    name: str, queries: int, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from neptune_mlir.bench.peers import PEERS

    p = problem(queries, 64, **settings)
    peer = PEERS[name]
    if not peer.can(p):
        pytest.skip("cannot express it")
    monkeypatch.setattr(torch, "compile", lambda f, **_: f)  # FlexAttention as it is written
    arrays = [a.float() for a in p.inputs("cpu")]
    try:
        out = peer.make(p, arrays)()
    except RuntimeError as error:
        pytest.skip(f"this torch cannot on a CPU: {str(error).splitlines()[0]}")
    heads, rows = p.sample(whole=True)
    assert figures.errors(out[0].double(), p.reference(arrays, heads, rows))["relative"] < 1e-5
