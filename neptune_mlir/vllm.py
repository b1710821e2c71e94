# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's plug-in: makes the attention backend known (docs/serving.md). Imports no compiler."""

from __future__ import annotations

BACKEND = "neptune_mlir.torch.vllm_backend.NeptuneBackend"
NAME = "neptune"  # of the entry point, as VLLM_PLUGINS has it


def register() -> None:
    """Make the backend known as vLLM's "CUSTOM" one. vLLM calls this in each of its processes.

    vLLM offers no choice of backend on CPUs. There ours takes the place of its own, if VLLM_PLUGINS
    names this plug-in.
    """
    from vllm import envs
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CUSTOM, BACKEND)
    if current_platform.is_cpu() and NAME in (envs.VLLM_PLUGINS or ()):
        register_backend(AttentionBackendEnum.CPU_ATTN, BACKEND)
