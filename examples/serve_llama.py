# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small Llama served on the CPU with continuous batching, beside torch's own attention.

    python examples/serve_llama.py [threads]

Requests of different lengths share one cache in pages; one that is done makes room for the next.
Attention is `neptune_mlir.torch.paged_attention`; or torch's, which has no pages: keys of all
sequences gathered to the longest one with a mask, or those of each sequence for a call of its own.
The three serve the same requests and have to say the same words.
"""

from __future__ import annotations

import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from neptune_mlir.torch import paged_attention

LAYERS, WIDTH, HEADS, KV_HEADS, DIM, WORDS = 4, 1024, 16, 4, 64, 4000
PAGE, PAGES, MOST, AT_ONCE, NEW = 16, 1200, 128, 8, 12


def ours(q, k, v, table, lengths):
    return paged_attention(q, k, v, table, lengths)


def padded(q, k, v, table, lengths):
    """Keys as long as the longest sequence's, and a mask."""
    most, used = int(lengths.max()), -(-int(lengths.max()) // PAGE)
    k, v = (x[table[:, :used].clamp(0, PAGES - 1).long()].flatten(1, 2)[:, :most].transpose(1, 2)
            for x in (k, v))  # fmt: skip
    at = lengths[:, None, None] - q.shape[2] + torch.arange(q.shape[2])[:, None]
    seen = torch.arange(most) <= at
    k, v = (torch.where(seen[:, None, -1, :, None], x, 0) for x in (k, v))
    return scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None], enable_gqa=True)


def each(q, k, v, table, lengths):
    """A call for each sequence."""
    return torch.cat([padded(q[b : b + 1], k, v, table[b : b + 1], lengths[b : b + 1])
                      for b in range(len(q))])  # fmt: skip


class Llama:
    def __init__(self, dtype):
        made = torch.Generator().manual_seed(0)

        def weight(*shape):
            return (torch.randn(*shape, generator=made) * shape[-1] ** -0.5).to(dtype)

        heads, keys = HEADS * DIM, KV_HEADS * DIM
        sizes = {"q": (heads, WIDTH), "k": (keys, WIDTH), "v": (keys, WIDTH), "o": (WIDTH, heads),
                 "up": (3 * WIDTH, WIDTH), "gate": (3 * WIDTH, WIDTH),
                 "down": (WIDTH, 3 * WIDTH)}  # fmt: skip
        self.words, self.logits = weight(WORDS, WIDTH) * 32, weight(WORDS, WIDTH)
        self.layers = [{n: weight(*s) for n, s in sizes.items()} for _ in range(LAYERS)]

    def __call__(self, words, positions, attend):
        """Logits of the last word of each sequence."""
        x = self.words[words]
        for number, w in enumerate(self.layers):
            y = _norm(x)
            q, k, v = ((y @ w[n].T).unflatten(-1, (-1, DIM)) for n in ("q", "k", "v"))
            o = attend(number, _turned(q, positions), _turned(k, positions), v)
            x = x + o.flatten(-2) @ w["o"].T
            y = _norm(x)
            x = x + (silu(y @ w["gate"].T) * (y @ w["up"].T)) @ w["down"].T
        return _norm(x[:, -1]) @ self.logits.T


def _norm(x):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-6)


def _turned(x, positions):
    angles = positions[..., None, None] * 10.0 ** -torch.linspace(0, 4, DIM // 2)
    a, b = x.float().chunk(2, -1)
    turned = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
    return torch.cat(turned, -1).to(x.dtype)


class Server:
    def __init__(self, model, attention, dtype):
        shape = (LAYERS, PAGES, PAGE, KV_HEADS, DIM)
        self.k, self.v = (torch.full(shape, torch.nan, dtype=dtype) for _ in range(2))
        self.model, self.attention = model, attention
        self.free, self.running = list(range(PAGES)), {}
        self.seconds = {"prompts": 0.0, "words": 0.0, "attention": 0.0}

    def step(self, names, count):
        """One more word for each of these requests, whose last `count` words are new."""
        for name in names:
            words, pages = self.running[name]
            while len(pages) * PAGE < len(words):
                pages.append(self.free.pop())
        lengths = torch.tensor([len(self.running[n][0]) for n in names], dtype=torch.int32)
        table = torch.full((len(names), MOST), 2**31 - 1, dtype=torch.int32)
        for row, name in enumerate(names):
            pages = self.running[name][1]
            table[row, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        positions = lengths[:, None] - count + torch.arange(count)
        at = (table.gather(1, positions // PAGE).long(), positions % PAGE)

        def attend(number, q, k, v):
            self.k[number][at], self.v[number][at] = k, v
            start = time.perf_counter()
            q = q.transpose(1, 2)
            out = self.attention(q, self.k[number], self.v[number], table, lengths)
            self.seconds["attention"] += (time.perf_counter() - start) * (count == 1)
            return out.transpose(1, 2)

        start = time.perf_counter()
        words = torch.tensor([self.running[n][0][-count:] for n in names])
        for name, word in zip(names, self.model(words, positions, attend).argmax(-1), strict=True):
            self.running[name][0].append(int(word))
        self.seconds["words" if count == 1 else "prompts"] += time.perf_counter() - start

    def finish(self, name):
        """All words of a request, whose pages others get."""
        words, pages = self.running.pop(name)
        self.k[:, pages], self.v[:, pages] = torch.nan, torch.nan
        self.free += pages
        return words

    def serve(self, prompts):
        """What is said behind each prompt: `NEW` words and one more for each hundred of it."""
        waiting, said, made = dict(prompts), {}, 0
        while waiting or self.running:
            while waiting and len(self.running) < AT_ONCE:
                name = next(iter(waiting))
                self.running[name] = (list(waiting.pop(name)), [])
                self.step([name], len(prompts[name]))
            self.step(list(self.running), 1)
            made += len(self.running)
            for name in list(self.running):
                words, _ = self.running[name]
                if len(words) >= len(prompts[name]) + NEW + len(prompts[name]) // 100:
                    said[name] = self.finish(name)[len(prompts[name]) :]
        return said, made


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else torch.get_num_threads())
    made = torch.Generator().manual_seed(1)
    lengths = [1500, 40, 300, 900, 17, 640, 128, 1200, 64, 411, 1, 750]
    prompts = {n: torch.randint(WORDS, (length,), generator=made).tolist()
               for n, length in enumerate(lengths)}  # fmt: skip
    for dtype in (torch.float32, torch.bfloat16):
        model, first = Llama(dtype), None
        for attention in (ours, padded, each):
            with torch.no_grad():
                for _ in range(2):  # kernels are compiled by the first round
                    server = Server(model, attention, dtype)
                    said, made_words = server.serve(prompts)
            first = said if first is None else first
            same = sum(said[n] == first[n] for n in said)
            t = server.seconds
            print(
                f"{str(dtype)[6:]:9}{attention.__name__:8}{made_words / t['words']:7.1f} words/s, "
                f"attention {1e3 * t['attention'] / made_words:6.2f} ms a word, "
                f"prompts {sum(lengths) / t['prompts']:7.0f} words/s, "
                f"{same} of {len(said)} as ours",
                flush=True,
            )


if __name__ == "__main__":
    with torch.inference_mode():
        main()
