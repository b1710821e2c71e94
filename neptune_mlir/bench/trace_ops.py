# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Our programs behind the interfaces of FlashInfer-Trace definitions.

A runner takes a definition and its inputs, and gives a call without arguments that returns the
results. What a server would do once a step (tables of pages from lists of pages, one cache of
latents from two) is done before.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import torch

import neptune_mlir.torch as nt
from neptune_mlir.driver.kernel import Kernel
from neptune_mlir.driver.kernel import compile as compile_program
from neptune_mlir.frontend.notation import Program, mean, rsqrt
from neptune_mlir.torch.op import target_of

Call = Callable[[], tuple[torch.Tensor, ...]]


class Unsupported(Exception):
    """What no runner here does, and why."""


def _table(given: dict[str, Any], page_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The pages of each sequence as rows of a table, and the sequences' lengths."""
    starts, pages = given["kv_indptr"].long(), given["kv_indices"]
    counts = starts[1:] - starts[:-1]
    most = max(1, int(counts.max()))
    columns = torch.arange(most, device=pages.device)
    at = (starts[:-1, None] + columns).clamp(max=max(len(pages) - 1, 0))
    table = pages[at] if len(pages) else torch.zeros_like(at)
    lengths = counts * page_size
    if "kv_last_page_len" in given:
        behind = page_size - given["kv_last_page_len"]
        lengths = lengths - torch.where(counts > 0, behind, 0)
    elif page_size > 1:
        raise Unsupported("pages of several keys without kv_last_page_len")
    return table.int().contiguous(), lengths.int()


def _rows(given: dict[str, Any], *names: str) -> tuple[list[torch.Tensor], Any]:
    """Queries as [batch, heads, q_len, dim], and how results go back to the definition's shape.

    The queries of a sequence are its last rows; those in front of them are zeros whose results
    nobody reads.
    """
    if "qo_indptr" not in given:
        return [given[n][:, :, None] for n in names], lambda x: x[:, :, 0]
    starts = given["qo_indptr"].long()
    counts = starts[1:] - starts[:-1]
    most, batch = max(1, int(counts.max())), len(counts)
    total = int(starts[-1])
    of = torch.repeat_interleave(torch.arange(batch, device=starts.device), counts)
    row = torch.arange(total, device=starts.device) - starts[1:][of] + most
    found = []
    for name in names:
        x = given[name]
        rows = x.new_zeros(batch, most, *x.shape[1:])
        rows[of, row] = x[:total]
        found.append(rows.transpose(1, 2).contiguous())
    return found, lambda x: x.transpose(1, 2)[of, row]


def _results(back: Callable[[Any], Any], out: Any, lse: Any) -> tuple[torch.Tensor, ...]:
    return back(out), back(lse) / math.log(2)


def _gqa_paged(definition: dict[str, Any], given: dict[str, Any]) -> Call:
    table, lengths = _table(given, given["k_cache"].shape[1])
    (q,), back = _rows(given, "q")

    def call() -> tuple[torch.Tensor, ...]:
        both = nt.paged_attention(
            q, given["k_cache"], given["v_cache"], table, lengths, scale=given["sm_scale"],
            return_lse=True,
        )  # fmt: skip
        return _results(back, *both)

    return call


def _gqa_ragged(definition: dict[str, Any], given: dict[str, Any]) -> Call:
    arguments = [given[n] for n in ("q", "k", "v", "qo_indptr", "kv_indptr")]

    def call() -> tuple[torch.Tensor, ...]:
        both = nt.ragged_attention(*arguments, scale=given["sm_scale"], return_lse=True)
        return _results(lambda x: x, *both)

    return call


def _mla_paged(definition: dict[str, Any], given: dict[str, Any]) -> Call:
    cache = torch.cat([given["ckv_cache"], given["kpe_cache"]], -1)
    table, lengths = _table(given, cache.shape[1])
    (q, q_rope), back = _rows(given, "q_nope", "q_pe")

    def call() -> tuple[torch.Tensor, ...]:
        both = nt.latent_attention(
            q, q_rope, cache, table, lengths, scale=given["sm_scale"], return_lse=True
        )
        return _results(back, *both)

    return call


def _rms_norm(definition: dict[str, Any], given: dict[str, Any]) -> Call:
    x, weight, residual = (given.get(n) for n in ("hidden_states", "weight", "residual"))
    said = re.search(r"\bEPS\s*=\s*([0-9.eE+-]+)", definition["reference"])
    eps = given.get("eps", float(said[1]) if said else None)
    if x is None or weight is None or eps is None or set(given) - _NORM:
        raise Unsupported(f"a norm of {', '.join(given)}")
    kernel = _norm(x.shape[-1], _dtype(x), float(eps), residual is not None, target_of(x.device))
    arguments = [a for a in (x, residual, weight) if a is not None]
    return lambda: (kernel(*arguments),)


_NORM = {"hidden_states", "weight", "residual", "eps"}


@functools.cache
def _norm(width: int, dtype: str, eps: float, adds: bool, target: str) -> Kernel:
    p = Program("rms_norm")
    i, j = p.axis("i"), p.axis("j", width)
    x = p.input("x", i, j, dtype=dtype)[i, j] * 1.0
    x = x + p.input("residual", i, j, dtype=dtype)[i, j] if adds else x
    weight = p.input("weight", j, dtype=dtype)[j]
    p.output(x * rsqrt(mean(x * x, j) + eps) * weight, i, j, dtype=dtype)
    return compile_program(p, target=target)


def _dtype(x: torch.Tensor) -> str:
    return {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[x.dtype]


RUNNERS: dict[str, Callable[[dict[str, Any], dict[str, Any]], Call]] = {
    "gqa_paged": _gqa_paged, "gqa_ragged": _gqa_ragged, "mla_paged": _mla_paged,
    "rmsnorm": _rms_norm,
}  # fmt: skip
