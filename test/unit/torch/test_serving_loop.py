# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small Llama served on the CPU: requests come and go, and all share one cache in pages."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from neptune_mlir.errors import UsageError  # noqa: E402
from neptune_mlir.torch import paged_attention  # noqa: E402

LAYERS, WIDTH, HEADS, KV_HEADS, DIM, WORDS = 2, 32, 4, 2, 8, 50
PAGE, PAGES, MOST = 4, 24, 6  # MOST: pages of a sequence


class Model:
    """Llama's layers: RMS norms, rotary positions, grouped heads, a gated product."""

    def __init__(self) -> None:
        made = torch.Generator().manual_seed(0)

        def weight(*shape):
            return torch.randn(*shape, generator=made, dtype=torch.float64) * shape[-1] ** -0.5

        self.words, self.logits = weight(WORDS, WIDTH) * 4, weight(WORDS, WIDTH)
        kv = KV_HEADS * DIM
        self.layers = [
            {"q": weight(WIDTH, WIDTH), "k": weight(kv, WIDTH), "v": weight(kv, WIDTH),
             "o": weight(WIDTH, WIDTH), "up": weight(2 * WIDTH, WIDTH),
             "gate": weight(2 * WIDTH, WIDTH), "down": weight(WIDTH, 2 * WIDTH)}
            for _ in range(LAYERS)
        ]  # fmt: skip

    def __call__(self, words, positions, attend):
        """Logits of the last word of each row, [rows, WORDS]; `attend(layer, q, k, v)`."""
        x = self.words[words]
        for number, w in enumerate(self.layers):
            y = _norm(x)
            heads = (y @ w[name].T for name in ("q", "k", "v"))
            q, k, v = (h.unflatten(-1, (-1, DIM)) for h in heads)  # [rows, n, heads, DIM]
            o = attend(number, _turned(q, positions), _turned(k, positions), v)
            x = x + o.flatten(-2) @ w["o"].T
            y = _norm(x)
            x = x + (torch.nn.functional.silu(y @ w["gate"].T) * (y @ w["up"].T)) @ w["down"].T
        return _norm(x[:, -1]) @ self.logits.T


def _norm(x):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def _turned(x, positions):
    """Rotary positions: halves of a head as the parts of complex numbers."""
    angles = positions[..., None, None] * 10.0 ** -torch.linspace(0, 3, DIM // 2).double()
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


def dense(number, q, k, v):
    """Attention of one whole sequence, as it is defined."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class Server:
    def __init__(self, model):
        self.model = model
        shape = (LAYERS, PAGES, PAGE, KV_HEADS, DIM)
        self.k = torch.full(shape, torch.nan, dtype=torch.float32)
        self.v = torch.full(shape, torch.inf, dtype=torch.float32)
        self.free = list(range(PAGES))
        self.running = {}  # name -> (words, pages)

    def step(self, names, count):
        """One more word for each of these requests, whose last `count` words are new."""
        for name in names:
            words, pages = self.running[name]
            while len(pages) * PAGE < len(words):
                pages.append(self.free.pop())
        lengths = torch.tensor([len(self.running[n][0]) for n in names], dtype=torch.int32)
        table = torch.full((len(names), MOST), 10**6, dtype=torch.int32)
        for row, name in enumerate(names):
            pages = self.running[name][1]
            table[row, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        positions = lengths[:, None] - count + torch.arange(count)
        at = (table.gather(1, positions // PAGE).long(), positions % PAGE)

        def attend(number, q, k, v):
            self.k[number][at], self.v[number][at] = k.float(), v.float()
            q = q.transpose(1, 2).float().contiguous()
            out = paged_attention(q, self.k[number], self.v[number], table, lengths)
            return out.transpose(1, 2).double()

        words = torch.tensor([self.running[n][0][-count:] for n in names])
        for name, word in zip(names, self.model(words, positions, attend).argmax(-1), strict=True):
            self.running[name][0].append(int(word))

    def finish(self, name):
        words, pages = self.running.pop(name)
        self.k[:, pages], self.v[:, pages] = torch.nan, torch.inf
        self.free = pages + self.free
        return words


def alone(model, prompt, count):
    """The words that follow a prompt, all computed anew for each, in float64."""
    words = list(prompt)
    for _ in range(count):
        logits = model(torch.tensor([words]), torch.arange(len(words))[None], dense)
        words.append(int(logits.argmax()))
    return words


def test_continuous_batching():
    model = Model()
    server = Server(model)
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
    assert sorted(server.free) == list(range(PAGES))
    for name, words in done.items():
        prompt = prompts[name]
        assert words == alone(model, prompt, len(words) - len(prompt)), name
        assert len(set(words)) > 3


def test_heads_that_are_no_multiple():
    q = torch.zeros(1, 3, 1, DIM)
    pages = torch.zeros(2, PAGE, 2, DIM)
    table, lengths = (torch.zeros(n, dtype=torch.int32) for n in ((1, 1), (1,)))
    with pytest.raises(UsageError, match="3 query heads and 2 key heads"):
        paged_attention(q, pages, pages, table, lengths)
