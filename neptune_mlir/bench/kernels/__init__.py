# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Peers that take more than a call: `by_hand` is attention in Triton, `flash4` FlashAttention-4."""
