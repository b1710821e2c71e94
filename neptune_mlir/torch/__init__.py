# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiler's door for PyTorch: `attention` with FlexAttention's modifiers, and attention for
servers, and a loss.

    import neptune_mlir.torch as nt

    out = nt.attention(q, k, v, score_mod=alibi, mask_mod=causal)
"""

from neptune_mlir.torch.attention import attention
from neptune_mlir.torch.losses import linear_cross_entropy
from neptune_mlir.torch.sdpa import register, unregister
from neptune_mlir.torch.serving import (
    cascade_attention,
    latent_attention,
    paged_attention,
    ragged_attention,
)

__all__ = [
    "attention", "cascade_attention", "latent_attention", "linear_cross_entropy",
    "paged_attention", "ragged_attention", "register", "unregister",
]  # fmt: skip
