#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prefill and a step of decoding of a Llama-3-8B-shaped layer on a GPU: torch's own attention
beside ours through `register()`. (First calls: `torch_first_calls.py`.)

    tools/gpu_layer.py [--tokens 4096] [--layers 2] [--rounds 15] [--only prefill|decode]

One line of JSON a measurement. `ms` is the median time of a forward pass on the device (CUDA
events), `host_ms` that of the calling thread until the pass is enqueued, `attention_ms` the time
of the attention alone on tensors of the layer's shapes, `share` what the attentions are of the
pass, `error` the largest difference from the float32 layer relative to its largest element. A step
of decoding reads a cache of as many tokens. Needs torch and the MLIR bindings.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import neptune_mlir.torch as door

HEADS, KV_HEADS, DIM, HIDDEN, WIDE = 32, 8, 128, 4096, 14336
SDPA = torch.nn.functional.scaled_dot_product_attention


class Layer(torch.nn.Module):
    """A layer of Llama 3: grouped heads with rotary positions, then a gated perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(HIDDEN, eps=1e-5) for _ in range(2))
        sizes = {"q": (HIDDEN, HEADS * DIM), "k": (HIDDEN, KV_HEADS * DIM),
                 "v": (HIDDEN, KV_HEADS * DIM), "o": (HEADS * DIM, HIDDEN),
                 "gate": (HIDDEN, WIDE), "up": (HIDDEN, WIDE), "down": (WIDE, HIDDEN)}  # fmt: skip
        self.parts = torch.nn.ModuleDict(
            {name: torch.nn.Linear(*size, bias=False) for name, size in sizes.items()}
        )

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
                past: tuple[torch.Tensor, torch.Tensor] | None = None) -> torch.Tensor:  # fmt: skip
        y, part = self.norms[0](x), self.parts
        q, k, v = (part[name](y).unflatten(-1, (-1, DIM)).transpose(1, 2) for name in "qkv")
        q, k = (t * cos + torch.cat((-t[..., DIM // 2 :], t[..., : DIM // 2]), -1) * sin
                for t in (q, k))  # fmt: skip
        if past is not None:
            k, v = (torch.cat(both, 2) for both in zip(past, (k, v), strict=True))
        out = SDPA(q, k, v, is_causal=past is None, enable_gqa=True)
        x = x + part["o"](out.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return x + part["down"](torch.nn.functional.silu(part["gate"](y)) * part["up"](y))


class Layers(torch.nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(count))

    def forward(
        self, x: torch.Tensor, caches: list[tuple[torch.Tensor, torch.Tensor]] | None = None
    ) -> torch.Tensor:
        seen = caches[0][0].shape[2] if caches else 0
        at = torch.arange(seen, seen + x.shape[1], device=x.device)[:, None]
        angles = at * 5e5 ** -(torch.arange(0, DIM, 2, device=x.device) / DIM)
        cos, sin = (f(torch.cat((angles, angles), -1)).to(x.dtype) for f in (torch.cos, torch.sin))
        for at_layer, layer in enumerate(self.layers):
            x = layer(x, cos, sin, caches[at_layer] if caches else None)
        return x


def model_of(layers: int, dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Layers(layers)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.02)
    return model.to(dtype).eval()


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


def layers(count: int, tokens: int, rounds: int, only: str) -> None:
    exact, model = (model_of(count, dtype) for dtype in (torch.float32, torch.bfloat16))
    for kind, queries, cached in (("prefill", tokens, 0), ("decode", 1, tokens)):
        if only not in ("", kind):
            continue
        embedded, *caches = (
            torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
            for shape in ((1, queries, HIDDEN), *((1, KV_HEADS, cached, DIM),) * (2 * count))
        )
        pairs = list(zip(caches[::2], caches[1::2], strict=True)) if cached else None
        wide = pairs and [(k.float(), v.float()) for k, v in pairs]
        wanted = exact(embedded.float(), wide)
        for row in in_turns(model, embedded, pairs, wanted, rounds):
            say(kind=kind, layers=count, tokens=tokens, **row)


def in_turns(
    model: torch.nn.Module, x: torch.Tensor, caches: Any, wanted: torch.Tensor, rounds: int
) -> Iterator[dict[str, Any]]:
    """A row for each mode and attention, alternating, so that a change of clocks meets both."""
    from neptune_mlir.torch.backend import neptune

    keys = x.shape[1] + (caches[0][0].shape[2] if caches else 0)
    qkv = [
        torch.randn(1, heads, length, DIM, device=x.device, dtype=x.dtype)
        for heads, length in ((HEADS, x.shape[1]), (KV_HEADS, keys), (KV_HEADS, keys))
    ]
    modes: dict[str, Callable[[torch.nn.Module], Any]] = {
        "eager": lambda model: model,
        "backend": lambda model: torch.compile(model, backend=neptune),
        "torch.compile": torch.compile,
    }
    for mode, program in modes.items():
        for attention in ("torch", "neptune") * 2 if mode != "backend" else ("in the graph",) * 2:
            door.register() if attention == "neptune" else door.unregister()
            torch.compiler.reset()
            run = program(model)

            def forward(run: Any = run) -> Any:
                return run(x, caches)

            begun = time.perf_counter()
            found = forward()
            torch.cuda.synchronize()
            first = time.perf_counter() - begun
            error = ((found.float() - wanted).abs().max() / wanted.abs().max()).item()
            alone = timed(lambda: SDPA(*qkv, is_causal=not caches, enable_gqa=True), rounds)
            whole = timed(forward, rounds)
            yield {
                "mode": mode, "attention": attention, "error": error, "first_s": first, **whole,
                "attention_ms": alone["ms"], "attention_host_ms": alone["host_ms"],
                "share": len(model.layers) * alone["ms"] / whole["ms"],
            }  # fmt: skip
    door.unregister()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=("", "prefill", "decode"), default="")
    given = parser.parse_args()
    with torch.no_grad():
        layers(given.layers, given.tokens, given.rounds, given.only)


if __name__ == "__main__":
    main()
