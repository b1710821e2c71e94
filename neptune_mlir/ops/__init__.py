# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ready programs: each function builds a `Program` from plain math for `neptune_mlir.compile`."""

from neptune_mlir.ops.attention import OPERATORS, Extra, attention, decode_attention, operator
from neptune_mlir.ops.eight_bits import e4m3_attention
from neptune_mlir.ops.losses import cross_entropy, linear_cross_entropy, log_weighted_mean
from neptune_mlir.ops.normalization import (
    absmax_matmul,
    layer_norm,
    layer_norm_matmul,
    rms_norm,
    rms_norm_matmul,
    standardized_norms,
    variance,
)
from neptune_mlir.ops.serving import (
    join_attention,
    latent_attention,
    paged_attention,
    ragged_attention,
)
from neptune_mlir.ops.softmax import (
    logsumexp,
    performer,
    softmax,
    softmax_weighted_sum,
    two_level_softmax,
)

__all__ = [
    "OPERATORS", "Extra", "absmax_matmul", "attention", "cross_entropy", "decode_attention",
    "e4m3_attention",
    "join_attention", "latent_attention", "layer_norm", "layer_norm_matmul", "linear_cross_entropy",
    "log_weighted_mean", "logsumexp", "operator", "paged_attention", "performer",
    "ragged_attention", "rms_norm", "rms_norm_matmul", "softmax",
    "softmax_weighted_sum", "standardized_norms", "two_level_softmax", "variance",
]  # fmt: skip
