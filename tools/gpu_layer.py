#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prefill of a Llama-3-8B-shaped layer on a GPU: torch's own attention beside ours through
`register()`, and the first call of a new modifier beside FlexAttention's.

    tools/gpu_layer.py [--tokens 4096] [--layers 2] [--rounds 15]    (--layers 0: first calls alone)

One line of JSON a measurement. `ms` is the median time of a forward pass on the device (CUDA
events), `host_ms` that of the calling thread until the pass is enqueued, `attention_ms` the time
of the attention alone on tensors of the layer's shapes, `error` the largest difference from the
float32 layer relative to its largest element. Needs torch, transformers and the MLIR bindings.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import neptune_mlir.torch as door

HEADS, KV_HEADS, DIM, HIDDEN, WIDE = 32, 8, 128, 4096, 14336
SDPA = torch.nn.functional.scaled_dot_product_attention


def model_of(layers: int, dtype: torch.dtype, tokens: int) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=HIDDEN, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        intermediate_size=WIDE, num_hidden_layers=layers, vocab_size=1024,
        max_position_embeddings=tokens, attn_implementation="sdpa",
    )  # fmt: skip
    with torch.device("cuda"):
        return LlamaModel(config).to(dtype).eval()


def timed(call: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Medians over `rounds` calls, after three that warm up."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    device, host = [], []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        begun = time.perf_counter()
        call()
        host.append(time.perf_counter() - begun)
        end.record()
        end.synchronize()
        device.append(start.elapsed_time(end))
    return {"ms": statistics.median(device), "host_ms": 1e3 * statistics.median(host)}


def say(**facts: Any) -> None:
    rounded = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in facts.items()}
    print(json.dumps(rounded), flush=True)


def layers(count: int, tokens: int, rounds: int) -> None:
    embedded = torch.randn(1, tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
    wanted = model_of(count, torch.float32, tokens)(
        inputs_embeds=embedded.float()
    ).last_hidden_state
    model = model_of(count, torch.bfloat16, tokens)
    qkv = [
        torch.randn(1, heads, tokens, DIM, device="cuda", dtype=torch.bfloat16)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    ]
    for mode in ("eager", "torch.compile"):
        # alternating, so that a change of clocks meets both
        for attention in ("torch", "neptune", "torch", "neptune"):
            door.register() if attention == "neptune" else door.unregister()
            torch.compiler.reset()
            run = torch.compile(model) if mode == "torch.compile" else model

            def forward(run: Any = run) -> Any:
                return run(inputs_embeds=embedded).last_hidden_state

            begun = time.perf_counter()
            found = forward()
            torch.cuda.synchronize()
            first = time.perf_counter() - begun
            error = ((found.float() - wanted).abs().max() / wanted.abs().max()).item()
            alone = timed(lambda: SDPA(*qkv, is_causal=True, enable_gqa=True), rounds)
            say(mode=mode, attention=attention, layers=count, tokens=tokens, error=error,
                first_s=first, **timed(forward, rounds), attention_ms=alone["ms"],
                attention_host_ms=alone["host_ms"])  # fmt: skip
    door.unregister()


def first_calls(tokens: int, lengths: int) -> None:
    """Seconds of the first call of two new modifiers, then those of calls at many lengths."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    slopes = torch.rand(HEADS, device="cuda")

    def alibi(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + slopes[h] * (j - i)

    def capped(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return 30 * torch.tanh(s / 30)

    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    def ours(q: Any, k: Any, v: Any, mod: Any) -> Any:
        return door.attention(q, k, v, score_mod=mod, mask_mod=causal)

    flex = torch.compile(flex_attention)

    def theirs(q: Any, k: Any, v: Any, mod: Any) -> Any:
        n = q.shape[2]
        mask = create_block_mask(causal, None, None, n, n, device="cuda")
        return flex(q, k, v, score_mod=mod, block_mask=mask)

    def call(run: Any, mod: Any, n: int) -> float:
        given = [
            torch.randn(1, HEADS, n, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)
        ]
        torch.cuda.synchronize()
        begun = time.perf_counter()
        run(*given, mod)
        torch.cuda.synchronize()
        return time.perf_counter() - begun

    for name, run in (("neptune", ours), ("FlexAttention", theirs)):
        first = [call(run, mod, tokens) for mod in (alibi, capped)]
        more = [call(run, alibi, 500 + 7 * n) for n in range(lengths)]
        say(first_call_s=first, of=name, lengths=lengths, longest_s=max(more), all_s=sum(more))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    with torch.no_grad():
        if given.layers:
            layers(given.layers, given.tokens, given.rounds)
        first_calls(given.tokens, 100)


if __name__ == "__main__":
    main()
