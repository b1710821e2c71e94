# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of Hugging Face's transformers under the name "neptune".

    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="neptune")

Two tables have to know the name: the one of attention functions, and the one of functions that make
masks. Where only the first does, transformers drops the padding mask without a word.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from neptune_mlir.errors import UsageError
from neptune_mlir.torch.attention import masked_attention
from neptune_mlir.torch.cost import by_torch, is_worth_a_call

NAME = "neptune"


def register() -> None:
    """Make "neptune" an `attn_implementation`. Raises ImportError where transformers is too old."""
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    from transformers.modeling_utils import AttentionInterface

    AttentionMaskInterface.register(NAME, sdpa_mask)
    AttentionInterface.register(NAME, attention_forward)


def unregister() -> None:
    """Undo `register`; models that have the name already keep failing calls, as for any other."""
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    for interface in (AttentionMaskInterface, AttentionInterface):
        interface._global_mapping.pop(NAME, None)  # there is no public removal


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls: [batch, heads, length, dim] in, [batch, length, heads, dim] out.
    On a CPU, torch's own attention runs where it can and a call of ours costs more than it saves.

    Args:
        attention_mask: bool, or numbers that are added; None for all, or for what `is_causal` says.
        softcap: scores become softcap * tanh(score / softcap).
        s_aux: [heads], a logit per head that takes weight and gives nothing (an attention sink).
        position_bias: [batch or 1, heads, q_len, kv_len], added to the scores.

    Raises:
        UsageError: dropout, or a paged cache.
    """
    if dropout:
        raise UsageError(
            "attention with dropout has no kernel", hint="model.eval(), or a dropout of 0"
        )
    if options.get("cache") is not None:
        raise UsageError("attention on a paged cache has no kernel", hint="use sdpa for it")
    if options.get("output_attentions"):
        warnings.warn("attention weights are never stored: None is returned", stacklevel=2)
    # one query, the last one, sees all keys; where a mask is given, it says everything
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = query.shape[2] > 1 and attention_mask is None and causal
    mask = None if attention_mask is None else attention_mask[..., : key.shape[2]]
    if position_bias is not None:
        mask = _joined(mask, position_bias[..., : key.shape[2]])
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    plain = not softcap and s_aux is None and not torch.compiler.is_compiling()
    if plain and not is_worth_a_call(query, key, value):
        return _small(query, key, value, mask, causal, scale), None

    def capped(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return softcap * torch.tanh(score / softcap)

    out = masked_attention(
        query, key, value, mask, capped if softcap else None, scale, causal,
        return_lse=s_aux is not None,
    )  # fmt: skip
    if s_aux is None:
        return out.transpose(1, 2).contiguous(), None
    out, lse = out  # the sink's share of the weights, from the sum of all others
    share = torch.sigmoid(lse - s_aux.to(lse.dtype)[:, None])
    # of rows of all heads, as the result lies: inductor would write it by heads, and copy it
    out = out.transpose(1, 2) * share.transpose(1, 2)[..., None]
    return out.to(query.dtype).contiguous(), None


def _small(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None,
    is_causal: bool, scale: float,
) -> torch.Tensor:  # fmt: skip
    if mask is not None and mask.dtype is not torch.bool:
        mask = mask.to(q.dtype)
    out = by_torch(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=True)
    return out.transpose(1, 2).contiguous()


def _joined(mask: torch.Tensor | None, bias: torch.Tensor) -> torch.Tensor:
    if mask is None:
        return bias
    return torch.where(mask, bias, -torch.inf) if mask.dtype is torch.bool else mask + bias
