# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels over several devices as data: who holds what, what runs, what travels. No compiler."""

from neptune_mlir.runtime.shards.layout import ShardLayout
from neptune_mlir.runtime.shards.plan import ShardPlan

__all__ = ["ShardLayout", "ShardPlan"]
