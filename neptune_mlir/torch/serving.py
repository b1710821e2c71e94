# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention for servers on torch tensors: caches in pages, ragged batches, shared latents.

The functions have the names of the programs in `neptune_mlir.ops`. A kernel is compiled for each
structure (dtypes, dims, page size, options); batch sizes, lengths, numbers of heads and of pages
are those of a call. Nothing is read back from the device, so that a CUDA graph can hold the calls.
There are no gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from neptune_mlir import ops
from neptune_mlir.driver.kernel import Kernel, compile
from neptune_mlir.errors import UsageError
from neptune_mlir.frontend.notation import Program
from neptune_mlir.torch.mods import DTYPES
from neptune_mlir.torch.op import target_of

CHUNKS = tuple(1 << k for k in range(1, 8))  # those of the knob, but for 0
_kernels: dict[Any, Kernel] = {}


def paged_attention(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, table: torch.Tensor,
    lengths: torch.Tensor, *, causal: bool = True, window: int | None = None,
    softcap: float | None = None, slopes: torch.Tensor | None = None,
    sink: torch.Tensor | None = None, scale: float | None = None, return_lse: bool = False,
    k_scales: torch.Tensor | None = None, v_scales: torch.Tensor | None = None,
    tree: torch.Tensor | None = None, chunks: int | None = None, out: Any = None,
) -> Any:  # fmt: skip
    """Attention of the last queries of each sequence on a cache in pages.

    Args:
        q: [batch, heads, q_len, dim], f16, bf16, f32 or f64.
        k_pages, v_pages: [pages, page_size, kv_heads, dim] and [..., v_dim], of one dtype: that
            of q or another float, float8_e4m3fn or int8.
        table: [batch, max_pages] i32, the pages of each sequence in order. What stands behind a
            sequence's last page is not used.
        lengths: [batch] i32: the keys of each sequence, those of its queries included.
        causal: a query sees keys at its own position and before.
        window: it sees only keys fewer than this many positions back.
        softcap: scores become softcap * tanh(score / softcap).
        slopes: [heads] f32, of a bias slope * (key position - query position).
        sink: [heads] f32, a logit that takes weight and gives nothing.
        scale: default 1 / sqrt(dim).
        k_scales, v_scales: f32, of caches in 8 bits: [kv_heads], [pages, kv_heads] or
            [pages, page_size, kv_heads]; keys are numbers of the cache times these. Default 1.
        tree: [batch, q_len, q_len] bool, for guesses that branch: which of its keys, the last
            q_len ones, each query sees beside all before, instead of `causal`. q_len up to 64.
        chunks: parts that the keys of each sequence are cut into on GPUs. Results of one query, or
            of a tree, have the same bits then whatever else is in the batch. A power of two from 2
            to 128; default: as many as suit the batch.
        out: the tensor for the result, or one for each result.

    Returns:
        [batch, heads, q_len, v_dim] of the dtype of q; with `return_lse` also the log-sum-exp
        [batch, heads, q_len], f32 (f64 of f64).

    Raises:
        UsageError: tensors or options that do not fit together.
    """
    q_len = q.shape[2] if tree is not None or q.shape[2] == 1 else None
    options = {
        "head_dim": q.shape[-1], "v_dim": v_pages.shape[-1], "page_size": k_pages.shape[1],
        "group": _group(q.shape[1], k_pages.shape[2]), "q_len": q_len, "tree": tree is not None,
        "dtype": _dtype(q), "kv_dtype": _cache_dtype(k_pages), "causal": causal,
        "window": None if window is None else "window", "softcap": softcap,
        "alibi": slopes is not None, "sink": sink is not None, "scale": scale,
        "return_lse": return_lse,
        "kv_scales": _scales(k_scales, v_scales, {1: "head", 2: "page", 3: "token"}),
    }  # fmt: skip
    extras = [x for x in (window, slopes, sink, k_scales, v_scales, tree) if x is not None]
    given = [q, k_pages, v_pages, table, lengths, *extras]
    return _run(ops.paged_attention, options, given, out, chunks)


def cascade_attention(
    q: torch.Tensor, k_shared: torch.Tensor, v_shared: torch.Tensor, k_pages: torch.Tensor,
    v_pages: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, *,
    softcap: float | None = None, scale: float | None = None, return_lse: bool = False,
    k_scales: torch.Tensor | None = None, v_scales: torch.Tensor | None = None,
    tree: torch.Tensor | None = None, out: Any = None,
) -> Any:  # fmt: skip
    """Attention on keys that all sequences share, and then on their own: two levels, joined.

    The shared keys are attended to once, with the queries of all sequences as rows of one call.

    Args:
        q: [batch, heads, q_len, dim].
        k_shared, v_shared: [keys, kv_heads, dim] and [..., v_dim], of the dtype of q: what comes
            before all sequences (a system prompt).
        k_pages, v_pages, table, lengths, softcap, scale, k_scales, v_scales, tree, out: as those
            of `paged_attention`; `lengths` counts the sequences' own keys.

    Returns:
        As that of `paged_attention`.

    Raises:
        UsageError: tensors or options that do not fit together.
    """
    batch, heads, q_len, _ = q.shape
    rows = q.transpose(0, 1).flatten(1, 2)[None]  # [1, heads, batch * q_len, dim]
    shared = {
        "head_dim": q.shape[-1], "v_dim": v_shared.shape[-1], "dtype": _dtype(q), "scale": scale,
        "group": _group(heads, k_shared.shape[1]), "softcap": softcap, "return_lse": True,
    }  # fmt: skip
    k, v = (x.transpose(0, 1)[None] for x in (k_shared, v_shared))
    both = _run(ops.attention, shared, [rows, k, v], None)
    first, first_lse = (x[0].unflatten(1, (batch, q_len)).transpose(0, 1) for x in both)
    second, second_lse = paged_attention(
        q, k_pages, v_pages, table, lengths, softcap=softcap, scale=scale, return_lse=True,
        k_scales=k_scales, v_scales=v_scales, tree=tree,
    )  # fmt: skip
    joined = {"v_dim": first.shape[-1], "dtype": _dtype(q), "return_lse": return_lse}
    return _run(ops.join_attention, joined, [first, first_lse, second, second_lse], out)


def ragged_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q_starts: torch.Tensor,
    kv_starts: torch.Tensor, *, causal: bool = True, window: int | None = None,
    softcap: float | None = None, slopes: torch.Tensor | None = None,
    sink: torch.Tensor | None = None, scale: float | None = None, return_lse: bool = False,
    k_scales: torch.Tensor | None = None, v_scales: torch.Tensor | None = None, out: Any = None,
) -> Any:  # fmt: skip
    """Attention of sequences that stand one behind the other, without padding.

    Args:
        q: [tokens, heads, dim]; k, v: [kv_tokens, kv_heads, dim] and [..., v_dim].
        q_starts, kv_starts: [batch + 1] i32, the first token of each sequence and the number of
            all.
        k_scales, v_scales: f32, [kv_heads] or [kv_tokens, kv_heads], of keys in 8 bits.

    The other options are those of `paged_attention`.

    Returns:
        [tokens, heads, v_dim] of the dtype of q; with `return_lse` also [tokens, heads].

    Raises:
        UsageError: tensors or options that do not fit together.
    """
    options = {
        "head_dim": q.shape[-1], "v_dim": v.shape[-1], "group": _group(q.shape[1], k.shape[1]),
        "dtype": _dtype(q), "causal": causal, "window": None if window is None else "window",
        "softcap": softcap, "alibi": slopes is not None, "sink": sink is not None,
        "scale": scale, "return_lse": return_lse, "kv_dtype": _cache_dtype(k),
        "kv_scales": _scales(k_scales, v_scales, {1: "head", 2: "token"}),
    }  # fmt: skip
    extras = [x for x in (window, slopes, sink, k_scales, v_scales) if x is not None]
    return _run(ops.ragged_attention, options, [q, k, v, q_starts, kv_starts, *extras], out)


def latent_attention(
    q_latent: torch.Tensor, q_rope: torch.Tensor, pages: torch.Tensor, table: torch.Tensor,
    lengths: torch.Tensor, *, scale: float, causal: bool = True, return_lse: bool = False,
    scales: torch.Tensor | None = None, out: Any = None,
) -> Any:  # fmt: skip
    """Attention of all heads on one cache of latents, in pages.

    Args:
        q_latent: [batch, heads, q_len, latent]; q_rope: [batch, heads, q_len, rope].
        pages: [pages, page_size, latent + rope]: a key is a row, its value the first `latent`
            elements.
        table, lengths, causal, out: as those of `paged_attention`.
        scale: of the scores.
        scales: f32, of a cache in 8 bits: [1], [pages] or [pages, page_size].

    Returns:
        [batch, heads, q_len, latent] of the dtype of the queries; with `return_lse` also
        [batch, heads, q_len].

    Raises:
        UsageError: tensors or options that do not fit together.
    """
    options = {
        "latent_dim": q_latent.shape[-1], "rope_dim": q_rope.shape[-1],
        "page_size": pages.shape[1], "scale": scale, "causal": causal,
        "q_len": 1 if q_latent.shape[2] == 1 else None, "dtype": _dtype(q_latent),
        "kv_dtype": _cache_dtype(pages), "return_lse": return_lse,
    }  # fmt: skip
    given = [q_latent, q_rope, pages, table, lengths]
    if scales is not None:
        whole = len(scales) == 1 and len(pages) != 1
        options["kv_scales"] = "head" if whole else _scales(scales, scales, {1: "page", 2: "token"})
        given.append(scales)
    return _run(ops.latent_attention, options, given, out)


def _run(
    program: Callable[..., Program], options: dict[str, Any], given: list[Any], out: Any,
    chunks: int | None = None,
) -> Any:  # fmt: skip
    device = given[0].device
    if chunks is not None and chunks not in CHUNKS:
        raise UsageError(f"chunks is {chunks}", hint="a power of two from 2 to 128, or None")
    chunks = None if device.type == "cpu" else chunks  # where nothing is cut
    key = (program.__name__, *options.values(), device, chunks)
    kernel = _kernels.get(key)
    if kernel is None:
        knobs = {} if chunks is None else {"chunks": chunks}
        made = compile(program(**options), target=target_of(device), knobs=knobs)
        kernel = _kernels[key] = made
    tensors = [x.detach() if isinstance(x, torch.Tensor) else x for x in given]
    return kernel(*tensors, out=out)


def _dtype(x: torch.Tensor) -> str:
    if x.dtype not in DTYPES:
        raise UsageError(f"attention of {x.dtype}", hint="float16, bfloat16, float32 or float64")
    return DTYPES[x.dtype]


def _cache_dtype(x: torch.Tensor) -> str:
    names = {torch.float8_e4m3fn: "e4m3", torch.int8: "int8"}
    return names[x.dtype] if x.dtype in names else _dtype(x)


def _scales(
    k_scales: torch.Tensor | None, v_scales: torch.Tensor | None, kinds: dict[int, str]
) -> str | None:
    """What each scale is for, by the number of dimensions."""
    if k_scales is None and v_scales is None:
        return None
    dims = {-1 if x is None else x.dim() for x in (k_scales, v_scales)}
    if len(dims) > 1 or not dims <= kinds.keys():
        raise UsageError(
            "scales of keys and of values are not alike",
            hint=f"both f32 with {' or '.join(map(str, kinds))} dimensions",
        )
    return kinds[dims.pop()]


def _group(heads: int, kv_heads: int) -> int:
    if not kv_heads or heads % kv_heads:
        raise UsageError(f"{heads} query heads and {kv_heads} key heads", hint="not a multiple")
    return heads // kv_heads
