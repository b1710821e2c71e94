# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs over the processes of a group: `compile` for any, and functions for the usual ones.

    import neptune_mlir.torch.distributed as nd

    out = nd.attention(q, k, v, mesh, is_causal=True, layout=nd.ShardLayout.zigzag(length, 8))
"""

from neptune_mlir.runtime.shards import ShardLayout
from neptune_mlir.torch.distributed.attention import (
    attention,
    decode_attention,
    linear_cross_entropy,
)
from neptune_mlir.torch.distributed.function import ShardedFunction, compile
from neptune_mlir.torch.distributed.kernels import ShardKernels
from neptune_mlir.torch.distributed.run import ShardedKernel

__all__ = [
    "ShardKernels",
    "ShardLayout",
    "ShardedFunction",
    "ShardedKernel",
    "attention",
    "compile",
    "decode_attention",
    "linear_cross_entropy",
]  # fmt: skip
