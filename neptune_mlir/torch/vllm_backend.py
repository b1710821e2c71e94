# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's attention by the compiler's kernels: the classes that vLLM 0.33 asks for.

`neptune_mlir.vllm.register` makes them known. Decoder attention alone: no encoders, latents,
context parallelism or quantised results. A layer's cache is [pages, kv_heads, page_size, 2 * dim],
keys before values, with any strides: it is read as it stands.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.kv_cache_interface import is_quantized_kv_cache

from neptune_mlir.errors import UsageError
from neptune_mlir.torch.batches import ServerStep, batch_attention, runs_of, store_keys


class NeptuneBackend(AttentionBackend):
    """What vLLM asks before it chooses: what the kernels take."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[Any]] = [
        "auto", "float16", "bfloat16", "fp8", "fp8_e4m3",
    ]  # fmt: skip
    forward_includes_kv_cache_update: bool = False

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[NeptuneImpl]:
        return NeptuneImpl

    @staticmethod
    def get_builder_cls() -> type[NeptuneBuilder]:
        return NeptuneBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(1)]

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True


class NeptuneBuilder(AttentionMetadataBuilder[ServerStep]):
    """Makes the calls of a step once, for all layers that share a table."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        # sequences with as few new tokens as guesses have come first: fewer calls
        self._init_reorder_batch_threshold(1, supports_spec_as_decode=True)

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> ServerStep:  # fmt: skip
        """The calls of a step. Reads nothing back from the device.

        Raises:
            UsageError: attention that is not causal.
        """
        given = common_attn_metadata
        if given.causal is not True:
            raise UsageError("attention that is not causal", hint="another backend of vLLM")
        counts = (given.query_start_loc_cpu[1:] - given.query_start_loc_cpu[:-1]).tolist()
        # columns of the table bound how finely sequences are cut: those in use suffice
        size = self.kv_cache_spec.block_size
        columns = max(1, -(-given.max_seq_len // size))
        table = given.block_table_tensor[:, :columns]
        return ServerStep(runs_of(counts), table, given.seq_lens)


class NeptuneImpl(AttentionImpl[ServerStep]):
    """Attention of one layer."""

    def __init__(
        self, num_heads: int, head_size: int, scale: float, num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None, sliding_window: int | None = None,
        kv_cache_dtype: str = "auto", logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER, kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        if attn_type != AttentionType.DECODER:
            raise UsageError(f"attention of type {attn_type}", hint="another backend of vLLM")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype
        self._of_bytes = is_quantized_kv_cache(kv_cache_dtype)
        slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)
        self._options: dict[str, Any] = {
            "window": sliding_window, "softcap": logits_soft_cap or None, "scale": self.scale,
            "slopes": slopes, "sink": None if sinks is None else sinks.float(),
        }  # fmt: skip

    def _pages(self, kv_cache: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Keys and values of a cache, [pages, page_size, kv_heads, dim] each."""
        if self._of_bytes and kv_cache.dtype != torch.float8_e4m3fn:
            kv_cache = kv_cache.view(torch.float8_e4m3fn)
        return kv_cache.transpose(1, 2).split(self.head_size, -1)

    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:  # fmt: skip
        """Write keys and values of new tokens to their slots; negative slots are padding."""
        k_pages, v_pages = self._pages(kv_cache)
        if key.is_cpu:
            scales = (layer._k_scale, layer._v_scale) if self._of_bytes else (None, None)
            for new, pages, scale in zip((key, value), (k_pages, v_pages), scales, strict=True):
                store_keys(new, pages, slot_mapping, scale)
            return
        from vllm.v1.attention.ops.triton_reshape_and_cache_flash import (
            triton_reshape_and_cache_flash,
        )

        triton_reshape_and_cache_flash(
            key, value, k_pages, v_pages, slot_mapping, self.kv_cache_dtype, layer._k_scale,
            layer._v_scale,
        )  # fmt: skip

    def forward(
        self, layer: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        kv_cache: torch.Tensor, attn_metadata: ServerStep | None, output: torch.Tensor,
        output_scale: torch.Tensor | None = None, output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Attention of a step's tokens.

        Args:
            query: [tokens, heads, dim]; output is alike, and written to. `key` and `value` are in
                the cache by now.
            kv_cache: [pages, kv_heads, page_size, 2 * dim].

        Raises:
            UsageError: a quantised result is asked for.
        """
        if output_scale is not None or output_block_scale is not None:
            raise UsageError("a quantised result of attention", hint="no fused quantisation")
        if attn_metadata is None:  # vLLM measures its memory
            return output.fill_(0)
        for name in ("slopes", "sink"):
            if self._options[name] is not None:
                self._options[name] = self._options[name].to(query.device)
        k_pages, v_pages = self._pages(kv_cache)
        scales = {}
        if self._of_bytes:
            shape = (self.num_kv_heads,)
            scales = {"k_scales": layer._k_scale.expand(shape).contiguous(),
                      "v_scales": layer._v_scale.expand(shape).contiguous()}  # fmt: skip
        rows = (x.view(-1, self.num_heads, self.head_size) for x in (query, output))
        query, into = rows
        batch_attention(query, k_pages, v_pages, attn_metadata, out=into, **scales, **self._options)
        return output
