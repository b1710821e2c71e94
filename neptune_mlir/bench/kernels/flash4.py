# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FlashAttention-4 as its users call it: options of its own where it has them, else a modifier."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from neptune_mlir.bench.problem import Problem

# what it compiles is kept on disk, as its documentation says to do
os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")


def attention(p: Problem, arrays: Any) -> Callable[[], Any]:
    """A call for any of the operators; its own order of axes is [batch, length, heads, dim]."""
    from flash_attn.cute import flash_attn_func

    q, k, v = (a.transpose(1, 2).contiguous() for a in arrays[:3])
    settings = p.settings
    window = settings.get("window")
    options: dict[str, Any] = {}
    if window and (not p.is_decode or p.keys > window):
        options["window_size"] = (window - 1, 0)
    elif settings.get("causal") and not p.is_decode:
        options["causal"] = True
    if settings.get("sink"):
        options["learnable_sink"] = p.extra(arrays)["sink"]
    if settings.get("lse"):
        options["return_lse"] = True
    if settings.get("softcap"):
        options["softcap"] = float(settings["softcap"])
    if settings.get("alibi"):
        options["score_mod"] = _alibi(p)

    def call() -> Any:
        out = flash_attn_func(q, k, v, **options)
        first, *others = out if isinstance(out, (tuple, list)) else (out,)
        first = first.transpose(1, 2)
        return (first, others[0]) if settings.get("lse") else first

    return call


def _alibi(p: Problem) -> Any:
    """Slopes are computed, as in the examples of the package: 2 ** (-8 (h + 1) / heads)."""
    import cutlass
    from cutlass import cute

    step, offset = -8.0 / p.heads, p.keys - p.queries

    @cute.jit
    def modify(
        score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any, seqlen_info: Any, aux_tensors: Any
    ) -> Any:
        number = (h + cute.full_like(h, 1)).to(cutlass.Float32)
        slope = cute.math.exp2(number * cute.full_like(score, step), fastmath=True)
        distance = kv_idx - q_idx - cute.full_like(kv_idx, offset)
        return score + slope * distance.to(cutlass.Float32)

    return modify
