#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a user waits for: the first calls of new modifiers in a fresh process, by
`neptune_mlir.torch.attention` or by FlexAttention in torch.compile, and calls of other lengths.

    tools/torch_first_calls.py [--of neptune|flex] [--device cuda|cpu] [--tokens 4096]

A line of JSON: seconds of wall time of the imports, of the first calls of three modifiers, of the
longest of a hundred calls of other lengths and of all of them. Run it for both, in turns, with
caches of their own that are empty (`NEPTUNE_CACHE_DIR`, `TORCHINDUCTOR_CACHE_DIR`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch

HEADS, DIM = 32, 64


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def window(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j) & (i - j < 200)


def modifiers(heads: int, device: str) -> list[tuple[Any, Any]]:
    slopes = torch.rand(heads, device=device)

    def alibi(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + slopes[h] * (j - i)

    def capped(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return 30 * torch.tanh(s / 30)

    return [(alibi, causal), (capped, causal), (alibi, window)]


def ours() -> Callable[..., Any]:
    from neptune_mlir.torch import attention

    return lambda q, k, v, mod, mask: attention(q, k, v, score_mod=mod, mask_mod=mask)


def theirs() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    flex = torch.compile(flex_attention)

    def call(q: Any, k: Any, v: Any, mod: Any, mask: Any) -> Any:
        blocks = create_block_mask(mask, None, None, q.shape[2], k.shape[2], device=q.device)
        return flex(q, k, v, score_mod=mod, block_mask=blocks)

    return call


def seconds(run: Callable[..., Any], shape: tuple[int, ...], device: str, mods: Any) -> float:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    q, k, v = (torch.randn(*shape, device=device, dtype=dtype) for _ in range(3))
    done = torch.cuda.synchronize if device == "cuda" else lambda: None
    done()
    begun = time.perf_counter()
    run(q, k, v, *mods)
    done()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--of", choices=("neptune", "flex"), default="neptune")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=HEADS)
    parser.add_argument("--lengths", type=int, default=100)
    given = parser.parse_args()
    mods = modifiers(given.heads, given.device)
    shape = (1, given.heads, given.tokens, DIM)
    seconds(lambda q, k, v: q @ k.mT, (1, 1, 64, DIM), given.device, ())  # the device is there
    begun = time.perf_counter()
    run = ours() if given.of == "neptune" else theirs()
    row: dict[str, Any] = {"of": given.of, "device": given.device}
    row["imports_s"] = time.perf_counter() - begun
    with torch.no_grad():
        row["first_s"] = [seconds(run, shape, given.device, mod) for mod in mods]
        longest = (given.tokens - 500) // max(given.lengths, 1)
        more = [
            seconds(run, (1, given.heads, 500 + longest * n, DIM), given.device, mods[0])
            for n in range(given.lengths)
        ]
    row |= {"lengths": len(more), "longest_s": max(more, default=0), "all_s": sum(more)}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
