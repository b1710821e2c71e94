# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`scaled_dot_product_attention` by the compiler's kernels, wherever it is called.

`register()` overrides torch's operation for tensors on CPUs and NVIDIA GPUs, under the name
"neptune" in the registry of `torch.nn.attention` where torch has one. What an override does not
take (dropout, nested tensors, other dtypes) runs as before. Libraries that choose their
attention by name, as transformers does, find "neptune" there, too.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.autograd import forward_ad

from neptune_mlir.errors import NeptuneError
from neptune_mlir.torch import again
from neptune_mlir.torch.attention import FLOATS, dispatch
from neptune_mlir.torch.cost import by_torch

NAME = "neptune"
_KEYS = ("CPU", "AutogradCPU", "CUDA", "AutogradCUDA")
_SDPA = torch.ops.aten.scaled_dot_product_attention.default
_TAG = "+neptune::attention"


class _Override:
    """Our kernels in torch's dispatcher, as long as this lives."""

    def __init__(self) -> None:
        self._library: Any = torch.library.Library("aten", "IMPL")
        for key in _KEYS:
            self._library.impl("scaled_dot_product_attention", sdpa, key)
        _forget_dispatch()
        # kept programs of torch.compile have either our operation or torch's
        torch.compiler.config.cache_key_tag += _TAG

    def remove(self) -> None:
        self._library._destroy()
        self._library = None
        _forget_dispatch()
        tag = torch.compiler.config.cache_key_tag
        torch.compiler.config.cache_key_tag = tag.replace(_TAG, "")


def _forget_dispatch() -> None:
    """torch.compile's dispatcher in Python keeps where an operation went before."""
    _SDPA._dispatch_cache.clear()


_active: _Override | None = None


def _activate() -> _Override:
    global _active
    _active = _Override()
    return _active


def register() -> None:
    """Let `scaled_dot_product_attention` reach the compiler's kernels, in eager mode, in
    torch.compile and in exported programs; and transformers, if that was imported before.

    `unregister` undoes it. A second call does nothing.
    """
    if "transformers" in sys.modules:
        from neptune_mlir.torch import transformers

        transformers.register()
    if _active is not None:
        return
    registry = _registry()
    if registry is None:
        _activate()
    else:
        registry.register_flash_attention_impl(NAME, register_fn=_activate)
        registry.activate_flash_attention_impl(NAME)


def unregister() -> None:
    """Undo `register`."""
    global _active
    if "transformers" in sys.modules:
        from neptune_mlir.torch import transformers

        transformers.unregister()
    if _active is None:
        return
    registry = _registry()
    if registry is not None and registry.current_flash_attention_impl() == NAME:
        registry.restore_flash_attention_impl()
    else:
        _active.remove()
    _active = None


def _registry() -> Any:
    """torch's registry of attention kernels (2.10 and later have one), or None."""
    known = torch.nn.attention
    return known if hasattr(known, "activate_flash_attention_impl") else None


def sdpa(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """`torch.nn.functional.scaled_dot_product_attention`: ours, or torch's own."""
    door = "sdpa", scale, is_causal, enable_gqa, attn_mask is None
    given = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    if forward_ad._current_level >= 0:  # no operation of ours has tangents
        return by_torch(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if dropout_p == 0.0 and (scale is None or type(scale) is float):
        made = again.last(door, given)
        if made is not None:
            return made[0]
    if type(query) is not torch.Tensor and dropout_p == 0.0 and attn_mask is None:
        found = _over_devices(query, key, value, is_causal, scale)
        if found is not None:
            return found
    if dropout_p == 0.0 and _fits(query, key, value, attn_mask, is_causal, enable_gqa):
        mask = None if attn_mask is None else attn_mask[(None,) * (4 - attn_mask.ndim)]
        factor = query.shape[-1] ** -0.5 if scale is None else float(scale)
        try:
            options = "", factor, is_causal, False
            return dispatch(query, key, value, mask, [], *options, door, given)
        except NeptuneError:  # a target or a shape that the compiler does not take
            pass
    return by_torch(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _over_devices(query: Any, key: Any, value: Any, is_causal: bool, scale: Any) -> Any:
    """Attention of DTensors, in pieces along their length, or None."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    from neptune_mlir.torch.distributed.attention import of_dtensors

    return of_dtensors(query, key, value, is_causal, scale)


def _fits(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None,
    is_causal: bool, enable_gqa: bool,
) -> bool:  # fmt: skip
    if q.dtype not in FLOATS or not q.dtype == k.dtype == v.dtype:
        return False
    if not q.ndim == k.ndim == v.ndim == 4 or k.shape[:3] != v.shape[:3]:
        return False
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or 0 in (*q.shape, *k.shape, *v.shape):
        return False
    grouped = enable_gqa and q.shape[1] % k.shape[1] == 0
    if q.shape[1] != k.shape[1] and not (grouped or k.shape[1] == 1):  # which torch broadcasts
        return False
    return mask is None or (not is_causal and _is_mask(mask, q, k))


def _is_mask(mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> bool:
    full = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    fits = mask.ndim <= 4 and all(
        n in (1, m) for n, m in zip(reversed(mask.shape), reversed(full), strict=False)
    )
    return fits and (mask.dtype is torch.bool or mask.dtype in FLOATS)
