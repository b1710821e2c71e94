# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`attention`: FlexAttention's interface on the compiler's kernels."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from neptune_mlir.errors import UsageError
from neptune_mlir.torch import again, autocast, op
from neptune_mlir.torch.gradients import DifferentiableAttention
from neptune_mlir.torch.mods import DTYPES
from neptune_mlir.torch.trace import recent, trace

Mod = Callable[..., Any]
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    score_mod: Mod | None = None,
    mask_mod: Mod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
    return_lse: bool = False,
) -> Any:
    """softmax(score_mod(scale * q kᵀ), masked) v, in one kernel.

    Args:
        q: [batch, heads, q_len, dim], f16, bf16, f32 or f64, on a CPU or an NVIDIA GPU, of any
            strides.
        k, v: [batch or 1, kv_heads, kv_len, dim] and [..., v_dim], of the dtype of q. (Inside of
            `torch.autocast` all three are cast, as for FlexAttention.)
        score_mod: `score_mod(score, b, h, q_idx, kv_idx)` on 0-d tensors, as FlexAttention's; it
            may read tensors of its closure (`slopes[h]`, `bias[b, h, q_idx, kv_idx]`).
        mask_mod: `mask_mod(b, h, q_idx, kv_idx)`: whether a query sees a key.
        block_mask: FlexAttention's `BlockMask`; together with `mask_mod`, both have to hold.
        scale: default 1 / sqrt(dim).
        is_causal: a query at position i sees keys at i and before (both count from 0, as in
            `scaled_dot_product_attention`).
        enable_gqa: heads may be a multiple of kv_heads; consecutive heads share a key head.
        return_lse: also the log-sum-exp of each row's scores.

    Returns:
        The result, [batch, heads, q_len, v_dim] of the dtype of q; with `return_lse` also
        [batch, heads, q_len], f32 (f64 of f64). A query that sees no key gives 0, and -inf.

    Raises:
        UsageError: tensors or options that do not fit together.
        InputError: a modifier that cannot be traced, or that does to the score what no kernel can.
    """
    compiling = torch.compiler.is_compiling()
    door, asked = None, (q, k, v)
    if (block_mask is None and not compiling and forward_ad._current_level < 0  # (no tangents)
            and (scale is None or type(scale) is float)):  # fmt: skip
        options = scale, is_causal, enable_gqa, return_lse
        made = _as_last(q, k, v, score_mod, mask_mod, options)
        if made is not None:
            return made if return_lse else made[0]
        q, k, v = autocast.cast(q, k, v)  # (whether it is on is among what calls have alike)
        mods, captured = key_of_mods(q, k, score_mod, mask_mod, None)
        door, asked = ("attention", mods, *options), (q, k, v, *captured)
    q, k, v = autocast.cast(q, k, v)
    k, v = _checked(q, k, v, enable_gqa)
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    plain = score_mod is None and mask_mod is None and block_mask is None
    if compiling and not plain:
        from neptune_mlir.torch.flex import call_flex

        return call_flex(q, k, v, score_mod, mask_mod, block_mask, scale, is_causal, return_lse)
    if door is None:
        mods, captured = key_of_mods(q, k, score_mod, mask_mod, block_mask)
    return dispatch(q, k, v, None, captured, mods, scale, is_causal, return_lse, door, asked)


def masked_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None,
    score_mod: Mod | None, scale: float, is_causal: bool, *, return_lse: bool = False,
) -> Any:  # fmt: skip
    """Attention with a mask as a tensor, [batch or 1, heads or 1, q_len or 1, kv_len or 1], bool or
    numbers that are added to the modified scores. Heads may be grouped; nothing is checked."""
    if score_mod is None or not torch.compiler.is_compiling():
        mods, captured = key_of_mods(q, k, score_mod, None, None)
        return dispatch(q, k, v, mask, captured, mods, scale, is_causal, return_lse)
    from neptune_mlir.torch.flex import call_flex

    # its element stands at positions alone, so that the kernel reads it in place
    whole = None if mask is None else mask.reshape([n for n in mask.shape if n != 1])

    def modified(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        score = score_mod(score, b, h, i, j)
        if mask is None:
            return score
        found = whole[tuple(p for p, n in zip((b, h, i, j), mask.shape, strict=True) if n != 1)]
        return torch.where(found, score, -torch.inf) if mask.dtype is torch.bool else score + found

    return call_flex(q, k, v, modified, None, None, scale, is_causal, return_lse)


def dispatch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None,
    captured: list[torch.Tensor], mods: str, scale: float, is_causal: bool, return_lse: bool,
    door: tuple[Any, ...] | None = None, asked: tuple[torch.Tensor, ...] = (),
) -> Any:  # fmt: skip
    """The operation: directly where nothing looks on, else through torch's dispatcher. Where it is
    differentiated, it has the log-sum-exp, too, which its gradient is made of. `door` is under what
    `again.last` finds such a call by the tensors `asked`: those of the operation, over the same
    memory, as the caller has them."""
    tensors = (q, k, v, mask, *captured)
    learns = again.learns(tensors)
    given = (q, k, v, mask, captured, mods, scale, is_causal, return_lse or learns)
    if torch.compiler.is_compiling():
        made = torch.ops.neptune.attention(*given)
    elif forward_ad._current_level >= 0:
        modify = op.modify(mods, captured)
        made = op.dense(q, k, v, modify, mask, scale, is_causal, return_lse)
    elif learns and torch._C._functorch.peek_interpreter_stack():
        made = DifferentiableAttention.apply(q, k, v, mask, (mods, scale, is_causal), *captured)
    elif learns or again.is_observed(tensors):
        made = torch.ops.neptune.attention(*given)
    else:
        made = op.run(*given)
        if door is not None:
            again.note(door, asked)
    return tuple(made) if return_lse else made[0]


def _checked(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, enable_gqa: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """k and v with q's batch. Raises UsageError."""
    if q.dtype not in FLOATS or k.dtype != q.dtype or v.dtype != q.dtype:
        raise UsageError(
            f"attention of {q.dtype}, {k.dtype} and {v.dtype}",
            hint="one dtype for q, k and v: float16, bfloat16, float32 or float64",
        )
    qs, ks, vs = q.shape, k.shape, v.shape
    if not q.device == k.device == v.device:
        raise UsageError(f"attention of tensors on {q.device}, {k.device} and {v.device}")
    if not len(qs) == len(ks) == len(vs) == 4:
        raise UsageError(
            f"attention of tensors with {len(qs)}, {len(ks)} and {len(vs)} dimensions",
            hint="[batch, heads, length, dim]",
        )
    if ks[3] != qs[3] or ks[:3] != vs[:3]:
        raise UsageError(
            f"q {list(qs)}, k {list(ks)}, v {list(vs)} do not fit",
            hint="k has the dim of q, and all other dimensions of v",
        )
    heads, kv_heads = qs[1], ks[1]
    if heads != kv_heads and not (enable_gqa and kv_heads and heads % kv_heads == 0):
        raise UsageError(
            f"{heads} query heads and {kv_heads} key heads",
            hint="enable_gqa=True takes a multiple" if not enable_gqa else "not a multiple",
        )
    if ks[0] != qs[0]:
        if ks[0] != 1:
            raise UsageError(
                f"q {list(qs)}, k {list(ks)}, v {list(vs)} have two batch sizes",
                hint="k and v may have 1",
            )
        k, v = (x.expand(qs[0], -1, -1, -1) for x in (k, v))
    return k, v


def key_of_mods(
    q: torch.Tensor, k: torch.Tensor, score_mod: Mod | None, mask_mod: Mod | None, block_mask: Any
) -> tuple[str, list[torch.Tensor]]:
    """What the operation calls the modifiers of a call, and the tensors that they capture.

    Raises:
        UsageError: a modifier that is no function, or a block mask for other lengths.
        InputError: one that cannot be traced, or said.
    """
    if score_mod is None and mask_mod is None and block_mask is None:
        return "", []
    for name, mod in (("score_mod", score_mod), ("mask_mod", mask_mod)):
        if mod is not None and not callable(mod):
            raise UsageError(f"{name} is a {type(mod).__name__}, not a function")
    if block_mask is not None:
        seen = _seen_blocks(block_mask, q, k)
        mask_mod = seen if mask_mod is None else _both(mask_mod, seen)
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    score = trace(score_mod, wide, q.device) if score_mod else None
    return op.mods_of(score, trace(mask_mod, None, q.device) if mask_mod else None)


def _as_last(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, score_mod: Mod | None,
    mask_mod: Mod | None, options: tuple[Any, ...],
) -> again.Results | None:  # fmt: skip
    """The results where the call that ran last under these options was like this one. Of what
    modifiers capture `again.last` asks the types and shapes."""
    if score_mod is None and mask_mod is None:
        return again.last(("attention", "", *options), (q, k, v))
    score = mask = None
    if score_mod is not None:
        wide = torch.float64 if q.dtype is torch.float64 else torch.float32
        score = recent(score_mod, wide, q.device)
        if score is None:
            return None
    if mask_mod is not None:
        mask = recent(mask_mod, None, q.device)
        if mask is None:
            return None
    before = op.mods_again(score, mask)
    if before is None:
        return None
    mods, captured = before
    return again.last(("attention", mods, *options), (q, k, v, *captured))


def _both(one: Mod, other: Mod) -> Mod:
    def both(b: Any, h: Any, q: Any, kv: Any) -> Any:
        return one(b, h, q, kv) & other(b, h, q, kv)

    return both


_plain: dict[int, weakref.ref[Any]] = {}  # block masks that say what their mask_mod says


def _seen_blocks(block_mask: Any, q: torch.Tensor, k: torch.Tensor) -> Mod:
    """What a BlockMask lets through, as a mask_mod.

    Mostly that is its own mask_mod. One made by hand may say more: blocks that it does not list
    are not seen, and of those that it calls full every element is.
    """
    lengths = tuple(block_mask.seq_lengths)
    if q.shape[2] > lengths[0] or k.shape[2] > lengths[1]:
        raise UsageError(
            f"block_mask is for lengths {list(lengths)}, q has {q.shape[2]} and k {k.shape[2]}",
            hint="make one with create_block_mask for these lengths",
        )
    known = _plain.get(id(block_mask))
    if known is not None and known() is block_mask:
        return block_mask.mask_mod
    blocks = _states(block_mask)
    from torch.nn.attention.flex_attention import create_block_mask

    own = create_block_mask(
        block_mask.mask_mod, *blocks.shape[:2], *lengths, device=str(blocks.device),
        BLOCK_SIZE=block_mask.BLOCK_SIZE,
    )  # fmt: skip
    if torch.equal(_states(own) > 0, blocks > 0) and not (blocks > _states(own)).any():
        _plain[id(block_mask)] = weakref.ref(block_mask)
        return block_mask.mask_mod
    mask_mod, (rows, columns) = block_mask.mask_mod, block_mask.BLOCK_SIZE
    batches, heads = blocks.shape[:2]

    def block_mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        at = (b * (batches > 1), h * (heads > 1), q_idx // rows, kv_idx // columns)
        state = blocks[at]
        return (state == 2) | ((state == 1) & mask_mod(b, h, q_idx, kv_idx))

    return block_mask_mod


def _states(block_mask: Any) -> torch.Tensor:
    """0 for a block that is not seen, 1 for one that mask_mod decides, 2 for a full one: [batch,
    heads, query blocks, key blocks], i32."""
    listed = [(block_mask.kv_num_blocks, block_mask.kv_indices, 1)]
    if block_mask.full_kv_num_blocks is not None:
        listed.append((block_mask.full_kv_num_blocks, block_mask.full_kv_indices, 2))
    found = torch.zeros_like(block_mask.kv_indices, dtype=torch.int32)
    for count, places, state in listed:
        live = torch.arange(places.shape[-1], device=places.device) < count[..., None]
        one = torch.zeros_like(found).scatter_(-1, places.long(), live.int())
        found = torch.maximum(found, one * state)
    return found


__all__ = ["DTYPES", "attention", "dispatch"]
