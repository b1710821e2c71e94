# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small Llama served on the CPU: requests come and go, and all share one cache in pages. Model
and server are those of `examples/serve_llama.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from neptune_mlir.errors import UsageError  # noqa: E402
from neptune_mlir.torch import paged_attention  # noqa: E402

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "serve_llama.py"
SMALL = {"LAYERS": 2, "WIDTH": 32, "HEADS": 4, "KV_HEADS": 2, "DIM": 8, "WORDS": 50,
         "PAGE": 4, "PAGES": 24, "MOST": 6}  # fmt: skip


@pytest.fixture
def llama():
    """The example, of small sizes."""
    spec = importlib.util.spec_from_file_location("serve_llama", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(SMALL)
    return module


def dense(number, q, k, v):
    """Attention of one whole sequence, as it is defined."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    made = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
    return made.transpose(1, 2)


def alone(model, prompt, count):
    """The words that follow a prompt, all computed anew for each, in float64."""
    words = list(prompt)
    for _ in range(count):
        logits = model(torch.tensor([words]), torch.arange(len(words))[None], dense)
        words.append(int(logits.argmax()))
    return words


def test_continuous_batching(llama):
    server = llama.Server(llama.Llama(torch.float32), llama.ours, torch.float32)
    exact = llama.Llama(torch.float64)
    prompts = {"a": [1, 2, 3], "b": [7], "c": [4, 5, 6, 8, 9, 10, 11], "d": [12, 13]}
    arrive, leave = {0: "a", 1: "b", 3: "c", 7: "d"}, {6: "b", 9: "a", 11: "d", 12: "c"}
    done = {}
    for step in range(13):
        if server.running:
            server.step(list(server.running), 1)
        if step in arrive:  # the prompt is a step of its own, beside the others' cache
            name = arrive[step]
            server.running[name] = (list(prompts[name]), [])
            server.step([name], len(prompts[name]))
        if step in leave:
            done[leave[step]] = server.finish(leave[step])
    assert not server.running
    assert sorted(server.free) == list(range(llama.PAGES))
    for name, words in done.items():
        prompt = prompts[name]
        assert words == alone(exact, prompt, len(words) - len(prompt)), name
        assert len(set(words)) > 3


def test_a_queue_of_requests(llama):
    """By each way of the example, which leaves the cache empty."""
    prompts = {n: [n, n + 1, n + 2][: 1 + n % 3] for n in range(5)}
    llama.AT_ONCE, llama.NEW = 3, 4
    said = []
    for attention in (llama.ours, llama.padded, llama.each):
        server = llama.Server(llama.Llama(torch.float32), attention, torch.float32)
        said.append(server.serve(prompts)[0])
        assert len(server.free) == llama.PAGES and server.k.isnan().all()
    assert said[0] == said[1] == said[2]
    assert all(len(words) == 4 for words in said[0].values())


def test_heads_that_are_no_multiple():
    q = torch.zeros(1, 3, 1, 8)
    pages = torch.zeros(2, 4, 2, 8)
    table, lengths = (torch.zeros(n, dtype=torch.int32) for n in ((1, 1), (1,)))
    with pytest.raises(UsageError, match="3 query heads and 2 key heads"):
        paged_attention(q, pages, pages, table, lengths)
