# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs over several devices: the local program, what travels, and the join."""

from neptune_mlir.frontend.shard.split import ShardSplit, apart, split, split_vjp

__all__ = ["ShardSplit", "apart", "split", "split_vjp"]
