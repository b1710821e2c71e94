# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches of a server's step: new tokens of all sequences, one behind the other, on a paged cache.

Sequences have different numbers of new tokens: one where they decode, more where they guess ahead,
continue a prompt or begin one. Neighbours with equal numbers are one call of `paged_attention` on a
view of the tokens, so nothing is padded or copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch

from neptune_mlir.torch.serving import paged_attention

_LARGEST = 448.0  # number of e4m3


@dataclass(frozen=True)
class AlikeRun:
    """Neighbouring sequences that one call serves.

    Attributes:
        sequences, tokens: which they are, and their new tokens.
        queries: new tokens of each sequence.
    """

    sequences: slice
    tokens: slice
    queries: int


@dataclass(frozen=True)
class ServerStep:
    """What a step computes. The host knows numbers of tokens; lengths stay on the device.

    Attributes:
        runs: the calls of a step.
        table: [sequences, max_pages] i32.
        lengths: [sequences] i32, keys of each sequence, the new ones included.
    """

    runs: tuple[AlikeRun, ...]
    table: torch.Tensor
    lengths: torch.Tensor


def runs_of(counts: Sequence[int]) -> tuple[AlikeRun, ...]:
    """The calls for sequences with these numbers of new tokens; one with 0 is in no call."""
    found, first, token = [], 0, 0
    for queries, group in groupby(counts):
        end = first + len(list(group))
        last = token + (end - first) * queries
        if queries:
            found.append(AlikeRun(slice(first, end), slice(token, last), queries))
        first, token = end, last
    return tuple(found)


def batch_attention(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, batch: ServerStep, *,
    out: torch.Tensor, k_scales: torch.Tensor | None = None,
    v_scales: torch.Tensor | None = None, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """Attention of the new tokens of all sequences. The cache holds their keys already.

    Args:
        q: [tokens or more, heads, dim].
        k_pages, v_pages, k_scales, v_scales: as those of `paged_attention`.
        out: [tokens or more, heads, v_dim] of the dtype of q. Rows of no token stay as they are.
        options: window, softcap, slopes, sink and scale of `paged_attention`. A token sees keys at
            its own position and before.

    Returns:
        out.

    Raises:
        UsageError: tensors or options that do not fit together.
    """
    for run in batch.runs:
        mine, tokens = run.sequences, run.tokens
        rows, into = (x[tokens].unflatten(0, (-1, run.queries)).transpose(1, 2) for x in (q, out))
        paged_attention(
            rows, k_pages, v_pages, batch.table[mine], batch.lengths[mine], k_scales=k_scales,
            v_scales=v_scales, out=into, **options,
        )  # fmt: skip
    return out


def store_keys(
    new: torch.Tensor, pages: torch.Tensor, slots: torch.Tensor, scale: torch.Tensor | None = None
) -> None:
    """Write keys or values of new tokens to a cache. Counts tokens on the host: for CPUs.

    Args:
        new: [tokens or more, kv_heads, dim].
        pages: [pages, page_size, kv_heads, dim], of any strides; written to.
        slots: [tokens] integers, page * page_size + place in it; a negative one is not written.
        scale: f32, one number, of a cache of e4m3: what is stored is new / scale, and numbers that
            e4m3 does not have become the largest that it has.
    """
    kept = slots >= 0
    slots, numbers = slots[kept].long(), new[: len(slots)][kept]
    if scale is not None:
        numbers = (numbers.float() / scale).clamp(-_LARGEST, _LARGEST)
    size = pages.shape[1]
    numbers = numbers.to(pages.dtype)
    if pages.dtype == torch.float8_e4m3fn:  # torch assigns no elements of it by index
        pages, numbers = pages.view(torch.uint8), numbers.view(torch.uint8)
    pages[slots // size, slots % size] = numbers
