# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention by hand in Triton: the kernel that a Triton user would write for these operators.

Online softmax in base 2, loads through tensor descriptors, keys in three stretches (cut by the
window, whole, cut by the diagonal) so that only cut tiles are masked; a few configurations, tuned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from neptune_mlir.bench.problem import Problem

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _stretch(
    acc, total, peak, q, keys, values, base, start, stop, rows, scale, slope,
    COLUMNS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    ALIBI: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    for n in tl.range(start, stop, COLUMNS):
        columns = n + tl.arange(0, COLUMNS)
        s = tl.dot(q, keys.load([base + n, 0]).T)
        if SOFTCAP != 0:
            # tanh(x) = 1 - 2 / (1 + exp(2 x))
            s = 1 - 2 / (1 + tl.math.exp2(s * (scale * 2 / SOFTCAP * LOG2E)))
            s = s * (SOFTCAP * LOG2E)
        else:
            s = s * (scale * LOG2E)
        if ALIBI:
            s += slope * LOG2E * (columns[None, :] - rows[:, None])
        if MASKED:
            seen = columns[None, :] <= rows[:, None]
            if WINDOW:
                seen &= rows[:, None] - columns[None, :] < WINDOW
            s = tl.where(seen, s, -1.0e30)  # finite: every row sees itself in the end
        higher = tl.maximum(peak, tl.max(s, 1))
        p = tl.math.exp2(s - higher[:, None])
        again = tl.math.exp2(peak - higher)
        total = total * again + tl.sum(p, 1)
        acc = acc * again[:, None]
        v = values.load([base + n, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        peak = higher
    return acc, total, peak


def _set_blocks(arguments: dict[str, Any]) -> None:
    head = arguments["HEAD"]
    for name, rows in (("queries", "ROWS"), ("out", "ROWS"), ("keys", "COLUMNS"),
                       ("values", "COLUMNS")):  # fmt: skip
        arguments[name].block_shape = [arguments[rows], head]


CONFIGURATIONS = [
    triton.Config({"ROWS": rows, "COLUMNS": columns}, num_warps=warps, num_stages=stages,
                  pre_hook=_set_blocks)
    for rows, columns, warps, stages in (
        (128, 64, 4, 3), (128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 4, 3),
        (64, 64, 4, 2),
    )
]  # fmt: skip


@triton.autotune(
    CONFIGURATIONS,
    key=["length", "HEAD", "CAUSAL", "WINDOW", "SOFTCAP", "ALIBI"],
    do_bench=partial(triton.testing.do_bench, warmup=5, rep=20),
)
@triton.jit
def _kernel(
    queries, keys, values, out, slopes, scale, length, heads,
    HEAD: tl.constexpr, GROUP: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr, ALIBI: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0)
    if CAUSAL:
        first = tl.num_programs(0) - 1 - first  # the long ones begin
    first *= ROWS
    head = tl.program_id(1)
    base = head // GROUP * length
    rows = first + tl.arange(0, ROWS)
    slope = tl.load(slopes + head % heads) if ALIBI else 0.0
    q = queries.load([head * length + first, 0])
    peak = tl.full([ROWS], -1.0e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD], tl.float32)
    low = 0
    whole = 0
    high = length
    if CAUSAL:
        high = first + ROWS
        if WINDOW:
            low = tl.maximum(first - WINDOW + 1, 0) // COLUMNS * COLUMNS
            whole = tl.maximum(first + ROWS - WINDOW, 0) + COLUMNS - 1
            whole = tl.minimum(whole // COLUMNS * COLUMNS, first // COLUMNS * COLUMNS)
            acc, total, peak = _stretch(
                acc, total, peak, q, keys, values, base, low, whole, rows, scale, slope,
                COLUMNS, CAUSAL, WINDOW, SOFTCAP, ALIBI, True,
            )  # fmt: skip
        diagonal = first // COLUMNS * COLUMNS
        acc, total, peak = _stretch(
            acc, total, peak, q, keys, values, base, whole, diagonal, rows, scale, slope,
            COLUMNS, CAUSAL, WINDOW, SOFTCAP, ALIBI, False,
        )  # fmt: skip
        acc, total, peak = _stretch(
            acc, total, peak, q, keys, values, base, diagonal, high, rows, scale, slope,
            COLUMNS, CAUSAL, WINDOW, SOFTCAP, ALIBI, True,
        )  # fmt: skip
    else:
        acc, total, peak = _stretch(
            acc, total, peak, q, keys, values, base, 0, high, rows, scale, slope,
            COLUMNS, CAUSAL, WINDOW, SOFTCAP, ALIBI, False,
        )  # fmt: skip
    out.store([head * length + first, 0], (acc / total[:, None]).to(q.dtype))


def attention(p: Problem, arrays: Any) -> Callable[[], Any]:
    """A call for a problem whose length is a multiple of 128, on contiguous arrays."""
    q, k, v = arrays[:3]
    out = torch.empty_like(q)
    slopes = arrays[3] if p.settings.get("alibi") else q
    described = [
        TensorDescriptor(t.view(-1, p.head_dim), [t.numel() // p.head_dim, p.head_dim],
                         [p.head_dim, 1], [1, 1])
        for t in (q, k, v, out)
    ]  # fmt: skip

    def grid(chosen: dict[str, int]) -> tuple[int, int]:
        return triton.cdiv(p.queries, chosen["ROWS"]), p.batch * p.heads

    def call() -> Any:
        _kernel[grid](
            *described, slopes, p.head_dim**-0.5, p.queries, p.heads, p.head_dim,
            p.heads // p.kv_heads, bool(p.settings.get("causal")), p.settings.get("window") or 0,
            p.settings.get("softcap") or 0, bool(p.settings.get("alibi")),
        )  # fmt: skip
        return out

    return call
